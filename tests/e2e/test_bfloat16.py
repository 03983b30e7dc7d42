"""`--dtype bfloat16` natively: accurate as the same mathematics rounded to bfloat16 after every
operation is, near the reference, and an answer stays a request's own."""
import pathlib
import re

import numpy as np
import pytest
from conftest import STEPS, Bits, generate, instruction_sets

import make_tiny
import plugins
import reference
from test_logits import DEVICES, PROMPT, files, rms, run  # noqa: F401

BF16 = ["--dtype", "bfloat16"]
TEXTS = ["".join(chr(97 + (i * (s + 3) + s * s) % 26) for i in range(2 + 37 * s)) for s in range(6)]
SMALL = ["--max-num-seqs", 16, "--max-model-len", 256, *STEPS]


def check(model, config, tensors, device):
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    half = reference.Model(config, tensors, np.float32, half=True).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device, *BF16)
    assert (answer["numerics"]["activation"], answer["numerics"]["kv"]) == ("bf16", "bf16")
    off, own = rms(ours - truth), rms(half - truth)
    assert off <= 2 * own, (off, own)
    assert off >= own / 4, "these rows were not rounded"


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["llama_bias", "qwen2", "qwen3", "phi4_mini", "gemma2", "gemma3"])
def test_family(files, family, device):  # noqa: F811
    check(*files("hf", family, "bf16"), device)


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_K"])
def test_other_weights(files, kind):  # noqa: F811
    check(*files("gguf_file", "llama", kind), DEVICES[-1])


def test_int8_linears(tmp_path):
    """w8a8: the bias is added in bfloat16, to a product that was cast to it."""
    config, tensors, integers = make_tiny.w8a8(tmp_path, "qwen2")
    truth = reference.Model(config, tensors, integers=integers).logprobs(PROMPT)[:-1]
    half = reference.Model(config, tensors, np.float32, half=True,
                           integers=integers).logprobs(PROMPT)[:-1]
    ours, answer = run(tmp_path, DEVICES[-1], *BF16)
    assert answer["numerics"]["rows"] == "int8 per row"
    assert rms(ours - truth) <= 2 * rms(half - truth)


@pytest.mark.skipif(bool(plugins.lacking("pjrt")), reason=str(plugins.lacking("pjrt")))
def test_the_plugin_says_the_same(files):  # noqa: F811
    model, config, tensors = files("hf", "qwen3", "bf16")
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    half = reference.Model(config, tensors, np.float32, half=True).logprobs(PROMPT)[:-1]
    natively, plugin = run(model, DEVICES[-1], *BF16)[0], run(model, "pjrt", *BF16)[0]
    assert rms(natively - plugin) <= 3 * rms(half - truth)


@pytest.mark.parametrize("device", DEVICES[1:])
def test_answers_are_their_own(files, device):  # noqa: F811
    model = files("hf", "qwen2", "bf16")[0]

    def answers(texts, *more):
        got = generate(model, *[f for t in texts for f in ("-p", t)], "--max-tokens", 16,
                       "--ignore-eos", "--seed", 7, "--temperature", 0.9, "--logprobs", 4,
                       "--prompt-logprobs", 3, *SMALL, *BF16, "--isa", device, *more)
        return [Bits([a["prompt_logprobs"], a["choices"]]) for a in got]

    want = [answers([t])[0] for t in TEXTS]
    for more in ([], ["--threads", 2, "--max-num-batched-tokens", 16], ["--block-size", 7]):
        assert answers(TEXTS, *more) == want, more


@pytest.mark.parametrize("isa", [i for i in instruction_sets() if i.startswith(("avx512", "amx"))])
def test_products_of_bf16(files, isa):  # noqa: F811
    """Both paths are near the truth, and the record says which products were taken."""
    model, config, tensors = files("hf", "llama_bias", "bf16")
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    half = reference.Model(config, tensors, np.float32, half=True).logprobs(PROMPT)[:-1]
    ours, answer = run(model, DEVICES[-1], *BF16, "--isa", isa)
    products = "f32" if isa == "avx512" else "bf16"
    assert (answer["numerics"]["isa"], answer["numerics"]["kernels"]["BF16"]) == (isa, products)
    assert rms(ours - truth) <= 2 * rms(half - truth)
    whole = run(model, DEVICES[-1], "--dtype", "float32", "--isa", isa)[1]
    assert whole["numerics"]["kernels"]["BF16"] == "f32"


def test_products_of_bf16_unasked(files):  # noqa: F811
    """By the processor alone: where bench/results/bf16.txt says that they are the faster."""
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    known = [re.search(rf"^{name}\s*: (.*)$", cpu, re.M) for name in ("vendor_id", "cpu family")]
    pays = all(known) and [m[1] for m in known] == ["AuthenticAMD", "26"]
    best = [i for i in instruction_sets() if i != "amx"][-1]
    answer = generate(files("hf", "qwen2", "bf16")[0], "-p", "a", "--max-tokens", 1, *SMALL)[0]
    assert answer["numerics"]["isa"] == (best if pays or best != "avx512_bf16" else "avx512")
