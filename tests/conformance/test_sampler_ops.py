"""The sampler against its definition (tests/golden/sampler_reference.py), on ref and on cpu under
every instruction set here.

One statement or example at a time; test_sampler_rows.py has the rows by the thousand."""

import math

import numpy as np
import pytest

from child import EVERY_LEG, LEGS, NATIVE
from ops import Input, Runner, flushes
from sampler import Refused, Sampler
from sampler_rows import F, KINDS, MODES, make_logits, make_row, reference, tolerance


@pytest.fixture(scope="module", params=LEGS)
def sampler(request):
    with Sampler(request.param) as s:
        s.flushes = flushes(request.param)
        yield s


@pytest.fixture(scope="module", params=LEGS)
def ops(request):
    with Runner(request.param) as r:
        yield r


@pytest.fixture
def rng(request):
    return np.random.default_rng([ord(c) for c in request.node.name.split("[")[0]])


def one(sampler, logits, sampling, **row):
    options = {k: row.pop(k) for k in ("mode", "used_vocab", "max_logprobs") if k in row}
    row = {"prompt": [], "output": [], "sampling": sampling} | row
    return sampler.run(np.asarray([logits], F), [row], **options)[0]


def logits_of(probabilities):
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(probabilities, np.float64)).astype(F)


def kept(sampler, logits, **sampling):
    """The survivors, seen through processed_logprobs of every id."""
    ids = list(range(len(logits)))
    sampling = {"seed": 1, "logprob_token_ids": ids} | sampling
    answer = one(sampler, logits, sampling, mode="processed_logprobs")
    return [i for i in ids if answer["extra_logprobs"][i] is not None]


# ---- the examples of the definition and of known faults ----------------------------------------


def test_top_p_is_taken_after_renormalising(sampler):
    assert kept(sampler, logits_of([.5, .3, .12, .08]), top_k=2, top_p=.6) == [0]


def test_top_p_drops_the_smallest(sampler):
    assert kept(sampler, logits_of([.2, .3, .5]), top_p=.79) == [1, 2]


def test_top_p_keeps_ties(sampler):
    assert kept(sampler, logits_of([.3, .3, .3, .1]), top_p=.2) == [0, 1, 2]


def test_top_k_keeps_ties(sampler):
    assert kept(sampler, F([1, 5, 3, 3, 3, 0]), top_k=2) == [1, 2, 3, 4]


def test_identity_keeps_everything(sampler, rng):
    x = rng.normal(0, 4, 100).astype(F)
    assert kept(sampler, x, top_p=1.0, top_k=100, min_p=0.0) == list(range(100))
    assert kept(sampler, x, top_k=-1) == kept(sampler, x, top_k=101) == list(range(100))


def test_A05_top_k_then_top_p(sampler):
    p = logits_of([.5, .3, .1, .1])
    assert kept(sampler, p, top_k=2, top_p=.6) == [0]
    assert kept(sampler, p, top_k=1, top_p=.01) == [0]
    assert kept(sampler, p, top_p=1e-7) == [0]


def test_A06_min_p_is_on_the_tempered_distribution(sampler):
    assert kept(sampler, F([4, 2, 0]), temperature=2.0, min_p=.2) == [0, 1]
    assert kept(sampler, F([4, 2, 0]), temperature=1.0, min_p=.2) == [0]


def test_min_p_one_keeps_the_best_and_its_ties(sampler):
    assert kept(sampler, F([1, 7, 3, 7]), min_p=1.0) == [1, 3]


@pytest.mark.parametrize("temperature", [0.0, 1e-8, 1e-6, 1e-5, 1e-4, 0.0099])
def test_A01_tiny_temperature_is_greedy(sampler, rng, temperature):
    x = (rng.normal(0, 1, 5000) * 100).astype(F)
    x[rng.permutation(5000)[:50]] = x.max() - 1  # what must not win
    for seed in range(20):
        assert one(sampler, x, {"temperature": temperature, "seed": seed})["token"] == x.argmax()


def test_A01_huge_logits_do_not_overflow(sampler):
    x = F([-3e38, 3e38, 3e38, 0])
    tokens = {one(sampler, x, {"temperature": 0.01, "seed": s})["token"] for s in range(40)}
    assert tokens == {1, 2}


def test_A07_greedy_rows_in_a_mixed_batch(sampler, rng):
    x = rng.normal(0, 2, (4, 300)).astype(F)
    allowed = [7, 150, 299]
    greedy = {"sampling": {"temperature": 0.0, "allowed_token_ids": allowed}, "prompt": [1]}
    rows = [greedy, {"sampling": {"seed": 3}, "prompt": [1]}] * 2
    answers = sampler.run(x, rows)
    for i in (0, 2):
        alone = one(sampler, x[i], greedy["sampling"], prompt=[1])
        assert answers[i] == alone
        assert alone["status"] == 0 and alone["token"] == max(allowed, key=lambda t: x[i][t])


