"""Compiled programs kept between starts, with XLA's CPU plugin: cold, warm, damaged, foreign, two
starts at once, a full folder, none at all."""
import concurrent.futures
import json
import os
import pathlib
import re
import signal
import time

import pytest

import make_tiny
from conftest import ROOT
from test_cli import headrace, wrong

PLUGIN = os.environ.get(
    "HEADRACE_PJRT_PLUGIN", str(ROOT / ".cache/pjrt/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"))
LACKING = "this build has no PJRT backend"
LIMITS = ["--max-num-seqs", 4, "--max-num-batched-tokens", 32]
N = 7  # programs: 2 backbones, 2 selects, sampler, prompt_logprobs, tables
TOTAL = "-- Compilation of 7 programs done in "


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    if not PLUGIN or not pathlib.Path(PLUGIN).exists():
        pytest.skip("XLA's CPU plugin is missing: tools/setup.sh pjrt")
    if LACKING in headrace("devices").stdout:
        pytest.skip("this build has no PJRT backend")
    path = tmp_path_factory.mktemp("compile-cache") / "tiny"
    make_tiny.hf(path, "llama")
    return path


def command(model, cache, *flags):
    return ("generate", model, "--prompt-ids", "1,2,3", "--max-tokens", 4, "--temperature", 0,
            "--device", f"pjrt:{PLUGIN}", *LIMITS, "--compile-cache", cache, "--log-level", "info",
            *flags)


def start(model, cache, *flags, env=None):
    """Text of an answer, and how many programs were compiled and how many found."""
    r = headrace(*command(model, cache, *flags), env=env)
    assert r.returncode == 0, r.stderr
    assert TOTAL in r.stderr
    found = re.search(r"compile cache: (\d+) programs compiled, (\d+) from (.*)", r.stderr)
    if found:
        return r.stdout, int(found[1]), int(found[2]), r.stderr
    found = re.search(r"compile cache: nothing was compiled, (\d+) programs came from (.*)", r.stderr)
    assert found, r.stderr
    return r.stdout, 0, int(found[1]), r.stderr


def warnings(log):
    return [line for line in log.splitlines() if "is not used" in line or "is not kept" in line]


@pytest.fixture(scope="module")
def warm(model, tmp_path_factory):
    """A folder that one start has filled, and what that start answered."""
    cache = tmp_path_factory.mktemp("warm") / "cache"
    text, compiled, found, log = start(model, cache)
    assert (compiled, found) == (N, 0) and warnings(log) == []
    assert cache.stat().st_mode & 0o777 == 0o700
    return cache, text


def entries(cache):
    return sorted(cache.glob("*.program"))


def copy(warm, tmp_path):
    to = tmp_path / "cache"
    to.mkdir(mode=0o700)
    for f in entries(warm[0]):
        (to / f.name).write_bytes(f.read_bytes())
    return to


def test_second_start_compiles_nothing(model, warm):
    cache, text = warm
    before = {f.name: f.read_bytes() for f in entries(cache)}
    again, compiled, found, log = start(model, cache, "--check-recompilation")
    assert (again, compiled, found) == (text, 0, N) and warnings(log) == []
    assert {f.name: f.read_bytes() for f in entries(cache)} == before
    assert len(before) == N


def test_manifest_says_so(model, warm, tmp_path):
    r = headrace(*command(model, warm[0], "--manifest", tmp_path / "m.json"))
    assert r.returncode == 0, r.stderr
    programs = json.loads((tmp_path / "m.json").read_text())["programs"]
    assert all(p["cached"] is True and p["code_bytes"] > 0 for p in programs), programs


def test_other_limits_are_other_programs(model, warm, tmp_path):
    cache = copy(warm, tmp_path)
    _, compiled, found, _ = start(model, cache, "--block-size", 8)
    assert compiled + found == N and compiled >= 2  # the backbones at least
    _, compiled, found, _ = start(model, cache, "--block-size", 8)
    assert compiled == 0


def test_weights_are_not_in_it(model, warm, tmp_path):
    """Another checkpoint of the same shape finds the same programs, and gives its own answers."""
    other = tmp_path / "other"
    make_tiny.hf(other, "llama")
    weights = next(other.glob("*.safetensors"))
    data = bytearray(weights.read_bytes())
    size = 8 + int.from_bytes(data[:8], "little")
    data[size:] = data[:size - 1:-1][::-1][4:] + data[size:size + 4]  # numbers one place on
    weights.write_bytes(data)
    text, compiled, found, _ = start(other, warm[0])
    assert (compiled, found) == (0, N) and text != warm[1]
    assert start(model, warm[0])[0] == warm[1]


