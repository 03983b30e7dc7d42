"""What `cmake --install` leaves: found by pkg-config, enough to build the examples against, with
nothing exported that headrace.h does not declare, and manual pages that say what --help says."""
import os
import pathlib
import re
import subprocess

import pytest
from conftest import BIN, ROOT, headrace
from test_cli import COMMANDS, flags_of

import make_tiny

BUILD = pathlib.Path(BIN).parent
HEADER = (ROOT / "include/headrace/headrace.h").read_text()


def run(*command, **more):
    r = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, **more)
    assert r.returncode == 0, (command, r.stdout, r.stderr)
    return r.stdout


@pytest.fixture(scope="module")
def usr(tmp_path_factory):
    """The installed prefix, under a DESTDIR: nothing in it may remember where it was built."""
    staging = tmp_path_factory.mktemp("install")
    run("cmake", "--install", BUILD, "--prefix", "/usr", env={**os.environ, "DESTDIR": str(staging)})
    return staging / "usr"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("installed") / "tiny"
    make_tiny.hf(path, "llama")
    return path


def one(usr, pattern):
    found, = usr.rglob(pattern)
    return found


def pkg_config(usr, *arguments):
    return run("pkg-config", *arguments, "headrace",
               env={**os.environ, "PKG_CONFIG_PATH": str(one(usr, "headrace.pc").parent)}).split()


def built(usr, tmp_path, example, *flags):
    program = tmp_path / pathlib.Path(example).stem
    run("gcc", ROOT / "examples" / example, "-o", program, *flags)
    return program


def test_files(usr):
    for name in ("bin/headrace", "include/headrace/headrace.h", "share/doc/headrace/LICENSE"):
        assert (usr / name).is_file(), name
    assert run(usr / "bin/headrace", "--version") == headrace("--version").stdout
    assert [p.name for p in (usr / "include").rglob("*.h")] == ["headrace.h"]


def test_shared_library(usr):
    """Its soname is the link that the loader follows; its symbols are the header's functions."""
    library = one(usr, "libheadrace.so.0")
    assert "soname: [libheadrace.so.0]" in run("readelf", "-d", library)
    assert one(usr, "libheadrace.so").resolve() == library.resolve()
    exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()}
    assert exported == set(re.findall(r"^HEADRACE_API [^;]*?(headrace_\w+)\(", HEADER, re.M))
    assert "RUNPATH" not in run("readelf", "-d", library)


@pytest.mark.parametrize("example", ["hello.c", "grammar.c"])
def test_examples_by_pkg_config(usr, tmp_path, model, example):
    program = built(usr, tmp_path, example, *pkg_config(usr, "--cflags", "--libs"))
    folder = str(one(usr, "libheadrace.so.0").parent)
    said = subprocess.run([program, model, "abc"], capture_output=True, text=True, timeout=120,
                          errors="replace", env={**os.environ, "LD_LIBRARY_PATH": folder})
    assert said.returncode == 0 and said.stdout.strip(), said.stderr


def test_static_library(usr, tmp_path, model):
    flags = [f for f in pkg_config(usr, "--static", "--cflags", "--libs") if f != "-lheadrace"]
    program = built(usr, tmp_path, "hello.c", one(usr, "libheadrace.a"), *flags)
    assert "libheadrace" not in run("readelf", "-d", program)
    said = subprocess.run([program, model, "abc"], capture_output=True, timeout=120)
    assert said.returncode == 0 and said.stdout.strip(), said.stderr


@pytest.mark.parametrize("example", ["logits_processor_trigram.c", "logits_processor_bias.c"])
def test_processors_need_the_header_alone(usr, tmp_path, model, example):
    """As the examples' own first lines say; the library is the host's."""
    flags = pkg_config(usr, "--cflags")
    plugin = built(usr, tmp_path, example, "-shared", "-fPIC", *flags)
    options = "=15:-5" if "bias" in example else ""
    said = run(usr / "bin/headrace", "generate", model, "-p", "abc", "--max-tokens", 4, "--temperature",
               0, "--logits-processor", f"{plugin}{options}", errors="replace")
    assert said.strip()


# ---- manual pages --------------------------------------------------------------------------------

def page_name(command):
    return f"headrace-{command.replace(' ', '-')}.1.gz"


def test_a_page_for_every_command(usr):
    pages = {p.name for p in (usr / "share/man/man1").iterdir()}
    assert pages == {"headrace.1.gz", *map(page_name, COMMANDS)}
    for page in sorted(pages):
        # mandoc wants a date, which would make two builds of one commit differ
        said = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", usr / "share/man/man1" / page],
                              capture_output=True, text=True).stdout
        assert re.sub(r'.*missing date, using "": TH\n', "", said) == "", page


def shown(page):
    return re.sub(r".\x08", "", run("mandoc", "-T", "utf8", "-O", "width=400", page))


@pytest.mark.parametrize("command", COMMANDS)
def test_pages_say_what_help_says(usr, command):
    """Every flag with its value, and every word of its help, as they are shown."""
    text = " ".join(shown(usr / "share/man/man1" / page_name(command)).split())
    helped = headrace(*command.split(), "--help").stdout
    for line in helped.splitlines():
        words = " ".join(line.removeprefix("usage: ").split())
        assert words in text, (command, words)
    assert all(f" {name} " in text for name, _ in flags_of(command))


def test_help_command(tmp_path):
    assert headrace("help", "bench", "serve").stdout == headrace("bench", "serve", "--help").stdout
    assert headrace("help", "--man").stdout.startswith(".TH HEADRACE 1")
    assert headrace("help", "--man", "serve").stdout.startswith(".TH HEADRACE\\-SERVE 1")
    for arguments, naming in [(["frobnicate"], "no command frobnicate"),
                              (["serve", "x"], "no command serve x"),
                              (["--man", "bench"], "no command bench"), (["--man-pages"], "FOLDER")]:
        r = headrace("help", *arguments)
        assert r.returncode == 2 and naming in r.stderr and not r.stdout
    assert headrace("help", "--man-pages", tmp_path / "file" / "..").returncode == 0
    (tmp_path / "plain").write_text("")
    assert headrace("help", "--man-pages", tmp_path / "plain").returncode == 1
