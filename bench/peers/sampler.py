#!/usr/bin/env python3
"""headrace's sampler beside torch's and JAX's: the same work on the same threads, by turns, one table.

    python3 bench/peers/sampler.py                          batch 1 and 32, three rounds
    python3 bench/peers/sampler.py --batch-sizes 1,4,16,32,256 --rounds 5
    python3 bench/peers/sampler.py --setup-only             fetch torch and JAX, and end

In every round headrace, torch and JAX each run all their cases once or more, one program after the
other; medians over the rounds are compared. Peers keep their inputs where they are computed with;
headrace sends its rows in each step, as its engine does.

torch and JAX are PyPI's, pinned by version and hash (requirements-sampler.txt, 2.5 GB), in an
environment of their own in .cache/peers. The result goes to bench/results/sampler_peers.json and .txt.
"""
import argparse
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CACHE = ROOT / ".cache/peers/sampler"
RESULTS = ROOT / "bench/results"
PINS = HERE / "requirements-sampler.txt"
CUTS = "temperature, top_k, top_p"
COLUMNS = ("headrace", "torch, sort", "torch, topk", "JAX, sort", "JAX, bisect")
GOALS = {"torch, sort": 60, "JAX, sort": 60, "torch, topk": 3}  # times headrace's, batch 32
GROWTH = 20  # batch 32 of batch 1


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def set_up():
    """The peers' python; installed once for each list of pins."""
    python, stamp = CACHE / "venv/bin/python", CACHE / "requirements.txt"
    if stamp.exists() and stamp.read_text() == PINS.read_text():
        return python
    say("installing torch and JAX into .cache/peers/sampler")
    CACHE.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", CACHE / "venv"], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--require-hashes", "-r", PINS], check=True)
    stamp.write_text(PINS.read_text())
    return python


# ---- who takes turns ----------------------------------------------------------------------------

