#!/usr/bin/env python3
"""How headrace's costs grow: rows of a step, tokens of a prompt, memory, programs.

    python3 bench/growth.py [--models w8a8,q8_0] [--rounds 3]      about four minutes

Needs bench/checkpoints.py's models. Told are, as medians over the rounds, which take turns:

- the time of a step that decodes 1, 2, 4, 8 and 16 requests (33 tokens less one, over 32 steps);
- the time per token of prompts of 256 to 4,096 tokens, of which attention's share grows by itself;
- what `plan` says a server takes beside what it has in memory once its KV cache is full;
- how long the programs of a server take to warm up at --max-model-len 1024, --max-num-seqs 256.

The result goes to bench/results/growth.json and .txt.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "peers"))
from common import RESULTS, ROOT, Server, free_port, processor, say, wait_for_quiet  # noqa: E402
from turns import FILES, MODELS, commit, headrace_dtype, run  # noqa: E402

ROWS = (1, 2, 4, 8, 16)
PROMPTS = (256, 512, 1024, 2048, 4096)
KV_MIB = 192


def latency(a, model, rows, inputs, outputs, runs):
    """Seconds of one batch, the median of `runs`."""
    r = json.loads(run([a.headrace, "bench", "latency", FILES[model], "--threads", a.threads,
                        "--batch-size", rows, "--input-len", inputs, "--output-len", outputs,
                        "--max-model-len", 8192, "--max-num-seqs", 16, "--kv-cache-memory-bytes",
                        "512M", "--num-iters-warmup", 1, "--num-iters", runs, "--no-progress",
                        "--json", *headrace_dtype(model)]))
    return statistics.median(r["latencies"])


def step_ms(a, model, rows):
    return 1000 * (latency(a, model, rows, 16, 33, 3) - latency(a, model, rows, 16, 1, 3)) / 32


def prefill_us(a, model, tokens):
    return 1e6 * latency(a, model, 1, tokens, 1, 3 if tokens < 2048 else 1) / tokens


# ---- a server -----------------------------------------------------------------------------------

def serve(a, model, *more):
    port = free_port()
    return Server("growth", [a.headrace, "serve", FILES[model], "--port", port, "--threads",
                             a.threads, "--max-model-len", 1024, *more, *headrace_dtype(model)], port)


def resident_mib(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def planned_mib(a, model, flags):
    p = json.loads(run([a.headrace, "plan", FILES[model], "--max-model-len", 1024, "--json", *flags,
                        *headrace_dtype(model)]))
    parts = {"weights": p["weight_bytes"], "buffers": p["buffer_bytes"], "peak": p["peak_bytes"],
             "KV cache": p["kv_blocks"] * p["block_bytes"]}
    return {k: v / 2**20 for k, v in parts.items()}, p["kv_blocks"] * p["block_size"]


def memory(a, model):
    """The plan's parts and the server's resident memory, MiB, once every block has been used."""
    flags = ["--max-num-seqs", 32, "--kv-cache-memory-bytes", f"{KV_MIB}M"]
    parts, tokens = planned_mib(a, model, flags)
    server = serve(a, model, *flags)
    try:
        run([a.headrace, "bench", "serve", "--base-url", server.url, "--num-prompts",
             2 + tokens // 960, "--random-input-len", 960, "--random-output-len", 2, "--ignore-eos",
             "--tokenizer", MODELS / "bf16", "--no-progress"])
        return {"plan": parts, "planned": sum(parts.values()), "resident": resident_mib(server)}
    finally:
        server.stop()


def warm_up(a, model):
    """Programs and the seconds that they took, from the server's own log."""
    server = serve(a, model, "--max-num-seqs", 256)
    server.stop()
    log = pathlib.Path(server.log.name).read_text()
    found = re.search(r"(\d+) programs, loaded in ([\d.]+) s, compiled in ([\d.]+) s", log)
    return {"programs": int(found[1]), "load_s": float(found[2]), "warm_up_s": float(found[3])}


# ---- the run ------------------------------------------------------------------------------------

def measure(a, model):
    steps, prompts, starts = {r: [] for r in ROWS}, {n: [] for n in PROMPTS}, []
    for number in range(a.rounds):
        for rows in ROWS:
            steps[rows].append(step_ms(a, model, rows))
        for tokens in PROMPTS:
            prompts[tokens].append(prefill_us(a, model, tokens))
        starts.append(warm_up(a, model))
        say(f"round {number + 1}: {model}: steps of {ROWS} rows "
            + ", ".join(f"{v[-1]:.1f}" for v in steps.values()) + " ms")
    return {"step_ms": {k: statistics.median(v) for k, v in steps.items()},
            "prefill_us": {k: statistics.median(v) for k, v in prompts.items()},
            "memory": memory(a, model), "programs": starts[0]["programs"],
            "warm_up_s": statistics.median(s["warm_up_s"] for s in starts)}


def growth_line(title, values, form):
    first = next(iter(values.values()))
    cells = "".join(f"{form.format(v):>9} {v / first:>5.2f}x" for v in values.values())
    return f"{title:<22}{cells}"


def table(about, figures):
    out = [f"{about['date']}, {about['processor']}, {about['processors']} processors, "
           f"{about['threads']} threads; headrace {about['commit']}; {about['rounds']} rounds, medians; "
           f"machine {about['idle_before']:.0%} idle before", "",
           f"{'decode, ms a step':<22}" + "".join(f"{f'{r} rows':>16}" for r in ROWS)]
    out += [growth_line(m, f["step_ms"], "{:.2f}") for m, f in figures.items()]
    out += ["", f"{'prefill, us a token':<22}" + "".join(f"{f'{n} tokens':>16}" for n in PROMPTS)]
    out += [growth_line(m, f["prefill_us"], "{:.0f}") for m, f in figures.items()]
    out += ["", f"{'memory, MiB':<22}{'weights':>10}{'buffers':>10}{'peak':>10}{'KV cache':>10}"
            f"{'planned':>10}{'resident':>10}{'apart':>9}"]
    for m, f in figures.items():
        x = f["memory"]
        out.append(f"{m:<22}" + "".join(f"{v:>10.1f}" for v in x["plan"].values())
                   + f"{x['planned']:>10.1f}{x['resident']:>10.1f}"
                   f"{x['resident'] / x['planned'] - 1:>+9.1%}")
    out += ["", "warm-up at --max-model-len 1024, --max-num-seqs 256"]
    out += [f"{m:<22}{f['programs']} programs in {f['warm_up_s']:.2f} s" for m, f in figures.items()]
    return "\n".join(out) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=str(ROOT / "build/release/headrace"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--models", default="w8a8,q8_0", help="with commas: " + ", ".join(FILES))
    p.add_argument("--quiet-timeout", type=float, default=60)
    a = p.parse_args()
    idle = wait_for_quiet(a.quiet_timeout)
    figures = {m: measure(a, m) for m in a.models.split(",")}
    about = {"date": datetime.date.today().isoformat(), "processor": processor(),
             "processors": os.cpu_count(), "threads": a.threads, "rounds": a.rounds,
             "commit": commit(), "idle_before": round(idle, 3)}
    text = table(about, figures)
    print(text, end="")
    (RESULTS / "growth.json").write_text(json.dumps({**about, "models": figures}, indent=1) + "\n")
    (RESULTS / "growth.txt").write_text(text)


if __name__ == "__main__":
    main()
