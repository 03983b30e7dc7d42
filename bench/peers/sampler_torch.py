#!/usr/bin/env python3
"""The sampler's benchmark in torch, on the CPU: sort-based, and top-k first.

`sort` is how vLLM samples where no kernel of its own fits: sort all logits, mask below the k-th and
where the cumulative softmax has not reached 1 - p, scatter back, softmax, then divide by exponential
noise and take the largest. `topk` is the shortcut for small k: torch.topk, and what is left to do, the
temperature too, on k columns. It drops what is tied with the k-th value.

Penalties come from counts of both halves of a row's history, which are made anew in each step.

    .cache/peers/sampler/venv/bin/python bench/peers/sampler_torch.py --batch-sizes 1,32
"""
import torch

import sampler_work

LOWEST = -float("inf")


def counts_of(ids, vocab):
    """i64 [B,V]: how often each id is in each row."""
    counts = torch.zeros(ids.shape[0], vocab, dtype=torch.int64)
    return counts.scatter_add_(1, ids, torch.ones_like(ids))


def penalised(x, w):
    output = counts_of(w["output"], x.shape[1])
    seen = (output > 0) | (counts_of(w["prompt"], x.shape[1]) > 0)
    factor = torch.where(seen, w["repetition"][:, None], 1.0)
    x = torch.where(x > 0, x / factor, x * factor)
    x -= w["frequency"][:, None] * output
    return x.sub_(w["presence"][:, None] * (output > 0))


def processed(x, w):
    """What comes before the temperature; a copy where anything does."""
    if w["mask"]:
        x = x.masked_fill(~w["allowed"], LOWEST)
    if len(w["bias_ids"]):
        x = x.index_add(1, w["bias_ids"], w["bias_values"].expand(x.shape[0], -1))
    return penalised(x, w) if w["penalties"] else x


def tempered(x, w):
    """And min_p."""
    x = x / w["temperature"][:, None]
    if not bool((w["min_p"] > 0).any()):
        return x
    p = x.softmax(-1)
    return x.masked_fill(p < w["min_p"][:, None] * p.amax(-1, keepdim=True), LOWEST)


def cut_by_p(ascending, top_p):
    """top_p in sorted rows."""
    mass = ascending.softmax(-1).cumsum(-1)
    drop = mass <= 1 - top_p[:, None]
    drop[:, -1] = False
    return ascending.masked_fill_(drop, LOWEST)


def kept_by_sort(x, w):
    values, ids = x.sort(-1)
    kth = values.gather(1, (x.shape[1] - w["top_k"].long())[:, None])
    values.masked_fill_(values < kth, LOWEST)
    return values.scatter(1, ids, cut_by_p(values, w["top_p"]))


def kept_by_topk(x, w):
    """The k best, tempered, ascending, and their ids. What min_p drops depends on the best alone."""
    values, ids = x.topk(w["most_k"], -1)
    values, ids = tempered(values.flip(-1), w), ids.flip(-1)
    kth = values.gather(1, (values.shape[1] - w["top_k"].long())[:, None])
    values.masked_fill_(values < kth, LOWEST)
    return cut_by_p(values, w["top_p"]), ids


def drawn(x):
    """A column of each row."""
    return x.softmax(-1).div_(torch.empty_like(x).exponential_()).argmax(-1)


def token_of(form, x, w):
    if w["greedy"]:
        return x.argmax(-1)
    if form == "sort":
        return drawn(kept_by_sort(tempered(x, w), w))
    values, ids = kept_by_topk(x, w)
    return ids.gather(1, drawn(values)[:, None])[:, 0]


def logprobs_of(x, token, n):
    """Of the token, its rank, the n best."""
    scores = x.log_softmax(-1)
    own = scores.gather(1, token[:, None])
    return own, (scores >= own).sum(-1), *scores.topk(n, -1)


def sample(form, x, w):
    token = token_of(form, processed(x, w), w)
    more = logprobs_of(x, token, w["logprobs"]) if w["logprobs"] else ()
    return token.numpy(), *(m.numpy() for m in more)


class Rig(sampler_work.Rig):
    name = f"torch {torch.__version__.split('+')[0]}"
    forms = ("sort", "topk")

    def __init__(self, a, hidden, vocab, head):
        torch.set_num_threads(a.threads)
        torch.manual_seed(7)
        self.dtype = getattr(torch, head)
        self.hidden, self.vocab = hidden, vocab
        self.weight = torch.from_numpy(sampler_work.weights(hidden, vocab)).to(self.dtype)
        self.check()

    def logits(self, x):
        return torch.nn.functional.linear(x, self.weight).float()

    def states(self, rows):
        return torch.from_numpy(sampler_work.hidden_states(rows, self.hidden)).to(self.dtype)

    def work(self, case, rows):
        given = sampler_work.inputs(case, rows, self.vocab)
        return {k: torch.from_numpy(v) if hasattr(v, "shape") else v for k, v in given.items()}

    def check(self):
        """Both forms keep the same ids, where nothing ties."""
        w = self.work("temperature, top_k, top_p", 2)
        x = self.logits(self.states(2))
        values, ids = kept_by_topk(x, w)
        all_values = kept_by_sort(tempered(x, w), w)
        for row in range(2):
            kept = set(torch.isfinite(all_values[row]).nonzero()[:, 0].tolist())
            if kept != set(ids[row][torch.isfinite(values[row])].tolist()):
                raise SystemExit(f"torch: the forms keep different ids in row {row}")

    def head(self, rows):
        x = self.states(rows)
        return lambda: self.logits(x).numpy()

    def step(self, form, case, rows, with_head):
        w, x = self.work(case, rows), self.states(rows)
        logits = self.logits(x)
        if with_head:
            return lambda: sample(form, self.logits(x), w)
        return lambda: sample(form, logits, w)


if __name__ == "__main__":
    with torch.inference_mode():
        sampler_work.main(sampler_work.arguments(__doc__, Rig.forms), Rig)
