"""Sampling traces: what an answer tells of its tokens is what the definition says of the logits, and
`headrace replay` finds the answer again, or says where it is another."""
import json
import math
import re
import subprocess

import numpy as np
import openai
import pytest
from conftest import BIN, generate, headrace

import make_tiny
import sampler_reference as reference

LIMITS = ["--max-num-seqs", 8, "--max-num-batched-tokens", 64, "--max-model-len", 256]
EVERYTHING = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "presence_penalty": 0.4,
              "frequency_penalty": 0.3, "repetition_penalty": 1.2, "bad_words": ["b"], "min_tokens": 3, "stop_token_ids": [70], "ignore_eos": True,
              "logit_bias": {"65": 3, "66": -4, "70": -100}}  # never an end before max_tokens


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("trace")
    make_tiny.hf(path / "model", "llama")
    make_tiny.hf(path / "other", "qwen3")
    (path / "chat.jinja").write_text("{{ messages[0].content }}")
    return path


@pytest.fixture(scope="module")
def server(serve, folder):
    return serve(folder / "model", *LIMITS, "--chat-template", folder / "chat.jinja").ready()


def ask(server, path="/v1/completions", **fields):
    """The bytes of an answer, as a client would save them. Drawn with one seed, or a new one where
    that is None."""
    fields.setdefault("seed", 11)
    if path.endswith("completions") and "messages" not in fields:
        fields.setdefault("prompt", "abcabc")
    status, _, body = server.request(path, {"max_tokens": 12, "sampling_trace": True, **fields})
    assert status == 200, body
    return body.decode()


def entries(answer, choice=0):
    return answer["choices"][choice]["sampling_trace"]["tokens"]


def replay(text, *arguments):
    return headrace("replay", "-", *arguments, stdin=text if isinstance(text, str)
                    else json.dumps(text))


def counted(r):
    found = re.fullmatch(r"replayed (\d+) tokens: equal\n", r.stdout)
    assert r.returncode == 0 and found, (r.stdout, r.stderr)
    return int(found[1])


# ---- what is told ------------------------------------------------------------------------------


@pytest.mark.device
def test_off_unless_asked(server):
    for fields in ({}, {"sampling_trace": False}, {"sampling_trace": None}):
        status, answer = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 2, **fields})
        assert status == 200 and "sampling_trace" not in answer
        assert "sampling_trace" not in answer["choices"][0]
    status, answer = server.post("/v1/completions", {"prompt": "abc", "sampling_trace": 1})
    assert status == 400 and answer["error"]["param"] == "sampling_trace"


def logits_of(top, n):
    """Raw logits out of the top entries, which tell float32 exactly."""
    x = np.full(n, -np.inf, np.float32)
    for name, value in top.items():
        if value > -9999:
            x[int(name.removeprefix("token_id:"))] = value
    return x


@pytest.fixture(scope="module")
def raw_server(serve, folder):
    """One that tells all raw logits."""
    return serve(folder / "model", *LIMITS, "--logprobs-mode", "raw_logits", "--max-logprobs",
                 make_tiny.V).ready()


@pytest.mark.device
@pytest.mark.parametrize("fields", [
    {"temperature": 1}, {"temperature": 0.5, "top_k": 5}, {"temperature": 1.7, "top_p": 0.4},
    {"temperature": 1, "min_p": 0.3}, {"temperature": 0}, {"temperature": 1, "top_k": 1},
    EVERYTHING, {**EVERYTHING, "allowed_token_ids": [65, 66, 67, 68, 69, 71, 90]},
], ids=lambda f: "+".join(f) if len(f) < 4 else f"{len(f)} fields")
def test_it_is_what_the_definition_says(raw_server, fields):
    """Candidates, thresholds, entropy, share and noise of each token, from the logits that it was
    chosen by."""
    n = make_tiny.V
    answer = json.loads(ask(raw_server, **fields, seed=-3, logprobs=n, return_token_ids=True,
                            return_tokens_as_token_ids=True, n=2))
    header = answer["sampling_trace"]
    prompt = header["prompts"][0]["token_ids"]
    sampling = {**fields, "seed": -3,
                "logit_bias": [[int(i), v] for i, v in fields.get("logit_bias", {}).items()],
                "bad_words": [[make_tiny.ALPHABET.index("b")]] if "bad_words" in fields else []}
    eos = [make_tiny.V - 1, make_tiny.V - 3]
    for i, choice in enumerate(answer["choices"]):
        ids = choice["token_ids"]
        assert [t["token_id"] for t in entries(answer, i)] == ids
        for k, (t, top) in enumerate(zip(entries(answer, i), choice["logprobs"]["top_logprobs"])):
            expected = reference.sample(logits_of(top, n), sampling, prompt, ids[:k], eos, i)
            trace = expected["trace"]
            greedy = "cuts" not in trace
            assert t["position"] == len(prompt) + k
            assert t["token_id"] == expected["token"]
            got = list(t["candidates"].values())
            assert got[:2] == trace["candidates"][:2]
            assert got[2:] == ([None] * 3 if greedy else trace["candidates"][2:])
            cuts = [None if greedy or c == -np.inf else float(c)
                    for c in trace.get("cuts", [0] * 3)]
            assert list(t["thresholds"].values()) == cuts
            if greedy:
                assert t["entropy"] is t["probability"] is t["noise"] is None
                continue
            entropy, share = trace["sums"]
            assert math.isclose(t["entropy"], entropy, rel_tol=2**-23, abs_tol=2**-20)
            assert math.isclose(t["probability"], share, rel_tol=2**-23)
            assert t["noise"] == f"0x{reference.random_word(-3 + i, t['position']):016x}"


