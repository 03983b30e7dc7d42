"""Keys and values in fewer bits: what `--kv-cache-dtype` keeps is recorded, counted and accurate, and
an answer stays a request's own."""
import json

import numpy as np
import pytest
from conftest import STEPS, Bits, generate, headrace

import make_tiny

IDS = [(i * i * 7 + 3 * i) % 200 for i in range(200)]
SMALL = ["--max-num-seqs", 16, "--max-model-len", 512, *STEPS]
WANT = ["--max-tokens", 24, "--ignore-eos", "--seed", 7, "--temperature", 0.9, "--logprobs", 4,
        "--prompt-logprobs", 3]
#         flag, as recorded, largest relative step of a number
DTYPES = [("bfloat16", "bf16", 2**-8), ("int8", "i8", 2**-7)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("kv") / "model"
    make_tiny.hf(path, "llama3")
    return path


TEXTS = ["".join(chr(97 + (i * (s + 3) + s * s) % 26) for i in range(3 + 67 * s)) for s in range(6)]


def run(model, texts, *more):
    return generate(model, *[f for t in texts for f in ("-p", t)], *WANT, *SMALL, *more)


def essence(answer):
    return Bits([answer["prompt_logprobs"], answer["choices"]])


@pytest.mark.parametrize("dtype, name, step", DTYPES)
def test_answers_are_their_own(model, dtype, name, step):
    kv = ["--kv-cache-dtype", dtype]
    alone = [run(model, [t], *kv)[0] for t in TEXTS]
    assert alone[0]["numerics"]["kv"] == name
    want = [essence(a) for a in alone]
    for more in ([], ["--threads", 2, "--max-num-batched-tokens", 16], ["--block-size", 7],
                 ["--kv-cache-memory-bytes", "240K", "--max-model-len", 400]):
        assert [essence(a) for a in run(model, TEXTS, *kv, *more)] == want, more
    plain = run(model, TEXTS)
    assert plain[0]["numerics"]["kv"] == "f32"
    assert any(essence(a) != w for a, w in zip(plain, want)), "the cache holds what it held before"


def scores(model, *more):
    """Log-probabilities of all tokens at every position of a prompt [T,V]."""
    answer, = generate(model, "--prompt-ids", ",".join(map(str, IDS)), "--max-tokens", 1,
                       "--prompt-logprobs", make_tiny.V, "--max-logprobs", make_tiny.V,
                       "--temperature", 0, *SMALL, *more)
    out = np.zeros((len(IDS) - 1, make_tiny.V))
    for row, entry in zip(out, answer["prompt_logprobs"][1:]):
        for top in entry["top"]:
            row[top["token_id"]] = top["logprob"]
    return out


@pytest.mark.parametrize("dtype, name, step", DTYPES)
def test_the_reference_agrees(model, dtype, name, step):
    """Kernels and reference round the same numbers: they differ by what a rounding that falls the
    other way makes, once in a while, and by far less than either does from float32."""
    kv = ["--kv-cache-dtype", dtype]
    ours, theirs, whole = scores(model, *kv), scores(model, *kv, "--device", "ref"), scores(model)
    rounding = np.sqrt(np.mean((ours - whole)**2))
    assert 0 < rounding < 8 * step
    assert np.sqrt(np.mean((ours - theirs)**2)) < rounding / 4


def test_a_context_of_32768_tokens(model, tmp_path):
    """It plans, and what follows a long prompt is the same to the bit decoded on one thread or two."""
    long = tmp_path / "long"
    long.mkdir()
    for f in model.iterdir():
        (long / f.name).write_bytes(f.read_bytes())
    config = json.loads((long / "config.json").read_text())
    config["max_position_embeddings"] = 32768
    (long / "config.json").write_text(json.dumps(config))
    flags = ["--max-model-len", 32768, "--max-num-seqs", 2, "--max-num-batched-tokens", 512]
    p = headrace("plan", long, "--json", *flags)
    assert p.returncode == 0, p.stderr
    p = json.loads(p.stdout)
    assert p["max_model_len"] == 32768 and p["kv_blocks"] * p["block_size"] == 2 * 32768
    ids = ",".join(str((i * i * 7 + 3 * i) % 200) for i in range(12000))
    answers = [generate(long, "--prompt-ids", ids, "--max-tokens", 6, "--ignore-eos", "--logprobs", 4,
                        "--temperature", 0, *flags, "--threads", n)[0] for n in (1, 2)]
    assert len(answers[0]["choices"][0]["token_ids"]) == 6
    assert answers[0]["choices"] == answers[1]["choices"]
