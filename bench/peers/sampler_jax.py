#!/usr/bin/env python3
"""The sampler's benchmark in JAX, on the CPU: jitted, with a sort and with a bisection.

`sort` sorts the tempered logits and reads both thresholds from the sorted row and its cumulative
softmax. `bisect` is how the TPU backends of vLLM go about it: the k-th value and the top_p threshold
are each found by halving a range, one pass over the logits a turn. Both then mask below the
threshold and draw with Gumbel noise. Everything is traced: options are arrays, one program a batch.

    .cache/peers/sampler/venv/bin/python bench/peers/sampler_jax.py --batch-sizes 1,32
"""
import functools
import os

import sampler_work

if __name__ == "__main__":
    ARGUMENTS = sampler_work.arguments(__doc__, ("sort", "bisect"))
    # XLA makes as many threads as it has processors, counted when it is loaded
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:ARGUMENTS.threads])
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

LOWEST = -jnp.inf


def counts_of(ids, vocab):
    """i32 [B,V]: how often each id is in each row."""
    rows = jnp.arange(ids.shape[0])[:, None]
    return jnp.zeros((ids.shape[0], vocab), jnp.int32).at[rows, ids].add(1)


def penalised(x, w):
    output = counts_of(w["output"], x.shape[1])
    seen = (output > 0) | (counts_of(w["prompt"], x.shape[1]) > 0)
    factor = jnp.where(seen, w["repetition"][:, None], 1)
    x = jnp.where(x > 0, x / factor, x * factor)
    return x - w["frequency"][:, None] * output - w["presence"][:, None] * (output > 0)


def processed(x, w, on):
    """What comes before the temperature."""
    if on["mask"]:
        x = jnp.where(w["allowed"], x, LOWEST)
    if w["bias_ids"].shape[0]:
        x = x.at[:, w["bias_ids"]].add(w["bias_values"])
    return penalised(x, w) if on["penalties"] else x


def cut_by_sort(x, w):
    """f32 [B,1] each: the k-th value, and the least that top_p keeps of what is left."""
    values = jnp.sort(x, -1, descending=True)
    kth = jnp.take_along_axis(values, w["top_k"][:, None] - 1, 1)
    p = jax.nn.softmax(jnp.where(values >= kth, values, LOWEST), -1)
    before = jnp.cumsum(p, -1) - p
    last = jnp.sum(before < w["top_p"][:, None], -1, keepdims=True) - 1
    return kth, jnp.take_along_axis(values, jnp.maximum(last, 0), 1)


def ordered(x):
    """i32 that rise as x does; its own inverse, but for the type."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32)
    return bits ^ (jnp.right_shift(bits, 31) & 0x7FFFFFFF)


def largest_that(holds, rows):
    """The largest i32 [B,1] of which `holds` is true, bit by bit."""
    def turn(i, found):
        wider = jnp.where(i == 0, jnp.zeros_like(found), found | (jnp.int32(1) << (31 - i)))
        return jnp.where(holds(wider), wider, found)
    return jax.lax.fori_loop(0, 32, turn, jnp.full((rows, 1), -2**31, jnp.int32))


def cut_by_bisection(x, w):
    keys, rows = ordered(x), x.shape[0]
    kth = largest_that(lambda t: jnp.sum(keys >= t, -1, keepdims=True) >= w["top_k"][:, None], rows)
    p = jax.nn.softmax(jnp.where(keys >= kth, x, LOWEST), -1)
    least = largest_that(lambda t: jnp.sum(jnp.where(keys >= t, p, 0), -1, keepdims=True)
                         >= w["top_p"][:, None], rows)

    def value(key):
        return jax.lax.bitcast_convert_type(key ^ (jnp.right_shift(key, 31) & 0x7FFFFFFF),
                                            jnp.float32)
    return value(kth), value(least)


CUTS = {"sort": cut_by_sort, "bisect": cut_by_bisection}


def kept(form, x, w):
    """x tempered, -inf where it is cut."""
    x = x / w["temperature"][:, None]
    p = jax.nn.softmax(x, -1)
    x = jnp.where(p < w["min_p"][:, None] * jnp.max(p, -1, keepdims=True), LOWEST, x)
    kth, least = CUTS[form](x, w)
    return jnp.where(x >= jnp.maximum(kth, least), x, LOWEST)


def logprobs_of(x, token, n):
    """Of the token, its rank, the n best."""
    scores = jax.nn.log_softmax(x, -1)
    own = jnp.take_along_axis(scores, token[:, None], 1)
    return own, jnp.sum(scores >= own, -1), *jax.lax.top_k(scores, n)


def sample(form, on, x, w, key):
    y = processed(x, w, dict(on))
    token = (jnp.argmax(y, -1) if dict(on)["greedy"]
             else jax.random.categorical(key, kept(form, y, w), -1))
    n = dict(on)["logprobs"]
    return token, *(logprobs_of(x, token, n) if n else ())


def head_and_sample(form, on, x, weight, w, key):
    return sample(form, on, logits_of(x, weight), w, key)


def logits_of(x, weight):
    return jnp.dot(x, weight, preferred_element_type=jnp.float32)


ALONE = jax.jit(sample, static_argnums=(0, 1))
BOTH = jax.jit(head_and_sample, static_argnums=(0, 1))
HEAD = jax.jit(logits_of)
KEPT = jax.jit(kept, static_argnums=0)


class Rig(sampler_work.Rig):
    name = f"JAX {jax.__version__}"
    forms = ("sort", "bisect")

    def __init__(self, a, hidden, vocab, head):
        self.hidden, self.vocab, self.dtype = hidden, vocab, getattr(jnp, head)
        # as it is multiplied: no transposition in the program
        self.weight = jnp.asarray(sampler_work.weights(hidden, vocab).T.copy(), self.dtype)
        self.key = jax.random.key(7)
        self.check()

    def states(self, rows):
        return jnp.asarray(sampler_work.hidden_states(rows, self.hidden), self.dtype)

    def work(self, case, rows):
        """Arrays, and what is fixed in the program."""
        given = sampler_work.inputs(case, rows, self.vocab)
        arrays = {k: jnp.asarray(v) for k, v in given.items() if isinstance(v, np.ndarray)}
        return arrays, tuple((k, given[k]) for k in ("penalties", "mask", "logprobs", "greedy"))

    def check(self):
        """Both forms keep the same ids."""
        w, _ = self.work("temperature, top_k, top_p", 2)
        x = HEAD(self.states(2), self.weight)
        a, b = (np.isfinite(KEPT(form, x, w)) for form in self.forms)
        if not (a == b).all():
            raise SystemExit("JAX: the forms keep different ids")

    def head(self, rows):
        x = self.states(rows)
        return lambda: HEAD(x, self.weight).block_until_ready()

    def step(self, form, case, rows, with_head):
        (w, on), x = self.work(case, rows), self.states(rows)
        if with_head:
            run = functools.partial(BOTH, form, on, x, self.weight, w, self.key)
        else:
            run = functools.partial(ALONE, form, on, HEAD(x, self.weight), w, self.key)
        return lambda: [np.asarray(r) for r in run()]


if __name__ == "__main__":
    sampler_work.main(ARGUMENTS, Rig)
