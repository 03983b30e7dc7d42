"""Known faults of engines like this one, through the command line: each kind with its right result.
The letters name the report (A sampler, B shapes and caches, C text, E limits)."""
import json

import numpy as np
import pytest
from conftest import Bits, generate, headrace
from safetensors.numpy import save_file

import make_tiny

SMALL = ["--max-num-seqs", 8, "--max-num-batched-tokens", 64, "--max-model-len", 256]
GREEDY = ["--temperature", 0, "--max-tokens", 7]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "model"
    make_tiny.hf(path, "qwen3")
    return path


def tokens(model, *flags):
    return [a["choices"][0]["token_ids"] for a in generate(model, *SMALL, *flags)]


def refused(model, *flags, naming):
    r = headrace("generate", model, "--json", "-p", "abc", *SMALL, *flags)
    assert r.returncode == 1 and naming in r.stderr, (flags, r.returncode, r.stderr)
    assert not r.stdout


@pytest.mark.sanitize
def test_a01_tiny_temperature(model):
    want = tokens(model, "-p", "hello", *GREEDY)
    for t in ("1e-8", "1e-6", "1e-5"):
        assert tokens(model, "-p", "hello", "--temperature", t, "--max-tokens", 7) == want
    hot = tokens(model, "-p", "hello", "--temperature", "1e-4", "--seed", 1, "--max-tokens", 7)
    assert hot == want  # raised to 0.01, still far colder than these logits' gaps


@pytest.mark.parametrize("flag,value", [
    ("--top-p", 0), ("--top-p", -0.1), ("--top-p", 1.5), ("--top-p", "nan"), ("--min-p", 1.1),
    ("--min-p", -1), ("--temperature", -1), ("--temperature", 2.5), ("--temperature", "inf"),
    ("--top-k", -2), ("--repetition-penalty", 0), ("--repetition-penalty", "inf"),
    ("--presence-penalty", 2.1), ("--frequency-penalty", -2.1), ("--n", 0), ("--n", 1025),
    ("--max-tokens", -5), ("--min-tokens", -1), ("--logprobs", 21), ("--logprobs", -2),
    ("--prompt-logprobs", 21), ("--seed", -2)])
def test_a03_ranges(model, flag, value):
    field = flag[2:].replace("-", "_")
    if (flag, value) == ("--seed", -2):
        tokens(model, "-p", "a", flag, value, *GREEDY)  # any int64 is a seed
        return
    refused(model, flag, value, naming=field)


@pytest.mark.sanitize
def test_a10_ids_outside_the_vocabulary(model):
    v = make_tiny.V
    for flag, field in (("--stop-token-ids", "stop_token_ids"),
                        ("--allowed-token-ids", "allowed_token_ids"),
                        ("--logprob-token-ids", "logprob_token_ids")):
        for bad in (10000000, -1, v):
            refused(model, flag, bad, naming=field)
        r = headrace("generate", model, "-p", "a", *SMALL, flag, v - 1, *GREEDY)
        assert r.returncode == 0, r.stderr
    for bad in (f"{v}:5", "-1:5", "10000000:5"):
        refused(model, "--logit-bias", bad, naming="logit_bias")
    for bad in ("-1", str(v), "5279552648203111001"):
        r = headrace("generate", model, "--prompt-ids", bad, *SMALL)
        assert r.returncode == 1 and "prompt" in r.stderr


@pytest.mark.device
def test_a13_what_penalties_see(model):
    prompt = ["--prompt-ids", ",".join(["65"] * 30), "--temperature", 0, "--max-tokens", 1,
              "--logprobs", 0]
    plain, = generate(model, *SMALL, *prompt)
    late, = generate(model, *SMALL, *prompt, "--presence-penalty", 2, "--frequency-penalty", 2)
    assert late["choices"] == plain["choices"]
    favoured, = tokens(model, *prompt, "--logit-bias", "65:60")
    assert favoured == [65]
    punished, = tokens(model, *prompt, "--logit-bias", "65:60", "--repetition-penalty", 50)
    assert punished != [65]


def with_nan(path, token):
    """A checkpoint in which one token's embedding is not a number."""
    _, tensors = make_tiny.hf(path, "llama")
    tensors["model.embed_tokens.weight"][token] = np.nan
    save_file(tensors, path / "model.safetensors")
    return path