def test_A13_what_penalties_see(sampler):
    x = F([3.0, 2.9, -1.0, -2.0])
    prompt = [0] * 30
    greedy = {"temperature": 0.0}
    assert one(sampler, x, greedy, prompt=prompt)["token"] == 0
    for field in ("presence_penalty", "frequency_penalty"):
        assert one(sampler, x, greedy | {field: 2.0}, prompt=prompt)["token"] == 0
        assert one(sampler, x, greedy | {field: 2.0}, prompt=[1], output=[0])["token"] == 1
    assert one(sampler, x, greedy | {"repetition_penalty": 50.0}, prompt=prompt)["token"] == 1
    # a negative logit is multiplied: dividing would raise it to the top
    x = F([-1.0, -1.5, -9.0, -9.0])
    assert one(sampler, x, greedy | {"repetition_penalty": 50.0}, prompt=prompt)["token"] == 1


def test_frequency_counts_presence_does_not(sampler):
    x = F([5.0, 4.0, 0.0])
    row = {"prompt": [2], "output": [0, 0, 0]}
    assert one(sampler, x, {"temperature": 0.0, "presence_penalty": 0.9}, **row)["token"] == 0
    assert one(sampler, x, {"temperature": 0.0, "frequency_penalty": 0.4}, **row)["token"] == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 500, 999])
def test_A18_a_poisoned_row_fails_alone(sampler, rng, value, at):
    x = rng.normal(0, 2, (3, 1000)).astype(F)
    rows = [{"sampling": {"seed": 5, "logprobs": 3}, "prompt": [1]}] * 3
    before = sampler.run(x, rows)
    x[1, at] = value
    after = sampler.run(x, rows)
    assert [a["status"] for a in after] == [0, 2, 0]
    assert after[0] == before[0] and after[2] == before[2]


def test_A18_all_nan_and_all_masked(sampler):
    x = np.full((3, 40), np.nan, F)
    x[1] = -np.inf
    x[2] = -np.inf
    x[2, 39] = -1e30
    rows = [{"sampling": {"seed": 5}, "prompt": [1]}, {"sampling": {"temperature": 0.0}}]
    answers = sampler.run(x[[0, 1, 2, 0, 1, 2]], [rows[0]] * 3 + [rows[1]] * 3)
    assert [a["status"] for a in answers] == [2, 1, 0] * 2
    assert answers[2]["token"] == answers[5]["token"] == 39
    assert answers[1]["token"] == answers[4]["token"] == -1


def test_a_nan_outside_the_mask_still_fails_the_row(sampler):
    x = F([1, np.nan, 2, 3])
    for sampling in ({"allowed_token_ids": [0, 2]}, {"bad_words": [[1]]}):
        assert one(sampler, x, sampling | {"seed": 1})["status"] == 2
    assert one(sampler, x, {"seed": 1}, grammar=[0b1101])["status"] == 2


def test_a_grammar_that_leaves_nothing_is_empty(sampler):
    assert one(sampler, F([1, 2, 3]), {"seed": 1}, grammar=[0])["status"] == 1


# ---- A08: the ends of the random range ---------------------------------------------------------
# No seed can be asked for a word of all zeros or all ones. What such a word becomes is the first
# or the last unit of the row's mass; survivors of mass one (2^-40) each make every unit, both ends
# included, come up within a few draws.

LIGHTEST = F(-28.418)  # exp rounds to one unit


