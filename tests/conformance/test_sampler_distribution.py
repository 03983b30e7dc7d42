"""What is drawn is distributed as it should be: chi-square and Kolmogorov-Smirnov over 200,000 draws
of each of twelve mixes of parameters, against probabilities worked out here in float64, by a sort,
from the definition alone. Seeds are fixed, so a failure is a defect and not chance.

Every (seed, position) is met once: positions follow one another, choices of a request draw with
seed + i. The probability that a right sampler fails one of these tests is 1e-4 a side.
"""

import math

import numpy as np
import pytest

from child import EVERY_LEG, NATIVE
from sampler import Sampler

F = np.float32
V, DRAWS, AT_ONCE, PER_SEED, CHOICES = 60, 200_000, 4000, 50, 4
ALPHA = 1e-4
LOGITS = np.random.default_rng(7).normal(0, 2, V).astype(F)
PROMPT, OUTPUT = 5, [9, 9, 11]  # the prompt is one id again and again
EVERY_OTHER = [0x55555555, 0x55555555]
MIXES = {
    "plain": {},
    "cold": {"temperature": .3},
    "hot": {"temperature": 1.7},
    "top_k": {"top_k": 7},
    "top_p": {"top_p": .8},
    "min_p": {"min_p": .1},
    "top_k and top_p": {"temperature": .9, "top_k": 12, "top_p": .7},
    "penalties": {"presence_penalty": 1.0, "frequency_penalty": .5, "repetition_penalty": 1.3},
    "biases": {"logit_bias": [[3, 4.0], [20, -3.0], [41, 250.0 / 100]]},
    "allowed ids": {"allowed_token_ids": [1, 2, 3, 5, 8, 13, 21, 34, 55]},
    "grammar": {"grammar": EVERY_OTHER},
    "everything": {"temperature": 1.2, "top_k": 25, "top_p": .95, "min_p": .01, "grammar": EVERY_OTHER,
                   "presence_penalty": -.5, "frequency_penalty": .3, "repetition_penalty": .8,
                   "logit_bias": [[9, 1.5], [10, -1.0], [30, 2.0]],
                   "allowed_token_ids": list(range(50))},
}
assert len(MIXES) == 12


# ---- exact probabilities -----------------------------------------------------------------------


