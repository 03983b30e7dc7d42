#!/usr/bin/env python3
"""What --speculative-config gains: the same answers one token a step and several, by turns.

    python3 bench/speculative.py                  the packaged model, three rounds, about a minute
    python3 bench/speculative.py --rounds 1 --concurrency 1 --workload copy

Two servers stand beside each other, with and without; each round sends a workload's requests first
to one, then to the other, `concurrency` at a time, and the other waits. The answers must be equal,
text for text. Workloads: `copy` asks for what the prompt holds, `greedy` writes on from a sentence
(a small model soon repeats itself), `drawn` does so at temperature 0.8. The ratio is the median of
the rounds' ratios of output tokens a second; accepted drafts and tokens a step come from /metrics.

The result goes to bench/results/speculative.json and .txt.
"""
import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import statistics
import sys
import time
import urllib.request

from options_demo import ROOT, start_server
from sampler_serving import processor

RESULTS = ROOT / "bench/results"
CONFIG = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4,
          "prompt_lookup_min": 2}
PARTS = ["bolt M8x40", "washer 8 mm", "hex nut M8", "bracket L-60", "hinge 80x50", "spring 12 N",
         "gasket 40 mm", "bearing 608", "shaft 12x300", "pulley GT2", "belt 6x400", "motor NEMA17"]
OPENINGS = ["The history of the printing press begins", "To bake a loaf of bread, you first",
            "A good morning walk in the mountains starts", "The ship left the harbour at dawn and",
            "Computers store numbers as", "My grandmother's garden had", "When winter came, the village",
            "The first rule of a library is"]


def table(i):
    """A parts list that no other prompt has."""
    return "\n".join(f"{n + 1}. {PARTS[(n + i) % len(PARTS)]}, quantity {3 * n + i}, bin {chr(65 + n)}"
                     for n in range(10))


def bodies(workload, tokens):
    plain = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0}
    if workload == "copy":
        return [{**plain, "prompt": f"The list:\n{table(i)}\nThe same list once more:\n{table(i)}\n"
                                    f"The same list once more:\n"} for i in range(8)]
    heat = {"temperature": 0.8} if workload == "drawn" else {}
    return [{**plain, **heat, "seed": i, "prompt": p} for i, p in enumerate(OPENINGS)]


def ask(url, body):
    r = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                               {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=600) as answer:
        a = json.load(answer)
    return a["choices"][0]["text"], a["usage"]["completion_tokens"]


def counters(url):
    with urllib.request.urlopen(url + "/metrics", timeout=60) as page:
        text = page.read().decode()
    names = {"steps": "headrace:steps_total", "drafts": "vllm:spec_decode_num_draft_tokens_total",
             "accepted": "vllm:spec_decode_num_accepted_tokens_total"}
    return {k: float(re.search(rf"^{n}{{[^}}]*}} (\S+)$", text, re.M)[1]) for k, n in names.items()}


def load(url, requests, concurrency):
    """One server's answers to all of them, and what they took."""
    before, began = counters(url), time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(concurrency) as pool:
        answers = list(pool.map(lambda body: ask(url, body), requests))
    seconds = time.perf_counter() - began
    spent = {k: v - before[k] for k, v in counters(url).items()}
    return [text for text, _ in answers], {**spent, "tok_s": sum(n for _, n in answers) / seconds}


def measure(a):
    """{(workload, concurrency): [(without, with) of each round]}"""
    flags = ["--max-model-len", "1024", "--max-num-seqs", "16", "--threads", str(a.threads),
             "--check-recompilation", *a.serve_flag]
    servers = [start_server(a.headrace, a.model, *flags, *more)
               for more in ([], ["--speculative-config", json.dumps(a.config)])]
    results = {}
    try:
        for number in range(a.rounds):
            for workload in a.workload:
                for n in a.concurrency:
                    requests = bodies(workload, a.tokens)[:a.requests]
                    turns = servers if number % 2 == 0 else servers[::-1]
                    runs = {s[1]: load(s[1], requests, n) for s in turns}
                    (texts, plain), (others, fast) = (runs[s[1]] for s in servers)
                    if texts != others:
                        sys.exit(f"{workload}, concurrency {n}: the answers differ")
                    results.setdefault((workload, n), []).append((plain, fast))
                    print(f"round {number + 1} {workload} {n}: {plain['tok_s']:.1f} "
                          f"{fast['tok_s']:.1f} tok/s", file=sys.stderr, flush=True)
    finally:
        for process, _ in servers:
            process.terminate()
            process.communicate()  # its log is read to the end, so that it can write it
    return results


def median(rounds, which, key):
    return statistics.median(r[which][key] for r in rounds)


def report(a, results):
    lines = [f"{a.model}, {a.requests} requests of {a.tokens} tokens, medians of {a.rounds} rounds by turns",
             f"{processor()}, {a.threads} threads, the client on the same ones; "
             f"{datetime.date.today().isoformat()}", f"--speculative-config '{json.dumps(a.config)}'",
             "the answers with and without are equal, text for text",
             f"{'workload':<10}{'at once':>8}{'without tok/s':>15}{'with tok/s':>12}{'ratio':>7}"
             f"{'fewer steps':>13}{'drafts right':>14}"]
    for (workload, n), rounds in results.items():
        ratio = statistics.median(f["tok_s"] / p["tok_s"] for p, f in rounds)
        drafts = sum(f["drafts"] for _, f in rounds)
        right = sum(f["accepted"] for _, f in rounds) / drafts if drafts else 0
        lines.append(f"{workload:<10}{n:>8}{median(rounds, 0, 'tok_s'):>15.1f}"
                     f"{median(rounds, 1, 'tok_s'):>12.1f}{ratio:>7.2f}"
                     f"{median(rounds, 0, 'steps') / median(rounds, 1, 'steps'):>12.2f}x"
                     f"{right:>13.0%}")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=os.environ.get(
        "HEADRACE_BIN", str(ROOT / "build/release/headrace")))
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--config", type=json.loads, default=CONFIG, help="the flag's JSON")
    p.add_argument("--workload", nargs="+", choices=["copy", "greedy", "drawn"],
                   default=["copy", "greedy", "drawn"])
    p.add_argument("--concurrency", nargs="+", type=int, default=[1, 8])
    p.add_argument("--requests", type=int, default=8)
    p.add_argument("--tokens", type=int, default=96, help="of each answer")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--serve-flag", action="append", default=[], help="one more flag for both servers")
    p.add_argument("--out", type=pathlib.Path, default=RESULTS)
    a = p.parse_args()
    results = measure(a)
    text = report(a, results)
    print(text, end="")
    a.out.mkdir(exist_ok=True)
    (a.out / "speculative.txt").write_text(text)
    (a.out / "speculative.json").write_text(json.dumps(
        {"date": datetime.date.today().isoformat(), "processor": processor(), "threads": a.threads,
         "config": a.config, "runs": [{"workload": w, "concurrency": n, "rounds": rounds}
                                      for (w, n), rounds in results.items()]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
