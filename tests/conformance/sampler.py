"""The whole sampler on any backend, from Python: a client of sampler_runner (usage at its top)."""

import json
import os
import pathlib
import subprocess

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    binary = os.environ.get("HEADRACE_BIN", ROOT / "build/release/headrace")
    return str(pathlib.Path(binary).parent / "sampler_runner")


class Refused(Exception):
    pass


class Sampler:
    def __init__(self, backend="ref", isa=None, threads=1):
        env = dict(os.environ)
        if isa:
            env["HEADRACE_ISA"] = isa
        self.process = subprocess.Popen([program(), backend, str(threads)], env=env,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0

    def run(self, logits, rows, **options):
        """logits float32 [rows,V]; a row is {"sampling": {...}, "prompt": [...], ...}."""
        logits = np.ascontiguousarray(logits, np.float32)
        assert len(logits) == len(rows)
        case = {"vocab": logits.shape[1], "rows": rows} | options
        self.process.stdin.write(json.dumps(case).encode() + b"\n" + logits.tobytes())
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["rows"]
