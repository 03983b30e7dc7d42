"""native.py's table, its JSON and its picture, from the figures of all rounds."""
import html
import json
import statistics

WHO = ("headrace", "llama.cpp", "openvino", "vllm")
TITLES = {"headrace": "headrace", "llama.cpp": "llama.cpp", "openvino": "OpenVINO", "vllm": "vLLM",
          "onednn": "oneDNN"}
COLOURS = {"headrace": "#1f6feb", "llama.cpp": "#d9822b", "openvino": "#7b61a8", "vllm": "#3f9c5a",
           "onednn": "#7b61a8"}
MODELS = {"w8a8": "0.5B w8a8", "q8_0": "0.5B Q8_0", "q4_0": "0.5B Q4_0", "bf16": "0.5B bf16",
          "smollm2": "SmolLM2 Q4_1"}
EIGHT_BITS = ("w8a8", "q8_0")


def medians(runs):
    """{(who, model, work): {figure: its median over the rounds}}"""
    groups = {}
    for r in runs:
        groups.setdefault((r["who"], r["model"], r["work"]), []).append(r)
    return {key: {f: statistics.median(r[f] for r in rs)
                  for f in ("tok_s", "gop_s", "ttft_s", "tpot_ms") if f in rs[0]}
            for key, rs in groups.items()}


def best_peer(m, model, work, figure="tok_s"):
    """The best peer's figure on a checkpoint of as many bits, and who it is."""
    models = EIGHT_BITS if model in EIGHT_BITS else (model,)
    found = [(m[w, x, work][figure], w) for w in WHO[1:] for x in models if (w, x, work) in m]
    return max(found, default=None)


def cell(m, who, model, work, figure="tok_s", width=11):
    value = m.get((who, model, work), {}).get(figure)
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{1 if value < 100 else 0}f}"


def ratio(m, model, work):
    best = best_peer(m, model, work)
    ours = m.get(("headrace", model, work))
    if not best or not ours:
        return f"{'-':>9}"
    return f"{ours['tok_s'] / best[0]:>8.2f}x  {TITLES[best[1]]}"


def offline_lines(m):
    head = "".join(f"{TITLES[w]:>11}" for w in WHO)
    out = [f"{'alone, tokens per second':<28}{head}   to the best peer of as many bits"]
    for work, title in (("prefill", "prefill 512"), ("decode", "decode 128")):
        for model, name in MODELS.items():
            row = "".join(cell(m, w, model, work) for w in WHO)
            if row.strip(" -"):
                out.append(f"{name + ', ' + title:<28}{row}{ratio(m, model, work)}")
    return out


def serving_lines(m):
    out = [f"{'serving, 128 in, 128 out':<28}{'at once':>8}{'tok/s':>9}{'TTFT s':>9}{'TPOT ms':>9}"]
    for who in WHO:
        for model, name in MODELS.items():
            for level in (1, 4, 16, 32):
                f = m.get((who, model, f"serve {level}"))
                if f:
                    out.append(f"{TITLES[who] + ', ' + name:<28}{level:>8}{f['tok_s']:>9.1f}"
                               f"{f['ttft_s']:>9.2f}{f['tpot_ms']:>9.1f}")
    return out


def linear_lines(m):
    works = [k[2] for k in m if k[0] == "headrace" and k[2].startswith("linear")]
    out = [f"{'linear int8, Gop/s':<28}{'rows':>8}{'headrace':>10}{'oneDNN':>9}{'ratio':>8}"]
    for work in works:
        _, shape, rows = work.split()
        ours, theirs = m["headrace", "int8", work]["gop_s"], m.get(("onednn", "int8", work))
        if theirs:
            out.append(f"{shape:<28}{rows:>8}{ours:>10.0f}{theirs['gop_s']:>9.0f}"
                       f"{ours / theirs['gop_s']:>8.2f}")
    return out


def about_lines(about, runs):
    noisy = sum(r["idle_before"] < 0.9 for r in runs)
    rounds = 1 + max((r["round"] for r in runs), default=-1)
    out = [f"{about['date']}, {about['processor']}, {about['processors']} processors, "
           f"{about['threads']} threads each; {rounds} rounds, medians; {noisy} of {len(runs)} figures "
           "on a machine that was not quiet",
           "peers: " + ", ".join(about["versions"].values())]
    return out + [f"not installed, left out: {TITLES[w]}" for w in about["absent"]]


# ---- the picture --------------------------------------------------------------------------------

def panels(m):
    """(title, [(label, [(who, value)])])"""
    def group(name, model, work):
        return name, [(w, m[w, model, work]["tok_s"]) for w in WHO if (w, model, work) in m]
    out = [("Prefill, a prompt of 512 tokens: tokens per second",
            [group(n, k, "prefill") for k, n in MODELS.items()]),
           ("Decode, one request: tokens per second",
            [group(n, k, "decode") for k, n in MODELS.items()])]
    out += [(f"Serving 128 in, 128 out, {level} at once: output tokens per second",
             [group(n, k, f"serve {level}") for k, n in MODELS.items()]) for level in (16, 32)]
    return [(t, [g for g in groups if g[1]]) for t, groups in out if any(g[1] for g in groups)]


def text(x, y, words, size=12, more=""):
    return f'<text x="{x}" y="{y}" font-size="{size}" {more}>{html.escape(words)}</text>'


def picture(m, about):
    width, left, bar, parts, y = 760, 130, 15, [], 58
    present = [w for w in WHO if any(k[0] == w for k in m)]
    parts.append(text(16, 24, "headrace and its peers on two threads", 16, 'font-weight="bold"'))
    parts.append(text(16, 42, f"{about['date']}, {about['processor']}, {about['processors']} "
                      "processors; medians; longer is better", 11, 'fill="#555"'))
    for i, w in enumerate(present):
        parts.append(f'<rect x="{420 + 85 * i}" y="14" width="10" height="10" fill="{COLOURS[w]}"/>')
        parts.append(text(434 + 85 * i, 23, TITLES[w], 11))
    for title, groups in panels(m):
        y += 22
        parts.append(text(16, y, title, 13, 'font-weight="bold"'))
        y += 8
        scale = (width - left - 70) / max(v for _, bars in groups for _, v in bars)
        for label, bars in groups:
            parts.append(text(left - 8, y + 3 + bar * len(bars) / 2 + 1, label, 12,
                              'text-anchor="end"'))
            for who, value in bars:
                parts.append(f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" '
                             f'height="{bar - 2}" fill="{COLOURS[who]}"/>')
                parts.append(text(f"{left + value * scale + 5:.1f}", y + bar - 4,
                                  f"{value:.0f}", 11))
                y += bar
            y += 7
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y + 12}" width="{width}" '
            f'height="{y + 12}" font-family="sans-serif" fill="#111">\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n")


def write(about, runs, folder):
    if not runs:
        return
    m = medians(runs)
    sections = [about_lines(about, runs), offline_lines(m), serving_lines(m), linear_lines(m)]
    table = "\n\n".join("\n".join(s) for s in sections if len(s) > 1) + "\n"
    print(table, end="")
    folder.mkdir(exist_ok=True)
    (folder / "native.txt").write_text(table)
    (folder / "native.json").write_text(json.dumps(
        {**about, "medians": {" ".join(k): v for k, v in m.items()}, "runs": runs}, indent=1) + "\n")
    (folder / "native.svg").write_text(picture(m, about))
