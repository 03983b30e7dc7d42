"""The Python package: built as a wheel from this build, installed, and asked the same as the command.

The command's answers are the oracle; the header as a compiler reads it is the one of the structs."""
import ctypes
import dataclasses
import importlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
from xml.etree import ElementTree

import pytest
from conftest import BIN, ROOT, Bits, Server, generate, headrace

import make_tiny

SMALL = {"max_num_seqs": 16, "max_num_batched_tokens": 64, "max_model_len": 256}
FLAGS = [x for k, v in SMALL.items() for x in (f"--{k.replace('_', '-')}", v)]
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def pip(*arguments, env=None):
    r = subprocess.run([sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index",
                        "-q", "--disable-pip-version-check"], capture_output=True, text=True,
                       env={**os.environ, **(env or {})})
    assert r.returncode == 0, r.stdout + r.stderr


@pytest.fixture(scope="session")
def installed(tmp_path_factory):
    """The folder that a wheel was installed into; built from a copy, which leaves nothing behind."""
    work = tmp_path_factory.mktemp("wheel")
    for folder in ("python", "include"):
        shutil.copytree(ROOT / folder, work / "src" / folder,
                        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    shutil.copy(ROOT / "CMakeLists.txt", work / "src")
    pip("wheel", work / "src/python", "--no-build-isolation", "-w", work,
        env={"HEADRACE_BUILD": str(pathlib.Path(BIN).parent)})
    wheel, = work.glob("headrace-*.whl")
    assert re.fullmatch(r"headrace-[\d.]+-py3-none-linux_\w+\.whl", wheel.name)
    pip("install", wheel, "--target", work / "site")
    return work / "site"


@pytest.fixture(scope="session")
def hr(installed):
    sys.path.insert(0, str(installed))
    return importlib.import_module("headrace")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("python") / "tiny"
    make_tiny.hf(path, "llama")
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (path / "generation_config.json").write_text(json.dumps({"temperature": 0.5, "top_k": 7}))
    return path


@pytest.fixture(scope="module")
def llm(hr, model):
    with hr.LLM(str(model), **SMALL) as llm:
        yield llm


# ---- the struct as C sees it ---------------------------------------------------------------------

def test_structs_are_the_headers(hr, tmp_path):
    header = hr._library.HEADER
    written = set(re.findall(r"typedef struct (\w+) \{",
                             (ROOT / "include/headrace/headrace.h").read_text()))
    assert written == {n for n, s in header.structs.items() if getattr(s, "_fields_", None)}
    expressions = [(f"sizeof({n})", ctypes.sizeof(header.structs[n])) for n in sorted(written)]
    for n in sorted(written):
        for field, kind in header.structs[n]._fields_:
            expressions.append((f"offsetof({n}, {field})", getattr(header.structs[n], field).offset))
            expressions.append((f"sizeof((({n} *)0)->{field})", ctypes.sizeof(kind)))
    expressions += list(header.constants.items())
    assert len(expressions) > 300
    (tmp_path / "a.c").write_text(
        "#include <headrace/headrace.h>\n#include <stdio.h>\nint main(void) {\n"
        + "".join(f'printf("%zu\\n", (size_t)({e}));\n' for e, _ in expressions) + "}\n")
    subprocess.run(["gcc", "-I", ROOT / "include", tmp_path / "a.c", "-o", tmp_path / "a"], check=True)
    out = subprocess.run([tmp_path / "a"], capture_output=True, text=True).stdout.split()
    assert dict(expressions) == {e: int(v) for (e, _), v in zip(expressions, out)}


def test_version(hr):
    assert f"headrace {hr.__version__}\n" == headrace("--version").stdout


# ---- the same answers as the command's -----------------------------------------------------------

PARAMETERS = [
    ({"temperature": 0, "max_tokens": 12}, ["--temperature", 0, "--max-tokens", 12]),
    ({"seed": 7, "top_k": 9, "top_p": .9, "min_p": .01, "max_tokens": 8},
     ["--temperature", 1, "--seed", 7, "--top-k", 9, "--top-p", .9, "--min-p", .01, "--max-tokens", 8]),
    ({"seed": 3, "n": 3, "logprobs": 2, "temperature": .7, "prompt_logprobs": 1},
     ["--seed", 3, "--n", 3, "--logprobs", 2, "--temperature", .7, "--max-tokens", 16, "--top-k", 0,
      "--prompt-logprobs", 1]),
    ({"seed": 1, "logit_bias": {65: 4.5, 66: -3}, "allowed_token_ids": [65, 66, 67], "max_tokens": 6,
      "presence_penalty": .5, "frequency_penalty": .25, "repetition_penalty": 1.2, "logprobs": 0,
      "logprob_token_ids": [70]},
     ["--seed", 1, "--logit-bias", "65:4.5,66:-3", "--allowed-token-ids", "65,66,67", "--max-tokens", 6,
      "--presence-penalty", .5, "--frequency-penalty", .25, "--repetition-penalty", 1.2, "--logprobs", 0,
      "--temperature", 1, "--top-k", 0, "--logprob-token-ids", "70"]),
    ({"seed": 1, "stop_token_ids": list(range(60, 90)), "bad_words": ["b"], "min_tokens": 2,
      "ignore_eos": True, "max_tokens": 40, "skip_special_tokens": False},
     ["--seed", 1, "--stop-token-ids", ",".join(map(str, range(60, 90))), "--bad-words", "b",
      "--min-tokens", 2, "--ignore-eos", "--max-tokens", 40, "--temperature", 1, "--top-k", 0,
      "--no-skip-special-tokens"]),
]


def told(output):
    """A RequestOutput as `headrace generate --json` writes its numbers."""
    def entries(at, ids):
        return None if at is None else [
            {"token_id": t, **{str(i): (e.logprob, e.rank) for i, e in d.items()}}
            for t, d in zip(ids, at)]
    return [{"text": c.text, "token_ids": c.token_ids, "finish_reason": c.finish_reason,
             "logprobs": entries(c.logprobs, c.token_ids)} for c in output.outputs]


def told_by_command(answer):
    def entry(token):
        top = {str(t["token_id"]): (t["logprob"], t["rank"] or None) for t in token["top"]}
        return {"token_id": token["token_id"], **top,
                str(token["token_id"]): (token["logprob"], token["rank"])}
    return [{"text": c["text"], "token_ids": c["token_ids"], "finish_reason": c["finish_reason"],
             "logprobs": [entry(t) for t in c["logprobs"]] if c.get("logprobs") else None}
            for c in answer["choices"]]


@pytest.mark.parametrize("python,flags", PARAMETERS, ids=lambda v: None)
def test_answers_are_the_commands(hr, llm, model, python, flags):
    mine, = llm.generate(["hello there"], hr.SamplingParams(**python))
    answer, = generate(model, "-p", "hello there", *flags, *FLAGS)
    assert mine.prompt == "hello there" and mine.finished
    assert mine.prompt_token_ids == answer["prompt_token_ids"]
    assert Bits(sort(told(mine))) == Bits(sort(told_by_command(answer)))


def sort(choices):
    return json.loads(json.dumps(choices, sort_keys=True))


def test_packaged_model_in_one_batch(hr, smollm2):
    """Several prompts at once, sampled and greedy, each as the command answers it alone."""
    prompts = ["The capital of France is", "Once upon a time", "def add(a, b):"]
    params = [hr.SamplingParams(temperature=0, max_tokens=12), hr.SamplingParams(seed=5, logprobs=1),
              hr.SamplingParams(temperature=.8, top_p=.9, seed=2, max_tokens=10)]
    flags = [["--temperature", 0, "--max-tokens", 12], ["--seed", 5, "--logprobs", 1, "--max-tokens", 16],
             ["--temperature", .8, "--top-p", .9, "--seed", 2, "--max-tokens", 10]]
    with hr.LLM(str(smollm2), **SMALL) as llm:
        outputs = llm.generate(prompts, params)
        spoken, = llm.chat([{"role": "user", "content": "Hi"}], hr.SamplingParams(temperature=0))
    for prompt, output, f in zip(prompts, outputs, flags):
        answer, = generate(smollm2, "-p", prompt, *f, *FLAGS)
        assert output.prompt == prompt
        assert Bits(sort(told(output))) == Bits(sort(told_by_command(answer)))
    choice = outputs[1].outputs[0]
    assert choice.text == "".join(d[t].decoded_token for t, d in zip(choice.token_ids, choice.logprobs))
    answer, = generate(smollm2, "--chat", "-p", "Hi", "--temperature", 0, "--max-tokens", 16, *FLAGS)
    assert spoken.outputs[0].text == answer["choices"][0]["text"]


def test_prompt_logprobs_and_decoded_tokens(hr, llm):
    output, = llm.generate("abc", hr.SamplingParams(temperature=0, logprobs=3, prompt_logprobs=2,
                                                    max_tokens=4))
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == 3
    for token, entries in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:]):
        assert token == next(iter(entries)) and 2 <= len(entries) <= 3
    choice = output.outputs[0]
    assert choice.cumulative_logprob == pytest.approx(
        sum(d[t].logprob for t, d in zip(choice.token_ids, choice.logprobs)))
    for entries in choice.logprobs:
        assert {e.rank for e in entries.values()} == {1, 2, 3}


