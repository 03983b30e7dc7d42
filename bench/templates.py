"""How fast chat templates are rendered: ours against jinja2, set up as transformers sets it up.

One process each, one thread, parsed once; jinja2 gets the request as Python objects, ours as the JSON
tree that a server has parsed, and turns it into values every time. Per template and conversation both
render in turns, five times; the medians of the turns are compared. Writes
bench/results/templates.{json,txt}.

    ninja -C build/release render_runner && tools/setup.sh test
    .cache/venv/bin/python bench/templates.py
"""
import json
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("HEADRACE_BIN", str(ROOT / "build/release/headrace"))
sys.path.insert(0, str(ROOT / "tests/e2e"))
import rendering  # noqa: E402
import test_published_templates as published  # noqa: E402

TURNS = 5
SECONDS = .03  # of a turn
TEMPLATES = ["qwen3", "llama3_1", "gptoss", "gemma3", "deepseekv3", "qwen2_5", "llama3", "phi3"]


def conversations():
    talk = [published.user("Why is the sky blue?" * 4), published.assistant("Because of scattering. " * 8)]
    tools = [published.WEATHER, published.DEEP]
    return {
        "one message": {"messages": [published.user("Hello")]},
        "40 messages": {"messages": [published.system("Be brief."), *talk * 20][:41]},
        "tools": {"messages": [published.user("w?"), published.assistant("", tool_calls=[
            published.call({"b": "c"})]), published.result("22"), published.user("and now?")],
            "tools": tools},
        "long text": {"messages": [published.user("The quick brown fox, 中文 é.\n" * 2000)]},
    }


def repeated(render, seconds):
    """How many renderings fill the time."""
    n = 1
    while True:
        took = render(n)
        if took > seconds / 4 or n > 1 << 20:
            return max(1, int(n * seconds / max(took, 1e-9)))
        n *= 4


def compare(renderer, template, variables):
    """Seconds a rendering of each, interleaved; None when the template refuses the conversation."""
    compiled = rendering.ENV.from_string(template)
    text = json.dumps(variables)
    try:
        expected = compiled.render(**variables)
    except Exception:
        return None

    def theirs(n):
        start = time.perf_counter()
        for _ in range(n):
            compiled.render(**variables)
        return time.perf_counter() - start

    def ours(n):
        answer = renderer.template(template, text, ("bos_token", "eos_token"), repeat=n)
        assert answer["text"] == expected
        return answer["seconds"]

    n_theirs, n_ours = repeated(theirs, SECONDS), repeated(ours, SECONDS)
    turns = [(theirs(n_theirs) / n_theirs, ours(n_ours) / n_ours) for _ in range(TURNS)]
    return [statistics.median(t) for t in zip(*turns)]


def main():
    sources = {pathlib.Path(n).stem: t for t, n in published.in_wheel("trl").items()}
    renderer, rows = rendering.Renderer(), []
    for name in TEMPLATES:
        for kind, chat in conversations().items():
            variables = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>",
                         "add_generation_prompt": True, **chat}
            times = compare(renderer, sources[name], variables)
            if times:
                rows.append({"template": name, "chat": kind, "jinja2_us": round(times[0] * 1e6, 2),
                             "headrace_us": round(times[1] * 1e6, 2),
                             "ratio": round(times[0] / times[1], 1)})
    renderer.close()
    ratios = sorted(r["ratio"] for r in rows)
    report = [f"{'template':12} {'chat':12} {'jinja2 us':>10} {'headrace us':>12} {'ratio':>7}"]
    report += [f"{r['template']:12} {r['chat']:12} {r['jinja2_us']:10.2f} {r['headrace_us']:12.2f} "
               f"{r['ratio']:7.1f}" for r in rows]
    report.append(f"ratio: least {ratios[0]}, median {statistics.median(ratios)}, most {ratios[-1]}")
    results = ROOT / "bench/results"
    (results / "templates.json").write_text(json.dumps(rows, indent=1) + "\n")
    (results / "templates.txt").write_text("\n".join(report) + "\n")
    print("\n".join(report))


if __name__ == "__main__":
    main()
