"""Random rows for the sampler, what its definition answers to them, and the comparison.

Ids, kept sets, ranks and statuses are compared exactly: they follow from integers. A logprob is
x - lse with lse rounded to float32 once, so it may be off by half a unit in the last place of lse,
of x and of itself, and by the masses' rounding, V * 2^-41.
"""

import pathlib
import sys

import numpy as np

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import sampler_reference as reference  # noqa: E402

F = np.float32
MODES = ["raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits"]
KINDS = ["normal", "flat", "peaked", "tied", "masked", "huge", "denormal", "mixed", "constant",
         "shallow", "combed", "raised"]
POISON = ["nan", "infinite", "nothing", "one"]
EXTRA = 128


def make_logits(rng, kind, n):
    x = rng.normal(0, 3, n)
    if kind == "flat":
        x = rng.normal(0, 1e-3, n)
    elif kind == "peaked":
        x[rng.integers(n)] += 40
    elif kind == "tied":
        x = np.round(x)
    elif kind == "masked":
        x[rng.random(n) < .7] = -np.inf
        x[rng.integers(n)] = 1
    elif kind == "huge":
        x *= 1e30
    elif kind == "denormal":
        x *= 1e-39
    elif kind == "mixed":
        x *= 10.0 ** rng.integers(-3, 4, n)
    elif kind == "constant":
        x[:] = x[0]
    elif kind == "shallow":
        x /= 6
    elif kind in ("combed", "raised"):  # a sample taken by steps is not like the rest
        x /= 6
        x[np.arange(n) % 64 < 4] += 2 if kind == "raised" else -2
    elif kind == "nan":
        x[rng.integers(n)] = np.nan
    elif kind == "infinite":
        x[rng.integers(n)] = np.inf
    elif kind == "nothing":
        x[:] = -np.inf
    elif kind == "one":
        x[:] = -np.inf
        x[rng.integers(n)] = rng.normal(0, 50)
    return x.astype(F)


def maybe(rng, share, make):
    return make() if rng.random() < share else None


