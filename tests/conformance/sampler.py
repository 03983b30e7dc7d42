"""The whole sampler on any backend, from Python: a client of sampler_runner (usage at its top)."""

import os
import pathlib

import numpy as np

from child import ROOT, Child



def program():
    binary = os.environ.get("HEADRACE_BIN", ROOT / "build/release/headrace")
    return str(pathlib.Path(binary).parent / "sampler_runner")


class Refused(Exception):
    pass


class Sampler(Child):
    def __init__(self, leg="ref", threads=1):
        super().__init__(program(), leg, threads)

    def run(self, logits, rows, **options):
        """logits float32 [rows,V]; a row is {"sampling": {...}, "prompt": [...], ...}."""
        logits = np.ascontiguousarray(logits, np.float32)
        assert len(logits) == len(rows)
        case = {"vocab": logits.shape[1], "rows": rows} | options
        answer = self.ask("the sampler", case, logits.tobytes())
        if "error" in answer:
            raise Refused(answer["error"])
        return answer["rows"]
