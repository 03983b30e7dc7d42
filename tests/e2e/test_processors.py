"""Logits processors: what a shared object named at start does to answers, what becomes of one that
cannot be used, and that a fault costs the choice that met it alone."""
import json
import pathlib
import re

import pytest
from conftest import BIN, Bits, generate, headrace

import make_tiny

BUILD = pathlib.Path(BIN).parent
TRIGRAM, BIAS, STUB = (BUILD / f"{name}.so" for name in
                       ("logits_processor_trigram", "logits_processor_bias", "stub_processor"))
LIMITS = ["--max-num-seqs", 8, "--max-num-batched-tokens", 64, "--max-model-len", 256]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("processors") / "model"
    make_tiny.hf(path, "llama")
    return path


def processors(*those):
    return [x for one in those for x in ("--logits-processor", one)]


def ids(model, *arguments):
    answer, = generate(model, "--prompt-ids", "7,8,9", "--max-tokens", 40, "--temperature", 0,
                       "--ignore-eos", *LIMITS, *arguments)
    return answer["choices"][0]["token_ids"]


def trigrams(x):
    return list(zip(x, x[1:], x[2:]))


# ---- effects -----------------------------------------------------------------------------------


@pytest.mark.device
def test_trigrams_never_repeat(model):
    few = ["--allowed-token-ids", "65,66,67,68,69"]
    plain, with_it = ids(model, *few), ids(model, *few, *processors(TRIGRAM))
    assert len(set(trigrams(plain))) < len(trigrams(plain))
    assert len(set(trigrams(with_it))) == len(trigrams(with_it)) == 38
    first = next(i for i, (a, b) in enumerate(zip(plain, with_it)) if a != b)
    assert trigrams(plain)[first - 2] in trigrams(plain[:first])  # alike until one would repeat


def test_trigrams_of_the_packaged_model(smollm2):
    answer, = generate(smollm2, "-p", "la la la la la la", "--temperature", 0, "--max-tokens", 48,
                       "--max-model-len", 256, *processors(TRIGRAM))
    x = answer["choices"][0]["token_ids"]
    assert len(set(trigrams(x))) == len(trigrams(x))


@pytest.mark.parametrize("device", [None, "ref"])
@pytest.mark.parametrize("pairs", ["65:3.3,66:-100,70:2.7182817", "10:100", "0:-1e30,5:250"])
@pytest.mark.parametrize("temperature", [0, 0.8])
def test_a_bias_is_a_logit_bias(model, device, pairs, temperature):
    """To the bit, log-probabilities of what is left included."""
    flags = ["--prompt-ids", "7,8,9", "--max-tokens", 6, "--temperature", temperature, "--seed", 5,
             "--logprobs", 5, "--logprobs-mode", "processed_logprobs", *LIMITS,
             *(["--device", device] if device else [])]
    clamped = ",".join(f"{i}:{max(-100, min(100, float(v)))}"
                       for i, v in (p.split(":") for p in pairs.split(",")))
    own, = generate(model, *flags, "--logit-bias", clamped)
    assert Bits(generate(model, *flags, *processors(f"{BIAS}={pairs}"))[0]["choices"]) == \
        Bits(own["choices"])
    assert own["choices"] != generate(model, *flags)[0]["choices"]


def test_biases_add_up(model):
    """The request's, two processors', and two entries of one id; what comes out is clamped."""
    flags = ["--prompt-ids", "7,8,9", "--max-tokens", 8, "--temperature", 0, "--logprobs", 5,
             "--logprobs-mode", "processed_logits", *LIMITS]

    def choices(*more):
        return generate(model, *flags, *more)[0]["choices"]
    want = choices("--logit-bias", "65:4.75,66:100,67:-8")
    assert choices("--logit-bias", "65:1", "--logit-bias", "66:90", *processors(
        f"{BIAS}=66:80,67:-8", f"{STUB}=twice", f"{BIAS}=65:0.25")) == want


def test_masks_of_several_must_all_allow(model):
    got = ids(model, *processors(f"{STUB}=thirds", TRIGRAM), "--allowed-token-ids",
              ",".join(map(str, range(30, 150))))
    assert [i % 3 for i in got] == [(3 + k) % 3 for k in range(40)]
    assert all(30 <= i < 150 for i in got) and len(set(trigrams(got))) == 38


def test_the_room_is_what_the_request_leaves(serve, model):
    """Of the 1,024 ids that a row may bias."""
    server = serve(model, *LIMITS, *processors(f"{STUB}=twice", f"{STUB}=count")).ready()
    status, answer = ask(server, [7, 8], logit_bias={"65": 1, "66": 1, "67": 1})
    assert answer["choices"][0]["finish_reason"] == "error"
    assert server.lines_with("n_bias 1022 is not in 0 to bias_capacity 1021")


# ---- serving -----------------------------------------------------------------------------------


def ask(server, prompt, **fields):
    return server.post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "temperature": 0,
                                           "return_token_ids": True, "ignore_eos": True, **fields})


