"""The runner programs as child processes, and the legs that they are run on: ref, cpu-<isa>, and the
PJRT plugins by their names in tests/plugins.py."""

import json
import os
import pathlib
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))
import plugins  # noqa: E402


def isas():
    """Instruction sets of this machine that the cpu backend can be told to use."""
    flags = set()
    for line in open("/proc/cpuinfo"):
        if line.startswith("flags"):
            flags = set(line.split())
            break
    found = ["scalar"]
    if {"avx2", "fma", "f16c", "bmi2"} <= flags:
        found.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags:
        found.append("avx512")
    return found


NATIVE = ["ref"] + [f"cpu-{isa}" for isa in isas()]
LEGS = NATIVE + plugins.legs(["pjrt"])
EVERY_LEG = NATIVE + plugins.legs()  # for what is exact, and may break with a compiler's version


class Child:
    """One runner on one leg; it ends when its input does."""

    def __init__(self, program, leg="ref", threads=1):
        backend, _, variant = leg.partition("-")
        env = dict(os.environ)
        if backend == "pjrt":
            env["HEADRACE_PJRT_PLUGIN"] = str(plugins.path(leg))
        elif variant:
            env["HEADRACE_ISA"] = variant
        self.leg, self.asked = leg, None
        self.process = subprocess.Popen([program, backend, str(threads)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0, self.end()

    def end(self):
        """How the program ended, for an assertion that it has not."""
        code = self.process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return f"{self.leg}: the runner ended with {how} after {self.asked}"

    def ask(self, what, head, *blobs):
        """Writes a case and returns its answer's line; `what` names it where the program ends."""
        self.asked = what
        try:
            self.process.stdin.write(json.dumps(head).encode() + b"\n")
            for blob in blobs:
                self.process.stdin.write(blob)
            self.process.stdin.flush()
            return json.loads(self._whole(self.process.stdout.readline()))
        except BrokenPipeError:
            raise AssertionError(self.end()) from None

    def read(self, n):
        return self._whole(self.process.stdout.read(n), n)

    def _whole(self, data, n=1):
        if len(data) < n:
            raise AssertionError(self.end())
        return data
