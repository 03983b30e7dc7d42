"""What the end-to-end tests share: the binary, its JSON, the instruction sets of this machine."""
import json
import os
import pathlib
import subprocess
import sys

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
