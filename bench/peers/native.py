#!/usr/bin/env python3
"""headrace natively beside llama.cpp, vLLM, OpenVINO GenAI and oneDNN, by turns, in one run.

    python3 bench/peers/native.py                     two rounds, about 40 minutes
    python3 bench/peers/native.py --install           fetch and build all peers (8 GB), and end
    python3 bench/peers/native.py --minutes 9         end after about so long; the next call goes on
    python3 bench/peers/native.py --fresh             forget what an unfinished run has measured
    python3 bench/peers/native.py --report            the table of what there is, and end

The model is bench/checkpoints.py's: Qwen2.5-0.5B's shape, random weights, in each one's format, and
SmolLM2-135M besides. Offline: a prompt of 512 tokens, and 128 tokens decoded from a prompt of one.
Serving: 128 random tokens in, 128 out, a closed loop of 1, 4, 16 and 32 requests at once. Each
program runs alone, after a wait for a quiet machine; medians over the rounds are compared. Peers
that are not installed are left out by name.

llama.cpp and headrace decode in process (llama-bench, bench latency) and serve over HTTP; OpenVINO
GenAI runs in process throughout; vLLM's offline figures are those of one request over HTTP, its time
to the first token and its time per token. The result goes to bench/results/native.json, .txt, .svg.
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
import time

import install
import native_report
from common import (LLAMA, RESULTS, ROOT, SMOLLM2, Server, free_port, processor, say,
                    wait_for_quiet)

MODELS = ROOT / ".cache/bench/qwen2.5-0.5b-random"
FILES = {"w8a8": MODELS / "w8a8", "q8_0": MODELS / "q8_0.gguf", "q4_0": MODELS / "q4_0.gguf",
         "bf16": MODELS / "bf16", "smollm2": SMOLLM2}
RUNS = ROOT / ".cache/bench/native.jsonl"
LEVELS = (1, 4, 16, 32)
# who, which checkpoint, what: one program at a time
TURNS = [(who, model, "offline") for model in ("q8_0", "q4_0", "smollm2")
         for who in ("headrace", "llama.cpp", "openvino")]
TURNS += [("headrace", "w8a8", "offline"), ("headrace", "bf16", "offline"),
          ("headrace", "int8", "linear"), ("onednn", "int8", "linear"),
          ("headrace", "w8a8", "serving"), ("llama.cpp", "q8_0", "serving"),
          ("headrace", "q8_0", "serving"), ("openvino", "q8_0", "serving"),
          ("headrace", "bf16", "serving"), ("vllm", "bf16", "serving"), ("vllm", "w8a8", "serving")]


class Failed(Exception):
    """A turn without a result; the others go on."""


def run(command, **more):
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900,
                       stdin=subprocess.DEVNULL, **more)
    if r.returncode:
        raise Failed(f"{command[0]}: {r.stderr[-500:]}")
    return r.stdout


def lines(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


# ---- offline ------------------------------------------------------------------------------------

def headrace_dtype(model):
    return ["--dtype", "bfloat16"] if model == "bf16" else []


def headrace_offline(a, model):
    flags = ["--threads", a.threads, "--batch-size", 1, "--max-model-len", 1024, "--max-num-seqs",
             32, "--no-enable-prefix-caching", "--no-progress", "--json", "--num-iters-warmup", 1,
             *headrace_dtype(model)]
    out = []
    for work, inputs, outputs, tokens in (("prefill", 512, 1, 512), ("decode", 1, 128, 128)):
        r = json.loads(run([a.headrace, "bench", "latency", FILES[model], *flags, "--input-len",
                            inputs, "--output-len", outputs, "--num-iters", 3]))
        out.append({"work": work, "tok_s": tokens / statistics.median(r["latencies"])})
    return out


def llama_offline(a, model):
    text = run([LLAMA / "build/bin/llama-bench", "-m", FILES[model], "-t", a.threads, "-p", 512,
                "-n", 128, "-r", 3, "-o", "jsonl"])
    return [{"work": "prefill" if r["n_prompt"] else "decode",
             "tok_s": statistics.median(r["samples_ts"])} for r in lines(text)]


def openvino(a, model, what):
    return lines(run([install.OPENVINO / "venv/bin/python",
                      ROOT / "bench/peers/openvino_run.py", FILES[model], a.threads, what,
                      ",".join(map(str, LEVELS))]))


def headrace_linear(a):
    text = run([a.headrace, "bench", "kernels", "--ops", "linear", "--formats", "i8c", "--rows",
                "1,8,64,512", "--threads", a.threads, "--run-limit", 2, "--no-progress", "--json"])
    return [{"work": f"linear {f['k']}x{f['n']} {f['rows']}", "gop_s": f["gop_s"]}
            for f in json.loads(text)["figures"]]


def onednn_linear(a):
    return lines(run([install.TORCH / "venv/bin/python",
                      ROOT / "bench/peers/onednn_linear.py", a.threads]))


# ---- serving ------------------------------------------------------------------------------------

def start(a, who, model):
    port, file = free_port(), FILES[model]
    if who == "headrace":
        return Server(who, [a.headrace, "serve", file, "--port", port, "--threads", a.threads,
                            "--max-num-seqs", 32, "--max-model-len", 1024, "--log-level",
                            "warning", *headrace_dtype(model)], port)
    if who == "llama.cpp":
        return Server(who, [LLAMA / "build/bin/llama-server", "-m", file, "-t", a.threads, "-tb",
                            a.threads, "--parallel", 32, "-c", 16384, "--host", "127.0.0.1",
                            "--port", port], port)
    home = install.VLLM
    env = {**os.environ, "PATH": f"{home}/venv/bin:{os.environ['PATH']}", "HF_HUB_OFFLINE": "1",
           "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "4",
           "VLLM_CPU_OMP_THREADS_BIND": f"0-{a.threads - 1}", "VLLM_CACHE_ROOT": f"{home}/cache",
           "TORCHINDUCTOR_CACHE_DIR": f"{home}/inductor"}
    return Server(who, [home / "venv/bin/vllm", "serve", file, "--host", "127.0.0.1", "--port", port,
                        "--max-model-len", 1024, "--max-num-seqs", 32,
                        "--no-enable-prefix-caching"], port, env=env, patience_s=600)


def load(a, server, requests, level, inputs, outputs, seed):
    r = json.loads(run([a.headrace, "bench", "serve", "--base-url", server.url, "--num-prompts",
                        requests, "--random-input-len", inputs, "--random-output-len", outputs,
                        "--ignore-eos", "--max-concurrency", level, "--seed", seed, "--tokenizer",
                        MODELS / "bf16", "--no-progress", "--json"]))
    if r["failed"] or r["total_output_tokens"] != requests * outputs:
        raise Failed(f"{server.name}: {r['failed']} requests failed")
    return r


def serving(a, who, model, seed):
    server, out = start(a, who, model), []
    try:
        load(a, server, 2, 2, 128, 8, seed + 99)  # warm
        if who == "vllm":
            r = load(a, server, 3, 1, 512, 1, seed + 98)
            out.append({"work": "prefill", "tok_s": 512e3 / r["median_ttft_ms"]})
        for level in LEVELS:
            r = load(a, server, max(2, level), level, 128, 128, seed + level)
            out.append({"work": f"serve {level}", "tok_s": r["output_throughput"],
                        "ttft_s": r["median_ttft_ms"] / 1000, "tpot_ms": r["median_tpot_ms"]})
            if who == "vllm" and level == 1:
                out.append({"work": "decode", "tok_s": 1000 / r["median_tpot_ms"]})
    finally:
        server.stop()
    return out


# ---- the run ------------------------------------------------------------------------------------

def take(a, who, model, what, number):
    if what == "linear":
        return headrace_linear(a) if who == "headrace" else onednn_linear(a)
    if who == "openvino":
        return openvino(a, model, what)
    if what == "serving":
        return serving(a, who, model, seed=1000 * number)
    return headrace_offline(a, model) if who == "headrace" else llama_offline(a, model)


def known():
    return lines(RUNS.read_text()) if RUNS.exists() else []


def turns(a):
    """What is left to do, round by round, every second round in the opposite order."""
    done = {(r["round"], r["who"], r["model"], r["what"]) for r in known()}
    for number in range(a.rounds):
        for turn in TURNS if number % 2 == 0 else TURNS[::-1]:
            if (number, *turn) not in done and turn[2] in a.work.split(","):
                yield number, turn


def measure(a, have):
    end = time.monotonic() + 60 * a.minutes
    for number, (who, model, what) in turns(a):
        if who != "headrace" and not have[who]:
            continue
        if time.monotonic() > end:
            say("out of time; the next call goes on from here")
            return
        idle = wait_for_quiet(a.quiet_timeout)
        try:
            records = take(a, who, model, what, number)
        except (Failed, subprocess.TimeoutExpired) as e:
            say(f"{who}, {model}, {what}: no result: {e}")
            continue
        with RUNS.open("a") as f:
            for r in records:
                r.update(round=number, who=who, model=model, what=what, idle_before=round(idle, 3))
                f.write(json.dumps(r) + "\n")
        told = ", ".join(f"{r['work']} {r.get('tok_s', r.get('gop_s')):.0f}" for r in records)
        say(f"round {number + 1}: {who}, {model}: {told} (machine {idle:.0%} idle)")


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=str(ROOT / "build/release/headrace"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--work", default="offline,linear,serving", help="which kinds of turn")
    p.add_argument("--minutes", type=float, default=1e6, help="start no turn after so long")
    p.add_argument("--quiet-timeout", type=float, default=60,
                   help="seconds to wait for a quiet machine before each turn")
    p.add_argument("--install", action="store_true", help="fetch and build the peers, and end")
    p.add_argument("--fresh", action="store_true", help="forget earlier turns")
    p.add_argument("--report", action="store_true", help="measure nothing")
    a = p.parse_args()
    # told to end: by way of the clean-up that ends the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    if a.install:
        return install.everything()
    missing = [str(f) for f in FILES.values() if not pathlib.Path(f).exists()]
    if missing:
        sys.exit(f"missing: {', '.join(missing)}: run bench/checkpoints.py, tools/setup.sh model")
    have = install.installed()
    if a.fresh:
        RUNS.unlink(missing_ok=True)
    if not a.report:
        measure(a, have)
    about = {"date": datetime.date.today().isoformat(), "processor": processor(),
             "processors": os.cpu_count(), "threads": a.threads, "versions": install.VERSIONS,
             "absent": [who for who, there in have.items() if not there]}
    native_report.write(about, known(), RESULTS)


if __name__ == "__main__":
    main()