@pytest.mark.device
@pytest.mark.sanitize
def test_a18_a_row_of_nan_fails_alone(tmp_path):
    """It ends with "error", its neighbours and whoever gets its cache blocks next are untouched."""
    model = with_nan(tmp_path / "nan", 90)
    bad = "65,90,66,67,68,69,70,71,72"
    cache = ["--kv-cache-memory-bytes", 2 * 2 * 2 * 32 * 4 * 16 * 16]
    for _ in range(2):
        texts = ["p{", *["abcde"] * 3, "qz{z", *["abcde"] * 6, "{", *["abcde"] * 6]
        nan_text = make_tiny.tokenizer().decode([90])
        answers = generate(model, *SMALL, *cache, "--logprobs", 2, *GREEDY, *[
            f for t in texts for f in ("-p", t.replace("{", nan_text))])
        plain, = generate(model, *SMALL, "-p", "abcde", "--logprobs", 2, *GREEDY)
        for text, answer in zip(texts, answers):
            choice = answer["choices"][0]
            if "{" in text:
                assert choice["finish_reason"] == "error" and choice["token_ids"] == []
            else:
                assert Bits(choice) == Bits(plain["choices"][0])
    answer, = generate(model, *SMALL, "--prompt-ids", bad, *GREEDY)
    assert answer["choices"][0]["finish_reason"] == "error"


@pytest.mark.parametrize("budget", [317, 586, 15])
def test_b01_budgets(model, budget):
    for n in (1, 16, 17, 250):
        flags = ["--prompt-ids", ",".join(str(i % 200) for i in range(n)), "--temperature", 0,
                 "--max-tokens", 5, "--max-model-len", 256]
        want, = generate(model, *flags)
        got, = generate(model, *flags, "--max-num-batched-tokens", budget)
        assert got["choices"] == want["choices"]


def test_b06_prompts_at_block_ends(model):
    for n in (15, 16, 17, 32, 48):
        flags = ["--prompt-ids", ",".join(str(i % 200) for i in range(n)), *GREEDY]
        assert len({str(tokens(model, *flags)) for _ in range(2)}) == 1


def test_c02_cut_inside_a_character(model):
    """One token per byte: any length may end inside an emoji. Valid JSON, U+FFFD only at the end."""
    ids = make_tiny.tokenizer().encode("🙂").ids
    bias = ",".join(f"{i}:100" for i in set(ids))
    for most in range(1, 9):
        r = headrace("generate", model, "--json", "-p", "x", *SMALL, "--seed", 3, "--max-tokens",
                     most, "--logit-bias", bias, "--logprobs", 0)
        answer = json.loads(r.stdout)["choices"][0]
        raw = b"".join(bytes(e["bytes"]) for e in answer["logprobs"])
        assert answer["text"] == raw.decode("utf-8", "replace")


def test_e12_limits_of_length(model):
    refused(model, "--max-tokens", 2147483647, naming="max_model_len")
    refused(model, "--max-tokens", "1e18", naming="max_model_len")
    for n in (256, 300):
        r = headrace("generate", model, "--prompt-ids", ",".join(["1"] * n), *SMALL)
        assert r.returncode == 1 and "max_model_len" in r.stderr and not r.stdout
    answer, = generate(model, *SMALL, "--prompt-ids", ",".join(["1"] * 255), "--temperature", 0,
                       "--ignore-eos")
    assert len(answer["choices"][0]["token_ids"]) == 1
    assert len(tokens(model, "-p", "a", "--temperature", 0, "--max-tokens", "16.0",
                      "--ignore-eos")[0]) == 16


def test_seeds_at_the_ends_of_their_range(model):
    for seed in (0, 2 ** 63 - 1, -2 ** 63):
        a, = generate(model, "-p", "a", *SMALL, "--seed", seed, "--max-tokens", 5)
        b, = generate(model, "-p", "a", *SMALL, "--seed", seed, "--max-tokens", 5)
        assert a["choices"] == b["choices"] and a["seed"] == seed
    r = headrace("generate", model, "-p", "a", "--seed", 2 ** 63)
    assert r.returncode == 2 and "--seed" in r.stderr
