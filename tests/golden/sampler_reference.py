"""The sampler's declared order, steps 1 to 17, in NumPy and integers.

Written from docs/SAMPLING.md, not from the C: float32 where a step rounds, float64 exp from the C
library where it does not, sorting where the engine searches, integers where masses are summed.
sample() is one row; what it returns must be what every backend returns.
"""

import math

import numpy as np

F = np.float32
FLT_MAX = np.finfo(np.float32).max
TINY = np.finfo(np.float32).tiny
WORD = 2**64
OK, EMPTY, NAN = 0, 1, 2


def philox(counter, key):
    """Philox4x32-10 of Salmon et al. 2011."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def random_word(seed, position):
    seed %= WORD
    out = philox((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))
    return out[0] | out[1] << 32


def masses(y):
    """round(exp(y) * 2^40) of float32 or float64 y <= 0, as uint64: sums of 2^22 stay exact."""
    with np.errstate(under="ignore"):
        return np.rint(np.exp(np.asarray(y, np.float64)) * 2.0**40).astype(np.uint64)


def flushed(x, flush=True):
    """What arithmetic takes a number for, and makes of one, on a device without denormals."""
    return np.where(np.abs(x) < TINY, np.copysign(F(0), x), x).astype(F) if flush else x


def temper(x, temperature, flush=False):
    """(x - max) / T in float32; float64 would be another distribution."""
    x = flushed(x, flush)
    most = x.max()
    if most == -np.inf:
        return np.full_like(x, -np.inf)
    with np.errstate(over="ignore"):
        y = flushed(x - most, flush) / F(temperature)
        return np.where(x == most, F(0), flushed(y, flush)).astype(F)


def cut(y, min_p, top_k, top_p):
    """The survivors of a tempered row, as a boolean array. Steps 12 to 15."""
    keep = y > -np.inf
    if min_p > 0:
        # as a distance: exp() would round what lies a denormal below the best to the best
        keep &= y.astype(np.float64) >= math.log(F(min_p))
    if 0 < top_k < len(y):
        keep &= y >= np.sort(y)[::-1][top_k - 1]
    if F(top_p) < 1 and keep.any():
        values, count = np.unique(y[keep], return_counts=True)
        total = np.cumsum((masses(values) * count.astype(np.uint64))[::-1])  # from the best down
        bits = math.floor(float(F(top_p)) * 2**24 + 0.5)
        target = bits * int(total[-1]) // 2**24
        keep &= y >= values[::-1][np.searchsorted(total, np.uint64(target))]
    return keep


def kept_by_each(y, min_p, top_k, top_p):
    """The survivors after min_p, after top_k, after top_p, and the value that each cut at: -inf
    where nothing has cut."""
    sets = [cut(y, min_p, len(y), 1), cut(y, min_p, top_k, 1), cut(y, min_p, top_k, top_p)]
    least = F(-np.inf)
    if min_p > 0:  # the smallest float32 that is not below
        least = F(math.log(F(min_p)))
        if float(least) < math.log(F(min_p)):
            least = np.nextafter(least, F(0))
    cuts = [least]
    cuts.append(max(least, np.sort(y)[::-1][top_k - 1]) if 0 < top_k < len(y) else least)
    cuts.append(y[sets[2]].min() if F(top_p) < 1 and sets[2].any() else cuts[1])
    return sets, cuts


def entropy_of(y, keep, token):
    """-sum p ln p of the masses, in nats, and the token's share: float64."""
    w = masses(np.where(keep, y, -np.inf))
    total = int(w.sum())
    if not total:
        return 0.0, 0.0
    p = [int(m) / total for m in w if m]
    return -math.fsum(q * math.log(q) for q in p), int(w[token]) / total if token >= 0 else 0.0


def draw(y, keep, word):
    total = np.cumsum(np.where(keep, masses(np.where(keep, y, -np.inf)), np.uint64(0)))
    at = word * int(total[-1]) // WORD
    return int(np.searchsorted(total, np.uint64(at), side="right")) if total[-1] else -1


def log_softmax(x):
    """float64."""
    x = x.astype(np.float64)
    most = x.max()
    if most == -np.inf:
        return np.full_like(x, -np.inf)
    with np.errstate(under="ignore"):
        return x - (most + math.log(math.fsum(np.exp(x - most))))