def test_chat(hr, llm, model, tmp_path):
    messages = [{"role": "user", "content": "hi"}]
    (tmp_path / "m.json").write_text(json.dumps(messages))
    greedy = hr.SamplingParams(temperature=0, max_tokens=6)
    mine, other = llm.chat([messages, messages], greedy)
    answer, = generate(model, "--messages", tmp_path / "m.json", "--temperature", 0, "--max-tokens", 6,
                       *FLAGS)
    assert told(mine) == told(other) == told_by_command(answer)
    assert mine.prompt_token_ids == answer["prompt_token_ids"]
    assert told(llm.chat(messages, greedy)[0]) == told(mine)


def test_kinds_of_prompts(hr, llm):
    greedy = hr.SamplingParams(temperature=0, max_tokens=3)
    ids = llm.get_tokenizer().encode("abc")
    want = llm.generate("abc", greedy)[0].outputs[0]
    for prompts in ("abc", ["abc"], ids, [ids], {"prompt": "abc"}, [{"prompt_token_ids": ids}],
                    {"prompt": "abc", "cache_salt": "x"}):
        output, = llm.generate(prompts, greedy)
        assert output.outputs[0] == want and output.prompt_token_ids == ids
    assert llm.generate([], greedy) == []
    assert llm.get_tokenizer().decode(ids) == "abc"


