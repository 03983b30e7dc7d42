"""Every command that the pages show is run here, as it stands there.

A fenced block of sh or python in README.md, CONTRIBUTING.md or docs/ is a script: it runs in a scratch
folder that looks like the repository, with the placeholders below filled in. Above a block that cannot
run here stands <!-- not run: WHY -->, or <!-- not run without: PROGRAM -->; those are counted and listed. A
block of C that has file=NAME is that file for the blocks after it.

Each page has a folder; its blocks run in order, since a reader does the same. With root they have a
network of their own, in which port 8000 is free.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
from conftest import BIN, ROOT, SMOLLM2, Server

import make_tiny
from test_python import installed  # noqa: F401  the package, for headrace-report

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What stands for something of the reader's own, and what would take long for no more proof.
PLACEHOLDERS = [
    (r"\bMODEL\b", "model"),
    (r"pjrt:PATH\b", "pjrt:.cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"),
    (r"\b0\.0\.0\.0\b", "127.0.0.1"),
    (r"--num-prompts \d+", "--num-prompts 4"),
    (r"--random-(input|output)-len \d+", r"--random-\1-len 16"),
    (r"(?<=--)((?:in|out)put-len) \d+", r"\1 16"),
    (r'("messages": \[[^\]]*\])(?!.*max_tokens)', r'\1, "max_tokens": 16'),
    (r"(headrace generate \S+)", r"\1 --max-tokens 16"),
    (r"--from-result \S+", "--from-result headrace.json"),
]
if os.geteuid() == 0:  # or nginx looks into this folder as a user who may not
    PLACEHOLDERS.append((r"^events \{\}", "user root;\nevents {}"))
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"

Block = collections.namedtuple("Block", "page line language name text reason without")


def blocks():
    fence = re.compile(r"((?:^[ ]*<!-- not run[^\n]*-->\n)?)^([ ]*)```(\w+)(?: file=(\S+))?\n(.*?)^\2```",
                       re.M | re.S)
    for page in PAGES:
        text = page.read_text()
        for m in fence.finditer(text):
            marker = re.match(r"\s*<!-- not run(: | without: )(.+) -->", m[1])
            body = re.sub(rf"^{m[2]}", "", m[5], flags=re.M)
            yield Block(page.relative_to(ROOT), text[:m.start(5)].count("\n"), m[3], m[4], body,
                        marker[2] if marker and marker[1] == ": " else None,
                        marker[2] if marker and marker[1] != ": " else None)


BLOCKS = list(blocks())


def lacking(block):
    if block.without and not (shutil.which(block.without) or (ROOT / block.without).exists()):
        return f"{block.without} is not here"
    return block.reason


RUN = [b for b in BLOCKS if b.language in ("sh", "python") and not lacking(b)]
NOT_RUN = [b for b in BLOCKS if b.language in ("sh", "python") and lacking(b)]


# ---- a scratch folder that looks like the repository ---------------------------------------------

def small_files(folder):
    """What commands on the pages read of the reader's own."""
    make_tiny.hf(folder / "model", "llama")
    (folder / "model/tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    config = json.loads((folder / "model/config.json").read_text())
    (folder / "model/config.json").write_text(json.dumps({**config, "max_position_embeddings": 32768}))
    for name in ("original", "quantised"):
        (folder / name).symlink_to("model")
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    (folder / "chat.json").write_text('[{"role": "user", "content": "Hello"}]')
    for name in ("notes.txt", "text.txt"):
        (folder / name).write_text("The sky is blue because air scatters blue light more than red. " * 8)
    question = {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}
    for name, n in (("train.jsonl", 8), ("test.jsonl", 2)):
        (folder / name).write_text(f"{json.dumps(question)}\n" * n)
    r = subprocess.run([BIN, "generate", folder / "model", "-p", "abc", "--max-tokens", "3", "--seed", "1",
                        "--json", "--sampling-trace"], capture_output=True, text=True)
    (folder / "answer.json").write_text(r.stdout)


@pytest.fixture(scope="session")
def world(tmp_path_factory, installed):  # noqa: F811
    """Root of the pages' folders, and the environment of their commands."""
    if not SMOLLM2.exists():
        pytest.skip("the packaged model is missing: tools/setup.sh model")
    root = tmp_path_factory.mktemp("docs")
    small_files(root)
    (root / "bin").mkdir()
    (root / "bin/headrace").symlink_to(BIN)
    (root / "bin/headrace-report").write_text(
        f"#!/bin/sh\nexec {sys.executable} -m headrace.report \"$@\"\n")
    (root / "bin/headrace-report").chmod(0o755)
    path = f"{root / 'bin'}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin:/sbin"
    return root, {**os.environ, "PATH": path, "PYTHONPATH": str(installed), "HEADRACE_CHECK_RECOMPILATION": "1"}


def page_folder(root, page):
    folder = root / str(page).replace("/", "-")
    if not folder.exists():
        folder.mkdir()
        for path in ROOT.iterdir():
            if path.name not in (".git", "build", "python"):
                (folder / path.name).symlink_to(path)
        for path in root.iterdir():  # the reader's own files
            if path.is_file() or path.name in ("model", "original", "quantised"):
                (folder / path.name).symlink_to(path)
        (folder / "build").mkdir()
        (folder / "build/release").symlink_to(pathlib.Path(BIN).parent)
        for block in BLOCKS:
            if block.name and block.page == page:
                (folder / block.name).write_text(block.text)
    return folder


# ---- a network of their own ----------------------------------------------------------------------

UP = """import fcntl, socket, struct, sys
with socket.socket() as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", 0x41))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
print("up", flush=True)
sys.stdin.read()"""


@pytest.fixture(scope="session")
def inside():
    """A prefix that runs a command in a network with nothing but 127.0.0.1; empty without root."""
    unshare, nsenter = shutil.which("unshare"), shutil.which("nsenter")
    keeper = unshare and nsenter and os.geteuid() == 0 and subprocess.Popen(
        [unshare, "-n", sys.executable, "-c", UP], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    up = bool(keeper) and keeper.stdout.readline() == b"up\n"
    yield [nsenter, f"--net=/proc/{keeper.pid}/ns/net"] if up else []
    if keeper:
        keeper.communicate()


# `serve` in the foreground would never end: it is started, waited for, and ended as Ctrl-C does.
PRELUDE = r"""
set -eo pipefail
trap 'kill $(jobs -p) 2>/dev/null || :' EXIT
serve_and_stop() {
    "$@" --log-level info --port 0 2>serve.log &
    local pid=$!
    for i in $(seq 300); do
        grep -q 'Compilation of .* programs done\|ready' serve.log && break
        kill -0 $pid || { cat serve.log >&2; return 1; }
        sleep 0.05
    done
    kill -INT $pid
    wait $pid || { cat serve.log >&2; return 1; }
}
"""


def script_of(block):
    text = block.text
    for pattern, value in PLACEHOLDERS:
        text = re.sub(pattern, value, text, flags=re.M)
    lines = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        words = line.split("#")[0].split() if not line.lstrip().startswith("#") else []
        at = next((i for i, w in enumerate(words) if w.split("/")[-1] == "headrace"), None)
        if at is not None and words[at + 1:at + 2] == ["serve"] and words[-1] != "&":
            assert all("=" in w for w in words[:at]), line
            line = f"{' '.join(words[:at])} serve_and_stop {line.split(None, at)[at].split(' #')[0]}"
        lines.append(line)
    return PRELUDE + "\n".join(lines) + "\n"


def wants_server(block):
    """It asks port 8000 and does not start a server there itself."""
    asks = "127.0.0.1:8000" in block.text or re.search(r"bench serve (?!.*--(base-url|port|from))", block.text)
    return bool(asks) and not re.search(r"headrace serve .*&$", block.text, re.M)


class Shared:
    """The server that a reader would have running: one for all blocks that ask it."""

    def __init__(self, inside, env):
        self.inside, self.env, self.process = inside, env, None

    def up(self, yes):
        if yes and not self.process:
            log = tempfile.TemporaryFile()
            self.process = subprocess.Popen([*self.inside, BIN, "serve", "smollm2-135m", "--max-num-seqs", "16"],
                                            stderr=log, env=self.env)
            self.run("until curl -sf http://127.0.0.1:8000/health; do sleep 0.05; done", None)
        if not yes and self.process:
            self.process.terminate()
            assert self.process.wait(60) == 0
            self.process = None

    def run(self, script, folder, language="sh"):
        command = ["bash", "-m"] if language == "sh" else [sys.executable]
        with tempfile.TemporaryFile("w+", errors="replace") as said:  # no pipe: a daemon would hold it
            status = subprocess.run([*self.inside, *command, "-c", script], cwd=folder, env=self.env,
                                    stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                                    timeout=120).returncode
            said.seek(0)
            return status, said.read()


@pytest.fixture(scope="session")
def shared(world, inside):
    s = Shared(inside, world[1])
    yield s
    s.up(False)


@pytest.mark.parametrize("block", RUN, ids=lambda b: f"{b.page}:{b.line}")
def test_commands(block, world, shared):
    shared.up(wants_server(block))
    script = script_of(block) if block.language == "sh" else block.text
    status, said = shared.run(script, page_folder(world[0], block.page), block.language)
    assert status == 0, f"{script}\n{said[-6000:]}"


# ---- the pages themselves ------------------------------------------------------------------------

def test_most_blocks_are_run():
    """What is not run says why; the list is short, and shown."""
    for block in NOT_RUN:
        print(f"figure: not run: {block.page}:{block.line}: {lacking(block)}")
    assert len(NOT_RUN) <= 21 and len(RUN) >= 36, [f"{b.page}:{b.line}" for b in NOT_RUN]


def test_no_command_hides_outside_of_a_block():
    """Commands stand in fenced blocks of sh, where they are run."""
    for page in PAGES:
        text = re.sub(r"^([ ]*)```.*?^\1```", "", page.read_text(), flags=re.M | re.S)
        hidden = re.findall(r"^ {4,}(?:headrace |tools/|curl |make |build/release/|\.cache/venv).*", text, re.M)
        assert not hidden, (page.name, hidden)
    for block in BLOCKS:
        if block.language not in ("sh", "python", "c", "text", "json"):
            assert not re.search(r"^headrace |^curl ", block.text, re.M), (block.page, block.line)


def test_links_lead_somewhere():
    """Every link to a file of ours, and to a heading in it."""
    def anchors(path):
        heads = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
        return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, link)
            assert not anchor or anchor in anchors(target), (page.name, link)


def test_every_page_is_in_the_index():
    index = (ROOT / "docs/README.md").read_text()
    for page in PAGES[3:]:
        name = page.relative_to(ROOT / "docs").as_posix()
        assert name == "README.md" or f"({name})" in index, name


def test_reference_is_current():
    r = subprocess.run([sys.executable, ROOT / "tools/reference.py", "--check"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr


def test_reference_has_what_help_has(world):
    """The other way round: what the binary says of itself, in the tables made from the sources."""
    text = (ROOT / "docs/REFERENCE.md").read_text()
    rows = {tuple(c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]) for line in text.splitlines()
            if line.startswith("| `-")}
    overview = subprocess.run([BIN, "--help"], capture_output=True, text=True).stdout
    for command in re.findall(r"^  (\w+(?: \w+)?)  +\w", overview, re.M):
        of = {r[0].strip("`").replace("\\|", "|") for r in rows if command in r[2].split(", ")}
        helped = subprocess.run([BIN, *command.split(), "--help"], capture_output=True, text=True).stdout
        flags = {re.split(r"  +", line[2:])[0] if "  " in line[2:] else line[2:].split()[0]
                 for line in helped.splitlines() if line.startswith("  -")}
        assert of == flags, command
