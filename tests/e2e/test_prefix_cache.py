"""Prefix caching never shows in an answer: ids and bits of every log-probability are those of
prompts computed anew, whatever is shared, in whatever order, chunked, preempted or forgotten."""
import json
import re

import pytest
from conftest import STEPS, Bits, generate, headrace

import make_tiny

OFF = "--no-enable-prefix-caching"
WANT = ["--seed", 11, "--temperature", 0.8, "--frequency-penalty", 0.3, "--logprobs", 3,
        "--max-tokens", 30, "--max-num-seqs", 16, "--max-model-len", 256, *STEPS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("prefix") / "model"
    make_tiny.hf(path, "llama3")
    return path


def essence(answers):
    return [Bits([a["prompt_logprobs"], a["choices"]]) for a in answers]


def prompts(n):
    """Families that share 16, 47, 48 and 100 letters, some prompts twice."""
    stem = "".join(chr(97 + i * i % 26) for i in range(100))
    shared = [stem[:k] for k in (16, 47, 48, 100)]
    return [f for i in range(n)
            for f in ("-p", shared[i % 4] + ("xyz" * (i // 4))[: i // 4 * 2 % 7])]


@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("more", [pytest.param([], marks=pytest.mark.device), ["--n", 3],
                                  ["--prompt-logprobs", 2], ["--max-num-batched-tokens", 17], ["--block-size", 5],
                                  ["--threads", 2]], ids=str)
def test_shared_prompts(model, more):
    ask = [*prompts(16), *WANT, *more]
    assert essence(generate(model, *ask)) == essence(generate(model, *ask, OFF))


@pytest.mark.device
def test_under_pressure(model):
    """Blocks for two or three sequences: prefixes are found, lost and found again."""
    few = ["--kv-cache-memory-bytes", 2 * 2 * 2 * 32 * 4 * 16 * 20]
    ask = [*prompts(16), *prompts(16), *WANT]
    want = essence(generate(model, *ask, OFF))
    r = headrace("generate", model, "--json", "--stats", *ask, *few)
    assert r.returncode == 0, r.stderr
    assert "preemptions" in r.stderr and " 0 preemptions" not in r.stderr
    assert essence(json.loads(line) for line in r.stdout.splitlines()) == want


def prefill_tokens(model, *arguments):
    r = headrace("generate", model, "--stats", *arguments)
    assert r.returncode == 0, r.stderr
    return int(re.search(r"prefill .*\((\d+) tokens\)", r.stderr + r.stdout)[1])


@pytest.mark.device
def test_it_computes_less(model):
    """Sixteen letters shared by two prompts of twenty tokens are computed once."""
    ask = ["-p", "abcdefghijklmnopqrst", "-p", "abcdefghijklmnopqrsu", *WANT, "--no-special",
           "--max-tokens", 1]
    assert prefill_tokens(model, *ask, OFF) == 40
    assert prefill_tokens(model, *ask) == 24


def test_real_model(smollm2):
    """A long system prompt before eight questions, 8-bit activations."""
    system = "You are a careful clerk. " + "Answer in one short sentence. " * 12
    ask = [f for i in range(8) for f in ("-p", f"{system}What is {i} plus {i * 3}?")]
    ask += ["--max-tokens", 16, "--seed", 3, "--logprobs", 2, "--max-model-len", 512,
            "--max-num-seqs", 8]
    want = essence(generate(smollm2, *ask, OFF))
    assert essence(generate(smollm2, *ask)) == want
    assert essence(generate(smollm2, *ask, "--max-num-batched-tokens", 64)) == want