def test_stop_reasons(hr, llm):
    free = llm.generate("abc", hr.SamplingParams(temperature=0, max_tokens=8, ignore_eos=True))[0]
    text, ids = free.outputs[0].text, free.outputs[0].token_ids
    assert free.outputs[0].finish_reason == "length" and free.outputs[0].stop_reason is None
    cut = llm.generate("abc", hr.SamplingParams(temperature=0, max_tokens=8, stop_token_ids=[ids[3]],
                                                ignore_eos=True))[0].outputs[0]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", ids[3])
    cut = llm.generate("abc", hr.SamplingParams(temperature=0, max_tokens=8, stop=text[2],
                                                ignore_eos=True))[0].outputs[0]
    assert (cut.finish_reason, cut.stop_reason) == ("stop", text[2]) and cut.finished()
    assert text[2] not in cut.text


def test_structured_outputs(hr, llm):
    choice = hr.StructuredOutputsParams(choice=["yes", "no"])
    output, = llm.generate("abc", hr.SamplingParams(structured_outputs=choice))
    assert output.outputs[0].text in ("yes", "no")


# ---- streams, threads, ends ----------------------------------------------------------------------

def test_streams(hr, llm):
    kinds = hr.RequestOutputKind
    prompts = ["hello", "good bye"]

    def asked(kind):
        return hr.SamplingParams(seed=4, n=2, logprobs=1, output_kind=kind, ignore_eos=True)
    whole = llm.generate(prompts, asked(kinds.CUMULATIVE))
    by_id = {}
    for output in llm.stream(prompts, asked(kinds.CUMULATIVE)):
        before = by_id.get(output.request_id)
        assert before is None or all(b.token_ids == a.token_ids[:len(b.token_ids)]
                                     for b, a in zip(before.outputs, output.outputs))
        by_id[output.request_id] = output
    assert [o.outputs for o in by_id.values()] == [o.outputs for o in whole]
    pieces = [o for o in llm.stream(prompts, asked(kinds.DELTA))]
    assert len(pieces) > 8 and sum(o.finished for o in pieces) == 2
    for one in whole:
        for choice in one.outputs:
            parts = [o.outputs[choice.index] for o in pieces if o.prompt == one.prompt]
            assert "".join(p.text for p in parts) == choice.text
            assert [t for p in parts for t in p.token_ids] == choice.token_ids
            assert [t for p in parts for t in p.logprobs] == choice.logprobs
            assert parts[-1].finish_reason == choice.finish_reason
    assert [o.finished for o in llm.stream(prompts, asked(kinds.FINAL_ONLY))] == [True, True]


