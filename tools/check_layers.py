#!/usr/bin/env python3
"""The house's arrows: which room may include which, and that nobody reaches past a door.

A room is a folder of src/. Its row lists what it may include besides itself and base; what those
may include comes with them. Prints each violation as file:line and ends with status 1.
"""
import pathlib
import re
import sys

ROOMS = {
    "base": [],
    "graph": ["base"],
    "passes": ["graph"],
    "backend": ["graph"],
    "ref": ["backend"],
    "cpu": ["backend", "passes"],
    "pjrt": ["backend"],
    "model": ["graph"],
    "convert": ["model"],
    "sampler": ["graph"],
    "text": ["base"],
    "engine": ["backend", "model", "sampler", "text", "cpu", "ref", "pjrt"],
    "server": ["engine", "text"],
    "bench": ["engine"],
    "eval": ["bench"],
    "cli": ["engine", "server", "bench", "eval", "convert"],
}
# The engine creates backends by name (devices.c) and speaks to them through backend.h ever after.
ONLY = {("engine", "cpu"): {"cpu/cpu.h"}, ("engine", "ref"): {"ref/ref.h"},
        ("engine", "pjrt"): {"pjrt/pjrt.h"}}
# Headers that are doors; base, graph and backend are open by nature, kernels.def lists are read
# by their own room.
INNER = re.compile(r"(_int\.h|_internal\.h)$")


def reachable(room):
    seen, todo = {"base", room}, [room]
    while todo:
        for other in ROOMS[todo.pop()]:
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def check(src):
    bad = []
    for path in sorted(src.rglob("*.[ch]")):
        room = path.relative_to(src).parts[0]
        if room not in ROOMS:
            bad.append(f"{path}:1: the house has no room '{room}'")
            continue
        allowed = reachable(room)
        for number, line in enumerate(path.read_text().splitlines(), 1):
            m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
            if not m or m[1].startswith("headrace/"):
                continue
            target = m[1].split("/")[0]
            where = f"{path}:{number}: {room} includes {m[1]}"
            if target not in ROOMS:
                bad.append(f"{where}: name it as room/file.h")
            elif target not in allowed:
                bad.append(f"{where}: {room} may include {', '.join(sorted(allowed - {room}))}")
            elif target != room and INNER.search(m[1]):
                bad.append(f"{where}: that header stays inside {target}")
            elif (room, target) in ONLY and m[1] not in ONLY[room, target]:
                bad.append(f"{where}: only {', '.join(ONLY[room, target])}")
    return bad


if __name__ == "__main__":
    problems = check(pathlib.Path(__file__).resolve().parent.parent / "src")
    print("\n".join(problems) or "layers: every include follows the arrows")
    sys.exit(bool(problems))
