"""What the end-to-end tests share: the binary, its JSON, the instruction sets of this machine.

HEADRACE_TEST_DEVICE=LEG (plugins.SUITES) runs on a PJRT device what is marked `device`: commands that
compute are given the leg's flags, and the packaged model is a small one of the same tokenizer.
"""
import atexit
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "golden")]
import make_tiny  # noqa: E402
import plugins  # noqa: E402

BIN = os.environ.get("HEADRACE_BIN", str(ROOT / "build/release/headrace"))
DEVICE = os.environ.get("HEADRACE_TEST_DEVICE")
PACKAGED = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"),
                       "headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf")
SMOLLM2 = PACKAGED
if not pathlib.Path(BIN).is_absolute():
    BIN = str(ROOT / BIN)


def pytest_configure(config):
    config.addinivalue_line("markers", "sanitize: also run under address and UB sanitizers")
    config.addinivalue_line("markers", "threads: also run under the thread sanitizer")
    config.addinivalue_line("markers", "device: also run on PJRT devices")
    if DEVICE:
        small_packaged_model()


def small_packaged_model():
    """Where the packaged model is looked for, from here on and in every command."""
    global SMOLLM2
    root = pathlib.Path(tempfile.mkdtemp(prefix="headrace-small-"))
    atexit.register(shutil.rmtree, root, True)
    SMOLLM2 = root / PACKAGED.relative_to(PACKAGED.parents[3])
    os.environ["XDG_CACHE_HOME"] = str(root)
    if PACKAGED.exists():
        SMOLLM2.parent.mkdir(parents=True)
        make_tiny.like_packaged(SMOLLM2, PACKAGED)


# Where programs take a second each to compile: few of them.
STEPS = ["--max-num-batched-tokens", 64] if DEVICE else []


def placed(command, *arguments):
    """A command line, on the leg's device where it computes and names no other."""
    own = {"--device", "--isa", "--threads"} & set(arguments)
    if DEVICE and command in ("generate", "serve") and not own:
        return [command, *arguments, *plugins.suite_flags(DEVICE)]
    return [command, *arguments]


def instruction_sets():
    """Those that this binary accepts on this machine."""
    out = []
    for name in ("scalar", "avx2", "avx512", "avx512_bf16", "amx"):
        probe = headrace("tokenize", "--help")
        assert probe.returncode == 0
        flags = pathlib.Path("/proc/cpuinfo").read_text()
        avx512 = ["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"]
        need = {"scalar": [], "avx2": ["avx2", "fma", "f16c", "bmi2"], "avx512": avx512,
                "avx512_bf16": [*avx512, "avx512_bf16"],
                "amx": [*avx512, "amx_tile", "amx_int8", "amx_bf16"]}[name]
        words = set(flags.split())
        if all(n in words for n in need):
            out.append(name)
    return out


def headrace(*arguments, stdin=None, env=None, timeout=600):
    return subprocess.run([BIN, *map(str, placed(*arguments) if arguments else [])], input=stdin, capture_output=True, text=True,
                          timeout=timeout, env={**os.environ, **(env or {})})


class Bits:
    """What must not change with a request's circumstances: natively to the bit. A plugin's programs
    add in another order from bucket to bucket: there a log-probability may be off by what float32
    leaves of logits of about ten, and another token may be the greedy one where two are that near."""

    NOISE = 1e-4

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return json.dumps(self.value)

    def __eq__(self, other):
        if not DEVICE:
            return repr(self) == repr(other)
        return self.near(self.value, other.value)

    def near(self, a, b):
        if isinstance(a, dict) and isinstance(b, dict):
            if a.get("token_ids") != b.get("token_ids") and a.get("logprobs"):
                return self.parted(a, b)
            return a.keys() == b.keys() and all(
                (self.ranked if k == "top" else self.near)(a[k], b[k]) for k in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(self.near, a, b))
        if isinstance(a, float) and isinstance(b, float):
            return abs(a - b) <= self.NOISE
        return a == b

    def ranked(self, a, b):
        """The likeliest tokens: at every rank as likely; another token only where it is that near."""
        if not self.near([t["logprob"] for t in a], [t["logprob"] for t in b]):
            return False
        there = {t["token_id"]: t["logprob"] for t in b}
        return all(abs(t["logprob"] - there.get(t["token_id"], b[-1]["logprob"])) <= self.NOISE
                   for t in a)

    def parted(self, a, b):
        """Two choices alike up to the first token that is another, which is nearly as likely."""
        n = next(i for i, (x, y) in enumerate(zip(a["token_ids"], b["token_ids"])) if x != y)
        here = {t["token_id"]: t["logprob"] for t in a["logprobs"][n]["top"]}
        gap = here[a["token_ids"][n]] - here.get(b["token_ids"][n], -math.inf)
        return self.near(a["logprobs"][:n], b["logprobs"][:n]) and abs(gap) <= self.NOISE


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
            [BIN, *map(str, placed("serve", model, "--port", 0, "--log-level", "info", *flags))],
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