def test_leaving_a_stream_cancels(hr, llm):
    for output in llm.stream("abc", hr.SamplingParams(max_tokens=200, ignore_eos=True)):
        assert not output.finished
        break
    steps = llm.info["decode_tokens"]
    assert not llm._jobs
    llm.generate("abc", hr.SamplingParams(temperature=0, max_tokens=2))
    assert llm.info["decode_tokens"] - steps < 150


def test_threads_share_an_engine(hr, llm):
    want = {s: told(llm.generate("abc", hr.SamplingParams(seed=s))[0]) for s in range(6)}
    got, failures = {}, []

    def ask(seed):
        try:
            got[seed] = told(llm.generate("abc", hr.SamplingParams(seed=seed))[0])
        except Exception as e:  # shown below
            failures.append(e)
    threads = [threading.Thread(target=ask, args=(s,)) for s in want]
    [t.start() for t in threads]
    [t.join(60) for t in threads]
    assert not failures and got == want


def test_close(hr, model):
    """It ends what waits on other threads, and what comes later; a second time it does nothing."""
    llm = hr.LLM(str(model), **SMALL)
    seen = []

    def wait():
        with pytest.raises(ValueError, match="closed"):
            for output in llm.stream("abc", hr.SamplingParams(max_tokens=None, ignore_eos=True)):
                seen.append(output)
                begun.set()
    begun = threading.Event()
    thread = threading.Thread(target=wait)
    thread.start()
    assert begun.wait(30)
    llm.close()
    thread.join(30)
    assert not thread.is_alive() and seen
    llm.close()
    for use in (lambda: llm.generate("a"), lambda: llm.info, lambda: llm.get_tokenizer().encode("a")):
        with pytest.raises(ValueError, match="closed"):
            use()


# ---- refusals and defaults -----------------------------------------------------------------------

def test_sampling_is_checked(hr, llm):
    with pytest.raises(TypeError, match="beam_width"):
        hr.SamplingParams(beam_width=4)
    for wrong, naming in [({"temperature": -1}, "temperature"), ({"top_p": 2}, "top_p"),
                          ({"n": 0}, "n"), ({"logprobs": 100}, "logprobs"), ({"stop": [""]}, "stop"),
                          ({"allowed_token_ids": [10 ** 6]}, "allowed_token_ids")]:
        with pytest.raises(hr.InvalidRequest, match=naming) as caught:
            llm.generate("abc", hr.SamplingParams(**wrong))
        assert caught.value.status and isinstance(caught.value, ValueError)
    with pytest.raises(ValueError, match="max_tokens"):
        hr.SamplingParams(max_tokens=0)
    for wrong, naming in [({"temperature": "hot"}, "temperature"), ({"stop_token_ids": ["x"]}, "stop_"),
                          ({"stop": [3]}, "stop"), ({"seed": 1.5}, "seed")]:
        with pytest.raises(TypeError, match=naming):
            llm.generate("abc", hr.SamplingParams(**wrong))
    with pytest.raises(ValueError, match="NUL"):
        llm.generate("abc", hr.SamplingParams(stop="a\0b"))


