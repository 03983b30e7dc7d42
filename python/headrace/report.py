"""headrace-report: pictures of measurements, one SVG.

    headrace-report [-o report.svg] [NAME=]FILE...

FILE is what `headrace bench serve --save-result` wrote (or --json printed), or what a server's
GET /programs answered. The first become throughput against latency, a line for each NAME (the
model's, without one) and kind of load, a point for each concurrency or rate; the second step times and padding of every
program that was called. Needs nothing but Python.
"""
import argparse
import html
import json
import math
import pathlib
import sys

WIDTH, LEFT, RIGHT = 760, 190, 90
COLOURS = ["#1f6feb", "#d9822b", "#3f9c5a", "#7b61a8", "#c23b5a", "#5b6770"]


class Unreadable(Exception):
    pass


# ---- reading -------------------------------------------------------------------------------------

def read(given):
    """The objects of a file: one, or one a line, with the line's name that was given."""
    name, equals, rest = given.partition("=")
    if not (name and equals) or pathlib.Path(given).exists():
        name, rest = None, given
    path = pathlib.Path(rest)
    text = path.read_text(encoding="utf-8")
    try:
        try:
            found = [json.loads(text)]
        except ValueError:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as e:
        raise Unreadable(f"{path}: no JSON: {e}") from None
    for o in found:
        if not (isinstance(o, dict) and (is_load(o) or is_ledger(o))):
            raise Unreadable(f"{path}: neither a result of 'headrace bench serve' nor GET /programs")
    return [{**o, "name": name} for o in found]


def is_load(o):
    return {"output_throughput", "median_ttft_ms", "median_tpot_ms", "model_id"} <= o.keys()


def is_ledger(o):
    return isinstance(o.get("programs"), list) and "step_seconds_bounds" in o


def curves(results):
    """{label: [(result, point's label)]} by rising load."""
    out = {}
    for r in results:
        kind = "arrivals" if r.get("request_rate") not in (None, "inf") else "closed loop"
        label = f"{r['name'] or r['model_id']}, {r.get('dataset_name', 'random')}, {kind}"
        load = r.get("request_rate") if kind == "arrivals" else r.get("max_concurrency")
        name = "all" if load is None else f"{load:g}/s" if kind == "arrivals" else f"{load:g}"
        out.setdefault(label, []).append((math.inf if load is None else load, name, r))
    return {k: [(r, name) for _, name, r in sorted(v, key=lambda p: p[0])] for k, v in out.items()}


# ---- drawing -------------------------------------------------------------------------------------

