#!/usr/bin/env python3
"""What every sampling option at once costs a whole server: output tokens per second at concurrency 16.

    python3 bench/sampler_serving.py                 the packaged model, five rounds, some minutes
    python3 bench/sampler_serving.py --each          every option by itself as well
    python3 bench/sampler_serving.py --rounds 2 --num-prompts 16

One server; greedy requests, requests with every option, and those with 5 log-probabilities on top
take turns, round by round, with the same prompts (prefix caching is off). Log-probabilities have a
line of their own, since they also make the answers longer: their JSON is written, sent and read by
the client on the same processors. The ratio is the median of the rounds' ratios. The server's
processor time for each token stands beside it: it tells more on a machine that is not quiet.

The result goes to bench/results/sampler_serving.json and .txt.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

from options_demo import ROOT, start_server

RESULTS = ROOT / "bench/results"
GOAL = .97  # of greedy's throughput
PENALTIES = {"presence_penalty": .5, "frequency_penalty": .25, "repetition_penalty": 1.1}
BIASES = {"logit_bias": {str(64 * i): 2 if i % 2 else -2 for i in range(50)}}
ALLOWED = {"allowed_token_ids": [i for i in range(6144) if i % 3]}
EVERYTHING = {"temperature": .8, "top_k": 40, "top_p": .9, "min_p": .05, "seed": 7,
              **PENALTIES, **BIASES, **ALLOWED}
HOT = {"temperature": .8, "seed": 7}
VARIANTS = {"greedy": {"temperature": 0}, "everything": EVERYTHING,
            "everything, logprobs 5": {**EVERYTHING, "logprobs": 5}}
EACH = {"greedy, logprobs 5": {"temperature": 0, "logprobs": 5}, "temperature": HOT,
        "top_k": {**HOT, "top_k": 40}, "top_p": {**HOT, "top_p": .9},
        "temperature, top_k, top_p, min_p": {**HOT, "top_k": 40, "top_p": .9, "min_p": .05},
        "penalties": {"temperature": 0, **PENALTIES}, "biases": {"temperature": 0, **BIASES},
        "allowed_token_ids": {"temperature": 0, **ALLOWED}}


def start(a):
    """The server and its URL."""
    return start_server(a.headrace, a.model, "--max-model-len", "512", "--max-num-seqs", "16",
                        "--threads", str(a.threads), "--no-enable-prefix-caching", *a.serve_flag)


def processor_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(a, url, body, prompts, seed):
    r = subprocess.run(
        [a.headrace, "bench", "serve", "--base-url", url, "--num-prompts", str(prompts),
         "--random-input-len", str(a.input_len), "--random-output-len", str(a.output_len),
         "--ignore-eos", "--max-concurrency", str(a.concurrency), "--seed", str(seed),
         "--tokenizer", a.model, "--no-progress", "--json", "--extra-body", json.dumps(body)],
        capture_output=True, text=True)
    result = json.loads(r.stdout) if r.returncode == 0 else {"failed": r.stderr}
    if result["failed"] or result["total_output_tokens"] != prompts * a.output_len:
        sys.exit(f"the load failed: {result}")
    return {k: result[k] for k in ("output_throughput", "median_tpot_ms", "median_ttft_ms")}


def measure(a, variants):
    """{variant: a result of each round}"""
    process, url = start(a)
    try:
        results = {name: [] for name in variants}
        for body in variants.values():
            load(a, url, body, a.concurrency, 99)
        for number in range(a.rounds):
            print(f"== round {number + 1} of {a.rounds}", file=sys.stderr, flush=True)
            for name in list(variants) if number % 2 == 0 else list(variants)[::-1]:
                before = processor_seconds(process)
                result = load(a, url, variants[name], a.num_prompts, number)
                spent = processor_seconds(process) - before
                result["processor_ms"] = 1e3 * spent / (a.num_prompts * a.output_len)
                results[name].append(result)
        return results
    finally:
        process.terminate()
        process.communicate()  # its log is read to the end, so that it can write it


def ratio(results, name):
    """Throughput beside greedy's of the same round."""
    return statistics.median(x["output_throughput"] / g["output_throughput"]
                             for x, g in zip(results[name], results["greedy"]))


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown processor"


def report(a, results):
    lines = [f"{a.model}, {a.input_len} tokens in, {a.output_len} out, concurrency {a.concurrency}, "
             f"{a.num_prompts} prompts, medians of {a.rounds} rounds",
             f"{processor()}, {a.threads} threads, the client on the same ones; "
             f"{datetime.date.today().isoformat()}",
             f"{'':<34}{'tok/s':>9}{'TPOT ms':>10}{'CPU ms/tok':>12}{'of greedy':>11}"]
    for name, rounds in results.items():
        tokens, tpot, spent = (statistics.median(r[k] for r in rounds) for k in (
            "output_throughput", "median_tpot_ms", "processor_ms"))
        lines.append(f"{name:<34}{tokens:>9.1f}{tpot:>10.2f}{spent:>12.3f}{ratio(results, name):>11.3f}")
    found = ratio(results, "everything, logprobs 5")
    lines.append(f"every option with log-probabilities: {found:.3f} of greedy's throughput, goal >= "
                 f"{GOAL}: {'met' if found >= GOAL else 'MISSED'}")
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=os.environ.get(
        "HEADRACE_BIN", str(ROOT / "build/release/headrace")))
    p.add_argument("--model", default="smollm2-135m")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--num-prompts", type=int, default=48)
    p.add_argument("--input-len", type=int, default=128)
    p.add_argument("--output-len", type=int, default=128)
    p.add_argument("--concurrency", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--each", action="store_true", help="every option by itself as well")
    p.add_argument("--serve-flag", action="append", default=[], help="one more flag for the server")
    a = p.parse_args()
    results = measure(a, {**VARIANTS, **(EACH if a.each else {})})
    text = report(a, results)
    print(text, end="")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sampler_serving.txt").write_text(text)
    (RESULTS / "sampler_serving.json").write_text(json.dumps(
        {"date": datetime.date.today().isoformat(), "processor": processor(), "threads": a.threads,
         "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