def adjusted(s):
    """Logits after masks, biases and penalties."""
    x = LOGITS.astype(np.float64)
    ids = np.arange(V)
    if "grammar" in s:
        x[[s["grammar"][i // 32] >> (i % 32) & 1 == 0 for i in ids]] = -np.inf
    if "allowed_token_ids" in s:
        x[~np.isin(ids, s["allowed_token_ids"])] = -np.inf
    for token, bias in s.get("logit_bias", []):
        x[token] += bias
    seen, counts = np.isin(ids, [PROMPT, *OUTPUT]), np.bincount(OUTPUT, minlength=V)
    r = s.get("repetition_penalty", 1)
    x = np.where(seen, np.where(x > 0, x / r, x * r), x)
    return x - s.get("frequency_penalty", 0) * counts - s.get("presence_penalty", 0) * (counts > 0)


def probabilities(s):
    x = adjusted(s) / s.get("temperature", 1)
    p = np.exp(x - x.max())
    p[p < s.get("min_p", 0)] = 0  # p_max is 1 here
    order = np.argsort(-p)
    p[order[s.get("top_k", V):]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= s.get("top_p", 2)]] = 0
    return p / p.sum()


# ---- draws ---------------------------------------------------------------------------------------


def row(i, s):
    place, choice = i % PER_SEED, i // PER_SEED % CHOICES
    s = {k: v for k, v in s.items() if k != "grammar"}
    return {"sampling": {"seed": CHOICES * (i // (PER_SEED * CHOICES)), **s}, "choice": choice,
            "prompt": [PROMPT] * (1 + place), "output": OUTPUT}


def draw(sampler, s, first, count):
    rows = [row(i, s) | ({"grammar": s["grammar"]} if "grammar" in s else {})
            for i in range(first, first + count)]
    return [a["token"] for a in sampler.run(np.tile(LOGITS, (count, 1)), rows)]


@pytest.fixture(scope="module")
def drawn():
    """Of a mix: 200,000 ids, drawn once."""
    kept = {}
    with Sampler(NATIVE[-1], threads=2) as sampler:
        def ids(name):
            if name not in kept:
                kept[name] = np.array([t for first in range(0, DRAWS, AT_ONCE)
                                       for t in draw(sampler, MIXES[name], first, AT_ONCE)])
            return kept[name]
        yield ids


# ---- the tests' own mathematics ------------------------------------------------------------------


def chi_square_above(x, df):
    """P(chi-square > x): the regularised upper incomplete gamma function, by its series below the
    mean and by Lentz's continued fraction above."""
    a, x = df / 2, x / 2
    scale = math.exp(a * math.log(x) - x - math.lgamma(a)) if x > 0 else 0
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, 2000):
            term *= x / (a + n)
            total += term
        return 1 - scale * total
    b, c = x + 1 - a, 1e300
    d = 1 / b
    h = d
    for n in range(1, 2000):
        numerator = -n * (n - a)
        b += 2
        d = 1 / (numerator * d + b)
        c = b + numerator / c
        h *= d * c
    return scale * h


@pytest.mark.parametrize("df,five_percent,one_percent", [
    (1, 3.841, 6.635), (2, 5.991, 9.210), (10, 18.307, 23.209), (30, 43.773, 50.892),
    (100, 124.342, 135.807)])
def test_chi_square_is_that_of_the_tables(df, five_percent, one_percent):
    assert abs(chi_square_above(five_percent, df) - .05) < 1e-4
    assert abs(chi_square_above(one_percent, df) - .01) < 1e-4


def check_chi_square(counts, expected):
    """Cells of fewer than ten expected are one."""
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    rare = expected < 10
    cells = [(counts[rare].sum(), expected[rare].sum())] if expected[rare].sum() >= 10 else []
    cells += list(zip(counts[~rare], expected[~rare]))
    statistic = sum((c - e) ** 2 / e for c, e in cells)
    assert ALPHA < chi_square_above(statistic, len(cells) - 1) < 1 - ALPHA, (statistic, len(cells))


# ---- the tests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MIXES)
def test_chi_square(drawn, name):
    p = probabilities(MIXES[name])
    counts = np.bincount(drawn(name), minlength=V)
    assert counts.sum() == DRAWS and not counts[p == 0].any()
    assert (counts[DRAWS * p > 30] > 0).all()
    check_chi_square(counts[p > 0], DRAWS * p[p > 0])


@pytest.mark.parametrize("name", MIXES)
def test_kolmogorov_smirnov(drawn, name):
    """P(sqrt(n) D > d) is below 2 exp(-2 d^2), steps or not."""
    counts = np.bincount(drawn(name), minlength=V)
    d = np.abs(np.cumsum(counts) / DRAWS - np.cumsum(probabilities(MIXES[name]))).max()
    assert math.sqrt(DRAWS) * d < math.sqrt(math.log(2 / ALPHA) / 2)


@pytest.mark.parametrize("apart", [1, PER_SEED, PER_SEED * CHOICES],
                         ids=["positions", "choices", "seeds"])
def test_neighbouring_draws_are_independent(drawn, apart):
    """Pairs of the next position, the next choice, the next seed, no draw in two of them; ids in six
    classes of about equal probability."""
    p = probabilities({})
    classes = np.minimum(np.cumsum(p) * 6, 5.999).astype(int)
    each = np.bincount(classes, weights=p, minlength=6)
    blocks = classes[drawn("plain")][:DRAWS // (2 * apart) * 2 * apart].reshape(-1, 2, apart)
    pairs = np.bincount((blocks[:, 0] * 6 + blocks[:, 1]).ravel(), minlength=36)
    check_chi_square(pairs, pairs.sum() * np.outer(each, each).ravel())


@pytest.mark.parametrize("leg", EVERY_LEG)
def test_every_leg_draws_the_same(drawn, leg):
    with Sampler(leg) as sampler:
        for name in ("plain", "everything"):
            assert draw(sampler, MIXES[name], 0, 1000) == drawn(name)[:1000].tolist()
