"""serving.py's table, its JSON and its picture, from the figures of all rounds."""
from chart import MODELS, TITLES, about_lines, keep
from turns import medians

LEVELS = (1, 4, 16, 32)
FIGURES = ("tok_s", "ttft_s", "ttft_p99_s", "tpot_ms")
ROWS = [("headrace", "w8a8"), ("headrace", "q8_0"), ("headrace", "bf16"), ("llama.cpp", "q8_0"),
        ("openvino", "q8_0"), ("openvino", "f16"), ("vllm", "bf16"), ("vllm", "w8a8")]
PEERS = [r for r in ROWS if r[0] != "headrace"]


def name(who, model):
    where = " in process" if who == "openvino" else ""
    return f"{TITLES[who]}{where}, {MODELS[model].removeprefix('0.5B ')}"


def serving_lines(m):
    out = [f"{'128 tokens in, 128 out':<28}{'at once':>8}{'tok/s':>9}{'TTFT p50 s':>12}"
           f"{'p99':>8}{'TPOT ms':>9}"]
    for who, model in ROWS:
        for level in LEVELS:
            f = m.get((who, model, f"serve {level}"))
            if f:
                out.append(f"{name(who, model):<28}{level:>8}{f['tok_s']:>9.1f}{f['ttft_s']:>12.2f}"
                           f"{f['ttft_p99_s']:>8.2f}{f['tpot_ms']:>9.1f}")
    return out


def best(m, peers, level, figure, better=max):
    """(the figure, who and which checkpoint) of the best peer; None without one."""
    found = [(m[(*p, f"serve {level}")][figure], p) for p in peers if (*p, f"serve {level}") in m]
    return better(found, default=None)


def ratio_lines(m):
    """headrace's w8a8 to the best peer of any precision, its bf16 to the best in bf16."""
    out = [f"{'headrace to the best peer':<28}{'at once':>8}{'tok/s':>9}{'':>3}{'':<26}{'TTFT p50':>9}"]
    sixteen = [p for p in PEERS if p[1] in ("f16", "bf16")]
    for model, peers, label in (("w8a8", PEERS, "w8a8, to any"), ("bf16", sixteen, "bf16, to bf16")):
        for level in LEVELS:
            ours = m.get(("headrace", model, f"serve {level}"))
            fast, soon = best(m, peers, level, "tok_s"), best(m, peers, level, "ttft_s", min)
            if ours and fast:
                out.append(f"{label:<28}{level:>8}{ours['tok_s'] / fast[0]:>8.2f}x   "
                           f"{name(*fast[1]):<26}{ours['ttft_s'] / soon[0]:>8.2f}x   {name(*soon[1])}")
    return out


def panels(m):
    for figure, title, digits in (("tok_s", "output tokens per second (longer is better)", 0),
                                  ("ttft_s", "seconds to the first token (shorter is better)", 2)):
        for level in (16, 32):
            yield (f"{level} requests at once: {title}",
                   [(name(*r).replace(" in process", ""), [(r[0], m[(*r, f"serve {level}")][figure])])
                    for r in ROWS if (*r, f"serve {level}") in m], digits)


def write(about, runs, folder):
    if not runs:
        return
    m = medians(runs, FIGURES)
    keep("serving_peers", "Serving on two threads, 128 tokens in and out", about, runs, m,
         [about_lines(about, runs), serving_lines(m), ratio_lines(m)], panels(m), folder)