def test_requests_are_checked(hr, llm):
    fine = hr.SamplingParams(temperature=0, max_tokens=2)
    with pytest.raises(hr.InvalidRequest, match="context"):
        llm.generate(["abc", "a" * 4000], fine)
    assert not llm._jobs  # the other one is not left behind
    with pytest.raises(hr.InvalidRequest, match="messages"):
        llm.chat([{"no": "role"}], fine)
    with pytest.raises(TypeError, match="multi_modal_data"):
        llm.generate({"prompt": "a", "multi_modal_data": {}}, fine)
    with pytest.raises(TypeError, match="truncation"):
        llm.generate("a", fine, tokenization_kwargs={"truncation": True})
    with pytest.raises(ValueError, match="2 prompts, 1 sampling_params"):
        llm.generate(["a", "b"], [fine])
    with pytest.raises(ValueError, match="use_tqdm"):
        llm.generate("a", fine, use_tqdm=True)
    with pytest.raises(TypeError, match="SamplingParams"):
        llm.generate("a", {"temperature": 0})
    assert llm.generate("a", fine)[0].finished


def test_options_are_checked(hr, model):
    with pytest.raises(TypeError, match="gpu_memory_utilization"):
        hr.LLM(str(model), gpu_memory_utilization=.9)
    with pytest.raises(TypeError, match="max_model_len"):
        hr.LLM(str(model), max_model_len="long")
    with pytest.raises(hr.HeadraceError, match="no such file") as caught:
        hr.LLM("/nowhere")
    assert caught.value.status == 5
    with pytest.raises(hr.InvalidRequest, match="max-num-seqs"):
        hr.LLM(str(model), max_num_seqs=-4)
    with pytest.raises(ValueError, match="generation_config"):
        hr.LLM(str(model), generation_config="other")


def test_options_reach_the_engine(hr, model):
    with hr.LLM(str(model), **SMALL, generation_config="vllm", block_size=32, kv_cache_dtype="int8",
                override_generation_config={"top_p": .25}, enable_prefix_caching=False,
                speculative_config={"method": "ngram", "num_speculative_tokens": 2,
                                    "prompt_lookup_max": 3}) as llm:
        assert llm.info["block_size"] == 32 and llm.info["numerics"]["kv"] == "i8"
        default = llm.get_default_sampling_params()
        assert (default.temperature, default.top_k, default.top_p) == (1, 0, .25)
        first, second = (llm.generate("abab" * 20, hr.SamplingParams(temperature=0))[0] for _ in "ab")
        assert second.num_cached_tokens == 0 and told(first) == told(second)
        assert len(llm.manifest()["programs"]) == llm.info["programs"]
        assert llm.info["draft_tokens"] > 0


def test_defaults_are_the_models(hr, llm):
    default = llm.get_default_sampling_params()
    assert default == hr.SamplingParams(temperature=.5, top_k=7)
    assert hr.SamplingParams().temperature == 1  # what is made by hand does not hear of the model


# vLLM's own, from its API documentation (SamplingParams, RequestOutput, CompletionOutput, Logprob).
VLLM = {
    "SamplingParams": "n presence_penalty frequency_penalty repetition_penalty temperature top_p top_k "
                      "min_p seed stop stop_token_ids ignore_eos max_tokens min_tokens logprobs "
                      "prompt_logprobs logprob_token_ids flat_logprobs detokenize skip_special_tokens "
                      "spaces_between_special_tokens include_stop_str_in_output output_kind "
                      "structured_outputs logit_bias allowed_token_ids extra_args bad_words",
    "StructuredOutputsParams": "json regex choice grammar json_object structural_tag",
    "RequestOutput": "request_id prompt prompt_token_ids prompt_logprobs outputs finished metrics "
                     "num_cached_tokens",
    "CompletionOutput": "index text token_ids cumulative_logprob logprobs finish_reason stop_reason",
    "Logprob": "logprob rank decoded_token",
}


@pytest.mark.parametrize("name", VLLM)
def test_names_are_vllms(hr, name):
    assert {f.name for f in dataclasses.fields(getattr(hr, name))} <= set(VLLM[name].split())


# ---- headrace-report -----------------------------------------------------------------------------