def text(x, y, words, size=11, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" {more}>{html.escape(str(words))}</text>'


def ticks(most):
    """Round numbers from 0 up to at least `most`, four or five of them."""
    step = 10 ** math.floor(math.log10(most / 4)) if most > 0 else 1
    step = next(step * k for k in (1, 2, 2.5, 5, 10) if step * k * 5 >= most)
    return [step * i for i in range(math.ceil(most / step) + 1)]


def axes(out, y, title, xs, ys, unit, height=200):
    """Grid and labels of a panel; the functions that place a value."""
    bottom, width = y + 24 + height, WIDTH - 70 - RIGHT
    out.append(text(16, y + 14, title, 13, 'font-weight="bold"'))
    for v in ys:
        at = bottom - v / ys[-1] * height
        out.append(f'<path d="M70 {at:.1f}h{width}" stroke="#ddd"/>')
        out.append(text(64, at + 4, f"{v:g}", more='text-anchor="end" fill="#555"'))
    for v in xs:
        at = 70 + v / xs[-1] * width
        out.append(f'<path d="M{at:.1f} {bottom}v-{height}" stroke="#eee"/>')
        out.append(text(at, bottom + 15, f"{v:g}", more='text-anchor="middle" fill="#555"'))
    out.append(text(70 + width, bottom + 30, unit, more='text-anchor="end" fill="#555"'))
    return lambda v: 70 + v / xs[-1] * width, lambda v: bottom - v / ys[-1] * height


def scatter(out, y, title, key, lines):
    """Lines of (result, label): output tokens a second to the right, results' `key` upwards."""
    xs = ticks(max(r["output_throughput"] for line in lines.values() for r, _ in line))
    ys = ticks(max(r[key] for line in lines.values() for r, _ in line))
    across, up = axes(out, y, title, xs, ys, "output tokens per second")
    for colour, line in zip(COLOURS * len(lines), lines.values()):
        at = [(across(r["output_throughput"]), up(r[key])) for r, _ in line]
        points = " ".join(f"{px:.1f},{py:.1f}" for px, py in at)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        for (px, py), (_, label) in zip(at, line):
            out.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>')
            out.append(text(px + 5, py - 5, label, 10))
    return y + 264


def legend(out, y, names):
    for colour, name in zip(COLOURS * len(names), names):
        out.append(f'<rect x="70" y="{y - 9}" width="10" height="10" fill="{colour}"/>')
        out.append(text(86, y, name))
        y += 16
    return y + 6


def bars(out, y, title, rows, most):
    """rows: (label, value, what stands at the bar's end)"""
    out.append(text(16, y + 14, title, 13, 'font-weight="bold"'))
    y += 26
    for label, value, note in rows:
        wide = value / most * (WIDTH - LEFT - RIGHT - 30) if most else 0
        out.append(text(LEFT - 8, y + 11, label, more='text-anchor="end"'))
        out.append(f'<rect x="{LEFT}" y="{y + 1}" width="{wide:.1f}" height="12" fill="{COLOURS[0]}"/>')
        out.append(text(LEFT + wide + 5, y + 11, note))
        y += 17
    return y + 14


def program_name(p):
    sizes = [f"{name[0]}{p[name]}" for name in ("tokens", "requests") if p.get(name) is not None]
    return " ".join([p["program"], *sizes])


def ledger_panels(out, y, ledger):
    """Mean step times, and the share of rows that nobody asked for, of programs that were called."""
    called = [p for p in ledger["programs"] if p["calls"]]
    if not called:
        raise Unreadable("GET /programs: no program was called yet")
    means = [1000 * p["step_seconds"]["sum"] / p["step_seconds"]["count"] for p in called]
    y = bars(out, y, "Step times, mean ms",
             [(program_name(p), m, f"{m:.3g} ms × {p['calls']}") for p, m in zip(called, means)],
             max(means))
    rows = []
    for p in called:
        size = p["tokens"] if p.get("tokens") is not None else p.get("requests")
        if size:
            share = p["padding"] / (size * p["calls"])
            rows.append((program_name(p), share, f"{share:.0%} of {size * p['calls']}"))
    return bars(out, y, "Padding, share of a program's rows", rows, 1)


def picture(found):
    """One SVG of everything that was read."""
    out, y = [text(16, 24, "headrace", 16, 'font-weight="bold"')], 40
    lines = curves([o for o in found if is_load(o)])
    if lines:
        for key, title in (("median_ttft_ms", "Time to first token, median ms"),
                           ("median_tpot_ms", "Time per output token, median ms")):
            y = scatter(out, y, title, key, lines)
        y = legend(out, y + 8, list(lines))
    for ledger in found:
        if is_ledger(ledger):
            y = ledger_panels(out, y, ledger)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 12}" width="{WIDTH}" '
            f'height="{y + 12}" font-family="sans-serif" fill="#111">\n'
            '<rect width="100%" height="100%" fill="#fff"/>\n' + "\n".join(out) + "\n</svg>\n")


def main(argv=None):
    parser = argparse.ArgumentParser(prog="headrace-report", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="[NAME=]FILE")
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("report.svg"))
    given = parser.parse_args(argv)
    try:
        given.output.write_text(picture([o for f in given.files for o in read(f)]), encoding="utf-8")
    except (Unreadable, OSError) as e:
        print(f"headrace-report: {e}", file=sys.stderr)
        return 1
    print(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
