"""One model on several devices of a plugin: the answers of one device.

XLA's CPU plugin makes any number of devices of a processor. The order of a sum over devices is not
that of one device, so logits are held to the rule of test_logits.py (four times NumPy's own float32
error) and tokens are equal where no two candidates are that near.
"""
import json

import numpy as np
import pytest
from conftest import generate, headrace

import make_tiny
import plugins
import reference
from test_logits import PROMPT, files, rms, run  # noqa: F401
from test_pjrt import check_8_bit

pytestmark = pytest.mark.skipif(bool(plugins.lacking("pjrt")), reason=str(plugins.lacking("pjrt")))


def split(n):
    return "--tensor-parallel-size", n


def check_float(model, config, tensors, n):
    """Log-probabilities of every token at every position, and the greedy token."""
    truth = reference.Model(config, tensors).logprobs(PROMPT)
    single = reference.Model(config, tensors, np.float32).logprobs(PROMPT)
    ours, answer = run(model, "pjrt", "--dtype", "float32", *split(n))
    assert answer["numerics"]["devices"] == n
    off, own = rms(ours - truth[:-1]), rms(single - truth)
    assert off <= 4 * own, (off, own)
    best = np.sort(truth[-1])[-2:]
    if best[1] - best[0] > 0.01:
        assert answer["choices"][0]["token_ids"] == [int(truth[-1].argmax())]


@pytest.mark.parametrize("family", ["llama_tied", "llama_bias", "qwen2", "qwen3", "phi3", "gemma3"])
def test_family(files, family):  # noqa: F811
    check_float(*files("hf", family), 2)


# 8 heads, 2 key/value heads and 260 logits: with four devices two share a key/value head, with eight
# four do and the last slices of the vocabulary are filled up (8 × 33 rows).
@pytest.mark.parametrize("family,n", [("llama_bias", 4), ("qwen3", 8)])
def test_shared_heads_and_filled_vocabulary(files, family, n):  # noqa: F811
    check_float(*files("hf", family), n)


# 512 columns of down are cut into halves at a block of 32 or 256; quarters of 256 columns do not
# exist, so there down stays whole and its rows are gathered.
@pytest.mark.parametrize("kind,n", [("Q4_1", 2), ("Q6_K", 4)])
def test_block_formats(files, kind, n):  # noqa: F811
    check_float(*files("gguf_file", "llama", kind), n)


@pytest.mark.parametrize("kind,n", [("Q4_0", 2), ("Q4_K", 4)])
def test_8_bit_rows(files, kind, n):  # noqa: F811
    check_8_bit(*files("gguf_file", "llama", kind), "pjrt", *split(n))


def test_bfloat16(files):  # noqa: F811
    model, config, tensors = files("hf", "llama_bias", "bf16")
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    half = reference.Model(config, tensors, np.float32, half=True).logprobs(PROMPT)[:-1]
    ours, answer = run(model, "pjrt", *split(2))
    assert answer["numerics"]["activation"] == "bf16"
    assert rms(ours - truth) <= 4 * rms(half - truth), (rms(ours - truth), rms(half - truth))


def test_int8_cache(files):  # noqa: F811
    """A head's scales are on its device: two devices round what one does."""
    model, _, _ = files("hf", "llama")
    kv = "--dtype", "float32", "--kv-cache-dtype", "int8"
    whole = run(model, "pjrt", "--dtype", "float32")[0]
    one, two = run(model, "pjrt", *kv)[0], run(model, "pjrt", *kv, *split(2))[0]
    assert 0 < rms(one - two) < rms(one - whole) / 4


@pytest.mark.skipif(bool(plugins.lacking("pjrt-newer")), reason=str(plugins.lacking("pjrt-newer")))
def test_newer_plugin_and_kept_programs(files, tmp_path):  # noqa: F811
    """Programs for two devices come back from the cache, for two devices; one device's are others."""
    model, config, tensors = files("hf", "llama")
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    single = reference.Model(config, tensors, np.float32).logprobs(PROMPT)[:-1]
    folder = "--compile-cache", tmp_path
    for n, programs in (2, 5), (2, 5), (1, 10):
        ours, _ = run(model, "pjrt-newer", "--dtype", "float32", *folder, *split(n))
        assert rms(ours - truth) <= 4 * rms(single - truth)
        assert len([f for f in tmp_path.iterdir() if f.stat().st_size > 4096]) == programs


