"""Mixtures of experts: a row's numbers come from its own experts alone, so an answer is its own to
the bit whoever shares the step; and what is not supported is refused by name."""
import json

import numpy as np
import pytest
from conftest import STEPS, Bits, generate, headrace

import make_tiny
from test_logits import DEVICES, PROMPT, files, rms, run  # noqa: F401
import reference

WANT = ["--seed", 7, "--temperature", 0.9, "--logprobs", 4, "--prompt-logprobs", 3, "--max-tokens", 12,
        "--max-num-seqs", 16, "--max-model-len", 128, *STEPS]
TEXTS = ["".join(chr(97 + (i * (s + 3) + s * s) % 26) for i in range(2 + 17 * s)) for s in range(6)]


def answers(model, texts, *more):
    got = generate(model, *[f for t in texts for f in ("-p", t)], *WANT, *more)
    return [Bits([a["prompt_logprobs"], a["choices"]]) for a in got]


@pytest.mark.parametrize("key", [("hf", "qwen3_moe"), ("hf", "mixtral", "bf16"),
                                 ("gguf_file", "mixtral", "Q8_0"), ("gguf_file", "qwen3_moe", "Q4_0")],
                         ids="-".join)
def test_answers_are_their_own(files, key):  # noqa: F811
    model = files(*key)[0]
    want = [answers(model, [t])[0] for t in TEXTS]
    for more in ([], ["--threads", 2, "--max-num-batched-tokens", 16], ["--isa", DEVICES[-1]]):
        assert answers(model, TEXTS, *more) == want, more


@pytest.mark.parametrize("device", DEVICES)
def test_8_bit_activations(files, device):  # noqa: F811
    """Q8_0 experts meet int8 rows: the truth of such rows is nearer than that of float rows."""
    model, config, tensors = files("gguf_file", "mixtral", "Q8_0")
    truth = reference.Model(config, tensors, np.float64, "int8").logprobs(PROMPT)[:-1]
    plain = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device)
    assert answer["numerics"]["rows"] == "int8 per 32"
    assert rms(ours - truth) <= 0.25 * rms(plain - truth)


def test_refusals(files):  # noqa: F811
    model = files("hf", "mixtral")[0]
    r = headrace("generate", model, "-p", "a", "--quantization", "w8a8")
    assert r.returncode == 1 and "a mixture of experts is not supported" in r.stderr
    (model / "config.json").write_text(json.dumps({**make_tiny.FAMILIES["mixtral"],
                                                   "num_local_experts": 6}))
    r = headrace("generate", model, "-p", "a")
    assert r.returncode == 1 and "gate.weight' is [5,256]" in r.stderr, r.stderr
