"""Packed weights kept between starts: cold, warm, damaged, crafted, another's, two starts at once, no
room, nowhere, and a file that is cut short under a running server."""
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import struct

import pytest

import make_tiny
from test_cli import headrace, wrong

TRAILER = struct.Struct("<QQQ32s32sII8s")  # entries, data, table; key, checksum; version, -, magic
ENTRY = struct.Struct("<QQQQqqqqQiiii")    # name at and length, place and length, …
KEPT = re.compile(r"cpu: \S+ MiB of packed weights kept in (\S+) in")
FOUND = re.compile(r"cpu: \S+ MiB of packed weights from (\S+)")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Large enough to be worth a file: 14 MB."""
    return make(tmp_path_factory.mktemp("weights-cache") / "model", 2048)


def make(path, inner):
    make_tiny.FAMILIES["wide"] = {**make_tiny.FAMILIES["llama"], "intermediate_size": inner}
    make_tiny.hf(path, "wide", shards=2)
    return path


def start(model, cache, *flags, env=None):
    """Answer with its log-probabilities, and the log."""
    r = headrace("generate", model, "--prompt-ids", "1,2,3", "--max-tokens", 6, "--temperature", 0,
                 "--logprobs", 3, "--json", "--max-num-seqs", 4, "--max-num-batched-tokens", 32,
                 "--compile-cache", cache, "--log-level", "info", "--stats", *flags, env=env)
    assert r.returncode == 0, r.stderr
    answer = json.loads(r.stdout)
    return json.dumps(answer["choices"]), \
        r.stderr


def files(cache):
    return sorted(cache.glob("*.weights"))


def unused(log):
    return re.findall(r"is not used: (.*)", log)


@pytest.fixture(scope="module")
def cold(model, tmp_path_factory):
    cache = tmp_path_factory.mktemp("kept") / "made" / "here"
    text, log = start(model, cache)
    assert KEPT.search(log)[1] == str(files(cache)[0]) and not FOUND.search(log)
    assert (cache.stat().st_mode & 0o777, len(list(cache.iterdir()))) == (0o700, 1)
    return cache, text


@pytest.fixture
def cache(cold, tmp_path):
    return shutil.copytree(cold[0], tmp_path / "cache")


def test_warm_reads_no_tensor(cold, cache, tmp_path, model):
    """The same bits; and the tensors may be gone, for nobody looks at them."""
    for flags in (), ("--threads", 1):
        text, log = start(model, cache, *flags)
        assert text == cold[1] and FOUND.search(log) and not KEPT.search(log)
        assert re.search(r"MiB of weights, \d+\.\d from the cache", log)
    assert start(model, "")[0] == cold[1]
    for name in "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors":
        path = model / name
        before, whole = path.stat(), path.read_bytes()
        header = 8 + struct.unpack("<Q", whole[:8])[0]
        with open(path, "r+b") as f:
            f.seek(header)
            f.write(bytes(len(whole) - header))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        try:
            text = start(model, cache)[0]
        finally:
            path.write_bytes(whole)
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert text == cold[1], name


def cut(n):
    return lambda b: b[:n]


def flip(at):
    return lambda b: b[:at] + bytes([b[at] ^ 0x80]) + b[at + 1:] if at >= 0 else flip(len(b) + at)(b)


def crafted(change_trailer=lambda t: t, change_table=lambda t: t):
    """Sizes and places that are wrong under a checksum that is right."""
    def change(whole):
        t = TRAILER.unpack(whole[-TRAILER.size:])
        table = change_table(whole[t[1]:t[1] + t[2]])
        n, data, length = change_trailer(t[:3])
        sums = struct.pack("<QQQ32s", n, data, length, t[3]) + struct.pack("<I", t[5]) + table
        return whole[:t[1]] + table + TRAILER.pack(n, data, length, t[3],
                                                   hashlib.sha256(sums).digest(), *t[5:])
    return change


def entry(field, value):
    def change(table):
        first = list(ENTRY.unpack(table[:ENTRY.size]))
        first[field] = value
        return ENTRY.pack(*first) + table[ENTRY.size:]
    return change


BAD = {
    "empty": (cut(0), "cut off"),
    "a trailer's length": (cut(TRAILER.size), "no file of weights"),
    "last byte gone": (cut(-1), "cut off"),
    "half": (cut(7 << 20), "cut off"),
    "longer": (lambda b: b[:4096] + b, "length is wrong"),
    "text": (lambda b: b"packed weights\n" * 100, "no file of weights"),
    "data": (flip(5 << 20), "data are damaged"),
    "data's last byte": (lambda b: flip(TRAILER.unpack(b[-TRAILER.size:])[1] - 1)(b), "data are damaged"),
    "table": (flip(-TRAILER.size - 1), "table is damaged"),
    "checksum": (flip(-20), "table is damaged"),
    "key": (flip(-TRAILER.size + 24), "another's"),
    "version": (flip(-16), "has format 129, this build writes 1"),
    "old": (lambda b: b[:-16] + b"\0" + b[-15:], "has format 0"),
    "many entries": (crafted(lambda t: (1 << 60, *t[1:])), "table is too short"),
    "entries that wrap": (crafted(lambda t: ((1 << 64) // ENTRY.size + 1, *t[1:])), "table is too short"),
    "much data": (crafted(lambda t: (t[0], (1 << 64) - 64, t[2])), "length is wrong"),
    "data that wrap": (crafted(lambda t: (t[0], t[1] - 64, t[2] + 128)), "length is wrong"),
    "a name behind the end": (crafted(change_table=entry(0, 1 << 40)), "table is damaged"),
    "a long name": (crafted(change_table=entry(1, (1 << 64) - 1)), "table is damaged"),
    "a weight behind the end": (crafted(change_table=entry(2, 1 << 40)), "table is damaged"),
    "a large weight": (crafted(change_table=entry(3, (1 << 64) - 64)), "table is damaged"),
    "a crooked weight": (crafted(change_table=entry(2, 4)), "table is damaged"),
}


@pytest.mark.parametrize("name", BAD)
def test_never_trusted(cold, cache, model, name):
    """Told of by name, packed anew, replaced by what a cold start writes."""
    change, why = BAD[name]
    path = files(cache)[0]
    whole = path.read_bytes()
    path.write_bytes(change(whole))
    text, log = start(model, cache)
    assert text == cold[1]
    assert len(unused(log)) == 1 and why in unused(log)[0], log
    assert str(path) in log and KEPT.search(log)
    assert path.read_bytes() == whole


def test_a_weight_of_another_shape(cold, cache, model):
    """An entry whose weight is not this one's is passed over, and the file made anew."""
    path = files(cache)[0]
    whole = path.read_bytes()
    path.write_bytes(crafted(change_table=entry(5, 17))(whole))
    text, log = start(model, cache)
    assert text == cold[1] and KEPT.search(log) and path.read_bytes() == whole


