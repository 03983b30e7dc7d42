"""A sliding window changes nothing about whose answer it is: the bits of every log-probability are
those of a request alone, in chunks, with other blocks, after preemption, behind a shared prefix that
has left the window, and from a cache of int8."""
import json

import pytest
from conftest import DEVICE, STEPS, Bits, generate, headrace

import make_tiny

# A plugin's last bits differ from bucket to bucket: of two greedy tokens it can be told that they were
# as likely, of two drawn ones it cannot.
WANT = ["--seed", 7, "--temperature", 0 if DEVICE else 0.9, "--logprobs", 4, "--prompt-logprobs", 3, "--max-tokens", 30,
        "--max-num-seqs", 16, "--max-model-len", 256, *STEPS]
STEM = "".join(chr(97 + i * i % 26) for i in range(90))
TEXTS = [STEM[: 11 * n] + "xyz" * (n % 3) for n in range(9)] + [STEM, STEM + "end"]
FLAGS = [f for t in TEXTS for f in ("-p", t or "a")]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Two layers that see 21 keys, which is no multiple of a block, and one that sees all."""
    path = tmp_path_factory.mktemp("windows") / "model"
    c = {**make_tiny.LLAMA, "num_hidden_layers": 3, "sliding_window": 21, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"]}
    make_tiny.hf(path, c)
    return path


def essence(answers):
    return [Bits([a["prompt_logprobs"], a["choices"]]) for a in answers]


@pytest.fixture(scope="module")
def alone(model):
    return [essence(generate(model, "-p", t or "a", *WANT, "--no-enable-prefix-caching"))[0]
            for t in TEXTS]


@pytest.mark.device
@pytest.mark.parametrize("more", [[], ["--max-num-batched-tokens", 16], ["--block-size", 5],
                                  ["--threads", 2, "--max-num-batched-tokens", 37],
                                  ["--no-enable-prefix-caching"]], ids=str)
def test_answers_are_their_own(model, alone, more):
    assert essence(generate(model, *FLAGS, *WANT, *more)) == alone


def test_preemption(model, alone):
    few = 3 * 2 * 2 * 32 * 4 * 16 * 20  # bytes: 20 blocks of 16 tokens
    r = headrace("generate", model, "--json", "--stats", *FLAGS, *WANT, "--kv-cache-memory-bytes", few)
    assert r.returncode == 0, r.stderr
    assert "preemptions" in r.stderr and " 0 preemptions" not in r.stderr
    assert essence(json.loads(line) for line in r.stdout.splitlines()) == alone


def test_int8_cache(model):
    kv = ["--kv-cache-dtype", "int8"]
    want = essence(generate(model, *FLAGS, *WANT, *kv, "--no-enable-prefix-caching"))
    assert essence(generate(model, *FLAGS, *WANT, *kv, "--max-num-batched-tokens", 16)) == want


def test_the_window_shows(model, tmp_path):
    """Without windows the same weights say something else."""
    config = json.loads((model / "config.json").read_text())
    for f in model.iterdir():
        (tmp_path / f.name).write_bytes(f.read_bytes())
    del config["layer_types"], config["sliding_window"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    long, short = ["-p", STEM, *WANT], ["-p", "abcdefgh", *WANT, "--max-tokens", 8]
    assert essence(generate(model, *long)) != essence(generate(tmp_path, *long))
    assert essence(generate(model, *short)) == essence(generate(tmp_path, *short))
