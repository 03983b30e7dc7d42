"""Files that break: cut off or with a bit turned, at a hundred places each drawn by a seed; disks
that are full and processes that are killed while caches and checkpoints are written. A command ends
with an answer or with a sentence, never by a signal, and trusts nothing that is not whole."""
import json
import os
import random
import resource
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import BIN

import make_tiny
from test_weights_cache import KEPT, make, start

RUN = ["--prompt-ids", "1,2,3", "--max-tokens", "2", "--temperature", "0", "--json",
       "--max-num-seqs", "1", "--max-num-batched-tokens", "16", "--max-model-len", "32",
       "--compile-cache", ""]
PLACES = 100


def ends(model, *flags):
    """Exit status of an answer: 0 with JSON, or 1 with a sentence."""
    r = subprocess.run([BIN, "generate", str(model), *RUN, *flags], capture_output=True, text=True,
                       errors="replace", timeout=120)
    assert r.returncode in (0, 1), (r.returncode, r.stderr[-3000:])
    if r.returncode:
        assert r.stderr.splitlines()[-1].startswith("headrace: ") and not r.stdout, r.stderr
    else:
        json.loads(r.stdout)
    return r.returncode


def weights_of(path):
    """Where the last tensor that has a byte other than padding ends."""
    raw = path.read_bytes()
    return len(raw.rstrip(b"\0")), len(raw)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The files of both formats, by the name of what has to be given to the command."""
    root = tmp_path_factory.mktemp("whole")
    make_tiny.hf(root / "hf", "llama")
    make_tiny.gguf_file(root / "tiny.gguf", "llama", "F32")
    assert ends(root / "hf") == 0 and ends(root / "tiny.gguf") == 0
    return root


def damage(whole, folder, kind, file, change):
    """A copy in which one file is changed; what to name to the command."""
    if kind == "gguf":
        folder.mkdir()
        target = model = folder / "tiny.gguf"
        shutil.copy(whole / "tiny.gguf", target)
    else:
        shutil.copytree(whole / "hf", folder)
        target, model = folder / file, folder
    change(target)
    return model


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_cut_off(whole, tmp_path, kind):
    rng = random.Random(1)
    names = ["tiny.gguf"] if kind == "gguf" else ["model.safetensors"] * 6 + [
        "config.json", "tokenizer.json"]

    def one(i):
        name = names[i % len(names)]
        source = whole / name if kind == "gguf" else whole / "hf" / name
        at = (rng_places[i] * weights_of(source)[0]) // 10 ** 9
        model = damage(whole, tmp_path / str(i), kind, name, lambda p: os.truncate(p, at))
        status = ends(model)
        shutil.rmtree(tmp_path / str(i))
        return status, name, at
    rng_places = [rng.randrange(10 ** 9) if i % 2 else rng.randrange(10 ** 7) for i in range(PLACES)]
    with ThreadPoolExecutor(2) as pool:
        for status, name, at in pool.map(one, range(PLACES)):
            assert status == 1, (name, at)


@pytest.mark.parametrize("kind", ["hf", "gguf"])
def test_a_bit_turned(whole, tmp_path, kind):
    """In a weight it may go unseen; in what describes them it must not reach beyond the file."""
    rng = random.Random(2)
    places = [(rng.randrange(10 ** 9), rng.randrange(8)) for _ in range(PLACES)]

    def one(i):
        name = "tiny.gguf" if kind == "gguf" else ["model.safetensors", "config.json",
                                                  "tokenizer.json"][i % 3]

        def turn(p):
            raw = bytearray(p.read_bytes())
            # three of four within what describes the weights
            head = len(raw) if name.endswith(".json") or i % 4 == 0 else min(4096, len(raw))
            raw[places[i][0] * head // 10 ** 9] ^= 1 << places[i][1]
            p.write_bytes(raw)
        model = damage(whole, tmp_path / str(i), kind, name, turn)
        status = ends(model)
        shutil.rmtree(tmp_path / str(i))
        return status
    with ThreadPoolExecutor(2) as pool:
        ended = list(pool.map(one, range(PLACES)))
    assert 1 in ended and 0 in ended


# ---- written files -----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """Worth a file in the cache, and its answer."""
    model = make(tmp_path_factory.mktemp("large") / "model", 2048)
    return model, start(model, "")[0]


def test_a_limit_on_files_stops_a_cache_and_no_answer(large, tmp_path):
    """As a full disk does: nothing half is left, and the answer is as without a cache."""
    model, text = large
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        got, log = start(model, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert got == text and not KEPT.search(log) and "compile cache" in log
    assert not list((tmp_path / "cache").iterdir())


def test_a_full_disk(large, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", disk],
                      capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        model, text = large
        got, log = start(model, disk / "cache")
        assert got == text and "No space left on device" in log
        assert not list((disk / "cache").iterdir())
        r = subprocess.run([BIN, "quantize", str(model), str(disk / "out"), "--scheme", "w8a8",
                            "--no-progress"], capture_output=True, text=True, timeout=120)
        assert r.returncode == 1 and "No space left on device" in r.stderr
        assert ends(disk / "out") == 1
    finally:
        subprocess.run(["umount", disk], check=True)


def killed(arguments, after):
    p = subprocess.Popen([BIN, *map(str, arguments)], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL)
    try:
        p.wait(after)
    except subprocess.TimeoutExpired:
        p.send_signal(signal.SIGKILL)
        p.wait()
    return p.returncode == -signal.SIGKILL


def test_killed_while_writing(large, tmp_path):
    """Whenever it is killed: the next start has the answer, and a checkpoint is whole or refused."""
    model, text = large
    rng = random.Random(3)
    times = [rng.uniform(0.01, 0.25) for _ in range(12)]
    died = 0
    for i, after in enumerate(times):
        cache = tmp_path / f"cache{i}"
        died += killed(["generate", model, *RUN[:-2], "--compile-cache", cache], after)
        assert start(model, cache)[0] == text
    whole = tmp_path / "whole"
    assert not killed(["quantize", model, whole, "--scheme", "w8a8", "--no-progress"], 120)
    for i, after in enumerate(times):
        out = tmp_path / f"out{i}"
        died += killed(["quantize", model, out, "--scheme", "w8a8", "--no-progress"], after)
        if out.exists() and ends(out) == 0:
            assert {p.name: p.read_bytes() for p in out.glob("model*")} == \
                {p.name: p.read_bytes() for p in whole.glob("model*")}
    assert died > 3