@pytest.mark.parametrize("ops", EVERY_LEG, indirect=True)
@pytest.mark.parametrize("n", [4, 256, 5000])
@pytest.mark.parametrize("value", [F(0), LIGHTEST])
def test_A08_only_survivors_are_ever_drawn(ops, n, value):
    rows = 512 if n < 5000 else 64
    assert reference.masses(LIGHTEST[None]) == [1]
    for half in (0, 1):
        y = np.full((rows, n), -np.inf, F)
        y[:, half::2] = value
        seeds = np.stack([np.arange(rows), np.full(rows, 2**32 - 1)], 1).astype(np.uint32)
        position = np.full(rows, 3, np.int32)
        (token,) = ops.run("draw", [Input(y), Input(np.full(rows, -np.inf, F)), Input(seeds),
                                    Input(position)])
        for t, (low, high) in zip(token, seeds):
            word = reference.random_word(int(low) | int(high) << 32, 3)
            assert t == 2 * (word * (n // 2) >> 64) + half
        if n == 4:
            assert set(token) == {half, half + 2}


def test_A08_the_only_survivor_is_drawn_by_every_word(ops):
    n, rows = 1100, 1100  # each column in turn, across the edge of a block
    y = np.where(np.eye(n, dtype=bool), LIGHTEST, F(-np.inf))
    seeds = np.arange(2 * rows, dtype=np.uint32).reshape(rows, 2)
    (token,) = ops.run("draw", [Input(y), Input(np.full(rows, LIGHTEST)), Input(seeds),
                                Input(np.zeros(rows, np.int32))])
    assert token.tolist() == list(range(n))


def test_A08_end_points_of_the_inverse(rng):
    """The definition itself, fed words of all zeros and all ones; every column in turn."""
    for column in range(16):
        y = np.full(32, -np.inf, F)
        y[column::2] = rng.normal(-3, 2, len(y[column::2])).astype(F).clip(max=0)
        keep = y > -np.inf
        assert reference.draw(y, keep, 0) == column
        assert reference.draw(y, keep, 2**64 - 1) == (30 if column % 2 == 0 else 31)


def test_random_words_are_those_of_the_paper():
    """Known answers of the Random123 distribution, philox4x32-10."""
    assert reference.philox((0,) * 4, (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = (0xFFFFFFFF,) * 4
    assert reference.philox(ones, ones[:2]) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert reference.philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
                            (0xA4093822, 0x299F31D0)) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420,
                                                          0x24126EA1]


def test_frequencies_follow_the_distribution(sampler):
    """4,096 seeds; each count within 5 standard deviations."""
    p = np.array([.5, .25, .15, .07, .03])
    n = 4096
    x = np.tile(logits_of(p), (n, 1))
    answers = sampler.run(x, [{"sampling": {"seed": s}, "prompt": [1, 2, 3]} for s in range(n)])
    counts = np.bincount([a["token"] for a in answers], minlength=5)
    assert (np.abs(counts - n * p) < 5 * np.sqrt(n * p * (1 - p))).all(), counts


# ---- masks and lists ---------------------------------------------------------------------------


def test_bad_words_ban_the_last_id_after_its_prefix_only(sampler):
    x = F([0, 1, 2, 9, 4])
    bad = {"temperature": 0.0, "bad_words": [[1, 2, 3]]}
    assert one(sampler, x, bad, prompt=[1, 2])["token"] == 3  # the prompt is not output
    assert one(sampler, x, bad, prompt=[0], output=[1, 2])["token"] == 4
    assert one(sampler, x, bad, prompt=[0], output=[2, 2])["token"] == 3
    assert one(sampler, x, bad, prompt=[0], output=[2])["token"] == 3
    assert one(sampler, x, {"temperature": 0.0, "bad_words": [[3]]}, prompt=[0])["token"] == 4


def test_min_tokens_masks_eos_and_stop_ids_also_under_ignore_eos(sampler):
    x = F([0, 1, 2, 9, 8])
    for ignore in (False, True):
        s = {"temperature": 0.0, "min_tokens": 2, "stop_token_ids": [4], "ignore_eos": ignore}
        assert one(sampler, x, s, prompt=[0], output=[1], eos=[3])["token"] == 2
        assert one(sampler, x, s, prompt=[0], output=[1, 1], eos=[3])["token"] == 3


def test_logit_bias_is_clamped(sampler):
    x = F([0, 150, 0])
    assert one(sampler, x, {"temperature": 0.0, "logit_bias": [[0, 1e9]]})["token"] == 1
    assert one(sampler, x, {"temperature": 0.0, "logit_bias": [[1, -100], [2, 100]]})["token"] == 2


def test_padded_vocabulary_is_never_chosen(sampler, rng):
    x = rng.normal(0, 1, 100).astype(F)
    x[90:] = 50
    for s in ({"temperature": 0.0}, {"seed": 3}, {"seed": 4, "temperature": 2.0}):
        a = one(sampler, x, s | {"logprobs": 20}, used_vocab=90)
        assert a["token"] < 90 and max(a["top_ids"]) < 90
    with pytest.raises(Refused, match="allowed_token_ids"):
        one(sampler, x, {"allowed_token_ids": [95]}, used_vocab=90)


@pytest.mark.parametrize("sampling, row", [
    ({"allowed_token_ids": [3], "bad_words": [[3]]}, {}),
    ({"allowed_token_ids": [3], "min_tokens": 1}, {"eos": [3]}),
    ({"allowed_token_ids": [2, 3], "min_tokens": 1, "stop_token_ids": [2]}, {"eos": [3]}),
    ({"bad_words": [[0], [1], [2], [3], [4]]}, {}),
])
def test_masks_that_leave_nothing_are_refused(sampler, sampling, row):
    with pytest.raises(Refused, match="leave no token"):
        one(sampler, F([0, 1, 2, 3, 4]), sampling, **row)


def test_extreme_penalties_keep_a_row_finite(sampler):
    for penalty in (1e-300, 1e-38, 1e38, 1e300):
        a = one(sampler, F([1e30, -1e30, 2, 0]), {"repetition_penalty": penalty, "seed": 1},
                prompt=[0, 1, 2, 3])
        assert a["status"] == 0 and a["token"] >= 0


# ---- random rows, random parameters ------------------------------------------------------------

@pytest.mark.parametrize("ops", EVERY_LEG, indirect=True)
@pytest.mark.parametrize("n", [3, 64, 1023, 5000, 12000])
def test_thresholds_of_random_rows(ops, rng, n):
    """The kept set itself, for widths where ids cannot all be asked for."""
    rows = 77
    y = np.stack([reference.temper(make_logits(rng, KINDS[i % len(KINDS)], n),
                                   rng.choice([.01, .5, 1, 2])) for i in range(rows)])
    min_p = rng.choice([0, 0, 1e-9, .05, 1], rows).astype(F)
    top_k = rng.choice([n, n, 1, 3, 40, 900, n // 2, n - 1], rows).astype(np.int32)
    top_p = rng.choice([1, 1e-7, .01, .3, .5, .9, .99, .9999], rows).astype(F)
    t, cuts = ops.run("threshold", [Input(y), Input(min_p), Input(top_k), Input(top_p)])
    for i in range(rows):
        expected = reference.cut(y[i], min_p[i], top_k[i], top_p[i])
        assert ((y[i] >= t[i]) & (y[i] > -np.inf)).tolist() == expected.tolist(), i
        sets, _ = reference.kept_by_each(y[i], min_p[i], top_k[i], top_p[i])
        for c, expected in zip(cuts[i], sets):
            assert ((y[i] >= c) & (y[i] > -np.inf)).tolist() == expected.tolist(), i
        assert cuts[i][2] == t[i]


@pytest.mark.parametrize("ops", NATIVE, indirect=True)
def test_thresholds_of_long_tied_rows(ops, rng):
    """More values between two that differ than the search keeps."""
    rows, n = 12, 150001
    y = rng.choice(F([0, -1, -2]), (rows, n), p=[.1, .85, .05])
    y[:, 0] = 0
    min_p = np.zeros(rows, F)
    top_k = rng.choice([n, n, 70000, 120000, 1500], rows).astype(np.int32)
    top_p = F([.9, .9, 1, .999] * 3)
    t, _ = ops.run("threshold", [Input(y), Input(min_p), Input(top_k), Input(top_p)])
    for i in range(rows):
        expected = reference.cut(y[i], min_p[i], top_k[i], top_p[i])
        assert ((y[i] >= t[i]) == expected).all(), i


# ---- a row's answer is its own -----------------------------------------------------------------


@pytest.mark.parametrize("backend", LEGS)
def test_answers_do_not_depend_on_company(backend, rng):
    """Alone, among others, at another place, in another bucket, on two threads: the same bits."""
    n = 3000
    rows = [make_row(rng, n) for _ in range(12)]
    x = np.stack([make_logits(rng, KINDS[i % len(KINDS)], n) for i in range(12)])
    order = rng.permutation(12)
    with Sampler(backend) as s, Sampler(backend, threads=2) as two:
        together = s.run(x, rows, bucket=16)
        shuffled = two.run(x[order], [rows[i] for i in order], bucket=64)
        for place, i in enumerate(order):
            assert shuffled[place] == together[i]
        for i in range(12):
            assert s.run(x[i:i + 1], [rows[i]])[0] == together[i]


@pytest.mark.parametrize("leg", EVERY_LEG[1:])
def test_every_backend_gives_the_same_bits(leg, rng):
    n = 4000
    rows = [make_row(rng, n) for _ in range(36)]
    kinds = [k for k in KINDS if k != "denormal" or not flushes(leg)]
    x = np.stack([make_logits(rng, kinds[i % len(kinds)], n) for i in range(36)])
    with Sampler("ref") as ref, Sampler(leg) as other:
        for mode in MODES if leg in NATIVE else MODES[1::2]:
            assert other.run(x, rows, mode=mode) == ref.run(x, rows, mode=mode)


# ---- prompt logprobs ---------------------------------------------------------------------------


def test_prompt_logprobs(sampler, rng):
    n = 500
    x = rng.normal(0, 3, (9, n)).astype(F)
    targets = [int(t) for t in rng.integers(0, n, 9)]
    rows = [{"sampling": {"prompt_logprobs": k, "temperature": .5, "top_k": 3}} for k in range(9)]
    for answer, row, target, k in zip(sampler.run(x, rows, targets=targets), x, targets, range(9)):
        exact = reference.log_softmax(row)
        assert abs(answer["logprob"] - exact[target]) <= tolerance(exact[target], row[target], n)
        assert answer["rank"] == (row >= row[target]).sum()
        top = [int(i) for i in np.argsort(-row, kind="stable")[:k]]
        assert answer["top_ids"][:k] == top and set(answer["top_ids"][k:]) <= {-1}
