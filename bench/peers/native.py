#!/usr/bin/env python3
"""headrace natively beside llama.cpp, OpenVINO GenAI and oneDNN, by turns, in one run.

    python3 bench/peers/native.py                     three rounds, about 12 minutes
    python3 bench/peers/native.py --install           fetch and build all peers (8 GB), and end
    python3 bench/peers/native.py --minutes 4         end after about so long; the next call goes on
    python3 bench/peers/native.py --fresh             forget what an unfinished run has measured
    python3 bench/peers/native.py --report            the table of what there is, and end

The model is bench/checkpoints.py's: Qwen2.5-0.5B's shape, random weights, in each one's format, and
SmolLM2-135M besides. A prompt of 512 tokens, and 128 tokens decoded from a prompt of one, one request
at a time; int8 linears by themselves. Each program runs alone and in process, after a wait for a quiet
machine; a turn's figure is the median of three runs, and medians over the rounds are compared. Peers
that are not installed are left out by name. What servers do is serving.py's.

The result goes to bench/results/native.json, .txt and .svg.
"""
import argparse
import datetime
import json
import os
import statistics
import sys

import install
import native_report
import turns
from common import LLAMA, RESULTS, ROOT, SMOLLM2, processor
from turns import Journal, add_flags, chosen, headrace_dtype, lines, measure, missing, run

FILES = turns.FILES
FILES["smollm2"] = SMOLLM2
JOURNAL = Journal("native.jsonl")
# who, which checkpoint, what: one program at a time
TURNS = [(who, model, "offline") for model in ("q8_0", "q4_0", "smollm2")
         for who in ("headrace", "llama.cpp", "openvino")]
TURNS += [("headrace", "w8a8", "offline"), ("headrace", "bf16", "offline"),
          ("openvino", "f16", "offline"), ("headrace", "int8", "linear"),
          ("onednn", "int8", "linear")]


# ---- offline ------------------------------------------------------------------------------------

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


def openvino_offline(a, model):
    precision = {"f16": "bf16", "q8_0": "int8"}.get(model, "int4")
    return lines(run([install.OPENVINO / "venv/bin/python", ROOT / "bench/peers/openvino_run.py",
                      FILES[model], a.threads, precision, "offline"]))


def headrace_linear(a):
    text = run([a.headrace, "bench", "kernels", "--ops", "linear", "--formats", "i8c", "--rows",
                "1,8,64,512", "--threads", a.threads, "--run-limit", 2, "--no-progress", "--json"])
    return [{"work": f"linear {f['k']}x{f['n']} {f['rows']}", "gop_s": f["gop_s"]}
            for f in json.loads(text)["figures"]]


def onednn_linear(a):
    return lines(run([install.VLLM / "venv/bin/python",
                      ROOT / "bench/peers/onednn_linear.py", a.threads]))


# ---- the run ------------------------------------------------------------------------------------

def take(a, who, model, what):
    if what == "linear":
        return headrace_linear(a) if who == "headrace" else onednn_linear(a)
    return {"headrace": headrace_offline, "llama.cpp": llama_offline,
            "openvino": openvino_offline}[who](a, model)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_flags(p)
    p.add_argument("--install", action="store_true", help="fetch and build the peers, and end")
    a = p.parse_args()
    if a.install:
        return install.everything()
    have = install.installed()
    mine = chosen(TURNS, have, a)
    if missing(mine):
        sys.exit(f"missing: {', '.join(missing(mine))}: run bench/checkpoints.py, "
                 "tools/setup.sh model")
    if a.fresh:
        JOURNAL.forget()
    if not a.report:
        measure(JOURNAL, mine, lambda who, model, what, _: take(a, who, model, what), a)
    about = {"date": datetime.date.today().isoformat(), "processor": processor(),
             "processors": os.cpu_count(), "threads": a.threads, "versions": install.VERSIONS,
             "absent": [who for who in ("llama.cpp", "openvino", "onednn") if not have[who]]}
    native_report.write(about, JOURNAL.known(), RESULTS)


if __name__ == "__main__":
    main()
