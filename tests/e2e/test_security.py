"""The sandbox of `headrace serve` (docs/SECURITY.md): what a process that was taken over could still
do, tried by a logits processor inside it; and that everything a server does, it still does."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess

import pytest
from conftest import BIN

import make_tiny

PROBE = pathlib.Path(BIN).parent / "probe_processor.so"
FLAGS = ["--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--max-model-len", 256]
ASK = {"prompt": "abc", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
TRIED = ["read /etc/passwd", "write /tmp", "socket", "code"]


def landlock():
    """The kernel's version of it; 0 = none."""
    return max(0, ctypes.CDLL(None).syscall(444, None, 0, 1))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("security") / "model"
    make_tiny.hf(path, "llama")
    return path


def tried(server, model):
    """What the probe says, by what it tried."""
    status, answer = server.post("/v1/completions", {**ASK, "model": str(model)})
    assert status == 200, answer
    lines = server.lines_with("probe: ", count=len(TRIED))
    return dict(line.removeprefix("probe: ").rsplit(": ", 1) for line in lines)


def states(server, field):
    """Of every thread, as the kernel tells it."""
    tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
    return {line.split()[1] for t in tasks for line in (t / "status").read_text().splitlines()
            if line.startswith(field + ":")}


def test_an_intruder_reaches_nothing(serve, model):
    if not landlock():
        pytest.skip("this kernel has no Landlock")
    s = serve(model, *FLAGS, "--logits-processor", PROBE).ready()
    assert tried(s, model) == {"read /etc/passwd": "EACCES", "write /tmp": "EACCES",
                               "socket": "EPERM", "code": "EPERM"}
    assert states(s, "Seccomp") == {"2"} and states(s, "NoNewPrivs") == {"1"}
    assert s.lines_with("sandbox: for the native backend, files restricted")
    assert s.get("/metrics")[0] == 200 and s.get("/")[0] == 200
    assert s.stop() == 0


def test_a_program_ends_the_process(serve, model):
    s = serve(model, *FLAGS, "--logits-processor", f"{PROBE}=execve").ready()
    with pytest.raises(OSError):
        s.post("/v1/completions", ASK)
    assert s.process.wait(20) == -signal.SIGSYS
    assert s.lines_with("headrace: the sandbox ended this process: system call execve")


def test_no_sandbox(serve, model):
    s = serve(model, *FLAGS, "--no-sandbox", "--logits-processor", PROBE).ready()
    try:
        assert tried(s, model) == dict.fromkeys(TRIED, "done")
    finally:
        pathlib.Path("/tmp/headrace-probe").unlink(missing_ok=True)
    assert states(s, "Seccomp") == {"0"} and states(s, "NoNewPrivs") == {"0"}
    assert s.stop() == 0


def test_links_of_a_hugging_face_cache(serve, model, tmp_path):
    """A snapshot is a folder of links; what they lead to is the model, its name is looked up."""
    repo = tmp_path / "hub/models--some--tiny"
    blobs, snapshot = repo / "blobs", repo / "snapshots/abc"
    for folder in (blobs, snapshot, repo / "refs"):
        folder.mkdir(parents=True)
    (repo / "refs/main").write_text("abc")
    for i, file in enumerate(sorted(model.iterdir())):
        shutil.copy(file, blobs / str(i))
        (snapshot / file.name).symlink_to(f"../../blobs/{i}")
    s = serve("some/tiny", *FLAGS, env={"HF_HUB_CACHE": str(tmp_path / "hub")}).ready()
    assert s.post("/v1/completions", {**ASK, "sampling_trace": True})[0] == 200
    assert states(s, "Seccomp") == {"2"}
    assert s.stop() == 0


# ---- the binary --------------------------------------------------------------------------------

def readelf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], capture_output=True, text=True,
                          check=True).stdout


@pytest.mark.parametrize("name", ["headrace", "libheadrace.so"])
def test_the_binary_is_hardened(name):
    path = str(pathlib.Path(BIN).parent / name)
    dynamic, segments, symbols = readelf("-d", path), readelf("-lh", path), readelf("--dyn-syms", path)
    assert "BIND_NOW" in dynamic and "NOW" in dynamic and "GNU_RELRO" in segments
    assert "DYN" in segments and ("PIE" in dynamic or name != "headrace")
    assert "TEXTREL" not in dynamic and "RPATH" not in dynamic
    stack = next(x for x in segments.splitlines() if "GNU_STACK" in x)
    assert " RW " in stack and not any(" RWE " in x for x in segments.splitlines())
    assert "__stack_chk_fail" in symbols
    assert {"__memcpy_chk", "__vsnprintf_chk"} & set(symbols.replace("@", " ").split())


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="Intel's way of checking jumps")
def test_jumps_are_checked_in_every_object():
    """The linker marks a program only where the C library's own start files are marked, too."""
    notes = readelf("-n", pathlib.Path(BIN).parent / "libheadrace.a").split("File: ")[1:]
    without = [n.split()[0] for n in notes if "IBT, SHSTK" not in n]
    assert len(notes) > 200 and not without
