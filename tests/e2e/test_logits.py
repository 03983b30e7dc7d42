"""Whole models against NumPy in float64: every family, every weight format, every instruction set.

The rule: our error is at most four times that of the same mathematics in NumPy float32. With 8-bit
activations the truth is a float64 model whose linear inputs are rounded in the same way.
"""
import numpy as np
import pytest
from conftest import generate, instruction_sets

import make_tiny
import plugins
import reference

PROMPT = [(i * i * 7 + 3 * i) % 200 for i in range(24)]
DEVICES = ["ref"] + instruction_sets()


def table(answer, n):
    """prompt_logprobs as an array [positions, V]; position p predicts token p + 1."""
    out = np.full((n - 1, make_tiny.V), np.nan)
    for p, entry in enumerate(answer["prompt_logprobs"][1:]):
        for top in entry["top"]:
            out[p, top["token_id"]] = top["logprob"]
    assert not np.isnan(out).any()
    return out


def run(model, device, *more):
    where = ["--device", "ref"] if device == "ref" else ["--isa", device]
    if device in plugins.FETCHED:
        where = [*plugins.flags(device), *plugins.one_bucket(32, 8)]
    answer, = generate(model, "--prompt-ids", ",".join(map(str, PROMPT)), "--max-tokens", 1,
                       "--prompt-logprobs", make_tiny.V, "--max-logprobs", make_tiny.V,
                       "--max-num-seqs", 8, "--max-num-batched-tokens", 32, "--max-model-len", 64,
                       "--temperature", 0, *where, *more)
    return table(answer, len(PROMPT)), answer


def rms(x):
    return float(np.sqrt(np.mean(np.square(x))))


def compare(model, config, tensors, device, rows):
    truth = reference.Model(config, tensors, np.float64, rows).logprobs(PROMPT)[:-1]
    single = reference.Model(config, tensors, np.float32, rows).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device, "--dtype", "float32" if rows == "float" else "auto")
    assert rms(ours - truth) <= 4 * rms(single - truth), (rms(ours - truth), rms(single - truth))
    last = reference.Model(config, tensors, np.float64, rows).logprobs(PROMPT)[-1]
    best = np.sort(last)[-2:]
    if best[1] - best[0] > 0.01:
        assert answer["choices"][0]["token_ids"] == [int(last.argmax())]
    return answer


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made, root = {}, tmp_path_factory.mktemp("tiny")

    def get(maker, *key):
        if key not in made:
            path = root / "-".join(map(str, key))
            made[key] = (path, *getattr(make_tiny, maker)(path, *key))
        return made[key]
    return get


@pytest.mark.sanitize
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", make_tiny.FAMILIES)
def test_family(files, family, device):
    compare(*files("hf", family), device, "float")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype,shards", [("f16", 1), ("bf16", 1), ("f32", 3)])
def test_stored_dtype(files, dtype, shards, device):
    compare(*files("hf", "llama", dtype, shards), device, "float")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", make_tiny.TYPES)
def test_gguf_float_activations(files, kind, device):
    compare(*files("gguf_file", "llama", kind), device, "float")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", make_tiny.TYPES[3:])
def test_gguf_8_bit_activations(files, kind, device):
    """Rounding to 8 bits is a step function: where two float32 paths differ in the last bit, a value
    may round to its other neighbour. So the bound is the step's own size, not float32's error."""
    model, config, tensors = files("gguf_file", "llama", kind)
    truth = reference.Model(config, tensors, np.float64, "int8").logprobs(PROMPT)[:-1]
    plain = reference.Model(config, tensors, np.float64, "float").logprobs(PROMPT)[:-1]
    ours, answer = run(model, device)
    assert answer["numerics"]["rows"] == "int8 per 32"
    assert rms(ours - truth) <= 0.25 * rms(plain - truth), (rms(ours - truth), rms(plain - truth))


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "phi3", "phi4_mini", "gemma2", "gemma3",
                                    "qwen3_moe", "mixtral"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0", "Q4_K"])
def test_gguf_families(files, family, kind):
    compare(*files("gguf_file", family, kind), DEVICES[-1], "float")


@pytest.mark.parametrize("family", ["llama", "llama3", "llama_linear", "llama_yarn", "mistral_window",
                                    "phi3_su", "gemma3"])
def test_far_positions(files, family):
    """Rope scaling shows only far out, and so do keys behind a window: log-probabilities of a
    2,100-token prompt."""
    model, config, tensors = files("hf", family)
    ids = [(i * 31 + i // 7) % 250 for i in range(2100)]
    answer, = generate(model, "--prompt-ids", ",".join(map(str, ids)), "--max-tokens", 1,
                       "--prompt-logprobs", 0, "--max-num-seqs", 64, "--max-model-len", 2200)
    ours = np.array([e["logprob"] for e in answer["prompt_logprobs"][1:]])
    at = (np.arange(2099), ids[1:])
    truth = reference.Model(config, tensors, longest=2200).logprobs(ids)[at]
    single = reference.Model(config, tensors, np.float32, longest=2200).logprobs(ids)[at]
    assert rms(ours[1900:] - truth[1900:]) <= 4 * rms(single[1900:] - truth[1900:])
