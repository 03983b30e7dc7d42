"""The command line itself: help, refusals, exit statuses, what it prints and writes, and in what
shape. Shapes are spelled out here; only numbers that may differ are left open."""
import json
import os
import pathlib
import re
import subprocess

import pytest
from conftest import BIN, ROOT, generate, headrace

import make_tiny

SMALL = ["--max-num-seqs", 16, "--max-num-batched-tokens", 64, "--max-model-len", 128]
ONE = ["-p", "abc", "--temperature", 0, "--max-tokens", 1, *SMALL]
COMMANDS = ["serve", "plan", "compile", "devices", "generate", "replay", "tokenize", "render", "chat",
            "complete", "bench serve", "bench throughput", "bench latency", "bench startup",
            "bench sampler", "bench kernels", "bench tokenizer", "quantize", "eval perplexity",
            "eval kl", "eval gsm8k"]
BUILD = pathlib.Path(BIN).parent
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "tiny"
    make_tiny.hf(path, "llama")
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return path


def wrong(*arguments, status, naming, env=None):
    """A refusal: the status, one sentence that names the culprit, nothing on standard output."""
    r = headrace(*arguments, stdin="", env=env)
    assert r.returncode == status, (arguments, r.returncode, r.stderr)
    assert r.stderr.startswith("headrace: ") and naming in r.stderr, (arguments, r.stderr)
    assert r.stdout == ""


# ---- help ----------------------------------------------------------------------------------------

def test_version():
    for word in ("--version", "version"):
        r = headrace(word)
        assert r.returncode == 0 and re.fullmatch(r"headrace \d+\.\d+\.\d+\n", r.stdout)


def test_overview():
    for word in ("--help", "-h", "help"):
        r = headrace(word)
        assert r.returncode == 0 and not r.stderr
        assert re.findall(r"^  (\w+(?: \w+)?) +\w", r.stdout, re.M) == COMMANDS
    bare = headrace()
    assert bare.returncode == 2 and bare.stdout == "" and bare.stderr == r.stdout


def flags_of(command):
    """(flag, whether it takes a value) for each line of a command's help."""
    out = []
    for line in headrace(*command.split(), "--help").stdout.splitlines():
        if line.startswith("  -"):
            name, rest = line.split(maxsplit=1)
            out.append((name, line[2 + len(name):4 + len(name)].strip() != ""))
            assert rest.split("  ")[-1].strip(), f"{name} says nothing of itself"
    return out


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    for word in ("--help", "-h"):
        r = headrace(*command.split(), word)
        assert r.returncode == 0 and r.stderr == ""
        assert r.stdout.startswith(f"usage: headrace {command} ")
    names = [name for name, _ in flags_of(command)]
    assert len(names) == len(set(names)) and "--log-level" in names
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    documented = "\n".join(p.read_text() for p in pages)
    assert f"headrace {command} " in documented


@pytest.mark.sanitize
@pytest.mark.parametrize("command", COMMANDS)
def test_every_flag_is_as_its_help_says(command):
    """All are parsed: those with a value want one, the others take none."""
    for name, takes_value in flags_of(command):
        if takes_value:
            wrong(*command.split(), "m", name, status=2, naming=f"{name} needs a value")
        else:
            wrong(*command.split(), "m", f"{name}=1", status=2, naming=f"{name} takes no value")


# ---- refusals ------------------------------------------------------------------------------------

@pytest.mark.sanitize
@pytest.mark.parametrize("command,typed,meant", [
    ("generate", "--max-token", "--max-tokens"), ("generate", "--temprature", "--temperature"),
    ("generate", "--top_p", "--top-p"), ("generate", "--max_model_len=9", "--max-model-len"),
    ("generate", "--check-recompile", "--check-recompilation"), ("tokenize", "--promt", "--prompt"),
    ("tokenize", "--json-line", "--json-lines"), ("render", "--message", "--messages")])
def test_unknown_flags_name_the_nearest(command, typed, meant):
    wrong(command, "m", typed, status=2, naming=f"did you mean {meant}?")
    wrong(command, "m", typed, status=2, naming=typed.split("=")[0])


