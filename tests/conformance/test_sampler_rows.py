"""Many random rows. Equality: whatever runs the sampler answers what its definition says, and the
native programs - fused, row by row, vectorised - what ref's plain ops say, bit for bit.
Independence: a row's answer is its own, whatever its place, company, bucket, threads and batch."""

import functools
import itertools

import numpy as np
import pytest

from child import EVERY_LEG, LEGS, NATIVE
from ops import flushes
from sampler import Sampler
from sampler_rows import (EXTRA, KINDS, MODES, POISON, ask_about_the_edge, check_all, define,
                          make_rows)

# Widths and rows: 5,000 in all. Around a vector's, a mask word's and a block's width, and between.
WIDTHS = {1: 100, 2: 100, 7: 300, 8: 200, 15: 200, 16: 200, 31: 200, 32: 200, 33: 300, 65: 300,
          100: 400, 127: 400, 128: 400, 129: 300, 255: 300, 500: 300, 1000: 300, 1025: 300,
          2049: 100, 5003: 50, 20011: 30, 50257: 20}
assert sum(WIDTHS.values()) == 5000
FINITE = [k for k in KINDS if k != "denormal"]


def seed(*of):
    return np.random.default_rng([ord(c) for part in of for c in str(part)])


@functools.cache
def case(n, mode, flush):
    """Rows of one width, each asking about the edge of its kept set, and the definition's answers."""
    rng = seed("equal", n, mode)
    x, rows = make_rows(rng, WIDTHS[n], n, KINDS + POISON)
    for logits, row in zip(x, rows):
        if n > EXTRA:
            ask_about_the_edge(rng, row, define(logits, row, mode, flush))
    return x, rows


# A plugin compiles two programs for each width: the one that may break with a compiler's version is
# spared most of them.
@pytest.mark.parametrize("n,leg", [(n, leg) for n in WIDTHS for leg in EVERY_LEG
                                   if leg in LEGS or n in (33, 128, 1025)])
def test_rows_equal_the_definition(leg, n):
    mode = MODES[list(WIDTHS).index(n) % 4]
    flush = flushes(leg)
    x, rows = case(n, mode, flush)
    with Sampler(leg, threads=2) as s:
        check_all(s.run(x, rows, mode=mode, bucket=len(rows) + 3), x, rows, mode, flush)


# ---- the fast path is the plain path -------------------------------------------------------------

BATCHES = [1, 2, 3, 5, 8, 33]
PLACES = [(151936, "raw_logprobs"), (50257, "processed_logprobs"), (32000, "processed_logits"),
          (49152, "raw_logprobs"), (4099, "raw_logits"), (1000, "raw_logprobs"),
          (97, "processed_logprobs"), (7, "raw_logprobs"), (1, "raw_logits")]


@functools.cache
def plain(n, mode):
    """33 rows and what ref says to each by itself."""
    x, rows = make_rows(seed("plain", n), 33, n, FINITE + POISON)
    with Sampler("ref", threads=2) as ref:
        return x, rows, [ref.run(x[i:i + 1], rows[i:i + 1], mode=mode)[0] for i in range(33)]


def batches(n):
    """Every number of rows, of threads, some room in the bucket; which rows, at which places."""
    rng = seed("batches", n)
    for size, threads in itertools.product(BATCHES, (1, 2, 3)):
        yield size, threads, size + int(rng.choice([0, 1, 7])), rng.permutation(33)[:size]


@pytest.mark.parametrize("leg", NATIVE[1:])
@pytest.mark.parametrize("n,mode", PLACES)
def test_native_programs_equal_plain_ops_in_any_batch(leg, n, mode):
    x, rows, want = plain(n, mode)
    with Sampler(leg, 1) as one, Sampler(leg, 2) as two, Sampler(leg, 3) as three:
        for size, threads, bucket, picked in batches(n):
            s = (one, two, three)[threads - 1]
            got = s.run(x[picked], [rows[i] for i in picked], mode=mode, bucket=bucket)
            assert got == [want[i] for i in picked], (size, threads, bucket)


@pytest.mark.parametrize("n,leg", [(n, leg) for n in (97, 1000, 50257) for leg in EVERY_LEG
                                   if leg not in NATIVE and (leg in LEGS or n == 97)])
def test_a_plugins_programs_equal_plain_ops_in_any_batch(leg, n):
    mode = dict(PLACES)[n]
    x, rows, want = plain(n, mode)
    with Sampler(leg) as s:
        for size, bucket in {97: [(1, 1), (3, 8), (8, 8)], 1000: [(33, 40)], 50257: [(3, 5)]}[n]:
            picked = seed("plugin", n, size).permutation(33)[:size]
            got = s.run(x[picked], [rows[i] for i in picked], mode=mode, bucket=bucket)
            assert got == [want[i] for i in picked], (size, bucket)


# ---- a row's answer is its own ---------------------------------------------------------------------

@pytest.mark.parametrize("leg", LEGS)
def test_a_row_keeps_its_answer_at_every_place(leg):
    """One row among eight others that change each time, at each of nine places."""
    n, rng = 700, seed("place")
    x, rows = make_rows(rng, 40, n, FINITE + POISON)
    with Sampler(leg) as s:
        for mine in range(4):
            answers = set()
            for place in range(9):
                others = 4 + rng.permutation(36)[:8]
                picked = [*others[:place], mine, *others[place:]]
                got = s.run(x[picked], [rows[i] for i in picked], mode="processed_logprobs")
                answers.add(str(got[place]))
            assert len(answers) == 1


@pytest.mark.parametrize("leg", LEGS)
def test_a_row_keeps_its_answer_beside_one_option_or_another(leg):
    """Its neighbours are defaults, then greedy, then each option in turn: what a batch asks for
    chooses no other arithmetic for a row that does not ask for it."""
    n, rng = 333, seed("options")
    x, _ = make_rows(rng, 3, n, ["normal"])
    mine = {"prompt": [1, 2], "output": [3], "sampling": {"seed": 5, "logprobs": 3, "top_p": .9}}
    neighbours = [
        {}, {"temperature": 0.0}, {"temperature": 2.0}, {"top_k": 5}, {"top_p": .3}, {"min_p": .2},
        {"presence_penalty": 2.0}, {"frequency_penalty": -2.0}, {"repetition_penalty": 9.0},
        {"logit_bias": [[i, 100.0] for i in range(200)]}, {"allowed_token_ids": [4]},
        {"bad_words": [[i] for i in range(100)]}, {"min_tokens": 9, "stop_token_ids": [7]},
        {"logprobs": 20}, {"logprob_token_ids": list(range(EXTRA))}]
    with Sampler(leg) as s:
        answers = set()
        for sampling in neighbours:
            other = {"prompt": [1] * 9, "output": [3] * 9, "sampling": {"seed": 1} | sampling}
            answers.add(str(s.run(x, [other, mine, other])[1]))
        answers.add(str(s.run(x[1:2], [mine])[0]))
        assert len(answers) == 1
