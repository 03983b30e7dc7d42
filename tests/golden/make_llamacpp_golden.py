#!/usr/bin/env python3
"""Makes smollm2_llamacpp.npz: what llama.cpp gives the same 2,000 tokens as smollm2.npz.

A second opinion: llama.cpp has its own GGUF reader, its own dequantisation, rope and attention, so
that a misreading shared by our engine and our NumPy oracle cannot pass. It would round activations
to 8 bits in a way of its own (perplexity then 6.927 for 6.886), so it is first told to write the
model with every tensor dequantised to float32, and scores that, its KV cache in float32 too.

It is built from source, in an environment of its own (ten minutes on one core):

    python3 -m venv /tmp/llama
    CMAKE_ARGS="-DGGML_NATIVE=OFF -DLLAVA_BUILD=OFF -DMTMD_BUILD=OFF" \\
        /tmp/llama/bin/pip install llama-cpp-python==0.3.36
    /tmp/llama/bin/python tests/golden/make_llamacpp_golden.py MODEL.gguf

GGML_NATIVE=OFF keeps to AVX2: the same file on every x86-64.
"""
import ctypes
import pathlib
import sys
import tempfile

import llama_cpp
import numpy as np

HERE = pathlib.Path(__file__).parent
F32, TOP = 0, 64  # ggml's number for float32; how many of the likeliest tokens are kept


def dequantise(path, out):
    options = llama_cpp.llama_model_quantize_default_params()
    options.ftype, options.allow_requantize = F32, True
    if llama_cpp.llama_model_quantize(path.encode(), out.encode(), ctypes.byref(options)):
        sys.exit("llama.cpp could not dequantise the model")


def logprobs(model, row):
    """[T-1,V] in float64: position p predicts token p + 1."""
    model.reset()
    model.eval(row.tolist())
    x = np.array(model.scores[:len(row) - 1], dtype=np.float64)
    m = x.max(axis=-1, keepdims=True)
    return x - m - np.log(np.exp(x - m).sum(axis=-1, keepdims=True))


def score(path, ids):
    model = llama_cpp.Llama(model_path=path, n_ctx=ids.shape[1] + 3, n_batch=512, logits_all=True,
                            n_threads=1, n_threads_batch=1, type_k=F32, type_v=F32, verbose=False)
    chosen, top_ids, top = [], [], []
    for row in ids:
        lp = logprobs(model, row)
        chosen.append(lp[np.arange(len(row) - 1), row[1:]])
        order = np.argsort(-lp, axis=-1, kind="stable")[:, :TOP]
        top_ids.append(order.astype(np.uint16))
        top.append(np.take_along_axis(lp, order, -1))
    return np.array(chosen), np.array(top_ids), np.array(top)


def main(path):
    ids = np.load(HERE / "smollm2.npz")["ids"]
    with tempfile.TemporaryDirectory() as work:
        dequantise(path, f"{work}/f32.gguf")
        chosen, top_ids, top = score(f"{work}/f32.gguf", ids)
    np.savez_compressed(HERE / "smollm2_llamacpp.npz", logprob=chosen.astype(np.float32),
                        top_ids=top_ids, top_logprob=top.astype(np.float16))
    print(f"perplexity {np.exp(-chosen.mean()):.5f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
