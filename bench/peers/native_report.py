"""native.py's table, its JSON and its picture, from the figures of all rounds."""
from chart import MODELS, TITLES, about_lines, keep
from turns import medians

WHO = ("headrace", "llama.cpp", "openvino")
# checkpoints of as many bits: rows of the table compare what they hold
BITS = {"w8a8": ("q8_0",), "q8_0": ("q8_0",), "q4_0": ("q4_0",), "bf16": ("f16",),
        "smollm2": ("smollm2",)}


def figure(m, who, model, work):
    """Its own checkpoint's, or for a peer that of as many bits."""
    found = [m[who, x, work]["tok_s"] for x in ((model,) if who == "headrace" else BITS[model])
             if (who, x, work) in m]
    return found[0] if found else None


def row(m, model, work):
    values = {w: figure(m, w, model, work) for w in WHO}
    if values["headrace"] is None:
        return None
    cells = "".join(f"{'-':>11}" if v is None else f"{v:>11.{1 if v < 100 else 0}f}"
                    for v in values.values())
    best = max(((v, w) for w, v in values.items() if v and w != "headrace"), default=None)
    return cells + (f"{values['headrace'] / best[0]:>8.2f}x  {TITLES[best[1]]}" if best else "")


def offline_lines(m):
    head = "".join(f"{TITLES[w]:>11}" for w in WHO)
    out = [f"{'alone, tokens per second':<28}{head}   to the best peer of as many bits"]
    for work, title in (("prefill", "prefill 512"), ("decode", "decode 128")):
        rows = {model: row(m, model, work) for model in BITS}
        out += [f"{MODELS[model] + ', ' + title:<28}{r}" for model, r in rows.items() if r]
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


def panels(m):
    for work, title in (("prefill", "Prefill, a prompt of 512 tokens: tokens per second"),
                        ("decode", "Decode, one request: tokens per second")):
        groups = [(MODELS[x], [(w, figure(m, w, x, work)) for w in WHO if figure(m, w, x, work)])
                  for x in BITS]
        yield title + " (longer is better)", groups, 0


def write(about, runs, folder):
    if not runs:
        return
    m = medians(runs, ("tok_s", "gop_s"))
    keep("native", "headrace and its peers on two threads", about, runs, m,
         [about_lines(about, runs), offline_lines(m), linear_lines(m)], panels(m), folder)