def test_header(server, folder):
    """What replaying takes: model, build, numbers, parameters as they counted, prompt and seed."""
    header = json.loads(ask(server, temperature=0.7, stop=["zz"], top_k=-1))["sampling_trace"]
    status, plain = server.post("/v1/completions", {"prompt": "abc", "max_tokens": 1})
    assert header["numerics"] == plain["numerics"] and "isa" in header["numerics"]
    assert header["model"] == str(folder / "model")
    assert re.fullmatch("[0-9a-f]{64}", header["model_hash"])
    assert header["headrace"] == headrace("--version").stdout.split()[-1]
    notes = subprocess.run(["readelf", "-n", BIN], capture_output=True, text=True).stdout
    assert header["build"] == re.search("Build ID: ([0-9a-f]+)", notes)[1]
    p = header["parameters"]
    assert p["temperature"] == 0.7 and p["stop"] == ["zz"] and p["top_k"] == -1 and p["top_p"] == 1
    assert header["prompts"] == [{"seed": header["prompts"][0]["seed"], "max_tokens": 12,
                                  "token_ids": [64, 65, 66] * 2}]
    assert header["options"]["max_model_len"] == 256


@pytest.mark.device
def test_the_sdk_reads_the_rest(server):
    client = openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)
    more = {"extra_body": {"sampling_trace": True, "ignore_eos": True}}
    answer = client.completions.create(model="", prompt="abc", max_tokens=5, **more)
    assert len(answer.choices[0].sampling_trace["tokens"]) == 5
    ask = [{"role": "user", "content": "abc"}]
    answer = client.chat.completions.create(model="", messages=ask, max_tokens=5, **more)
    assert answer.choices[0].message.content and answer.sampling_trace["version"] == 1
    chunks = list(client.chat.completions.create(model="", messages=ask, max_tokens=5, stream=True,
                                                 n=2, **more))
    told = [c.sampling_trace for c in chunks if getattr(c, "sampling_trace", None)]
    assert len(told) == 1  # the header, once
    tokens = [len(c.choices[0].sampling_trace["tokens"]) for c in chunks
              if getattr(c.choices[0], "sampling_trace", None)]
    assert sum(tokens) == 10 and max(tokens) == 1  # with the chunks they belong to


# ---- replaying ---------------------------------------------------------------------------------


CHAT = {"path": "/v1/chat/completions", "messages": [{"role": "user", "content": "abcd"}]}


@pytest.mark.parametrize("fields", [
    {"seed": None, "ignore_eos": True}, {"temperature": 0}, {**EVERYTHING, "logprobs": 2, "n": 3},
    {**EVERYTHING, "seed": 2**62, "allowed_token_ids": list(range(60, 100))},
    {"prompt": ["abc", "de"], "n": 2, "stream": True}, {"prompt": [[64, 65], [66, 67, 68]]},
    {"stop": ["a", "\x07"], "temperature": 1.5, "max_tokens": 100},
    {"stop": ["a"], "temperature": 1.5, "max_tokens": 100, "include_stop_str_in_output": True},
    {"ignore_eos": True, "max_tokens": None, "prompt": "abc" * 80},
    {**CHAT, **EVERYTHING, "n": 2, "logprobs": True, "top_logprobs": 3},
    {**CHAT, "stream": True, "stream_options": {"include_usage": True}},
    {**CHAT, "max_tokens": None, "stream": True, "n": 2},
    {"echo": True, "logprobs": 1, "seed": None, "ignore_eos": True}, {"logprob_token_ids": [70, 71]},
], ids=range(14))
def test_recorded_answers_are_found_again(server, fields):
    text = ask(server, **fields)
    tokens = text.count('"position":')
    assert tokens > 0 and counted(replay(text)) == tokens


