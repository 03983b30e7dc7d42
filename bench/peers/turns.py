"""Programs that take turns on a quiet machine, and the journal that an interrupted run goes on from."""
import json
import os
import pathlib
import statistics
import subprocess
import time

from common import ROOT, processor_times, say, wait_for_quiet

MODELS = ROOT / ".cache/bench/qwen2.5-0.5b-random"
FILES = {"w8a8": MODELS / "w8a8", "q8_0": MODELS / "q8_0.gguf", "q4_0": MODELS / "q4_0.gguf",
         "bf16": MODELS / "bf16", "f16": MODELS / "f16.gguf"}
BUSY = 0.05  # of the machine: a turn with more taken by others does not count


class Failed(Exception):
    """A turn without a result; the others go on."""


def run(command, **more):
    """What the command prints. Raises Failed."""
    r = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=900,
                       stdin=subprocess.DEVNULL, **more)
    if r.returncode:
        raise Failed(f"{command[0]}: {r.stderr[-500:]}")
    return r.stdout


def lines(text):
    return [json.loads(x) for x in text.splitlines() if x.startswith("{")]


def commit():
    """Of what was measured; told with every figure, since a run may go on after a change."""
    return run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()


def headrace_dtype(model):
    return ["--dtype", "bfloat16"] if model == "bf16" else []


class Journal:
    """A line of JSON for each figure of each turn; a turn in it is not run again."""

    def __init__(self, name):
        self.file = ROOT / ".cache/bench" / name

    def known(self):
        return lines(self.file.read_text()) if self.file.exists() else []

    def forget(self):
        self.file.unlink(missing_ok=True)

    def left(self, all_turns, rounds):
        """(round, turn), every second round in the opposite order."""
        done = {(r["round"], *r["turn"]) for r in self.known()}
        return [(number, turn) for number in range(rounds)
                for turn in (all_turns if number % 2 == 0 else all_turns[::-1])
                if (number, *turn) not in done]

    def add(self, records):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)


class Others:
    """What other processes take of the machine while a turn's own, which it waits for, run."""

    def __init__(self):
        self.idle, self.total = processor_times()
        self.own = self.own_s()

    @staticmethod
    def own_s():
        t = os.times()
        return t.user + t.system + t.children_user + t.children_system

    def share(self):
        idle, total = processor_times()
        busy = total - self.total - (idle - self.idle)
        own = (self.own_s() - self.own) * os.sysconf("SC_CLK_TCK")
        return max(0.0, (busy - own) / max(1, total - self.total))


def one_turn(take, turn, number, a):
    """The turn's figures; None without them, or when the machine had other things to do."""
    idle, others, begin = wait_for_quiet(a.quiet_timeout), Others(), time.monotonic()
    try:
        records = take(*turn, number)
    except (Failed, subprocess.TimeoutExpired) as e:
        return say(f"{', '.join(turn)}: no result: {e}")
    share = others.share()
    told = ", ".join(f"{r['work']} {r.get('tok_s', r.get('gop_s')):.0f}" for r in records)
    say(f"round {number + 1}: {turn[0]}, {turn[1]}: {told} ({idle:.0%} idle before, {share:.1%} "
        f"others', {time.monotonic() - begin:.0f} s)")
    if share > BUSY:
        return say("forgotten: the machine was not quiet")
    return [{**r, "others": round(share, 4)} for r in records]


def measure(journal, all_turns, take, a):
    """Turns (who, model, what) that are left, each one's take(who, model, what, round): its figures."""
    end, version = time.monotonic() + 60 * a.minutes, commit()
    for number, turn in journal.left(all_turns, a.rounds):
        if time.monotonic() > end:
            return say("out of time; the next call goes on from here")
        records = one_turn(take, turn, number, a) or []
        journal.add({**r, "round": number, "turn": turn, "who": turn[0], "model": turn[1],
                     "commit": version} for r in records)


def medians(runs, figures):
    """{(who, model, work): {figure: its median over the rounds}}"""
    groups = {}
    for r in runs:
        groups.setdefault((r["who"], r["model"], r["work"]), []).append(r)
    return {key: {f: statistics.median(r[f] for r in rs) for f in figures if f in rs[0]}
            for key, rs in groups.items()}


def add_flags(p):
    p.add_argument("--headrace", default=str(ROOT / "build/release/headrace"))
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="of these only, with commas: llama.cpp,headrace")
    p.add_argument("--minutes", type=float, default=1e6, help="start no turn after so long")
    p.add_argument("--quiet-timeout", type=float, default=60,
                   help="seconds to wait for a quiet machine before each turn")
    p.add_argument("--fresh", action="store_true", help="forget earlier turns")
    p.add_argument("--report", action="store_true", help="measure nothing")


def chosen(all_turns, have, a):
    """The turns of those who are installed and asked for."""
    return [t for t in all_turns if (t[0] == "headrace" or have[t[0]])
            and (not a.only or t[0] in a.only.split(","))]


def missing(all_turns):
    files = {FILES[model] for _, model, _ in all_turns if model in FILES}
    return sorted(str(f) for f in files if not pathlib.Path(f).exists())
