"""`--sampler greedy`: the likeliest token is all that is built, and whoever wants more is told so by
the name of the field. What it answers is what a full sampler answers at temperature 0."""
import json

import pytest
from conftest import DEVICE, generate, headrace

import make_tiny

pytestmark = pytest.mark.device
LIMITS = ["--max-num-seqs", 4, "--max-num-batched-tokens", 32, "--max-model-len", 128]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("greedy") / "model"
    make_tiny.hf(path, "llama")
    defaults = {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1, "max_new_tokens": 5}
    (path / "generation_config.json").write_text(json.dumps(defaults))
    (path / "chat.jinja").write_text("{{ messages[0].content }}")
    return path


@pytest.fixture(scope="module")
def server(serve, model):
    return serve(model, *LIMITS, "--sampler", "greedy", "--chat-template",
                 model / "chat.jinja").ready()


def ask(server, **fields):
    return server.post("/v1/completions", {"prompt": "abcabc", "max_tokens": 8,
                                           "return_token_ids": True, **fields})


def test_it_answers_what_a_full_one_does(server, model):
    """A request that names no temperature is greedy there, whatever generation_config.json likes
    to draw with; its max_new_tokens stays."""
    want = generate(model, "-p", "abcabc", "--max-tokens", 8, "--temperature", 0,
                    "--repetition-penalty", 1, *LIMITS)[0]["choices"][0]["token_ids"]
    harmless = {"top_p": 0.5, "min_p": 0.2, "top_k": 3, "seed": 7, "stop_token_ids": [1]}
    for fields in ({}, {"temperature": 0}, {"temperature": 0, **harmless},
                   {"temperature": 1, "top_k": 1}):
        status, answer = ask(server, **fields)
        assert status == 200, answer
        assert answer["choices"][0]["token_ids"] == want, fields
    status, answer = ask(server, n=3)
    assert [c["token_ids"] for c in answer["choices"]] == [want] * 3
    status, answer = ask(server, max_tokens=None)
    assert len(answer["choices"][0]["token_ids"]) == 5


@pytest.mark.parametrize("field,value", [
    ("temperature", 0.5), ("presence_penalty", 1), ("frequency_penalty", 1),
    ("repetition_penalty", 1.2), ("min_tokens", 1), ("logit_bias", {"65": 1}),
    ("allowed_token_ids", [65]), ("bad_words", ["a"]), ("logprobs", 0), ("prompt_logprobs", 1),
    ("logprob_token_ids", [65]), ("sampling_trace", True), ("structured_outputs", {"choice": ["a"]}),
])
def test_anything_else_is_refused_by_name(server, field, value):
    status, answer = ask(server, **{field: value})
    assert status == 400
    assert answer["error"]["message"].startswith(field)
    assert "--sampler greedy" in answer["error"]["message"]


def test_chats(server):
    chat = {"messages": [{"role": "user", "content": "abc"}], "max_tokens": 4}
    status, answer = server.post("/v1/chat/completions", chat)
    assert status == 200 and answer["usage"]["completion_tokens"] == 4
    status, answer = server.post("/v1/chat/completions", {**chat, "logprobs": True})
    assert status == 400 and answer["error"]["message"].startswith("logprobs: ")


def test_nothing_more_is_built(model, tmp_path):
    made = {}
    for kind in ("full", "greedy"):
        generate(model, "-p", "abc", "--max-tokens", 2, "--temperature", 0, "--repetition-penalty",
                 1, *LIMITS, "--sampler", kind, "--manifest", tmp_path / kind)
        made[kind] = json.loads((tmp_path / kind).read_text())["programs"]
    names = {kind: {p["program"] for p in programs} for kind, programs in made.items()}
    assert names["full"] - names["greedy"] == {"prompt_logprobs", "tables"}
    assert names["greedy"] == {"backbone", "select", "sampler"}
    if not DEVICE:  # natively a step is a kernel: the final norm, the head, argmax and status
        steps = [p["steps"] for p in made["greedy"] if p["program"] == "sampler"]
        assert max(steps) <= 5, steps


@pytest.mark.parametrize("flags,message", [
    (["--sampler", "grey"], "sampler: 'grey' is not full or greedy"),
    (["--sampler", "greedy", "--logprobs-mode", "raw_logits"], "--logprobs-mode"),
    (["--sampler", "greedy", "--override-generation-config", '{"temperature": 0.4}'],
     "--override-generation-config: temperature 0.4"),
    (["--sampler", "greedy", "--override-generation-config", '{"repetition_penalty": 1.4}'],
     "--override-generation-config: repetition_penalty 1.4"),
])
def test_flags_that_contradict_it(model, flags, message):
    r = headrace("generate", model, "-p", "abc", *LIMITS, *flags)
    assert r.returncode != 0 and message in r.stderr


def test_full_is_the_default(model):
    one, = generate(model, "-p", "abc", "--max-tokens", 4, "--seed", 3, *LIMITS)
    other, = generate(model, "-p", "abc", "--max-tokens", 4, "--seed", 3, "--sampler", "full",
                      *LIMITS)
    assert one["choices"] == other["choices"]
