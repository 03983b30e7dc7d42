"""The work that the peers of the sampler's benchmark do, whatever they do it with.

Cases, inputs and the shape of the result are those of `headrace bench sampler --json`: rows of an
lm_head whose weights are uniform within 1/sqrt(hidden), hidden states of variance 1, and 512 seen ids
a row, half of them of the prompt. A peer brings a Rig; `main` times it.

A turn times, for every batch, form and case, one step of the sampler alone and one of head and
sampler, the cases one after the other. With --by-turns a line on standard input asks for each turn,
so that several programs can take turns on one machine.
"""
import argparse
import json
import math
import statistics
import sys
import time

import numpy as np

SEEN = 512
CASES = {
    "greedy": {"temperature": 0},
    "temperature, top_k, top_p": {"temperature": .8, "top_k": 40, "top_p": .9},
    "everything": {"temperature": .8, "top_k": 40, "top_p": .9, "min_p": .05, "penalties": True,
                   "biases": 50, "mask": True, "logprobs": 5},
}


def weights(hidden, vocab):
    bound = 1 / math.sqrt(hidden)
    noise = np.random.default_rng(1).random((vocab, hidden), dtype=np.float32)
    return (noise * np.float32(2) - np.float32(1)) * np.float32(bound)


def hidden_states(rows, hidden):
    noise = np.random.default_rng(2).random((rows, hidden), dtype=np.float32)
    return (noise * np.float32(2) - np.float32(1)) * np.float32(math.sqrt(3))


def inputs(case, rows, vocab):
    """What a step of `rows` requests of that case is asked for, as arrays of one entry a row."""
    c = CASES[case]
    row = np.arange(rows)[:, None]
    seen = (np.arange(SEEN)[None] * (vocab // SEEN) + row) % vocab

    def each(name, off, kind=np.float32):
        return np.full(rows, c.get(name, off), kind)

    on = c.get("penalties", False)
    return {
        "temperature": each("temperature", 1), "top_k": each("top_k", vocab, np.int32),
        "top_p": each("top_p", 1), "min_p": each("min_p", 0),
        "presence": np.full(rows, .5 if on else 0, np.float32),
        "frequency": np.full(rows, .25 if on else 0, np.float32),
        "repetition": np.full(rows, 1.1 if on else 1, np.float32),
        "prompt": seen[:, :SEEN // 2].copy(), "output": seen[:, SEEN // 2:].copy(),
        "bias_ids": np.arange(c.get("biases", 0)) * (vocab // 64),
        "bias_values": np.where(np.arange(c.get("biases", 0)) % 2, 2, -2).astype(np.float32),
        "allowed": np.tile(np.arange(vocab) % 3 != 0, (rows, 1)), "penalties": on, "mask": c.get("mask", False),
        "logprobs": c.get("logprobs"), "greedy": case == "greedy", "most_k": c.get("top_k", vocab),
    }


class Rig:
    """A peer with a head of its own. Steps give token ids once they are there."""
    name = None
    forms = ()

    def __init__(self, a, hidden, vocab, head):
        raise NotImplementedError

    def head(self, rows):
        """A function that computes logits."""
        raise NotImplementedError

    def step(self, form, case, rows, with_head):
        """A function that makes one step."""
        raise NotImplementedError


def timed(run, n, into):
    run()  # what the turn before left in the caches
    for _ in range(n):
        start = time.perf_counter()
        run()
        into.append(time.perf_counter() - start)


class Timing:
    """One batch in one form."""

    def __init__(self, rig, form, rows, a):
        self.rows, self.form, self.n = rows, form, a.num_runs
        start = time.perf_counter()
        self.head = rig.head(rows)
        self.steps = {(case, both): rig.step(form, case, rows, both)
                      for case in CASES for both in (False, True)}
        for run in self.steps.values():
            run()
        self.warm_up = time.perf_counter() - start
        self.head_s, self.seconds = [], {key: [] for key in self.steps}

    def turn(self):
        timed(self.head, self.n, self.head_s)
        for key, run in self.steps.items():
            timed(run, self.n, self.seconds[key])

    def result(self, rig, shape):
        def of(both):
            return {case: statistics.median(self.seconds[case, both]) for case in CASES}
        return {"device": f"{rig.name}, {self.form}", **shape, "batch_size": self.rows,
                "warm_up_s": self.warm_up, "head_s": statistics.median(self.head_s),
                "head_and_sampler_s": of(True), "sampler_s": of(False)}


def table(results):
    lines = []
    for r in results:
        lines.append(f"{r['device']}, head {r['head']}, hidden {r['hidden_size']}, vocabulary "
                     f"{r['vocab_size']}, batch {r['batch_size']}; ms; warm-up {r['warm_up_s']:.2f} s, "
                     f"head alone {r['head_s'] * 1e3:.3f}")
        lines.append(f"  {'':<28}{'alone':>10}{'and head':>10}")
        lines += [f"  {case:<28}{r['sampler_s'][case] * 1e3:>10.3f}"
                  f"{r['head_and_sampler_s'][case] * 1e3:>10.3f}" for case in CASES]
    return "\n".join(lines)


def numbers(text):
    return [int(x) for x in text.split(",")]


def arguments(doc, forms):
    p = argparse.ArgumentParser(description=doc.split("\n")[0])
    p.add_argument("--hidden-sizes", type=numbers, default=[896])
    p.add_argument("--vocab-sizes", type=numbers, default=[151936])
    p.add_argument("--batch-sizes", type=numbers, default=[1, 32])
    p.add_argument("--head", default="float32", help="of float32,bfloat16")
    p.add_argument("--forms", default=",".join(forms), help=f"of {','.join(forms)}")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--turns", type=int, default=4)
    p.add_argument("--num-runs", type=int, default=2, help="of each case in a turn")
    p.add_argument("--by-turns", action="store_true",
                   help="a turn for each line on standard input, 'ready' before the first")
    p.add_argument("--json", action="store_true", help="print JSON instead of tables")
    a = p.parse_args()
    a.forms = a.forms.split(",")
    if set(a.forms) - set(forms) or set(a.head.split(",")) - {"float32", "bfloat16"}:
        p.error("no such form or head")
    return a


def timings(a, make):
    """(rig, what its results say, its timings) of every head, hidden size and vocabulary."""
    for head in a.head.split(","):
        for hidden in a.hidden_sizes:
            for vocab in a.vocab_sizes:
                rig = make(a, hidden, vocab, head)
                yield rig, {"head": head, "hidden_size": hidden, "vocab_size": vocab}, [
                    Timing(rig, form, rows, a) for rows in a.batch_sizes for form in a.forms]


def main(a, make):
    all_timings = list(timings(a, make))
    if a.by_turns:
        print("ready", flush=True)
    for _ in (sys.stdin if a.by_turns else range(a.turns)):
        for _, _, several in all_timings:
            for t in several:
                t.turn()
        if a.by_turns:
            print("done", flush=True)
    results = [t.result(rig, shape) for rig, shape, several in all_timings for t in several]
    print(json.dumps(results) if a.json or a.by_turns else table(results))