def make_row(rng, n):
    """Random parameters. What bans ids, four at most, is left out where there are few."""
    ids = lambda k: [int(i) for i in rng.choice(n, min(k, n), replace=False)]  # noqa: E731
    few = lambda share: share if n >= 7 else 0  # noqa: E731
    s = {
        "seed": int(rng.integers(-2**40, 2**40)),
        "temperature": float(rng.choice([0, 1e-6, 1e-4, .3, .7, 1, 1.3, 2])),
        "logprobs": int(rng.integers(-1, 6)),
        "top_k": maybe(rng, .5, lambda: int(rng.choice([-1, 1, 2, 5, 40, n - 1, n, n + 5]))),
        "top_p": maybe(rng, .6, lambda: float(rng.choice([1e-6, .1, .5, .9, .95, .999, rng.random()
                                                          + 1e-9, 1]))),
        "min_p": maybe(rng, .3, lambda: float(rng.choice([1e-12, .01, .2, 1, rng.random()]))),
        "presence_penalty": maybe(rng, .2, lambda: float(rng.uniform(-2, 2))),
        "frequency_penalty": maybe(rng, .2, lambda: float(rng.uniform(-2, 2))),
        "repetition_penalty": maybe(rng, .2, lambda: float(rng.choice([.5, 1.1, 3, 1e-3]))),
        "logit_bias": maybe(rng, .2, lambda: [[i, float(rng.uniform(-120, 120))] for i in ids(5)]),
        "allowed_token_ids": maybe(rng, few(.15), lambda: ids(int(rng.integers(5, n + 3)))),
        "bad_words": maybe(rng, few(.2), lambda: [ids(1), ids(2)]),
        "min_tokens": maybe(rng, few(.2), lambda: 4),
        "stop_token_ids": maybe(rng, few(.2), lambda: ids(1)),
        "logprob_token_ids": ids(EXTRA) if n <= EXTRA else ids(7),
    }
    s = {k: v for k, v in s.items() if v is not None}
    if s.get("top_k", 0) < -1:
        del s["top_k"]
    row = {"sampling": s, "prompt": [int(i) for i in rng.integers(0, n, rng.integers(1, 30))],
           "output": [int(i) for i in rng.integers(0, n, rng.integers(0, 8))],
           "eos": ids(1), "choice": int(rng.integers(0, 4))}
    if rng.random() < .3:
        s["sampling_trace"] = True
    if rng.random() < .15:
        row["grammar"] = [int(w) for w in rng.integers(0, 2**32, (n + 31) // 32)]
    return row


def make_rows(rng, count, n, kinds=KINDS):
    """Logits [count,n] and as many rows, every kind in turn."""
    rows = [make_row(rng, n) for _ in range(count)]
    return np.stack([make_logits(rng, kinds[i % len(kinds)], n) for i in range(count)]), rows


def define(x, row, mode="raw_logprobs", flush=False, used=0):
    """What the definition answers to one row."""
    return reference.sample(x, row["sampling"], row["prompt"], row["output"], row["eos"],
                            row["choice"], row.get("grammar"), used=used, mode=mode, flush=flush)


def ask_about_the_edge(rng, row, expected):
    """Names the ids that a wrong cut would take or leave first: the least of the survivors and the
    best of the others, and some that lie anywhere."""
    if expected["status"]:
        return
    n = len(expected["keep"])
    y = expected["y"]
    last_first = np.argsort(y, kind="stable")
    kept, others = last_first[expected["keep"][last_first]], last_first[~expected["keep"][last_first]]
    ids = [*kept[:60], *others[-60:], *rng.choice(n, min(n, 8), replace=False)]
    row["sampling"]["logprob_token_ids"] = list(dict.fromkeys(int(i) for i in ids))


def tolerance(exact, x, n, least=2.0**-149):
    """See the top. `x` is the score before lse was taken off. Of numbers or arrays."""
    return 2.0**-24 * (abs(exact) + abs(x) + abs(x - exact)) + n * 2.0**-41 + least


def check_scores(got, ids, expected, processed, flush):
    """Logprobs of some ids against the definition's; None is -inf."""
    if not len(ids):
        return
    n = len(expected["order"])
    got = np.array([-np.inf if g is None else g for g in got], np.float64)
    exact, order = expected["scores"][ids], expected["order"][ids].astype(np.float64)
    vast = ~(exact >= -1e38)  # -inf, or what may round to it
    assert (got[vast] < -1e37).all()
    room = tolerance(exact[~vast], order[~vast], n, 2.0**-126 if flush else 2.0**-149)
    assert (abs(got[~vast] - exact[~vast]) <= room).all()
    if processed:  # survivors and nobody else have a score
        kept = expected["keep"][ids]
        assert (got[~kept] == -np.inf).all() and (got[kept & ~vast] > -np.inf).all()


def check_trace(got, expected, n):
    """Candidates and cuts exactly: they are counts, and values of the row. The entropy's -ln p is
    y + ln(total), y in steps of 2^-20, and a mass is off by half of 2^-40 at most."""
    assert got["candidates"] == expected["candidates"]
    if "cuts" in expected:
        assert [-np.inf if c is None else c for c in got["cuts"]] == [float(c) for c in
                                                                      expected["cuts"]]
    entropy, share = expected["sums"]
    assert abs(got["sums"][0] - entropy) <= 2.0**-21 + n * 2.0**-40 + 2.0**-24 * entropy
    assert abs(got["sums"][1] - share) <= 2.0**-24 * share


def check(answer, expected, row, mode="raw_logprobs", flush=False):
    """flush: on a device whose float arithmetic knows no denormals."""
    assert answer["status"] == expected["status"]
    if expected["status"]:
        return
    s, processed = row["sampling"], mode.startswith("processed")
    assert answer["token"] == expected["token"]
    assert ("trace" in answer) == s.get("sampling_trace", False)
    if "trace" in answer:
        check_trace(answer["trace"], expected["trace"], len(expected["order"]))
    extra = s.get("logprob_token_ids", [])
    check_scores(answer["extra_logprobs"][:len(extra)], extra, expected, processed, flush)
    check_scores([answer["logprob"]], [answer["token"]], expected, processed, flush)
    assert answer["rank"] == expected["rank"]
    wanted = max(s.get("logprobs", -1), 0)
    assert answer["top_ids"][:wanted] == expected["top"][:wanted]
    assert set(answer["top_ids"][wanted:]) <= {-1}
    most = min(wanted, len(expected["top"]))
    check_scores(answer["top_logprobs"][:most], answer["top_ids"][:most], expected, processed, flush)


def check_all(answers, x, rows, mode="raw_logprobs", flush=False):
    for i, (answer, row) in enumerate(zip(answers, rows)):
        try:
            check(answer, define(x[i], row, mode, flush), row, mode, flush)
        except AssertionError as e:
            raise AssertionError(f"row {i}: {row['sampling']}: {answer}") from e
