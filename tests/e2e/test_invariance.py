"""A request's answer is its own: the same ids and the same bits of every log-probability alone, in
company, chunked, on one thread or two, after preemption, under any token budget."""
import json

import pytest
from conftest import STEPS, Bits, generate, headrace

import make_tiny

WANT = ["--seed", 7, "--temperature", 0.9, "--top-p", 0.95, "--frequency-penalty", 0.4,
        "--repetition-penalty", 1.1, "--min-tokens", 5, "--logprobs", 4, "--prompt-logprobs", 3,
        "--max-tokens", 40]
SMALL = ["--max-num-seqs", 16, "--max-model-len", 256, *STEPS]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("invariance") / "model"
    make_tiny.hf(path, "llama3")
    return path


def essence(answer):
    """What must not change: ids and log-probabilities, as the exact text they are printed in."""
    return Bits([answer["prompt_logprobs"], answer["choices"]])


@pytest.fixture(scope="module")
def texts():
    return [chr(97 + s) * 2 + "".join(chr(97 + (i * (s + 3) + s * s) % 26) for i in
                                      range(3 + 17 * s % 110)) for s in range(16)]


@pytest.fixture(scope="module")
def alone(model, texts):
    return [essence(generate(model, "-p", t, *WANT, *SMALL)[0]) for t in texts]


def together(model, texts, *more):
    flags = [f for t in texts for f in ("-p", t)]
    return [essence(a) for a in generate(model, *flags, *WANT, *SMALL, *more)]


@pytest.mark.device
@pytest.mark.sanitize
@pytest.mark.threads
def test_in_company(model, texts, alone):
    assert together(model, texts) == alone


@pytest.mark.parametrize("threads", [1, 2])
def test_threads(model, texts, alone, threads):
    assert together(model, texts, "--threads", threads) == alone


@pytest.mark.device
def test_chunks_of_16(model, texts, alone):
    assert together(model, texts, "--max-num-batched-tokens", 16) == alone


@pytest.mark.parametrize("budget", [15, 317, 586])
def test_budgets_that_are_no_power_of_two(model, texts, alone, budget):
    assert together(model, texts, "--max-num-batched-tokens", budget) == alone
    assert together(model, texts[:3], "--max-num-batched-tokens", budget,
                    "--bucket-padding-gap", 64) == alone[:3]


def test_other_block_sizes(model, texts, alone):
    for size in (1, 7, 64):
        assert together(model, texts[:8], "--block-size", size) == alone[:8]


def test_preemption_keeps_sampling_state(model, texts, alone):
    """Too few blocks for all: sequences push each other out and are computed again (B10)."""
    r = headrace("generate", model, "--json", "--stats", *[f for t in texts for f in ("-p", t)],
                 *WANT, *SMALL, "--kv-cache-memory-bytes", 2 * 2 * 2 * 32 * 4 * 16 * 20)
    assert r.returncode == 0, r.stderr
    assert "0 preemptions" not in r.stderr and "preemptions" in r.stderr
    assert [essence(json.loads(line)) for line in r.stdout.splitlines()] == alone


@pytest.mark.parametrize("isa", ["scalar", "avx2", "avx512", "avx512_bf16", "amx"])
def test_every_instruction_set_is_invariant(model, texts, isa):
    probe = headrace("generate", model, "-p", "a", "--max-tokens", 1, "--isa", isa, *SMALL)
    if probe.returncode and "lacks" in probe.stderr:
        pytest.skip(f"this machine lacks {isa}")
    one = essence(generate(model, "-p", texts[5], *WANT, *SMALL, "--isa", isa)[0])
    assert together(model, texts, "--isa", isa, "--max-num-batched-tokens", 16)[5] == one


def test_real_model(smollm2):
    """SmolLM2, 8-bit activations: the same among 15 others, chunked, on one thread and two."""
    texts = [f"Question {i}: what is {i} times {i + 3}? " + "Think about it. " * (i % 5)
             for i in range(16)]
    flags = ["--max-tokens", 24, "--seed", 3, "--temperature", 0.8, "--logprobs", 2,
             "--max-model-len", 512, "--max-num-seqs", 16]
    every = [f for t in texts for f in ("-p", t)]
    want = essence(generate(smollm2, "-p", texts[4], *flags)[0])
    for more in ([], ["--max-num-batched-tokens", 16], ["--threads", 1], ["--threads", 2]):
        assert essence(generate(smollm2, *every, *flags, *more)[4]) == want, more
