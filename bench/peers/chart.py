"""What the peers' tables and pictures share: names, colours, the line about the machine, bars."""
import html
import json

TITLES = {"headrace": "headrace", "llama.cpp": "llama.cpp", "openvino": "OpenVINO", "vllm": "vLLM",
          "onednn": "oneDNN"}
COLOURS = {"headrace": "#1f6feb", "llama.cpp": "#d9822b", "openvino": "#7b61a8", "vllm": "#3f9c5a",
           "onednn": "#7b61a8"}
MODELS = {"w8a8": "0.5B w8a8", "q8_0": "0.5B Q8_0", "q4_0": "0.5B Q4_0", "bf16": "0.5B bf16",
          "f16": "0.5B bf16", "smollm2": "SmolLM2 Q4_1"}


def about_lines(about, runs):
    rounds = [len({r["round"] for r in runs if r["who"] == w}) for w in {r["who"] for r in runs}]
    span = f"{min(rounds)}" if min(rounds) == max(rounds) else f"{min(rounds)} to {max(rounds)}"
    present = sorted({r["who"] for r in runs} - {"headrace"}, key=list(TITLES).index)
    out = [f"{about['date']}, {about['processor']}, {about['processors']} processors, "
           f"{about['threads']} threads each; headrace {', '.join(sorted({r['commit'] for r in runs}))}",
           f"{span} rounds, medians; other processes took at most "
           f"{max(r['others'] for r in runs):.1%} of the machine",
           "peers: " + ", ".join(about["versions"][w] for w in present)]
    return out + [f"not installed, left out: {TITLES[w]}" for w in about["absent"]]


def text(x, y, words, size=12, more=""):
    return f'<text x="{x}" y="{y}" font-size="{size}" {more}>{html.escape(words)}</text>'


def panel(out, y, title, groups, digits):
    """Bars from y on; where they end. groups: (label, [(who, value)])"""
    width, left, bar = 760, 130, 15
    out.append(text(16, y + 22, title, 13, 'font-weight="bold"'))
    y += 30
    scale = (width - left - 70) / max(v for _, bars in groups for _, v in bars)
    for label, bars in groups:
        out.append(text(left - 8, y + 3 + bar * len(bars) / 2 + 1, label, 12, 'text-anchor="end"'))
        for who, value in bars:
            out.append(f'<rect x="{left}" y="{y}" width="{value * scale:.1f}" '
                       f'height="{bar - 2}" fill="{COLOURS[who]}"/>')
            out.append(text(f"{left + value * scale + 5:.1f}", y + bar - 4,
                            f"{value:.{digits}f}", 11))
            y += bar
        y += 7
    return y


def picture(title, about, panels):
    """An SVG. panels: (title, [(label, [(who, value)])], digits after the point)"""
    panels = [(t, [g for g in groups if g[1]], digits) for t, groups, digits in panels]
    panels = [p for p in panels if p[1]]
    present = [w for w in TITLES if any(w == who for _, gs, _ in panels for _, b in gs for who, _ in b)]
    out = [text(16, 24, title, 16, 'font-weight="bold"'),
           text(16, 42, f"{about['date']}, {about['processor']}, {about['processors']} processors; "
                "medians", 11, 'fill="#555"')]
    for i, w in enumerate(present):
        out.append(f'<rect x="{420 + 85 * i}" y="14" width="10" height="10" fill="{COLOURS[w]}"/>')
        out.append(text(434 + 85 * i, 23, TITLES[w], 11))
    y = 58
    for p in panels:
        y = panel(out, y, *p)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {y + 12}" width="760" '
            f'height="{y + 12}" font-family="sans-serif" fill="#111">\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(out) + "\n</svg>\n")


def keep(stem, title, about, runs, medians, sections, panels, folder):
    """Prints the table and writes it, the JSON and the picture. medians: {(who, model, work): {…}};
    sections: lists of lines, of which one line alone is left out."""
    table = "\n\n".join("\n".join(s) for s in sections if len(s) > 1) + "\n"
    print(table, end="")
    folder.mkdir(exist_ok=True)
    (folder / f"{stem}.txt").write_text(table)
    (folder / f"{stem}.json").write_text(json.dumps(
        {**about, "medians": {" ".join(k): v for k, v in medians.items()}, "runs": runs},
        indent=1) + "\n")
    (folder / f"{stem}.svg").write_text(picture(title, about, list(panels)))
