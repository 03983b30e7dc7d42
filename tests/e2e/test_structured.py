"""Structured outputs: an answer that is one of the texts, whatever draws it, and a caller's own
grammar. What is allowed where is worked out here by asking every token of the vocabulary."""
import asyncio
import json
import math
import re
import subprocess
from pathlib import Path

import pytest
from conftest import BIN, DEVICE, generate, headrace
from wire import Connection, choices_of, stream

import make_tiny

EOS = {make_tiny.V - 1, make_tiny.V - 3}  # config.json's and generation_config.json's
LIMITS = ["--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--max-model-len", 256]
COLOURS = [" red", " redder", " green", " 日本語", " blue\nsky"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("structured") / "model"
    make_tiny.hf(path, "llama")
    (path / "chat.jinja").write_text("{{ messages[0].content }}")
    return path


@pytest.fixture(scope="module")
def tiny(serve, model):
    return serve(model, *LIMITS, "--chat-template", model / "chat.jinja").ready()


def byte_letters():
    """GPT-2's letter for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [(b, chr(b)) for b in plain] + [(b, chr(256 + i)) for i, b in enumerate(others)]


def ask(server, choice, **fields):
    status, answer = server.post("/v1/completions", {
        "prompt": "abcabc", "max_tokens": 64, "return_token_ids": True,
        "structured_outputs": {"choice": choice}, **fields})
    assert status == 200, answer
    return answer


def texts(answer):
    assert {c["finish_reason"] for c in answer["choices"]} == {"stop"}
    return [c["text"] for c in answer["choices"]]


@pytest.mark.device
def test_every_answer_is_one_of_them(tiny):
    seen = set()
    for seed in range(6):
        seen |= set(texts(ask(tiny, COLOURS, n=16, temperature=2, seed=100 * seed)))
    assert seen <= set(COLOURS) and len(seen) >= 4
    assert texts(ask(tiny, COLOURS, temperature=0)) == texts(ask(tiny, COLOURS, temperature=0))
    for fields in ({"temperature": 0}, {"top_k": 1}, {"repetition_penalty": 5, "seed": 1},
                   {"frequency_penalty": 2, "presence_penalty": 2, "seed": 2},
                   {"min_p": 1, "seed": 3}, {"logit_bias": {str(i): -100 for i in range(60)}}):
        assert texts(ask(tiny, COLOURS, **fields))[0] in COLOURS
    assert texts(ask(tiny, ["only one"])) == ["only one"]
    assert texts(ask(tiny, ["ab"] * 5 + ["ab"])) == ["ab"]


@pytest.mark.device
def test_masks_are_what_the_texts_say(tiny):
    """Raw log-probabilities are taken after the mask: every byte that may come next has one, nothing
    else, and they sum to one. In the tiny vocabulary a token is a byte."""
    ids = {b: make_tiny.ALPHABET.index(c) for b, c in byte_letters()}
    answer = ask(tiny, COLOURS, temperature=2, seed=5, logprobs=20)
    done = b""
    for position, top in zip(answer["choices"][0]["token_ids"],
                             answer["choices"][0]["logprobs"]["top_logprobs"]):
        rest = [t.encode()[len(done):] for t in COLOURS if t.encode().startswith(done)]
        want = {ids[r[0]] for r in rest if r} | (EOS if b"" in rest else set())
        real = [v for v in top.values() if v > -9999]
        assert len(real) == len(want) and position in want
        assert math.isclose(sum(map(math.exp, real)), 1, rel_tol=1e-5)
        done += bytes(b for b, i in ids.items() if i == position)
    assert done.decode() in COLOURS


@pytest.mark.device
def test_neighbours_do_not_change(tiny):
    """Beside others, and beside plain requests, answers are what they are alone."""
    plain = {"prompt": "xyz", "max_tokens": 24, "temperature": 1, "seed": 3, "ignore_eos": True}
    alone = tiny.post("/v1/completions", plain)[1]["choices"][0]["text"]
    single = [texts(ask(tiny, COLOURS[:k], temperature=2, seed=k))[0] for k in (1, 2, 3)]

    async def together():
        async def one(body):
            async with Connection(tiny.port) as c:
                return json.loads((await c.post("/v1/completions", body)).body)
        bodies = [plain] + [{"prompt": "abcabc", "max_tokens": 64, "temperature": 2, "seed": k,
                             "structured_outputs": {"choice": COLOURS[:k]}} for k in (1, 2, 3)]
        return await asyncio.gather(*map(one, bodies * 3))
    answers = [a["choices"][0]["text"] for a in asyncio.run(together())]
    assert answers == [alone, *single] * 3


@pytest.mark.device
def test_streams_and_chats(tiny):
    body = {"prompt": "abcabc", "max_tokens": 64, "temperature": 2, "seed": 9, "n": 3,
            "structured_outputs": {"choice": COLOURS}}

    async def streamed(path, b):
        async with Connection(tiny.port) as c:
            return await stream(c, path, b)
    whole = [c["text"] for c in tiny.post("/v1/completions", body)[1]["choices"]]
    parts = choices_of(asyncio.run(streamed("/v1/completions", body)))
    assert [parts[i]["text"] for i in range(3)] == whole and set(whole) <= set(COLOURS)
    chat = {"messages": [{"role": "user", "content": "abcabc"}], "seed": 9, "temperature": 2,
            "guided_choice": ["yes", "no"]}
    answer = tiny.post("/v1/chat/completions", chat)[1]["choices"][0]
    parts = choices_of(asyncio.run(streamed("/v1/chat/completions", chat)))
    assert answer["message"]["content"] in ("yes", "no") and answer["finish_reason"] == "stop"
    assert parts[0]["message"]["content"] == answer["message"]["content"]


@pytest.mark.device
def test_limits_of_an_answer(tiny):
    answer = ask(tiny, ["abcdefgh"], max_tokens=3)["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("abc", "length")
    answer = ask(tiny, ["abcdefgh"], stop=["d"])["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("abc", "stop")
    # min_tokens bans the only token that the mask leaves, and so does allowed_token_ids
    answer = ask(tiny, ["ab"], min_tokens=10)["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("ab", "error")
    answer = ask(tiny, ["ab"], allowed_token_ids=sorted(EOS))["choices"][0]
    assert (answer["text"], answer["finish_reason"]) == ("", "error")
    assert texts(ask(tiny, ["ab"])) == ["ab"]  # and all others live on


@pytest.mark.parametrize("fields,word", [
    ({"structured_outputs": {"choice": []}}, "structured_outputs: choice: the list is empty"),
    ({"structured_outputs": {"choice": "a"}}, "structured_outputs: choice must be a list"),
    ({"structured_outputs": {"choice": ["a", 1]}}, "structured_outputs"),
    ({"structured_outputs": {"choice": ["a", ""]}}, "choice: text 1 is empty"),
    ({"structured_outputs": {"choice": ["a" * 4097]}}, "choice: text 0 has 4097 bytes"),
    ({"structured_outputs": {"choice": ["a"] * 1025}}, "structured_outputs: 1025 entries"),
    ({"structured_outputs": {}}, "structured_outputs: choice is missing"),
    ({"structured_outputs": ["a"]}, "structured_outputs: must be an object"),
    ({"structured_outputs": {"choice": ["a"]}, "guided_choice": ["b"]}, "has a choice already"),
    ({"structured_outputs": {"choice": ["a"]}, "ignore_eos": True}, "ignore_eos"),
    ({"structured_outputs": {"json": {}}}, "'json' is not supported"),
    ({"structured_outputs": {"choice": ["a"], "regex": "a"}}, "'regex' is not supported"),
])
def test_refusals(tiny, fields, word):
    status, answer = tiny.post("/v1/completions", {"prompt": "a", "max_tokens": 4, **fields})
    assert status in (400, 501), answer
    assert word in answer["error"]["message"]


def test_null_is_absent(tiny):
    status, answer = tiny.post("/v1/completions", {
        "prompt": "a", "max_tokens": 2, "structured_outputs": None, "guided_choice": None,
        "ignore_eos": True})
    assert status == 200 and answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.skipif(bool(DEVICE), reason="the size is that of float32 blocks")
def test_preemption_keeps_the_place(model):
    """Too few blocks for all: answers are computed again from the middle, and end as they would."""
    prompts = [chr(97 + i) * (20 + 3 * i) for i in range(12)]
    long = ["x" * 40 + str(i) + "y" * 40 for i in range(30)]
    flags = [f for t in long for f in ("--choice", t)]
    asked = [f for t in prompts for f in ("-p", t)]
    common = ["--seed", 4, "--temperature", 2, "--max-tokens", 90, "--max-num-seqs", 12,
              "--max-num-batched-tokens", 64, "--max-model-len", 256]
    want = [a["choices"][0]["text"] for a in generate(model, *asked, *flags, *common)]
    r = headrace("generate", model, "--json", "--stats", *asked, *flags, *common,
                 "--kv-cache-memory-bytes", 2 * 2 * 2 * 32 * 4 * 16 * 24)
    assert "preemptions" in r.stderr and "(0 preemptions)" not in r.stderr
    got = [json.loads(line)["choices"][0] for line in r.stdout.splitlines()]
    assert [c["text"] for c in got] == want and set(want) <= set(long)
    assert {c["finish_reason"] for c in got} == {"stop"}


def test_recorded_and_replayed(tiny, model, tmp_path):
    answer = ask(tiny, COLOURS, temperature=2, seed=11, n=2, sampling_trace=True)
    (tmp_path / "answer.json").write_text(json.dumps(answer))
    r = headrace("replay", tmp_path / "answer.json", model)
    assert r.returncode == 0 and "equal" in r.stdout, (r.stdout, r.stderr)


def test_real_vocabulary(smollm2):
    """Many tokens spell a text there; which ones is the model's to say."""
    names = [" Paris", " Parisian", " London", " Lon", " 東京", " New York City, U.S.A."]
    flags = [f for t in names for f in ("--choice", t)]
    best, = generate(smollm2, "-p", "The capital of France is", "--temperature", 0, "--choice",
                     " London", "--choice", " Paris", "--choice", " 東京")
    assert best["choices"][0]["text"] == " Paris"
    answer, = generate(smollm2, "-p", "The capital of France is", "--temperature", 2, "--seed", 1,
                       "--n", 32, "--max-num-seqs", 32, *flags)
    seen = {c["text"] for c in answer["choices"]}
    assert seen <= set(names) and len(seen) >= 4
    spellings = {tuple(c["token_ids"]) for c in answer["choices"]}
    assert len(spellings) > len(seen)


def test_grammar_of_the_example(smollm2):
    program = Path(BIN).parent / "example_grammar"
    for _ in range(3):
        r = subprocess.run([program, str(smollm2), "It was on "], capture_output=True, text=True,
                           timeout=120)
        assert r.returncode == 0 and re.fullmatch(r"\d{4}-\d\d-\d\d\n", r.stdout), r