@pytest.mark.device
@pytest.mark.sanitize
@pytest.mark.threads
def test_streams_and_choices(serve, model):
    server = serve(model, *LIMITS, *processors(f"{STUB}=thirds", TRIGRAM)).ready()
    fields = {"n": 3, "temperature": 1, "seed": 4, "max_tokens": 30}
    status, whole = ask(server, [7, 8, 9], **fields)
    assert status == 200
    for c in whole["choices"]:
        assert [i % 3 for i in c["token_ids"]] == [k % 3 for k in range(30)]
        assert len(set(trigrams(c["token_ids"]))) == 28
    assert len({str(c["token_ids"]) for c in whole["choices"]}) == 3
    _, _, body = server.request("/v1/completions", {
        "prompt": [7, 8, 9], "stream": True, "return_token_ids": True, "ignore_eos": True, **fields})
    streamed = [[], [], []]
    for line in body.decode().splitlines():
        if line.startswith("data: {"):
            for c in json.loads(line[6:])["choices"]:
                streamed[c["index"]] += c["token_ids"]
    assert streamed == [c["token_ids"] for c in whole["choices"]]
    status, answer = ask(server, [7], logits_processors=["x.so"])
    assert status == 400 and answer["error"]["param"] == "logits_processors"


FAULTS = {
    "id": f"bias_ids[0]: token id {make_tiny.V} is not in 0 to {make_tiny.V - 1}",
    "negative": f"bias_ids[0]: token id -1 is not in 0 to {make_tiny.V - 1}",
    "nan": "bias_values[0], of token id 65, is not finite",
    "infinite": "bias_values[0], of token id 65, is not finite",
    "count": "n_bias 1025 is not in 0 to bias_capacity 1024",
    "uncount": "n_bias -1 is not in 0 to bias_capacity 1024",
    "bias-end": "it wrote past the end of its bias or mask",
    "mask-end": "it wrote past the end of its bias or mask",
    "fail": "it failed with status 13",
    "empty": "its masks leave no token",
}


@pytest.mark.parametrize("what", FAULTS)
def test_a_fault_ends_one_choice(serve, model, what):
    """After the two tokens there were; the engine goes on, and others are answered as ever."""
    server = serve(model, *LIMITS, *processors(f"{STUB}={what}")).ready()
    status, answer = ask(server, [[8, 9, 10], [7, 8, 9], [6, 7]], n=2)
    assert status == 200
    plain = [c for c in answer["choices"] if c["index"] // 2 != 1]
    faulty = [c for c in answer["choices"] if c["index"] // 2 == 1]
    assert [c["finish_reason"] for c in plain] == ["length"] * 4
    assert [c["finish_reason"] for c in faulty] == ["error"] * 2
    assert [len(c["token_ids"]) for c in faulty] == [2, 2]
    lines = server.lines_with(FAULTS[what], count=2)
    assert len(lines) == 2 and (what == "empty" or all("stub (" in x for x in lines)), server.log
    status, again = ask(server, [8, 9, 10])
    assert again["choices"][0]["token_ids"] == plain[0]["token_ids"]


def test_the_row_is_its_own_to_spoil(model):
    assert len(ids(model, *processors(f"{STUB}=pointers"))) == 40


def test_a_request_is_refused(serve, model):
    server = serve(model, *LIMITS, *processors(TRIGRAM, f"{STUB}=begin")).ready()
    status, answer = ask(server, [7, 8], n=2)
    assert status == 400
    assert re.fullmatch(r"logits processor stub \(.*stub_processor.so\): not this one",
                        answer["error"]["message"])
    status, answer = ask(server, [8, 7], n=2)
    assert status == 200 and len(answer["choices"]) == 2


# ---- those that cannot be used -----------------------------------------------------------------


@pytest.mark.parametrize("what,message", [
    ("missing.so", "No such file or directory"),
    ("text.so", "is no shared object"),
    ("", "no file"),
    ("stub_processor_none.so", "does not export headrace_logits_processor_get"),
    ("stub_processor_null.so", "headrace_logits_processor_get returned NULL"),
    ("stub_processor_version.so", "is of version 9, and this engine calls version 1"),
    ("stub_processor_short.so", "its struct has 24 bytes"),
    ("stub_processor_idle.so", "has no process function"),
    ("stub_processor.so=create", "could not be created: no such luck"),
    ("logits_processor_bias.so=a:b", "could not be created: 'a:b' is not ID:VALUE"),
    ("logits_processor_bias.so", "could not be created: '' is not ID:VALUE"),
])
def test_the_start_ends_with_a_sentence(model, tmp_path, what, message):
    (tmp_path / "text.so").write_text("not a library")
    path = what and (tmp_path if what in ("missing.so", "text.so") else BUILD) / what
    for before in ([], processors(TRIGRAM)):
        r = headrace("generate", model, "-p", "abc", *LIMITS, *before, *processors(path))
        assert r.returncode == 1 and message in r.stderr, r.stderr
        assert "--logits-processor " + str(path).split("=")[0] in r.stderr or not what


def test_flags_that_contradict_it(model):
    r = headrace("generate", model, "-p", "abc", *LIMITS, "--sampler", "greedy",
                 *processors(TRIGRAM))
    assert r.returncode == 1 and "--logits-processor" in r.stderr and "--sampler greedy" in r.stderr
    r = headrace("chat", "--url", "http://127.0.0.1:1", *processors(TRIGRAM))
    assert r.returncode != 0 and "--logits-processor needs MODEL" in r.stderr


def test_a_bare_name_is_a_file_here(model, tmp_path, monkeypatch):
    (tmp_path / "here.so").symlink_to(TRIGRAM)
    monkeypatch.chdir(tmp_path)
    assert len(set(trigrams(ids(model, *processors("here.so"))))) == 38