def test_damaged(model, warm, tmp_path):
    cache = copy(warm, tmp_path)
    files = entries(cache)
    whole = [f.read_bytes() for f in files]
    damage = [lambda b: b"", lambda b: b[:50], lambda b: b[:-1], lambda b: b[: len(b) // 2],
              lambda b: b[:-9] + b"\xff" * 9, lambda b: b"\0" + b[1:],
              lambda b: b[:200] + bytes([b[200] ^ 1]) + b[201:]]
    assert len(damage) == len(files)
    for f, b, hurt in zip(files, whole, damage):
        f.write_bytes(hurt(b))
    text, compiled, found, log = start(model, cache)
    assert (text, compiled, found) == (warm[1], N, 0)
    said = warnings(log)
    assert len(said) == N and all(any(f.name in line for line in said) for f in files)
    text, compiled, found, log = start(model, cache)
    assert (text, compiled, found) == (warm[1], 0, N) and warnings(log) == []


def test_foreign(model, warm, tmp_path):
    """Programs that are whole but not those their names say."""
    cache = copy(warm, tmp_path)
    files = entries(cache)
    whole = [f.read_bytes() for f in files]
    for f, b in zip(files, whole[1:] + whole[:1]):
        f.write_bytes(b)
    text, compiled, found, log = start(model, cache)
    assert (text, compiled, found, len(warnings(log))) == (warm[1], N, 0, N)
    assert "another program" in log


def test_other_environment(model, warm, tmp_path):
    """A compiler that was told something else has not compiled these."""
    _, compiled, found, _ = start(model, copy(warm, tmp_path),
                                  env={"XLA_FLAGS": "--xla_cpu_enable_fast_math=false"})
    assert (compiled, found) == (N, 0)


def test_two_starts_at_once(model, warm, tmp_path):
    cache = tmp_path / "cache"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [r.result() for r in [pool.submit(start, model, cache) for _ in range(2)]]
    for text, compiled, found, log in both:
        assert text == warm[1] and compiled + found == N and warnings(log) == []
    assert len(entries(cache)) == N == len(list(cache.iterdir()))
    assert start(model, cache)[1:3] == (0, N)


def test_bounded(model, warm, tmp_path):
    """Too small for a start: every start compiles some, none fails, the folder stays small."""
    cache = tmp_path / "cache"
    sizes = sorted(f.stat().st_size for f in entries(warm[0]))
    limit = sizes[-1] + sizes[0]
    for _ in range(2):
        text, compiled, found, log = start(model, cache, "--compile-cache-size", limit)
        assert text == warm[1] and compiled > 0
        assert sum(f.stat().st_size for f in entries(cache)) <= limit


def test_nowhere(model, warm, tmp_path):
    """Off, and a folder that cannot be: both start."""
    home = tmp_path / "home"
    r = headrace(*command(model, ""), env={"XDG_CACHE_HOME": str(home)})
    assert r.returncode == 0 and "compile cache" not in r.stderr and not home.exists()
    (tmp_path / "file").touch()
    r = headrace(*command(model, tmp_path / "file" / "cache"))
    assert r.returncode == 0 and r.stdout == warm[1]
    assert r.stderr.count("every start compiles") == 1
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    r = headrace(*command(model, open_to_all))
    assert r.returncode == 0 and "others may write to it; every start compiles" in r.stderr
    assert list(open_to_all.iterdir()) == []


def test_default_folder(model, tmp_path):
    flags = [x for x in command(model, "?") if x not in ("--compile-cache", "?")]
    r = headrace(*flags, env={"XDG_CACHE_HOME": str(tmp_path)})
    assert r.returncode == 0, r.stderr
    assert len(entries(tmp_path / "headrace/compile")) == N


def test_compile_fills_it(model, warm, tmp_path):
    """headrace compile: what it compiles is what a start with the same flags looks for."""
    fill = ("compile", model, "--device", f"pjrt:{PLUGIN}", *LIMITS, "--compile-cache",
            tmp_path / "cache")
    for compiled in N, 0:
        r = headrace(*fill)
        assert r.returncode == 0 and r.stderr == "", r.stderr
        assert re.fullmatch(rf"{N} programs: {compiled} compiled, {N - compiled} from the cache, in "
                            rf"\d+\.\d\d s\n{tmp_path}/cache\n", r.stdout), r.stdout
    assert start(model, tmp_path / "cache")[:3] == (warm[1], 0, N)
    wrong(*fill[:-1], "", status=1, naming="--compile-cache is empty")
    wrong(*fill, "--enforce-eager", status=1, naming="--enforce-eager")
    wrong("compile", model, "--device", "cpu", "--compile-cache", tmp_path / "weights", status=1,
          naming="less than a file is worth")


def test_bench_startup(model, tmp_path):
    """Cold finds nothing, warm everything; the folder is the benchmark's own, and goes with it."""
    home = tmp_path / "home"
    r = headrace("bench", "startup", model, "--num-iters", 2, "--json", "--device",
                 f"pjrt:{PLUGIN}", *LIMITS, env={"TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(home)})
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert (got["cold"]["programs_cached"], got["warm"]["programs_cached"]) == (0, N)
    assert not (home / "headrace/compile").exists()
    assert not list(tmp_path.glob("headrace-startup-*"))


def test_flag_without_a_plugin(tmp_path):
    path = tmp_path / "tiny"
    make_tiny.hf(path, "llama")
    wrong("generate", path, "-p", "a", "--device", "ref", "--compile-cache", tmp_path, status=1,
          naming="--compile-cache: the reference interpreter")
    wrong("generate", path, "-p", "a", "--compile-cache-size", -1, status=1,
          naming="--compile-cache-size must not be negative")


def test_server_tells(model, warm, serve):
    server = serve(model, "--device", f"pjrt:{PLUGIN}", *LIMITS, "--compile-cache", warm[0]).ready()
    ledger = json.loads(server.get("/programs")[2])
    assert (ledger["programs_compiled"], ledger["programs_cached"]) == (0, N)
    assert ledger["memory"]["code_bytes"] == sum(p["code_bytes"] for p in ledger["programs"]) > 0
    assert server.lines_with("engine: on the device: weights ")
    metrics = server.get("/metrics")[2].decode()
    assert re.findall(r"headrace:programs_compiled_total\{.*\} (\S+)", metrics) == ["0.0"] * 5


def test_term_while_compiling(model, serve, tmp_path):
    """SIGTERM in the middle of a start: what is under way ends, and so does the server."""
    server = serve(model, "--device", f"pjrt:{PLUGIN}", *LIMITS, "--compile-cache",
                   tmp_path / "cache")
    assert server.lines_with("Compiling backbone")
    time.sleep(0.05)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0, server.log
