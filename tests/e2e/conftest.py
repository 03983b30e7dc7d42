"""What the end-to-end tests share: the binary, its JSON, the instruction sets of this machine."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "golden")]
BIN = os.environ.get("HEADRACE_BIN", str(ROOT / "build/release/headrace"))
SMOLLM2 = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"),
                       "headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf")
if not pathlib.Path(BIN).is_absolute():
    BIN = str(ROOT / BIN)


def pytest_configure(config):
    config.addinivalue_line("markers", "sanitize: also run under address and UB sanitizers")
    config.addinivalue_line("markers", "threads: also run under the thread sanitizer")


def instruction_sets():
    """Those that this binary accepts on this machine."""
    out = []
    for name in ("scalar", "avx2", "avx512"):
        probe = headrace("tokenize", "--help")
        assert probe.returncode == 0
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        need = {"scalar": [], "avx2": ["avx2", "fma", "f16c", "bmi2"],
                "avx512": ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"]}[name]
        words = set(flags.split())
        if all(n in words for n in need):
            out.append(name)
    return out


def headrace(*arguments, stdin=None, env=None, timeout=600):
    return subprocess.run([BIN, *map(str, arguments)], input=stdin, capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})})


def generate(model, *arguments, env=None, timeout=600):
    """Answers of `headrace generate --json`, a list of objects."""
    r = headrace("generate", model, "--json", *arguments, env=env, timeout=timeout)
    assert r.returncode == 0, r.stderr
    return [json.loads(line) for line in r.stdout.splitlines()]


@pytest.fixture(scope="session")
def smollm2():
    if not SMOLLM2.exists():
        pytest.skip("the packaged model is missing: tools/setup.sh model")
    return SMOLLM2


class Server:
    """`headrace serve` on a free port of 127.0.0.1: its address, its log, its end."""

    def __init__(self, model, *flags, env=None):
        self.lines, self.address = [], None
        self.process = subprocess.Popen(
            [BIN, "serve", str(model), "--port", "0", "--log-level", "info", *map(str, flags)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            errors="replace", env={**os.environ, **(env or {})})
        self.bound = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            found = re.search(r"(https?://127\.0\.0\.1:\d+)", line)
            if found and not self.address:
                self.address = found[1]
                self.bound.set()
        self.bound.set()

    @property
    def log(self):
        return "\n".join(self.lines)

    def lines_with(self, *parts, count=1, timeout=20):
        """Log lines that hold every part, once there are that many of them."""
        end = time.monotonic() + timeout
        while True:
            found = [x for x in self.lines if all(p in x for p in parts)]
            if len(found) >= count or time.monotonic() > end:
                return found
            time.sleep(0.01)

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def ready(self, timeout=120):
        """Waits until /health says 200; what went wrong is in the message."""
        end = time.monotonic() + timeout
        assert self.bound.wait(timeout) and self.address, self.log
        while self.process.poll() is None and time.monotonic() < end:
            if self.get("/health")[0] == 200:
                return self
            time.sleep(0.02)
        raise AssertionError(f"not ready, exit status {self.process.poll()}\n{self.log}")

    def request(self, path, body=None, headers=None, method=None, timeout=120):
        """Status, headers and bytes of an answer, whatever the status; a body that is no bytes is
        sent as JSON."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        r = urllib.request.Request(self.address + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(r, timeout=timeout) as a:
                return a.status, a.headers, a.read()
        except urllib.error.HTTPError as e:
            with e:
                return e.code, e.headers, e.read()

    def get(self, path, **more):
        return self.request(path, **more)

    def post(self, path, body, **more):
        """Status and parsed JSON."""
        status, _, answer = self.request(path, body, **more)
        return status, json.loads(answer)

    def stop(self, timeout=40):
        """SIGTERM, or worse where that does not help; the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)
        self.process.stderr.close()
        return self.process.returncode


SERVER_FLAGS = ["--max-num-seqs", 16, "--max-num-batched-tokens", 512, "--max-model-len", 2048]


@pytest.fixture(scope="module")
def serve():
    """Starts servers, and ends those that still run: serve(model, *flags) returns at once. They must
    end well, which is where leaks show under sanitizers."""
    running = []

    def start(model, *flags, env=None):
        running.append(Server(model, *flags, env=env))
        return running[-1]
    yield start
    ended = [(s, s.stop()) for s in running if s.process.poll() is None]
    for s, status in ended:
        assert status == 0, (status, s.log[-8000:])


@pytest.fixture(scope="module")
def server(request, serve, smollm2):
    """One server per module, with the packaged model; a module's own SERVER_FLAGS take the place
    of these. It must still be alive at the end."""
    s = serve(smollm2.parent.name, *getattr(request.module, "SERVER_FLAGS", SERVER_FLAGS)).ready()
    yield s
    assert s.process.poll() is None, s.log
