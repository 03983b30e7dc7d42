"""The Debian package: what is in it, what it says it needs, and that it runs with nothing else than
that. tools/check_package.sh installs it on a bare Debian, which takes a network and root."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from conftest import BIN, ROOT, generate, headrace

import make_tiny
from test_install import run

BUILD = pathlib.Path(BIN).parent
pytestmark = pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="this is no Debian")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    run("cpack", "-G", "DEB", "-B", folder, cwd=BUILD)
    deb, = folder.glob("*.deb")
    return deb


@pytest.fixture(scope="module")
def root(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("root")
    run("dpkg-deb", "-x", package, folder)
    return folder


def field(package, name):
    return run("dpkg-deb", "-f", package, name).strip()


def test_control(package):
    version = headrace("--version").stdout.split()[1]
    arch = run("dpkg", "--print-architecture").strip()
    assert package.name == f"headrace_{version}_{arch}.deb"
    assert (field(package, "Package"), field(package, "Version")) == ("headrace", version)
    assert re.fullmatch(r".+ <\S+@\S+>", field(package, "Maintainer"))
    lines = field(package, "Description").splitlines()
    assert len(lines) > 2 and len(lines[0]) < 80 and not lines[0].endswith(".")


def test_dependencies_are_those_of_the_binaries(package, root):
    """Every library that the loader would look for is in a package that is depended on."""
    depends = {d.split()[0] for d in field(package, "Depends").split(", ")}
    for binary in ("usr/bin/headrace", *(p.relative_to(root) for p in root.rglob("*.so.0.*"))):
        needed = re.findall(r"NEEDED.*\[(.+)\]", run("readelf", "-d", root / binary))
        paths = dict(re.findall(r"(\S+) => (\S+)", run("ldd", root / binary)))
        for library in needed:
            if library.startswith("ld-linux"):
                continue  # libc6's
            file = pathlib.Path(paths[library]).resolve()
            owner = run("dpkg", "-S", f"*/{file.parent.name}/{file.name}").split(":")[0]
            assert owner in depends, (binary, library, owner)


def test_content(package):
    """What lintian would complain of first: owners, modes, places, what is stripped."""
    listing = run("dpkg-deb", "-c", package).splitlines()
    names = []
    for line in listing:
        mode, owner, _, _, _, name = line.split(maxsplit=5)
        names.append(name.split(" -> ")[0].removeprefix("."))
        want = {"d": "drwxr-xr-x", "l": "lrwxrwxrwx"}.get(mode[0], "-rw-r--r--")
        assert mode == ("-rwxr-xr-x" if "/bin/" in name and mode[0] == "-" else want), line
        assert owner == "root/root" and name.startswith("./usr/"), line
    places = {n.split("/")[2] for n in names if n.count("/") > 2}
    assert places <= {"bin", "include", "lib", "share"}
    assert {"/usr/bin/headrace", "/usr/lib/libheadrace.so.0", "/usr/share/doc/headrace/copyright",
            "/usr/share/man/man1/headrace-serve.1.gz"} <= set(names)
    units = {p.name for p in (ROOT / "packaging").glob("headrace*.s[eo][rc]*")}
    assert units == {n.split("/")[-1] for n in names if n.startswith("/usr/lib/systemd/system/headrace")}
    assert run("dpkg-deb", "-I", package, "triggers") == "activate-noawait ldconfig\n"


def test_binaries(root):
    for binary in ("usr/bin/headrace", "usr/lib/libheadrace.so.0"):
        assert ".debug_info" not in run("readelf", "-S", "-W", root / binary)
        dynamic = run("readelf", "-d", root / binary)
        assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
        assert str(ROOT) not in run("strings", "-n", "8", root / binary)


def test_runs_where_nothing_else_is(root, tmp_path):
    """In a root of the package and its libraries alone: help, and an answer of a model."""
    if os.geteuid():
        pytest.skip("chroot needs root")
    for path in set(re.findall(r"(/\S+) \(0x", run("ldd", root / "usr/bin/headrace"))):
        (root / path[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, root / path[1:])
    (root / "tmp").mkdir()
    make_tiny.hf(root / "tmp/tiny", "llama")
    arguments = ["-p", "abc", "--temperature", 0, "--max-tokens", 4, "--json", "--max-model-len", 128]
    said = run(shutil.which("chroot"), root, "/usr/bin/headrace", "generate", "/tmp/tiny", *arguments, env={})
    here, = generate(root / "tmp/tiny", *arguments[:-3], *arguments[-2:])
    assert f'"token_ids":{here["choices"][0]["token_ids"]}'.replace(" ", "") in said.replace(" ", "")
