#!/usr/bin/env python3
"""Does what packaging/Containerfile says in chroots, for machines without a container engine, then runs
the image as an engine would: read-only, as its user, with its volumes, its entry point and command.

    tools/check_container.py [--base FOLDER]

As root, with a network and debootstrap; some ten minutes, most of them the build. --base is a bare
Debian 12 that debootstrap made before. By hand and at night: tests/e2e/test_deploy.py reads the
Containerfile in every run.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "packaging/Containerfile"
IMAGE = "docker.io/library/debian:12-slim"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# ---- the file ------------------------------------------------------------------------------------

def parse(text):
    """[(instruction, the rest)]; continued lines are joined, comments are gone."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def options(rest):
    """("--from=a", "b c") as ({"from": "a"}, "b c")."""
    found = {}
    while rest.startswith("--"):
        option, rest = rest.split(None, 1)
        name, _, value = option[2:].partition("=")
        found[name] = value
    return found, rest


def ignored(name):
    for pattern in (ROOT / ".containerignore").read_text().split():
        parts = pathlib.PurePath(name).parts
        if pattern.startswith("**/") and any(fnmatch.fnmatch(p, pattern[3:]) for p in parts):
            return True
        if fnmatch.fnmatch(parts[0], pattern):
            return True
    return False


def context():
    """What an engine would send: every file below the repository that is not ignored."""
    out = []
    for folder, folders, files in os.walk(ROOT):
        here = pathlib.Path(folder).relative_to(ROOT)
        folders[:] = [f for f in folders if not ignored(here / f)]
        out += [here / f for f in files if not ignored(here / f)]
    return out


# ---- the steps -----------------------------------------------------------------------------------

def run(*command, **more):
    return subprocess.run([str(c) for c in command], check=True, **more)


class Stage:
    """A root folder under way, and what its instructions have set."""

    def __init__(self, base, root):
        run("cp", "-a", "--reflink=auto", base, root)
        self.root, self.workdir = root, "/"
        self.user, self.env, self.volumes, self.entry, self.command = "0:0", {}, [], [], []

    def inside(self, path):
        return self.root / str(pathlib.PurePosixPath(self.workdir, path)).lstrip("/")

    def shell(self, words):
        mounted = self.root / "proc"
        run("mount", "-t", "proc", "proc", mounted)
        try:
            run("chroot", f"--userspec={self.user}", self.root, "env", "-i", PATH, "HOME=/root",
                *(f"{k}={v}" for k, v in self.env.items()), "sh", "-c",
                f"cd {shlex.quote(self.workdir)} && {words}")
        finally:
            run("umount", mounted)


class Build:
    def __init__(self, base, work):
        self.base, self.work, self.stages, self.now = base, work, {}, None

    def do(self, instruction, rest):
        print(f"== {instruction} {rest}", flush=True)
        getattr(self, f"do_{instruction.lower()}")(rest)

    def do_from(self, rest):
        image, *name = rest.split(" AS ")
        if image != IMAGE:
            raise SystemExit(f"FROM {image}: only {IMAGE} can be made here")
        key = name[0] if name else str(len(self.stages))
        self.now = self.stages[key] = Stage(self.base, self.work / f"stage-{key}")

    def do_workdir(self, rest):
        self.now.workdir = rest
        self.now.inside(".").mkdir(parents=True, exist_ok=True)

    def do_copy(self, rest):
        given, rest = options(rest)
        if given or rest != ". .":
            raise SystemExit(f"COPY {rest}: only the whole context can be copied here")
        for name in context():
            to = self.now.inside(name)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to, follow_symlinks=False)

    def do_run(self, rest):
        given, words = options(rest)
        mount = dict(p.split("=") for p in given.get("mount", "").split(",") if p)
        target = self.now.inside(mount["target"]) if mount else None
        if mount:
            shutil.copytree(self.stages[mount["from"]].inside(mount["source"]), target)
        self.now.shell(words)
        if mount:
            shutil.rmtree(target)

    def do_user(self, rest):
        self.now.user = rest

    def do_env(self, rest):
        self.now.env.update(w.split("=", 1) for w in shlex.split(rest))

    def do_volume(self, rest):
        self.now.volumes.append(rest)

    def do_entrypoint(self, rest):
        self.now.entry = json.loads(rest)

    def do_cmd(self, rest):
        self.now.command = json.loads(rest)

    def do_expose(self, rest):
        pass  # tells people

    def do_stopsignal(self, rest):
        if rest != "SIGTERM":
            raise SystemExit(f"STOPSIGNAL {rest}")