def plan(model, *more):
    r = headrace("plan", model, "--json", "--max-num-seqs", 4, "--max-num-batched-tokens", 32,
                 "--max-model-len", 64, "--dtype", "float32", "--device", plugins.device("pjrt"), *more)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_each_device_holds_its_part(files):  # noqa: F811
    """The cache of a block: K and V of 16 tokens in 2 layers, 2 heads of 32 numbers dealt out."""
    model, config, tensors = files("hf", "llama")
    matrices = sum(x.size for name, x in tensors.items() if "proj" in name or "lm_head" in name)
    whole = plan(model)
    assert whole["block_bytes"] == 2 * 2 * 16 * 2 * 32 * 4
    for n, heads in (2, 1), (4, 1):
        part = plan(model, *split(n))
        assert part["block_bytes"] == whole["block_bytes"] * heads // 2
        saved = whole["weight_bytes"] - part["weight_bytes"]
        kv = sum(x.size for name, x in tensors.items() if "k_proj" in name or "v_proj" in name)
        expected = 4 * ((matrices - kv) * (1 - 1 / n) + kv * (1 - heads / 2))
        assert abs(saved - expected) <= 0.02 * expected, (saved, expected)  # rows are packed by 16


@pytest.mark.parametrize("flags,says", [
    ((*split(3), "--device", "pjrt"), "8 attention heads cannot be dealt to 3 devices"),
    ((*split(2), "--device", "cpu"), "the cpu backend is one device"),
    ((*split(2), "--device", "ref"), "the ref backend is one device"),
    ((*split(-1), "--device", "pjrt"), "must be 1..127"),
    ((*split(200), "--device", "pjrt"), "must be 1..127"),
    ((*split(4), "--device", "pjrt", "--device-option", "cpu_device_count=2"),
     "--device-option cpu_device_count=4"),
])
def test_refusals(files, flags, says):  # noqa: F811
    model = files("hf", "llama")[0]
    flags = [plugins.device("pjrt") if f == "pjrt" else f for f in flags]
    r = headrace("generate", model, "-p", "a", *flags)
    assert r.returncode == 1 and says in r.stderr, r.stderr


def test_heads_that_do_not_fit(tmp_path):
    """6 heads over 2 key/value heads on 3 devices, where one device would need both; 383 columns."""
    config = {**make_tiny.LLAMA, "num_attention_heads": 6, "hidden_size": 192,
              "intermediate_size": 384}
    for change, says in (
            ({}, "2 key/value heads cannot be dealt to 3 devices"),
            ({"num_key_value_heads": 6, "intermediate_size": 383}, "383 columns of the MLP")):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        r = headrace("plan", tmp_path, "--load-format", "dummy", "--device", plugins.device("pjrt"),
                     *split(3))
        assert r.returncode == 1 and says in r.stderr, r.stderr


def test_experts_are_not_dealt_out(files):  # noqa: F811
    r = headrace("plan", files("hf", "mixtral")[0], "--device", plugins.device("pjrt"), *split(2))
    assert r.returncode == 1 and "mixture of experts cannot be dealt to 2 devices" in r.stderr, r.stderr


def test_smollm2(smollm2):
    """9 heads over 3: three devices give the text of the native backend."""
    def texts(*where):
        prompts = ["The capital of France is", "Water boils at", "def fibonacci(n):"]
        answers = generate(smollm2, *(a for p in prompts for a in ("-p", p)), "--max-tokens", 12,
                           "--temperature", 0, "--max-model-len", 96, "--dtype", "float32", *where)
        return [a["choices"][0]["token_ids"] for a in answers]
    on_three = texts(*plugins.flags("pjrt"), *plugins.one_bucket(16, 4), *split(3))
    assert on_three == texts("--max-num-seqs", 4)
