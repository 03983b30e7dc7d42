#!/usr/bin/env python3
"""headrace serve beside llama.cpp's server, OpenVINO GenAI and vLLM, by turns, in one run.

    python3 bench/peers/serving.py                    three rounds, about 40 minutes
    python3 bench/peers/serving.py --minutes 4        end after about so long; the next call goes on
    python3 bench/peers/serving.py --only headrace,llama.cpp --rounds 1
    python3 bench/peers/serving.py --fresh            forget what an unfinished run has measured
    python3 bench/peers/serving.py --report           the table of what there is, and end

The model is bench/checkpoints.py's: Qwen2.5-0.5B's shape, random weights, in each one's format.
Prompts of 128 random tokens, 128 output tokens whatever they are, a closed loop of 1, 4, 16 and 32
requests at once. Each program is alone on the machine, after a wait for a quiet one, and started anew
in every round, with prompts of that round's own, so that no prefix cache helps anybody. headrace's
`bench serve` is the client of all servers, which listen on 127.0.0.1; OpenVINO GenAI runs in process,
where neither HTTP nor a client costs it anything. llama.cpp has 16 slots for the levels to 16, and
32 for the last. native.py --install fetches the peers; who is not there is left out by name.

The result goes to bench/results/serving_peers.json, .txt and .svg: medians over the rounds.
"""
import argparse
import datetime
import json
import os
import signal
import sys

import install
import serving_report
from common import LLAMA, RESULTS, ROOT, Server, free_port, processor
from turns import (FILES, MODELS, Failed, Journal, add_flags, chosen, headrace_dtype, lines, measure,
                   missing, run)

JOURNAL = Journal("serving.jsonl")
REQUESTS = {1: 2, 4: 4, 16: 16, 32: 32}  # of each level
# who, which checkpoint, what differs
TURNS = [("headrace", "w8a8", ""), ("llama.cpp", "q8_0", "16 slots"), ("openvino", "q8_0", "int8"),
         ("llama.cpp", "q8_0", "32 slots"), ("headrace", "q8_0", ""), ("headrace", "bf16", ""),
         ("openvino", "f16", "bf16"), ("vllm", "bf16", ""), ("vllm", "w8a8", "")]


def levels(what):
    return {"16 slots": (1, 4, 16), "32 slots": (32,)}.get(what, tuple(REQUESTS))


def start(a, who, model, what):
    port, file = free_port(), FILES[model]
    if who == "headrace":
        return Server(who, [a.headrace, "serve", file, "--port", port, "--threads", a.threads,
                            "--max-num-seqs", 32, "--max-model-len", 1024, "--log-level",
                            "warning", *headrace_dtype(model)], port)
    if who == "llama.cpp":
        slots = int(what.split()[0])
        return Server(who, [LLAMA / "build/bin/llama-server", "-m", file, "-t", a.threads, "-tb",
                            a.threads, "--parallel", slots, "-c", 512 * slots, "--host",
                            "127.0.0.1", "--port", port], port)
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


def server_turn(a, who, model, what, number):
    server, out = start(a, who, model, what), []
    try:
        load(a, server, 2, 2, 128, 8, 1000 * number + 99)  # warm
        for level in levels(what):
            r = load(a, server, REQUESTS[level], level, 128, 128, 1000 * number + level)
            out.append({"work": f"serve {level}", "tok_s": r["output_throughput"],
                        "ttft_s": r["median_ttft_ms"] / 1000, "ttft_p99_s": r["p99_ttft_ms"] / 1000,
                        "tpot_ms": r["median_tpot_ms"], "requests": REQUESTS[level]})
    finally:
        server.stop()
    return out


def openvino_turn(a, model, what, number):
    plan = ",".join(f"{level}:{n}" for level, n in REQUESTS.items())
    return lines(run([install.OPENVINO / "venv/bin/python", ROOT / "bench/peers/openvino_run.py",
                      FILES[model], a.threads, what, "serving", plan, 1000 * number]))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_flags(p)
    a = p.parse_args()
    # told to end: by way of the clean-up that ends the servers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    have = install.installed()
    turns = chosen(TURNS, have, a)
    if missing(turns):
        sys.exit(f"missing: {', '.join(missing(turns))}: run bench/checkpoints.py")
    if a.fresh:
        JOURNAL.forget()
    if not a.report:
        measure(JOURNAL, turns, lambda who, *turn: openvino_turn(a, *turn) if who == "openvino"
                else server_turn(a, who, *turn), a)
    about = {"date": datetime.date.today().isoformat(), "processor": processor(),
             "processors": os.cpu_count(), "threads": a.threads, "versions": install.VERSIONS,
             "absent": [who for who in ("llama.cpp", "openvino", "vllm") if not have[who]]}
    serving_report.write(about, JOURNAL.known(), RESULTS)


if __name__ == "__main__":
    main()
