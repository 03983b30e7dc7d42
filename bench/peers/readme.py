#!/usr/bin/env python3
"""README's performance section, written anew from bench/results/native.json, and serving_peers.json
where there is one.

    python3 bench/peers/readme.py
"""
import json
import sys

from chart import MODELS, TITLES
from common import RESULTS, ROOT
from native_report import BITS, WHO, figure
from serving_report import LEVELS, ROWS, name

BEGIN, END = "<!-- performance: bench/peers/readme.py -->", "<!-- /performance -->"


def load(file):
    """(the result, its medians by (who, model, work))"""
    r = json.loads((RESULTS / file).read_text())
    return r, {tuple(k.split(" ", 2)): v for k, v in r["medians"].items()}


def number(value, best):
    if value is None:
        return "–"
    shown = f"{value:.1f}" if value < 10 else f"{value:.0f}"
    return f"**{shown}**" if value == best else shown


def alone_rows(m):
    for work, title in (("prefill", "prompt of 512"), ("decode", "decode")):
        for model in BITS:
            values = [figure(m, w, model, work) for w in WHO]
            if values[0] is not None and any(v is not None for v in values[1:]):
                best = max(v for v in values if v is not None)
                cells = " | ".join(number(v, best) for v in values)
                yield f"| {MODELS[model]}, {title} | {cells} |"


def serving_rows(m):
    best = {level: max(f["tok_s"] for (_, _, work), f in m.items() if work == f"serve {level}")
            for level in LEVELS}
    for who, model in ROWS:
        found = {level: m.get((who, model, f"serve {level}")) for level in LEVELS}
        if any(found.values()):
            cells = [number(f["tok_s"], best[level]) if f else "–" for level, f in found.items()]
            waits = [f"{found[level]['ttft_s']:.1f}" if found[level] else "–" for level in (16, 32)]
            yield f"| {name(who, model)} | {' | '.join(cells + waits)} |"


def rounds(r):
    n = 1 + max(x["round"] for x in r["runs"])
    return "one round" if n == 1 else f"medians of up to {n} rounds"


def about(r):
    return (f"{r['date']}, two threads of an {r['processor']} with {r['processors']} virtual processors, "
            f"{rounds(r)}")


def alone_lines():
    r, m = load("native.json")
    return [f"One request, in process, tokens per second ({about(r)}):", "",
            "| | " + " | ".join(TITLES[w] for w in WHO) + " |", "|---" * 4 + "|", *alone_rows(m), ""]


def serving_lines():
    if not (RESULTS / "serving_peers.json").exists():
        return []
    r, m = load("serving_peers.json")
    missing = [TITLES[w] for w in ("llama.cpp", "openvino", "vllm") if not any(k[0] == w for k in m)]
    return ["Serving, 128 random tokens in and 128 out, output tokens per second by requests at once, "
            f"and the median wait for the first token ({about(r)}):", "",
            "| | 1 | 4 | 16 | 32 | wait at 16, s | at 32 |", "|---" * 7 + "|", *serving_rows(m), "",
            *([f"Not among the servers: {', '.join(missing)}.", ""] if missing else [])]


def section():
    lines = ["The 0.5B model has the shape of Qwen2.5-0.5B and random weights. Programs ran one at a "
             "time; the best of a comparison is bold.", "", *alone_lines(), *serving_lines()]
    return "\n".join(lines)


def main():
    file = ROOT / "README.md"
    text = file.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{file}: {BEGIN} and {END} must be there once")
    before, rest = text.split(BEGIN)
    file.write_text(f"{before}{BEGIN}\n{section()}{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