@pytest.fixture(scope="module")
def measured(model, tmp_path_factory):
    """Results at two concurrencies, and the server's ledger after them."""
    folder = tmp_path_factory.mktemp("report")
    server = Server(model, "--served-model-name", "tiny", *FLAGS).ready()
    for c in (1, 4):
        r = headrace("bench", "serve", "--base-url", server.address, "--num-prompts", 8,
                     "--random-input-len", 16, "--random-output-len", 8, "--max-concurrency", c,
                     "--ignore-eos", "--no-progress", "--save-result", "--result-dir", folder,
                     "--result-filename", f"c{c}.json")
        assert r.returncode == 0, r.stderr
    (folder / "programs.json").write_bytes(server.get("/programs")[2])
    assert server.stop() == 0
    return folder


def report(installed, *arguments, cwd):
    return subprocess.run([sys.executable, installed / "bin/headrace-report", *map(str, arguments)],
                          capture_output=True, text=True, cwd=cwd,
                          env={**os.environ, "PYTHONPATH": str(installed)})


def test_report(installed, measured, tmp_path):
    r = report(installed, measured / "c4.json", measured / "c1.json", f"<&>={measured}/c4.json",
               measured / "programs.json", "-o", "out.svg", cwd=tmp_path)
    assert r.returncode == 0 and r.stdout == "out.svg\n", r.stderr
    svg = ElementTree.parse(tmp_path / "out.svg").getroot()
    name = "{http://www.w3.org/2000/svg}"
    words = [t.text for t in svg.iter(f"{name}text")]
    assert len(list(svg.iter(f"{name}polyline"))) == 4 and len(list(svg.iter(f"{name}circle"))) == 6
    assert {"1", "4", "tiny, random, closed loop", "<&>, random, closed loop"} <= set(words)
    ledger = json.loads((measured / "programs.json").read_text())
    called = [p for p in ledger["programs"] if p["calls"]]
    notes = [w for w in words if w and re.search(r"ms × \d+$", w)]
    assert [int(n.split("× ")[1]) for n in notes] == [p["calls"] for p in called]
    first = called[0]
    mean = 1000 * first["step_seconds"]["sum"] / first["step_seconds"]["count"]
    assert float(notes[0].split()[0]) == pytest.approx(mean, rel=.01)
    share = first["padding"] / (first["tokens"] * first["calls"])
    assert f"{share:.0%} of {first['tokens'] * first['calls']}" in words


def test_report_places_points_where_they_are(installed, measured, tmp_path):
    """From a circle back to its figures, by the axis's own labels."""
    report(installed, measured / "c1.json", measured / "c4.json", cwd=tmp_path)
    svg = (tmp_path / "report.svg").read_text()
    circles = [tuple(map(float, m)) for m in re.findall(r'circle cx="([\d.]+)" cy="([\d.]+)"', svg)]
    marks = [(float(x), float(v)) for x, v in re.findall(
        r'<text x="([\d.]+)" y="[\d.]+" font-size="11" text-anchor="middle"[^>]*>([\d.]+)<', svg)]
    (x0, v0), (x1, v1) = marks[0], marks[1]
    for (cx, _), name in zip(circles, ("c1", "c4")):
        result = json.loads((measured / f"{name}.json").read_text())
        value = v0 + (cx - x0) / (x1 - x0) * (v1 - v0)
        assert value == pytest.approx(result["output_throughput"], rel=.01)


@pytest.mark.parametrize("content,naming", [("{", "no JSON"), ("[1]", "neither"), ('{"a": 1}', "neither"),
                                            ('{"programs": [], "step_seconds_bounds": []}', "no program")])
def test_report_refuses(installed, tmp_path, content, naming):
    (tmp_path / "x.json").write_text(content)
    r = report(installed, "x.json", cwd=tmp_path)
    assert r.returncode == 1 and naming in r.stderr and not (tmp_path / "report.svg").exists()
    assert report(installed, "nowhere.json", cwd=tmp_path).returncode == 1


def test_committed_results_can_be_drawn(installed, tmp_path):
    r = report(installed, ROOT / "bench/results/origin_serving.json", cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    ElementTree.parse(tmp_path / "report.svg")