def test_other_weights_other_file(cold, cache, tmp_path, model):
    """Another instruction set and another checkpoint, one in place of the first among them."""
    start(model, cache, env={"HEADRACE_ISA": "scalar"})
    assert len(files(cache)) == 2
    path = make(tmp_path / "model", 2048)
    assert start(path, cache)[0] == cold[1] and len(files(cache)) == 2  # the same bytes
    shutil.rmtree(path)
    other = start(make(path, 1984), cache)[0]
    assert other != cold[1] and len(files(cache)) == 3
    assert start(path, cache)[0] == other == start(path, "")[0]
    foreign = [f for f in files(cache) if f.name != files(cold[0])[0].name]
    shutil.copy(foreign[0], cache / files(cold[0])[0].name)
    text, log = start(model, cache)
    assert text == cold[1] and unused(log) == ["it is another's"]


def test_two_starts_at_once(cold, tmp_path, model):
    cache = tmp_path / "cache"
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        both = [r.result() for r in [pool.submit(start, model, cache) for _ in range(2)]]
    for text, log in both:
        assert text == cold[1] and not unused(log)
    assert [f.read_bytes() for f in cache.iterdir()] == [files(cold[0])[0].read_bytes()]


def test_nowhere(cold, tmp_path, model):
    """Off, no folder, a folder that all may write to, too little room: each starts, and says why."""
    home = tmp_path / "home"
    text, log = start(model, "", env={"XDG_CACHE_HOME": str(home)})
    assert text == cold[1] and "packed weights" not in log and not (home / "headrace/compile").exists()
    (tmp_path / "file").touch()
    text, log = start(model, tmp_path / "file" / "cache")
    assert text == cold[1] and log.count("every start packs the weights") == 1
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    text, log = start(model, tmp_path / "open")
    assert text == cold[1] and "others may write to it; every start packs" in log
    assert list((tmp_path / "open").iterdir()) == []
    text, log = start(model, tmp_path / "small", "--compile-cache-size", 1000000)
    assert text == cold[1] and list((tmp_path / "small").iterdir()) == []
    assert re.search(r"not kept: its \d+ bytes are more than --compile-cache-size 1000000", log)


def test_room_and_small_models(cold, cache, tmp_path, model):
    """The oldest goes; a model that is packed at once has no file."""
    size = files(cache)[0].stat().st_size
    os.utime(files(cache)[0], (1, 1))
    start(model, cache, "--compile-cache-size", size + 1000000, env={"HEADRACE_ISA": "scalar"})
    assert [f.name == files(cold[0])[0].name for f in cache.iterdir()] == [False]
    make_tiny.hf(tmp_path / "tiny", "llama")
    start(tmp_path / "tiny", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_compile_fills_it(tmp_path, model):
    for packed in True, False:
        r = headrace("compile", model, "--device", "cpu", "--compile-cache", tmp_path / "cache")
        assert r.returncode == 0 and r.stderr == "", r.stderr
        got = re.fullmatch(r"(\S+) MiB of weights: (\S+) packed, (\S+) from the cache, in \d+\.\d\d s\n"
                           r"(\S+)\n", r.stdout)
        assert got[4] == str(files(tmp_path / "cache")[0])
        assert float(got[2 if packed else 3]) == float(got[1]) > 12
    wrong("compile", model, "--device", "ref", status=1, naming="--device ref")


def test_cut_short_while_in_use(cache, model, serve):
    """SIGBUS: one line and an exit, not a core."""
    server = serve(model, "--compile-cache", cache, "--max-num-seqs", 4).ready()
    os.truncate(files(cache)[0], 4096)
    try:
        server.post("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2})
    except OSError:
        pass
    assert server.process.wait(60) == 1
    assert len(server.lines_with("--compile-cache")) == 1
