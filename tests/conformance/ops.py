"""Single ops on any backend, from Python: a client of op_runner (usage at the top of op_runner.c).

    with Runner("cpu-avx2") as r:
        (y,) = r.run("add", [Input(a, live="tokens"), Input(b)], live={"tokens": 3})

Arrays are NumPy; bf16 is a uint16 array given with dtype="bf16", and comes back as one.
"""

import functools
import os
import pathlib

import numpy as np

from child import ROOT, Child

NAMES = {"float32": "f32", "float16": "f16", "int8": "i8", "uint8": "ui8", "uint16": "ui16",
         "int32": "i32", "uint32": "ui32"}
DTYPES = {"f32": np.float32, "bf16": np.uint16, "f16": np.float16, "i8": np.int8, "ui8": np.uint8,
          "ui16": np.uint16, "i32": np.int32, "ui32": np.uint32}


def program():
    """The built op_runner: HEADRACE_OP_RUNNER, or the neighbour of HEADRACE_BIN."""
    binary = os.environ.get("HEADRACE_BIN", ROOT / "build/release/headrace")
    return os.environ.get("HEADRACE_OP_RUNNER", str(pathlib.Path(binary).parent / "op_runner"))


class Operand:
    def __init__(self, head, *blobs):
        self.head = head
        self.blobs = [np.ascontiguousarray(b).tobytes() for b in blobs]


def Input(array, dtype=None, live=None):
    array = np.asarray(array)
    head = {"dtype": dtype or NAMES[array.dtype.name], "shape": list(array.shape)}
    if live:
        head["live"] = live
    return Operand(head, array)


def Weight(raw, format, shape, scale=None):
    """Rows as they lie in a checkpoint; scale: f32 per row, for I8C."""
    blobs = [raw] if scale is None else [raw, np.asarray(scale, np.float32)]
    return Operand({"format": format, "shape": list(shape)}, *blobs)


def Const(array):
    array = np.asarray(array, np.float32)
    return Operand({"const": True, "shape": list(array.shape)}, array)


class OpError(Exception):
    def __init__(self, answer):
        super().__init__(answer["error"])
        self.status = answer["status"]


class Runner(Child):
    def __init__(self, leg="ref", threads=1):
        super().__init__(program(), leg, threads)

    def run(self, op, operands, attrs=None, live=None, shape=None):
        """Results as arrays; OpError when the case is refused."""
        case = {"op": op, "in": [o.head if o else None for o in operands]}
        case |= {"attrs": attrs} if attrs else {}
        case |= {"live": live} if live else {}
        case |= {"shape": list(shape)} if shape else {}
        answer = self.ask(op, case, *(blob for o in operands if o for blob in o.blobs))
        if "error" in answer:
            raise OpError(answer)
        return [np.frombuffer(self.read(r["bytes"]), DTYPES[r["dtype"]]).reshape(r["shape"])
                for r in answer["out"]]


@functools.cache
def flushes(leg):
    """Whether float arithmetic takes denormals for zero there, as a device may."""
    tiny = np.full((1, 4), 1e-39, np.float32)
    with Runner(leg) as r:
        (y,) = r.run("add", [Input(tiny), Input(tiny)])
    return not y.any()


def to_bf16(x):
    """float32 to bfloat16 bits, nearest even."""
    u = np.asarray(x, np.float32).view(np.uint32)
    rounded = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FC0), rounded)


def from_bf16(h):
    return (np.asarray(h, np.uint16).astype(np.uint32) << 16).view(np.float32)