# ---- the image -----------------------------------------------------------------------------------

def ask(port, path, body=None):
    data = body and json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data,
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.read()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def mounts(image, model):
    """Mounts a read-only view of the image with its volumes in place; their folder and the targets."""
    view = image.root.with_name("view")
    view.mkdir()
    done = []

    def mount(*arguments):
        run("mount", *arguments)
        done.append(arguments[-1])
    (image.root / "models").mkdir()  # an engine makes what it mounts on
    (image.root / "models/model").touch()
    mount("--bind", image.root, view)
    run("mount", "-o", "remount,bind,ro", view)
    for volume in image.volumes:
        mount("--bind", image.root / volume.lstrip("/"), view / volume.lstrip("/"))
    mount("--bind", model, view / "models/model")
    run("mount", "-o", "remount,bind,ro", view / "models/model")
    mount("-t", "proc", "proc", view / "proc")
    return view, done


def serve(view, image, port):
    command = [*image.entry, *image.command, "--host", "127.0.0.1", "--port", str(port)]
    print("==", *command, flush=True)
    chroot = ["chroot", f"--userspec={image.user}", str(view), "env", "-i", PATH,
              *(f"{k}={v}" for k, v in image.env.items())]
    if not subprocess.run([*chroot, "touch", "/written"], capture_output=True).returncode:
        raise SystemExit("the image's root can be written to")
    server = subprocess.Popen([*chroot, *command])
    try:
        for _ in range(300):
            time.sleep(.2)
            try:
                ask(port, "/health")
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit(f"the server ended with {server.returncode}")
        status = pathlib.Path(f"/proc/{server.pid}/status").read_text()
        user = re.search(r"^Uid:\s+(\d+)", status, re.M)[1]
        answer = json.loads(ask(port, "/v1/completions", {
            "prompt": "The capital of France is", "temperature": 0, "max_tokens": 4}))
    finally:
        server.terminate()
    return user, answer["choices"][0]["text"], server.wait(60)


def check(image, model):
    view, mounted = mounts(image, model)
    try:
        user, text, ended = serve(view, image, free_port())
        kept = [p for v in image.volumes for p in (view / v.lstrip("/")).rglob("*.weights")]
    finally:
        for target in reversed(mounted):
            run("umount", target)
    print(f"as user {user}: {text!r}, exit status {ended}, kept {[p.name for p in kept]}")
    return user == image.user.split(":")[0] != "0" and "Paris" in text and ended == 0 and kept


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=pathlib.Path)
    base = parser.parse_args().base
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
    run(ROOT / "tools/setup.sh", "model")
    with tempfile.TemporaryDirectory(prefix="headrace-container-") as work:
        work = pathlib.Path(work)
        work.chmod(0o755)
        if not base:
            base = work / "base"
            run("debootstrap", "--variant=minbase", "bookworm", base, stdout=subprocess.DEVNULL)
        build = Build(base, work)
        for instruction, rest in parse(FILE.read_text()):
            build.do(instruction, rest)
        model, = (cache / "headrace/models/smollm2-135m").glob("*.gguf")
        shutil.copy(model, work / "model")
        (work / "model").chmod(0o644)
        if not check(build.now, work / "model"):
            raise SystemExit("the image does not do what it should")
    print("the image builds, and serves read-only as its user")


if __name__ == "__main__":
    sys.exit(main())