def test_unknown_flags_that_resemble_nothing():
    r = headrace("generate", "m", "--xyzzyplugh")
    assert r.returncode == 2 and "--xyzzyplugh" in r.stderr and "did you mean" not in r.stderr
    assert "--help" in r.stderr
    wrong("tokenize", "m", "--temperature", "1", status=2, naming="--temperature")


def test_unknown_commands():
    wrong("genrate", status=2, naming="did you mean generate?")
    r = headrace("frobnicate")
    assert r.returncode == 2 and "frobnicate" in r.stderr and "did you mean" not in r.stderr


@pytest.mark.sanitize
@pytest.mark.parametrize("arguments,naming", [
    (["generate"], "which model?"),
    (["generate", "m"], "no prompt"),
    (["generate", "m", "n", "-p", "a"], "'n'"),
    (["generate", "m", "-p", "a", "--log-level", "loud"], "--log-level"),
    (["generate", "m", "-p", "a", "--tools", "t.json"], "--tools needs --messages"),
    (["generate", "m", "-p", "a", "--system", "s"], "--system needs --chat"),
    (["generate", "m", "--prompt-ids", "1", "--chat"], "--chat needs"),
    (["generate", "m", "-p", "a", "--chat", "--no-special"], "--no-special needs"),
    (["tokenize"], "which model?"),
    (["tokenize", "m", "--prompt", "a", "--prompt", "b"], "one --prompt"),
    (["tokenize", "m", "--prompt", "a", "--prompt-file", "b"], "one --prompt"),
    (["render"], "which template?"),
    (["render", "m"], "no chat"),
    (["render", "m", "--messages", "a", "--variables", "b"], "--variables"),
    (["render", "m", "--variables", "b", "--no-generation-prompt"], "--no-generation-prompt"),
    (["render", "m", "--variables", "b", "--documents", "c"], "--documents needs --messages"),
    (["render", "m", "--variables", "b", "--chat-template-kwargs", "{}"], "-kwargs needs"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else None)
def test_command_lines_that_make_no_sense(arguments, naming):
    """Refused before anything is opened (there is no model m), and nothing typed is ignored."""
    wrong(*arguments, status=2, naming=naming)


@pytest.mark.sanitize
@pytest.mark.parametrize("flag,value", [
    ("--max-tokens", "many"), ("--max-tokens", "1.5"), ("--max-tokens", "1e300"),
    ("--max-tokens", "nan"), ("--max-tokens", ""), ("--max-tokens", "k"),
    ("--max-tokens", "9223372036854775807G"), ("--temperature", "warm"), ("--temperature", "0.5.1"),
    ("--temperature", " 1"), ("--top-k", "ten"), ("--threads", "4294967297"), ("--seed", "1.5"),
    ("--seed", "9223372036854775808"), ("--prompt-ids", "1,,2"), ("--prompt-ids", "1 2"),
    ("--stop-token-ids", "a"), ("--logit-bias", "5"), ("--logit-bias", "5:"),
    ("--logit-bias", "5:1,"), ("--allowed-token-ids", "1.5"), ("--buckets", "/no/such/file")])
def test_values_that_cannot_be_read(flag, value):
    wrong("generate", "m", "-p", "a", flag, value, status=2, naming=flag)
    wrong("generate", "m", "-p", "a", f"{flag}={value}", status=2, naming=flag)


@pytest.mark.parametrize("flag,value", [
    ("--threads", -1), ("--threads", 4096), ("--max-num-seqs", 0), ("--max-num-seqs", 70000),
    ("--max-num-batched-tokens", 0), ("--max-num-batched-tokens", "1G"), ("--block-size", 0),
    ("--block-size", 512), ("--max-model-len", -2), ("--max-model-len", 1),
    ("--max-model-len", 5000), ("--bucket-padding-gap", -8), ("--kv-cache-memory-bytes", -1),
    ("--long-prefill-token-threshold", -1),
    ("--max-logprobs", -1), ("--max-logprobs", 5000), ("--dtype", "float8"), ("--device", "tpu"),
    ("--isa", "sse9"), ("--load-format", "pickle"), ("--logprobs-mode", "cooked")])
def test_values_that_cannot_be_honoured(model, flag, value):
    r = headrace("generate", model, *ONE, flag, value)
    assert r.returncode == 1 and r.stdout == ""
    name = flag[2:].replace("-", "[-_ ]").replace("isa", "instruction set")
    assert re.search(name, r.stderr) and str(value).rstrip("G") in r.stderr, r.stderr


def test_a_cache_too_small(model):
    wrong("generate", model, *ONE, "--kv-cache-memory-bytes", 100, status=1,
          naming="raise --kv-cache-memory-bytes or lower --max-model-len")


def test_failures_after_the_command_line():
    wrong("generate", "/no/such/model", "-p", "a", status=1, naming="/no/such/model")
    wrong("tokenize", "/no/such/tokenizer.json", status=1, naming="/no/such/tokenizer.json")
    wrong("render", "--template", "/no/such", "--messages", "-", status=1, naming="/no/such")


def test_one_refused_prompt_among_others(model):
    """Each prompt is answered or refused by itself, in order; the status tells that one failed."""
    r = headrace("generate", model, "--json", "-p", "a" * 200, *ONE)
    assert r.returncode == 1 and "max_model_len" in r.stderr
    assert [json.loads(line)["prompt_token_ids"] for line in r.stdout.splitlines()] == [[64, 65, 66]]


def test_an_answer_that_cannot_be_written(model):
    with open("/dev/full", "w") as full:
        for more in ([], ["--json"]):
            r = subprocess.run([BIN, "generate", model, *map(str, ONE), *more], stdout=full,
                               stderr=subprocess.PIPE, text=True)
            assert r.returncode == 1 and "standard output" in r.stderr
    r = headrace("generate", model, *ONE, "--manifest", "/no/such/folder/m.json")
    assert r.returncode == 1 and "/no/such/folder" in r.stderr


# ---- recompilation -------------------------------------------------------------------------------

def test_eager_and_checked_exclude_each_other(model):
    off = {"HEADRACE_CHECK_RECOMPILATION": "0"}
    for flags, env in ((["--check-recompilation"], off),
                       ([], {"HEADRACE_CHECK_RECOMPILATION": "1"})):
        wrong("generate", model, *ONE, "--enforce-eager", *flags, status=1, env=env,
              naming="--enforce-eager")
    unset = {k: v for k, v in os.environ.items() if k != "HEADRACE_CHECK_RECOMPILATION"}
    r = subprocess.run([BIN, "generate", model, *map(str, ONE), "--enforce-eager"],
                       env={**unset, "VLLM_XLA_CHECK_RECOMPILATION": "1"}, capture_output=True,
                       text=True)
    assert r.returncode == 1 and "--check-recompilation" in r.stderr
    assert headrace("generate", model, *ONE, "--enforce-eager", env=off).returncode == 0
    assert headrace("generate", model, *ONE, "--check-recompilation").returncode == 0


# ---- what is printed -----------------------------------------------------------------------------

def test_text_is_what_json_says(model):
    flags = ["--temperature", 1, "--seed", 5, "--max-tokens", 30, *SMALL]
    answer, = generate(model, "-p", "abc", *flags)
    r = headrace("generate", model, "-p", "abc", *flags)
    assert r.stdout == answer["choices"][0]["text"] + "\n" and r.stderr == ""


def test_several_answers_are_told_apart(model):
    flags = ["-p", "ab", "-p", "cd", "--n", 2, "--temperature", 1, "--seed", 5, "--max-tokens", 6,
             *SMALL]
    want = "".join(f"--- prompt {i + 1} choice {c['index']}\n{c['text']}\n"
                   for i, a in enumerate(generate(model, *flags)) for c in a["choices"])
    assert headrace("generate", model, *flags).stdout == want


def test_prompts_from_everywhere(model, tmp_path):
    """-p, --prompt, a file, standard input, ids, messages: the same prompt, the same answer."""
    (tmp_path / "p").write_text("abc")
    ways = [(["-p", "abc"], None), (["--prompt", "abc"], None), (["--prompt=abc"], None),
            (["--prompt-file", tmp_path / "p"], None), (["--prompt-file", "-"], "abc"),
            (["--prompt-ids", "64,65,66"], None)]
    seen = set()
    for flags, stdin in ways:
        r = headrace("generate", model, "--json", *flags, *ONE[2:], stdin=stdin)
        assert r.returncode == 0, r.stderr
        answer = json.loads(r.stdout)
        seen.add(json.dumps([answer["prompt_token_ids"], answer["choices"]]))
    assert len(seen) == 1


def test_chats_from_everywhere(model, tmp_path):
    (tmp_path / "m").write_text('[{"role":"system","content":"s"},{"role":"user","content":"u"}]')
    typed, = generate(model, "--chat", "--system", "s", "-p", "u", *ONE[2:])
    read, = generate(model, "--messages", tmp_path / "m", *ONE[2:])
    assert typed["prompt_token_ids"] == read["prompt_token_ids"]
    want = make_tiny.tokenizer().encode("<system>s<user>u").ids
    assert typed["prompt_token_ids"] == want and typed["choices"] == read["choices"]
    r = headrace("render", model, "--messages", tmp_path / "m")
    assert r.stdout == "<system>s<user>u"


def test_tokenize(model, tmp_path):
    text = "Hi there, 42 é🙂\n"
    want = make_tiny.tokenizer().encode(text).ids
    (tmp_path / "t").write_text(text)
    for name in (model, model / "tokenizer.json"):
        for flags, stdin in ((["--prompt", text], None), (["--prompt-file", tmp_path / "t"], None),
                             ([], text)):
            r = headrace("tokenize", name, *flags, stdin=stdin)
            assert r.returncode == 0 and json.loads(r.stdout) == want
    lines = headrace("tokenize", model, "--json-lines", stdin=json.dumps(text) + '\n"a"\n""\n')
    assert [json.loads(x) for x in lines.stdout.splitlines()] == [want, [64], []]
    r = headrace("tokenize", model, "--json-lines", stdin='"a"\n{"a":1}\n')
    assert r.returncode == 1 and "line 2" in r.stderr


NUMBER = (int, float)
LOGPROB = {"token_id": int, "logprob": float, "rank": int}
TOP = [LOGPROB]
ANSWER = {
    "model": str, "prompt_token_ids": [int],
    "prompt_logprobs": [{**LOGPROB, "top": TOP}],
    "choices": [{
        "index": int, "token_ids": [int], "text": str,
        "logprobs": [{**LOGPROB, "token": str, "bytes": [int], "text_offset": int, "top": TOP}],
        "finish_reason": str, "stop_reason": type(None)}],
    "seed": int,
    "numerics": {"backend": str, "isa": str, "kernels": {"F32": str}, "activation": str,
                 "rows": str, "kv": str},
    "usage": {"prompt_tokens": int, "completion_tokens": int, "total_tokens": int},
    "timings": {"load_s": NUMBER, "compile_s": NUMBER, "programs": int, "prefill_tok_s": NUMBER,
                "decode_tok_s": NUMBER},
}


def check_shape(value, shape, at="answer"):
    """The members of every object, in order, and the type of every value."""
    if isinstance(shape, dict):
        assert list(value) == list(shape), at
        for key, inner in shape.items():
            check_shape(value[key], inner, f"{at}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list) and value, at
        for i, item in enumerate(value):
            check_shape(item, shape[0], f"{at}[{i}]")
    else:
        assert isinstance(value, shape) and not isinstance(value, bool), (at, value)


def test_json_shape(model):
    r = headrace("generate", model, "--json", "-p", "abc", "-p", "de", "--n", 2, "--temperature", 1,
                 "--seed", 3, "--max-tokens", 4, "--ignore-eos", "--logprobs", 2,
                 "--prompt-logprobs", 1, *SMALL)
    lines = r.stdout.splitlines()
    assert r.returncode == 0 and len(lines) == 2
    for line, prompt in zip(lines, ("abc", "de")):
        answer = json.loads(line)
        assert answer["prompt_logprobs"].pop(0) is None
        check_shape(answer, ANSWER)
        assert answer["model"] == str(model) or answer["model"] == model.name
        assert answer["prompt_token_ids"] == make_tiny.tokenizer().encode(prompt).ids
        assert len(answer["prompt_logprobs"]) == len(prompt) - 1
        assert [c["index"] for c in answer["choices"]] == [0, 1]
        assert answer["usage"] == {"prompt_tokens": len(prompt), "completion_tokens": 8,
                                   "total_tokens": len(prompt) + 8}
        assert answer["seed"] == 3
        for choice in answer["choices"]:
            assert choice["finish_reason"] == "length"
            assert [e["token_id"] for e in choice["logprobs"]] == choice["token_ids"]
            assert all(len(e["top"]) == 2 for e in choice["logprobs"])
            raw = b"".join(bytes(e["bytes"]) for e in choice["logprobs"])
            assert raw.decode("utf-8", "replace") == choice["text"]


def test_json_without_logprobs(model):
    answer, = generate(model, *ONE)
    assert answer["prompt_logprobs"] is None and answer["choices"][0]["logprobs"] is None
    assert list(answer) == list(ANSWER) and list(answer["choices"][0]) == list(ANSWER["choices"][0])


def test_json_of_named_ids_alone(model):
    answer, = generate(model, *ONE, "--logprob-token-ids", "9,5")
    entry, = answer["choices"][0]["logprobs"]
    assert [t["token_id"] for t in entry["top"]] == [9, 5]


STATS = r"""load     \d+\.\d{3} s \(\d+\.\d MiB of weights\)
compile  \d+\.\d{3} s \(13 programs; 0 compiled late\)
prefill  \d+\.\d tok/s \(3 tokens\)
decode   \d+\.\d tok/s \(4 tokens\)
steps    5 \(0 preemptions\)
memory   \d+\.\d MiB working, 128 KV blocks of 16 tokens
numerics (\{.*\})
"""


def test_stats(model):
    r = headrace("generate", model, "-p", "abc", "--temperature", 0, "--max-tokens", 5,
                 "--ignore-eos", "--stats", *SMALL)
    found = re.fullmatch(STATS, r.stderr)
    assert found, r.stderr
    assert set(json.loads(found[1])) == set(ANSWER["numerics"])


# ---- log -----------------------------------------------------------------------------------------

BUCKET = r"\d+\.\d s: \d+\.\d\d ms compile, \d+\.\d\d ms run, \d+\.\d MiB peak, \d+ steps"
LOG = [r"cpu: 1 compute threads \(.+\), instruction set scalar",
       r"engine: KV cache of 128 blocks of 16 tokens, \d+ MiB, taken as used",
       "Compiling backbone for 3 token buckets:",
       *[f"  backbone tokens={t} {i}/3 {BUCKET}" for i, t in enumerate((16, 32, 64), 1)],
       r"-- Compilation for backbone done in \d+\.\d\d \[secs\]\.",
       "Compiling select for 6 token and request buckets:",
       *[f"  select tokens={t} requests={r} {i}/6 {BUCKET}"
         for i, (t, r) in enumerate(((t, r) for t in (16, 32, 64) for r in (8, 16)), 1)],
       r"-- Compilation for select done in \d+\.\d\d \[secs\]\.",
       "Compiling sampler for 2 request buckets:",
       *[f"  sampler requests={r} {i}/2 {BUCKET}" for i, r in enumerate((8, 16), 1)],
       r"-- Compilation for sampler done in \d+\.\d\d \[secs\]\.",
       "Compiling prompt_logprobs for 1 request bucket:",
       f"  prompt_logprobs requests=16 1/1 {BUCKET}",
       r"-- Compilation for prompt_logprobs done in \d+\.\d\d \[secs\]\.",
       "Compiling tables for 1 shape:",
       f"  tables 1/1 {BUCKET}",
       r"-- Compilation for tables done in \d+\.\d\d \[secs\]\.",
       r"-- Compilation of 13 programs done in \d+\.\d\d \[secs\]\."]


def test_log_of_warm_up(model):
    for flags, env in ((["--log-level", "info"], None), ([], {"HEADRACE_LOG_LEVEL": "info"})):
        r = headrace("generate", model, *ONE, "--threads", 1, "--isa", "scalar", *flags, env=env)
        lines = r.stderr.splitlines()
        for line, pattern in zip(lines, LOG):
            assert re.fullmatch(pattern, line), (line, pattern)
        assert len(lines) == len(LOG), lines
    assert headrace("generate", model, *ONE).stderr == ""


# ---- manifest and buckets ------------------------------------------------------------------------

ROW = ["program", "tokens", "requests", "activation", "backend", "steps", "peak_bytes",
       "code_bytes", "cached", "compile_ms", "warm_ms", "calls", "padding"]
TIMES = {"compile_ms", "warm_ms"}


def manifest(model, path, *flags):
    r = headrace("generate", model, *ONE, "--manifest", path, *flags)
    assert r.returncode == 0, r.stderr
    assert os.listdir(path.parent) == [path.name]  # written whole or not at all
    return json.loads(path.read_text())


def shapes(m):
    return [(p["program"], p["tokens"], p["requests"]) for p in m["programs"]]


def expected(tokens, requests):
    return ([("backbone", t, None) for t in tokens]
            + [("select", t, r) for t in tokens for r in requests]
            + [("sampler", None, r) for r in requests]
            + [("prompt_logprobs", None, requests[-1]), ("tables", None, None)])


def test_manifest(model, tmp_path):
    first, second = (manifest(model, tmp_path / f"{i}" / "m.json") for i in "ab"
                     if (tmp_path / i).mkdir() is None)
    assert list(first) == ["headrace", "numerics", "programs", "total_s"]
    check_shape(first["numerics"], ANSWER["numerics"])
    assert shapes(first) == expected([16, 32, 64], [8, 16])
    for row in first["programs"]:
        assert list(row) == ROW
        assert row["activation"] == "f32" and row["backend"] == "cpu" and row["steps"] > 0
        assert row["code_bytes"] == 0 and row["cached"] is False  # the native backend keeps none
        assert row["compile_ms"] >= 0 and row["warm_ms"] >= 0
    calls = {tuple(s): p["calls"] for s, p in zip(shapes(first), first["programs"]) if p["calls"]}
    assert calls == {("backbone", 16, None): 1, ("select", 16, 8): 1, ("sampler", None, 8): 1}
    backbone = first["programs"][0]
    assert backbone["padding"] == 16 - 3  # a prompt of three tokens
    peaks = [p["peak_bytes"] for p in first["programs"][:3]]
    assert peaks == sorted(peaks) and peaks[0] > 0
    for m in (first, second):
        del m["total_s"]
        for row in m["programs"]:
            for key in TIMES:
                del row[key]
    assert first == second


def test_buckets_of_the_flags(model, tmp_path):
    def bucketed(gap, tokens, seqs):
        return shapes(manifest(model, tmp_path / "m", "--max-num-batched-tokens", tokens,
                               "--max-num-seqs", seqs, "--bucket-padding-gap", gap))
    assert bucketed(64, 512, 36) == expected([16, 32, 64, 128, 192, 256, 320, 384, 448, 512],
                                             [8, 16, 32, 36])
    assert bucketed(64, 317, 4) == expected([16, 32, 64, 128, 192, 256, 320], [8])
    assert bucketed(0, 317, 9) == expected([16, 32, 64, 128, 256, 512], [8, 9])


def test_buckets_of_a_file(model, tmp_path):
    file, out = tmp_path / "buckets.json", tmp_path / "out"
    out.mkdir()
    file.write_text('{"tokens": [24, 100], "requests": [3, 16]}')
    assert shapes(manifest(model, out / "m", "--buckets", file)) == expected([24, 100], [3, 16])
    answer, = generate(model, "-p", "abcd" * 20, "--temperature", 0, "--max-tokens", 9, *SMALL)
    again, = generate(model, "-p", "abcd" * 20, "--temperature", 0, "--max-tokens", 9, *SMALL,
                      "--buckets", file)
    assert again["choices"] == answer["choices"]


@pytest.mark.sanitize
@pytest.mark.parametrize("text,naming", [
    ('{"tokens": [16, 63], "requests": [16]}', "63"),
    ('{"tokens": [64], "requests": [8, 15]}', "15"),
    ('{"tokens": [64, 64], "requests": [16]}', "rising"),
    ('{"tokens": [0, 64], "requests": [16]}', "positive"),
    ('{"tokens": [64]}', "requests"), ('{"tokens": [], "requests": [16]}', "tokens"),
    ('{"tokens": "64", "requests": [16]}', "tokens"),
    ('{"tokens": [64.5], "requests": [16]}', "tokens"),
    ('{"tokens": [9223372036854775807], "requests": [16]}', "tokens"),
    ('{"tokens": [64], "requests": [16], "rows": [1]}', "rows"),
    ("[64]", "buckets"), ("{", "buckets"), ("", "buckets")])
def test_bucket_files_that_will_not_do(model, tmp_path, text, naming):
    (tmp_path / "b").write_text(text)
    wrong("generate", model, *ONE, "--buckets", tmp_path / "b", status=1, naming=naming)


# ---- embedding -----------------------------------------------------------------------------------

def symbols(*arguments):
    out = subprocess.run(["nm", *map(str, arguments)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in out.stdout.splitlines() if len(line.split()) == 3}


def test_exported_symbols():
    """The shared library exports headrace.h and nothing else; the static one owns its prefix."""
    declared = set(re.findall(r"HEADRACE_API .*?\b(headrace_\w+)\(",
                              (ROOT / "include/headrace/headrace.h").read_text()))
    assert symbols("-D", "--defined-only", BUILD / "libheadrace.so") == declared
    foreign = [s for s in symbols("-g", "--defined-only", BUILD / "libheadrace.a")
               if not s.startswith(("hr_", "headrace_"))]
    assert not foreign


def run_hello(program, model):
    """Sampled with a seed of its own each time, so only its shape is known."""
    r = subprocess.run([program, str(model), "abc"], capture_output=True, timeout=120)
    assert r.returncode == 0 and r.stderr == b"" and r.stdout.endswith(b"\n")
    gone = subprocess.run([program, "/no/such/model"], capture_output=True, text=True, timeout=120)
    assert gone.returncode == 1 and "/no/such/model" in gone.stderr and gone.stdout == ""


def test_example(model):
    run_hello(BUILD / "example_hello", model)


@pytest.mark.parametrize("library", ["shared", "static"])
def test_example_built_as_its_users_would(model, tmp_path, library):
    libs = {"shared": [f"-L{BUILD}", "-lheadrace", f"-Wl,-rpath,{BUILD}"],
            "static": [BUILD / "libheadrace.a", "-lpcre2-8", "-lutf8proc", "-lcrypto", "-lpthread",
                       "-lm"]}[library]
    subprocess.run(["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                    f"-I{ROOT}/include", ROOT / "examples/hello.c", *libs, "-o", tmp_path / "hello"],
                   check=True)
    run_hello(tmp_path / "hello", model)


def test_header_in_cxx(tmp_path):
    (tmp_path / "a.cc").write_text("#include <headrace/headrace.h>\n"
                                   "int main() { return headrace_version() == nullptr; }\n")
    subprocess.run(["g++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                    f"-I{ROOT}/include", tmp_path / "a.cc", f"-L{BUILD}", "-lheadrace",
                    f"-Wl,-rpath,{BUILD}", "-o", tmp_path / "a"], check=True)
    subprocess.run([tmp_path / "a"], check=True)


# ---- engine options ------------------------------------------------------------------------------

def stats_of(model, prompt, *flags):
    r = headrace("generate", model, "-p", prompt, "--temperature", 0, "--max-tokens", 1, "--stats",
                 *SMALL, *flags)
    assert r.returncode == 0, r.stderr
    return r.stderr


def test_chunk_limits(model):
    for flags, steps in (([], 1), (["--long-prefill-token-threshold", 8], 5),
                         (["--max-num-batched-tokens", 16], 3)):
        assert f"steps    {steps} " in stats_of(model, "ab" * 20, *flags)


def test_cache_sizes(model):
    """Per token: two layers, two heads of 32, keys and values, four bytes each."""
    token = 2 * 2 * 32 * 2 * 4
    for flags, blocks, size in (([], 128, 16), (["--block-size", 64], 32, 64),
                                (["--kv-cache-memory-bytes", token * 16 * 20], 20, 16),
                                (["--max-num-seqs", 2], 16, 16)):
        assert f"{blocks} KV blocks of {size} tokens" in stats_of(model, "a", *flags)


def test_paths_and_threads(model):
    answer, = generate(model, *ONE, "--isa", "scalar")
    assert answer["numerics"]["isa"] == "scalar"
    answer, = generate(model, *ONE, env={"HEADRACE_ISA": "scalar"})
    assert answer["numerics"]["isa"] == "scalar"
    answer, = generate(model, *ONE, "--device", "ref")
    assert answer["numerics"]["backend"] == "ref" and answer["numerics"]["accumulation"] == "f64"
    for n in (1, 3):
        r = headrace("generate", model, *ONE, "--threads", n, "--log-level", "info")
        assert f"cpu: {n} compute threads" in r.stderr


def test_weights_by_chance(model, tmp_path):
    """--load-format dummy needs no weights, and gives the same ones each time."""
    (tmp_path / "config.json").write_bytes((model / "config.json").read_bytes())
    r = headrace("generate", tmp_path, "--prompt-ids", "1,2", "--max-tokens", 2, *SMALL)
    assert r.returncode == 1 and "safetensors" in r.stderr
    first, second = (generate(tmp_path, "--prompt-ids", "1,2", "--temperature", 0, "--max-tokens", 9,
                              "--load-format", "dummy", *SMALL)[0] for _ in range(2))
    assert first["choices"] == second["choices"]
    r = headrace("generate", tmp_path, "-p", "abc", "--load-format", "dummy", *SMALL)
    assert r.returncode == 1 and "tokenizer" in r.stderr


def test_defaults_of_the_model(model, tmp_path):
    for file in model.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "generation_config.json").write_text('{"top_k": 1}')
    flags = ["-p", "abc", "--seed", 3, "--max-tokens", 16, "--ignore-eos", *SMALL]
    greedy = generate(model, *flags, "--temperature", 0)[0]["choices"]
    free = generate(model, *flags)[0]["choices"]
    assert greedy != free
    assert generate(tmp_path, *flags)[0]["choices"] == greedy
    assert generate(tmp_path, *flags, "--top-k", 0)[0]["choices"] == free  # what is typed wins
    assert generate(tmp_path, *flags, "--ignore-generation-config")[0]["choices"] == free
    (tmp_path / "generation_config.json").write_text('{"max_new_tokens": 5}')
    for more, n in (([], 5), (["--max-tokens", 9], 9), (["--max-tokens", -1], 5),
                    (["--prompt-ids", ",".join(["1"] * 126)], 2)):
        answer = generate(tmp_path, "-p", "abc", "--ignore-eos", *SMALL, *more)[-1]
        assert len(answer["choices"][0]["token_ids"]) == n, more


def test_logprobs_modes(model):
    flags = ["-p", "abc", "--seed", 3, "--max-tokens", 1, "--logprobs", 1, "--temperature", 0.5,
             "--logit-bias", "70:100", *SMALL]
    value = {m: generate(model, *flags, "--logprobs-mode", m)[0]["choices"][0]["logprobs"][0]
             for m in ("raw_logprobs", "processed_logprobs", "raw_logits", "processed_logits")}
    assert all(v["token_id"] == 70 for v in value.values())
    assert value["processed_logprobs"]["logprob"] == pytest.approx(0, abs=1e-6)
    assert value["raw_logprobs"]["logprob"] < -1
    raw, processed = (value[m]["logprob"] for m in ("raw_logits", "processed_logits"))
    assert processed == pytest.approx((raw + 100) / 0.5, rel=1e-5)
    assert [v["rank"] == 1 for v in value.values()] == [False, True, False, True]