class Peer:
    """A script that waits for its turns."""

    def __init__(self, python, script, a):
        self.process = subprocess.Popen(
            [python, HERE / script, "--by-turns", "--threads", str(a.threads), "--batch-sizes",
             a.batch_sizes, "--num-runs", str(a.peer_runs), "--hidden-sizes", str(a.hidden),
             "--vocab-sizes", str(a.vocab)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.script = script
        self.expect("ready")

    def expect(self, word):
        line = self.process.stdout.readline()
        if line.strip() != word:
            sys.exit(f"{self.script} failed: {line}")

    def turn(self):
        self.process.stdin.write("turn\n")
        self.process.stdin.flush()
        self.expect("done")

    def end(self):
        """Its results."""
        text, _ = self.process.communicate()
        return json.loads(text)

    def stop(self):
        self.process.kill()
        self.process.wait()


class Headrace:
    """A process for each turn: `bench sampler` has turns of its own inside."""

    def __init__(self, a):
        self.command = [a.headrace, "bench", "sampler", "--threads", str(a.threads), "--batch-sizes",
                        a.batch_sizes, "--num-runs", str(a.num_runs), "--hidden-sizes", str(a.hidden),
                        "--vocab-sizes", str(a.vocab), "--sweep", "--no-progress"]
        self.rounds = []

    def turn(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "result.json")
            subprocess.run([*self.command, "--output-json", file], check=True,
                           stdout=subprocess.DEVNULL)
            self.rounds.append(json.loads(file.read_text()))

    def end(self):
        """Medians over the rounds."""
        return [self.middle(several) for several in zip(*self.rounds)]

    @staticmethod
    def middle(several):
        out = dict(several[0], device="headrace")
        for key in ("head_and_sampler_s", "sampler_s", "sweep_s"):
            out[key] = {case: statistics.median(r[key][case] for r in several) for case in out[key]}
        for key in ("warm_up_s", "head_s"):
            out[key] = statistics.median(r[key] for r in several)
        del out["everything_runs_s"]
        return out


def measure(a, python):
    peers = []
    try:
        for script in ("sampler_torch.py", "sampler_jax.py"):
            say(f"{script} starts")
            peers.append(Peer(python, script, a))
        takers = [Headrace(a), *peers]
        for number in range(a.rounds):
            say(f"round {number + 1} of {a.rounds}")
            for taker in takers if number % 2 == 0 else takers[::-1]:
                taker.turn()
        return [result for taker in takers for result in taker.end()]
    finally:
        for peer in peers:
            peer.stop()


# ---- the table ----------------------------------------------------------------------------------

def column_of(result):
    """A name without the version."""
    return re.sub(r" [\d.]+,", ",", result["device"])


def grid(found, batches, kind, case):
    lines = []
    for batch in batches:
        times = [found[c, batch][kind][case] * 1e3 for c in COLUMNS]
        lines.append(f"{batch:>7}" + "".join(f"{t:>13.3f}" for t in times)
                     + "".join(f"{t / times[0]:>9.1f}" for t in times[1:]))
    return lines


def verdict(name, value, goal, least=True):
    met = value >= goal if least else value <= goal
    return (f"{name:<52}{value:>8.1f}   goal {'>=' if least else '<='} {goal:<4}"
            f"{'met' if met else 'MISSED'}")


def goals(found, batches):
    if not {1, 32} <= set(batches):
        return []
    own = {b: found["headrace", b] for b in (1, 32)}
    lines = [verdict(f"batch 32, sampler alone: {c} over headrace",
                     found[c, 32]["sampler_s"][CUTS] / own[32]["sampler_s"][CUTS], goal)
             for c, goal in GOALS.items()]
    lines.append(verdict("headrace, sampler alone: batch 32 over batch 1",
                         own[32]["sampler_s"][CUTS] / own[1]["sampler_s"][CUTS], GROWTH, least=False))
    return lines


def sweep(found, batches):
    lines = ["headrace, sampler alone, temperature .8; ms",
             f"{'batch':<28}" + "".join(f"{b:>10}" for b in batches)]
    for case in found["headrace", batches[0]]["sweep_s"]:
        lines.append(f"  {case:<26}" + "".join(
            f"{found['headrace', b]['sweep_s'][case] * 1e3:>10.3f}" for b in batches))
    return lines


def processor():
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return found[1] if found else "unknown processor"


def report(a, results):
    found = {(column_of(r), r["batch_size"]): r for r in results}
    batches = sorted({r["batch_size"] for r in results})
    names = sorted({r["device"].split(",")[0] for r in results} - {"headrace"})
    head = (f"{'batch':>7}" + "".join(f"{c:>13}" for c in COLUMNS)
            + "".join(f"{n:>9}" for n in ("t.sort", "t.topk", "J.sort", "J.bis")))
    lines = [f"float32 head, hidden {a.hidden}, vocabulary {a.vocab}; ms, medians of {a.rounds} rounds;"
             " on the right times headrace's", f"{', '.join(names)}; {processor()}, {a.threads} threads;"
             f" {datetime.date.today().isoformat()}"]
    for kind, title in (("sampler_s", "sampler alone"), ("head_and_sampler_s", "head and sampler")):
        for case in ("greedy", CUTS, "everything"):
            lines += ["", f"{title}, {case}", head, *grid(found, batches, kind, case)]
    lines += ["", *sweep(found, batches), "", *goals(found, batches)]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--headrace", default=os.environ.get("HEADRACE_BIN",
                                                        str(ROOT / "build/release/headrace")))
    p.add_argument("--batch-sizes", default="1,32", help="with 1 and 32 the goals are judged")
    p.add_argument("--hidden", type=int, default=896)
    p.add_argument("--vocab", type=int, default=151936)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--num-runs", type=int, default=8, help="of headrace's cases, in a round")
    p.add_argument("--peer-runs", type=int, default=2, help="of a peer's cases, in a round")
    p.add_argument("--setup-only", action="store_true", help="fetch torch and JAX, and end")
    a = p.parse_args()
    python = set_up()
    if a.setup_only:
        return
    results = measure(a, python)
    text = report(a, results)
    print(text, end="")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "sampler_peers.txt").write_text(text)
    (RESULTS / "sampler_peers.json").write_text(json.dumps(
        {"date": datetime.date.today().isoformat(), "processor": processor(), "threads": a.threads,
         "rounds": a.rounds, "medians": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