def test_a_busy_server_records_what_a_quiet_one_replays(server):
    """What ran beside it, and the order, leave no trace."""
    import concurrent.futures
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda i: ask(server, **EVERYTHING, seed=i, n=i % 3 + 1, logprobs=0),
                              range(6)))
    for text in texts:
        counted(replay(text))


@pytest.mark.parametrize("mode", ["processed_logprobs", "raw_logits", "processed_logits"])
def test_what_logprobs_are_is_recorded(serve, folder, mode):
    server = serve(folder / "model", *LIMITS, "--logprobs-mode", mode, "--max-logprobs", 30).ready()
    text = ask(server, **EVERYTHING, logprobs=25)
    assert server.stop() == 0
    assert counted(replay(text)) == 12


def test_generate_records_too(folder):
    flags = [folder / "model", "-p", "abcabc", "--max-tokens", 9, "--temperature", 0.8, "--top-p", 0.7,
             "--ignore-eos", "--n", 2, "--logprobs", 0, *LIMITS]
    answer, = generate(*flags, "--sampling-trace")
    assert counted(replay(answer)) == 18
    answer, = generate(*flags)
    assert "sampling_trace" not in answer and "sampling_trace" not in answer["choices"][0]
    r = headrace("generate", *flags, "--sampling-trace")
    assert r.returncode == 2 and "--sampling-trace needs --json" in r.stderr


def test_packaged_and_dummy_models(smollm2, folder):
    """A GGUF file with 8-bit activations, a chat on a server's terms; weights that are no file's."""
    small = ["--max-num-seqs", 2, "--max-num-batched-tokens", 64, "--max-model-len", 512]
    answer, = generate(smollm2, "--chat", "-p", "Say hello.", "--max-tokens", 8, "--ignore-eos",
                       "--seed", 4, "--top-p", 0.9, "--sampling-trace", *small)
    assert counted(replay(answer)) == 8
    answer, = generate(folder / "model", "--load-format", "dummy", "-p", "ab", "--max-tokens", 5,
                       "--ignore-eos", "--sampling-trace", *LIMITS)
    assert counted(replay(answer)) == 5
    r = replay(answer, "--load-format", "auto")
    assert r.returncode == 1 and "is another model" in r.stderr


@pytest.fixture(scope="module")
def recorded(server):
    return ask(server, **EVERYTHING, n=2, seed=5, logprobs=0)


def changed(recorded, change):
    answer = json.loads(recorded)
    change(answer)
    r = replay(answer)
    assert r.returncode == 1, r.stdout
    return r.stdout + r.stderr


def test_the_first_difference_is_named(recorded):
    def token(answer):
        entries(answer, 1)[4]["token_id"] += 1
    said = changed(recorded, token)
    then = entries(json.loads(recorded), 1)[4]
    assert f"choice 1, token 4, position {then['position']}: token_id differs" in said
    assert f"recorded token {then['token_id'] + 1} " in said and f"now      token {then['token_id']} " in said
    assert json.dumps(then["candidates"], separators=(",", ":")) in said


@pytest.mark.parametrize("member,value", [
    ("candidates.top_p", 1000), ("candidates.grammar", 0), ("thresholds.top_k", -0.125),
    ("entropy", 0.0625), ("probability", None), ("noise", "0x0000000000000000"), ("logprob", -1)])
def test_a_difference_of_any_number_is_one(recorded, member, value):
    def change(answer):
        *outer, last = member.split(".")
        at = entries(answer)[2]
        for name in outer:
            at = at[name]
        at[last] = value
    assert f"token 2, position {len('abcabc') + 2}: {member} differs" in changed(recorded, change)


def test_lengths_and_ends_count(recorded):
    assert "recorded 11 tokens, now 12" in changed(recorded, lambda a: entries(a).pop())
    assert "finish_reason was stop, now length" in changed(
        recorded, lambda a: a["choices"][0].update(finish_reason="stop"))


def test_another_seed_is_another_answer(recorded):
    def change(answer):
        answer["sampling_trace"]["prompts"][0]["seed"] += 1
    assert "replayed 0 of 24 tokens: different" in changed(recorded, change)


def test_another_model_is_refused(recorded, folder):
    r = replay(recorded, folder / "other")
    assert r.returncode == 1 and "is another model" in r.stderr and "--force" in r.stderr
    r = replay(recorded, folder / "other", "--force")
    assert r.returncode == 1 and "is another model" in r.stderr and "different" in r.stdout