def penalise(x, prompt, output, p, flush=False):
    """Steps 7 to 9."""
    count = np.bincount(np.asarray(output, np.int64), minlength=len(x))[:len(x)]
    count = np.minimum(count, 32767)
    seen = count > 0
    if p["repetition_penalty"] != 1:  # which alone looks at the prompt: nothing else is touched there
        seen[np.asarray(prompt, np.int64)] = True
    repetition = F(min(max(p["repetition_penalty"], float(TINY)), float(FLT_MAX)))
    finite = np.isfinite(x)
    x = np.where(seen & finite, flushed(x, flush), x)
    with np.errstate(all="ignore"):
        y = np.where(seen & finite, np.where(x > 0, x / repetition, x * repetition), x).astype(F)
        y = np.where(seen & finite, flushed(y, flush), y)
        y = np.where(finite & (count > 0), y - F(p["frequency_penalty"]) * count.astype(F), y)
        y = np.where(finite & (count > 0), y - F(p["presence_penalty"]), y).astype(F)
        return np.where(finite & seen, np.clip(y, -FLT_MAX, FLT_MAX), y).astype(F)


DEFAULTS = dict(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, presence_penalty=0.0,
                frequency_penalty=0.0, repetition_penalty=1.0, seed=0, min_tokens=0, logprobs=-1,
                logit_bias=(), bad_words=(), stop_token_ids=(), allowed_token_ids=None,
                logprob_token_ids=())

PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")


def banned(p, output, eos):
    ids = set()
    for word in p["bad_words"]:
        prefix = list(word[:-1])
        if list(output[len(output) - len(prefix):]) == prefix:
            ids.add(word[-1])
    if len(output) < p["min_tokens"]:
        ids |= set(eos) | set(p["stop_token_ids"])
    return sorted(ids)


def ones(words, n):
    return np.array([words[i // 32] >> (i % 32) & 1 for i in range(n)], bool)


def sample(logits, sampling, prompt=(), output=(), eos=(), choice=0, grammar=None, used=0,
           mode="raw_logprobs", word=None, flush=False):
    """One row. Returns token, status, scores (what logprobs are taken of: float64 [V]), rank.
    flush: on a device whose float arithmetic knows no denormals."""
    p = DEFAULTS | sampling
    x = np.asarray(logits, F).copy()
    n = len(x)
    status = NAN if (np.isnan(x) | (x == np.inf)).any() else OK
    if status == NAN:
        return dict(status=NAN)
    if grammar is not None:                                             # 1
        x[~ones(grammar, n)] = -np.inf
    if used:
        x[used:] = -np.inf
    raw = x.copy()                                                      # 2
    if p["allowed_token_ids"] is not None:                              # 3
        keep = np.zeros(n, bool)
        keep[list(p["allowed_token_ids"])] = True
        x[~keep] = -np.inf
    x[banned(p, output, eos)] = -np.inf                                 # 4, 5
    for token, bias in p["logit_bias"]:                                 # 6
        x[token] += F(min(max(bias, -100.0), 100.0))
    asked = any(p[k] != DEFAULTS[k] for k in PENALTIES)
    x = penalise(x, prompt, output, p, flush and asked)                 # 7, 8, 9
    if x.max() == -np.inf:
        return dict(status=EMPTY)
    best = int(np.argmax(x))                                            # 10
    greedy = p["temperature"] < 1e-5 or p["top_k"] == 1
    if p["temperature"] < 1e-5:
        y, keep, shown = x, x > -np.inf, x.astype(np.float64)
    else:
        temperature = F(max(p["temperature"], 0.01))
        y = temper(x, temperature, flush)                               # 11
        keep = cut(y, p["min_p"], p["top_k"], p["top_p"])               # 12 to 15
        shown = y.astype(np.float64) + float(x.max()) / float(temperature)
    if greedy:                                                          # 17
        token = best
    else:                                                               # 16
        if word is None:
            word = random_word(p["seed"] + choice, len(prompt) + len(output))
        token = draw(y, keep, word)
    trace = dict(candidates=[int((v > -np.inf).sum()) for v in (raw, x)] + [0, 0, 0], sums=(0, 0))
    if not greedy:
        sets, cuts = kept_by_each(y, p["min_p"], p["top_k"], p["top_p"])
        trace["candidates"][2:] = [int(s.sum()) for s in sets]
        trace |= dict(cuts=cuts, sums=entropy_of(y, keep, token))
    order = {"raw_logprobs": raw, "raw_logits": raw}.get(mode, np.where(keep, y, F(-np.inf)))
    scores = {"raw_logprobs": lambda: log_softmax(raw),
              "raw_logits": lambda: raw.astype(np.float64),
              "processed_logprobs": lambda: log_softmax(order),
              "processed_logits": lambda: np.where(keep, shown, -np.inf)}[mode]()
    return dict(status=OK, token=token, trace=trace, scores=scores, keep=keep, y=y, order=order,
                rank=int((order >= order[token]).sum()),
                top=[int(i) for i in np.argsort(-order, kind="stable")])
