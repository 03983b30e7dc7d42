"""The packaged model against two outside computations of the same 2,000 tokens: NumPy float32 over
the dequantised weights, and llama.cpp (tests/golden/make_*_golden.py made both files)."""
import math

import numpy as np
import pytest
from conftest import ROOT, generate, instruction_sets

GOLDEN = np.load(ROOT / "tests/golden/smollm2.npz")
TOP = 256


def score(model, *more):
    """Log-probability of each next token [S,T], and the top entries of each position."""
    chosen, tops = [], []
    for row in GOLDEN["ids"]:
        answer, = generate(model, "--prompt-ids", ",".join(map(str, row)), "--max-tokens", 1,
                           "--prompt-logprobs", TOP, "--max-logprobs", TOP, "--max-model-len", 1024,
                           "--max-num-seqs", 8, "--temperature", 0, *more)
        entries = answer["prompt_logprobs"][1:]
        chosen.append([e["logprob"] for e in entries])
        tops.append([{t["token_id"]: t["logprob"] for t in e["top"]} for e in entries])
    return np.array(chosen), tops


def figures(chosen, tops):
    """Relative difference of perplexity, top-1 agreement, mean KL over the golden's 64 likeliest
    tokens and one bucket for the rest."""
    ours, theirs = math.exp(-chosen.mean()), math.exp(-GOLDEN["logprob"].mean(dtype=np.float64))
    agree, kl = [], []
    for s, row in enumerate(tops):
        for p, top in enumerate(row):
            ids, lp = GOLDEN["top_ids"][s, p], GOLDEN["top_logprob"][s, p].astype(np.float64)
            agree.append(max(top, key=top.get) == ids[0])
            least = min(top.values())
            q = np.exp([top.get(int(i), least) for i in ids])
            a = np.append(np.exp(lp), max(1 - np.exp(lp).sum(), 1e-9))
            b = np.append(q, max(1 - q.sum(), 1e-9))
            kl.append(float((a * np.log(a / b)).sum()))
    return ours / theirs - 1, float(np.mean(agree)), float(np.mean(kl))


def report(name, result):
    print("figure: SmolLM2 %s: perplexity %+.4f %%, top-1 %.2f %%, mean KL %.6f"
          % (name, result[0] * 100, result[1] * 100, result[2]))


@pytest.mark.parametrize("isa", instruction_sets())
def test_float_activations(smollm2, isa):
    result = figures(*score(smollm2, "--dtype", "float32", "--isa", isa))
    report(f"float32 activations, {isa}", result)
    assert abs(result[0]) <= 0.001 and result[1] >= 0.995


@pytest.mark.parametrize("isa", instruction_sets())
def test_8_bit_activations(smollm2, isa):
    result = figures(*score(smollm2, "--isa", isa))
    report(f"8-bit activations, {isa}", result)
    assert abs(result[0]) <= 0.005 and result[1] >= 0.96 and result[2] <= 0.005