def test_other_numerics_and_builds_are_told(recorded):
    answer = json.loads(recorded)
    answer["sampling_trace"]["numerics"]["isa"] = "riscv"
    answer["sampling_trace"]["headrace"] = "0.0.1"
    answer["sampling_trace"]["build"] = "0" * 40
    r = replay(answer)
    assert 'numerics.isa: recorded "riscv", here ' in r.stderr
    assert "recorded by version 0.0.1" in r.stderr
    counted(r)  # and it is equal all the same, since the numbers are
    answer["sampling_trace"]["headrace"] = json.loads(recorded)["sampling_trace"]["headrace"]
    r = replay(answer)
    assert "recorded by build 000000000000, this is " in r.stderr and counted(r)
    for build in (None, json.loads(recorded)["sampling_trace"]["build"]):
        answer["sampling_trace"]["build"] = build
        assert "recorded by" not in replay(answer).stderr


def test_it_goes_by_the_recorded_instruction_set(serve, folder, monkeypatch):
    monkeypatch.delenv("HEADRACE_ISA", raising=False)
    server = serve(folder / "model", *LIMITS, "--isa", "scalar").ready()
    text = ask(server, temperature=1, ignore_eos=True)
    server.stop()
    r = replay(text)
    assert counted(r) == 12 and "numerics" not in r.stderr


@pytest.mark.sanitize
@pytest.mark.parametrize("make,message", [
    (lambda t: "", "it is empty"),
    (lambda t: t[:len(t) // 2], "it is no answer's JSON, or not all of it"),
    (lambda t: "[1]", "it holds no sampling trace"),
    (lambda t: '{"choices":[]}', 'ask for one with "sampling_trace": true'),
    (lambda t: '{"error":{"message":"too much"}}', "it is an error and no answer: too much"),
    (lambda t: t.replace('"version":1', '"version":9'), "version 9"),
    (lambda t: t.replace('"top_k":40,"top_p"', '"topk":40,"top_p"'), "topk is nothing"),
    (lambda t: t.replace('"finish_reason":"length"', '"finish_reason":null'), "does not end"),
    (lambda t: t.replace('"index":1', '"index":7'), "one has the index 7"),
    (lambda t: t.replace('"token_ids"', '"ids"'), "token_ids, seed and max_tokens are expected"),
    (lambda t: "data: " + t[:100] + "\n\n", "event 1 of its stream"),
    (lambda t: "data: [DONE]\n\n", "it holds no sampling trace"),
    (lambda t: t.replace('"n":2', '"n":5000'), "n is out of range"),
    (lambda t: t.replace('"stop_token_ids":[70]', '"stop_token_ids":[-70]'), "stop_token_ids"),
])
def test_files_that_are_none(recorded, make, message):
    text = make(recorded)
    assert text != recorded
    r = replay(text)
    assert r.returncode == 1 and message in r.stderr, r.stderr
    assert r.stderr.count("headrace: ") == 1


@pytest.mark.sanitize
def test_broken_files_break_nothing(recorded, folder):
    """Bytes changed, left out and doubled: an answer, a difference or a refusal, never a crash."""
    random = np.random.default_rng(3)
    header = recorded.index('"sampling_trace":{"version"')
    for _ in range(25):
        text = bytearray(recorded, "utf-8")
        for _ in range(random.integers(1, 4)):
            at = int(random.integers(header if random.random() < .7 else 0, len(text) - 8))
            text[at:at + int(random.integers(0, 3))] = bytes(random.choice(
                list(b'0179-"{}[],:nae'), random.integers(0, 3)).tolist())
        r = replay(text.decode("utf-8", "replace"), folder / "model")
        assert r.returncode in (0, 1) and (r.stdout or r.stderr), (r.returncode, text)


def test_a_stream_that_was_cut(server):
    text = ask(server, stream=True, n=2)
    last = text.rindex('"finish_reason":"length"')
    cut = text[:text.rindex("data: ", 0, last)]
    r = replay(cut)
    assert r.returncode == 1 and "does not end: the file is cut short" in r.stderr


def test_command_lines(recorded, tmp_path, folder):
    file = tmp_path / "answer.json"
    file.write_text(recorded)
    assert counted(headrace("replay", file, folder / "model")) == 24
    r = headrace("replay")
    assert r.returncode == 2 and "headrace replay FILE" in r.stderr
    r = headrace("replay", tmp_path / "none.json")
    assert r.returncode == 1 and "none.json" in r.stderr
    r = headrace("replay", file, "--device", "ref")
    assert 'numerics.backend: recorded "cpu", here "ref"' in r.stderr
