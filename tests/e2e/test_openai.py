"""The endpoints through the clients that people use: the official `openai` package (sync, async,
streams) and curl."""
import asyncio
import json
import math
import subprocess

import openai
import pytest
from conftest import generate, headrace

pytestmark = pytest.mark.device
SERVER_FLAGS = ["--max-num-seqs", 16, "--max-num-batched-tokens", 512, "--max-model-len", 512]
MODEL = "smollm2-135m"
TEXT = "The capital of France is"
GREEDY = {"temperature": 0, "seed": 1}
ASK = [{"role": "system", "content": "You are terse."},
       {"role": "user", "content": "Name three colours."}]


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)


def completion(server, **fields):
    status, body = server.post("/v1/completions", {"model": MODEL, **fields})
    assert status == 200, body
    return body


def chat(server, **fields):
    status, body = server.post("/v1/chat/completions", {"messages": ASK, **fields})
    assert status == 200, body
    return body


def chunks(server, path, **fields):
    """The data lines of a stream, strictly read: nothing but events, [DONE] last."""
    status, headers, body = server.request(path, {"stream": True, **fields})
    assert status == 200, body
    assert headers["Content-Type"].startswith("text/event-stream")
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""], events[-3:]
    assert all(e.startswith("data: ") and "\n" not in e for e in events[:-1])
    return [json.loads(e[6:]) for e in events[:-2]]


def joined(stream, chat_shape):
    """Text and finish reason per choice."""
    texts, ends = {}, {}
    for c in stream:
        for choice in c["choices"]:
            piece = choice["delta"].get("content") if chat_shape else choice["text"]
            texts[choice["index"]] = texts.get(choice["index"], "") + (piece or "")
            if choice["finish_reason"]:
                assert choice["index"] not in ends
                ends[choice["index"]] = choice["finish_reason"], choice["stop_reason"]
    return texts, ends


# ---- the official client --------------------------------------------------------------------------

def test_models(client, server):
    models = client.models.list().data
    assert [m.id for m in models] == [MODEL]
    assert models[0].max_model_len == 512 and models[0].object == "model"
    assert server.get("/v1/models")[0] == 200


def test_chat_and_its_stream_are_the_same(client):
    whole = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=40, **GREEDY)
    choice = whole.choices[0]
    assert whole.id.startswith("chatcmpl-") and whole.object == "chat.completion"
    assert choice.message.role == "assistant" and choice.message.content
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    stream = list(client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=40, stream=True,
        stream_options={"include_usage": True}, **GREEDY))
    assert stream[0].choices[0].delta.role == "assistant"
    assert not stream[0].choices[0].delta.content
    text = "".join(c.choices[0].delta.content or "" for c in stream if c.choices)
    assert text == choice.message.content
    assert [c.choices[0].finish_reason for c in stream if c.choices and
            c.choices[0].finish_reason] == [choice.finish_reason]
    assert stream[-1].choices == [] and stream[-1].usage == whole.usage
    assert len({c.id for c in stream}) == 1 and stream[0].object == "chat.completion.chunk"
    assert {c.system_fingerprint for c in stream} == {whole.system_fingerprint}
    assert whole.system_fingerprint.startswith("fp_")


def test_completions_and_their_stream_are_the_same(client):
    whole = client.completions.create(model=MODEL, prompt=TEXT, max_tokens=24, **GREEDY)
    assert whole.id.startswith("cmpl-") and whole.object == "text_completion"
    stream = list(client.completions.create(model=MODEL, prompt=TEXT, max_tokens=24, stream=True,
                                            **GREEDY))
    assert "".join(c.choices[0].text for c in stream) == whole.choices[0].text
    assert stream[-1].choices[0].finish_reason == whole.choices[0].finish_reason == "length"
    assert whole.usage.completion_tokens == 24


def test_many_at_once(server):
    """Sixteen streams and sixteen answers side by side: each what it is alone."""
    async def go():
        async with openai.AsyncOpenAI(base_url=server.address + "/v1", api_key="none",
                                      max_retries=0) as a:
            async def whole(i):
                r = await a.completions.create(model=MODEL, prompt=f"{i} and", max_tokens=12,
                                               seed=i, temperature=0.8)
                return r.choices[0].text

            async def stream(i):
                s = await a.completions.create(model=MODEL, prompt=f"{i} and", max_tokens=12,
                                               seed=i, temperature=0.8, stream=True)
                return "".join([c.choices[0].text async for c in s])
            n = range(16)
            both = await asyncio.gather(*[whole(i) for i in n], *[stream(i) for i in n])
            alone = [await whole(i) for i in n]
            return both, alone
    both, alone = asyncio.run(go())
    assert both == alone + alone and len(set(alone)) == 16


def test_curl(server):
    def curl(path, body, *more):
        r = subprocess.run(["curl", "-sS", "-N", "--fail-with-body", *more, server.address + path,
                            "-H", "Content-Type: application/json", "-d", json.dumps(body)],
                           capture_output=True, text=True, timeout=60)
        assert r.returncode == 0, r.stderr
        return r.stdout
    body = {"prompt": TEXT, "max_tokens": 8, **GREEDY}
    whole = json.loads(curl("/v1/completions", body))
    lines = curl("/v1/completions", {**body, "stream": True}).split("\n\n")
    assert lines[-2] == "data: [DONE]"
    text = "".join(json.loads(x[6:])["choices"][0]["text"] for x in lines[:-2])
    assert text == whole["choices"][0]["text"]
    old = curl("/v1/completions", {**body, "stream": True}, "--http1.0")
    assert old.endswith("data: [DONE]\n\n") and old.count("data: ") == len(lines) - 1


def test_the_command_line_gives_the_same(server, smollm2):
    """The server adds nothing to the engine's answers and takes nothing away."""
    flags = SERVER_FLAGS + ["--max-tokens", 12, "--seed", 5, "--logprobs", 2]
    answer, = generate(smollm2, "-p", TEXT, *flags)
    want = answer["choices"][0]
    got = completion(server, prompt=TEXT, max_tokens=12, seed=5, logprobs=2, return_token_ids=True)
    choice = got["choices"][0]
    assert choice["text"] == want["text"] and choice["token_ids"] == want["token_ids"]
    assert choice["prompt_token_ids"] == answer["prompt_token_ids"]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx(
        [e["logprob"] for e in want["logprobs"]], rel=2e-7)
    assert got["numerics"] == answer["numerics"] and choice["seed"] == 5


# ---- prompts --------------------------------------------------------------------------------------

def test_prompts_in_all_forms(server):
    ids = server.post("/tokenize", {"prompt": TEXT})[1]["tokens"]
    other = server.post("/tokenize", {"prompt": "Once upon"})[1]["tokens"]
    want = [c["text"] for c in completion(server, prompt=[TEXT, "Once upon"], max_tokens=5,
                                          **GREEDY)["choices"]]
    for prompt in ([ids, other], [TEXT, "Once upon"]):
        body = completion(server, prompt=prompt, max_tokens=5, **GREEDY)
        assert [c["text"] for c in body["choices"]] == want
        assert [c["index"] for c in body["choices"]] == [0, 1]
        assert body["usage"] == {"prompt_tokens": len(ids) + len(other), "completion_tokens": 10,
                                 "total_tokens": len(ids) + len(other) + 10,
                                 "prompt_tokens_details": None}
    for prompt in (TEXT, [TEXT], ids, [ids]):
        body = completion(server, prompt=prompt, max_tokens=5, **GREEDY)
        assert [c["text"] for c in body["choices"]] == want[:1]


def test_choices_of_several_prompts(server):
    fields = {"prompt": ["a b", "c d"], "n": 3, "max_tokens": 6, "temperature": 1, "seed": 40}
    body = completion(server, **fields)
    assert [c["index"] for c in body["choices"]] == list(range(6))
    assert [c["seed"] for c in body["choices"]] == [40, 41, 42] * 2
    texts, ends = joined(chunks(server, "/v1/completions", **fields), False)
    assert texts == {c["index"]: c["text"] for c in body["choices"]}
    assert ends == {i: ("length", None) for i in range(6)}
    one = completion(server, prompt="c d", max_tokens=6, temperature=1, seed=42)
    assert one["choices"][0]["text"] == body["choices"][5]["text"]


def test_as_many_answers_as_one_may_ask_for(server):
    body = completion(server, prompt=["a", "b"], n=512, max_tokens=1, seed=0, temperature=2.0)
    assert len(body["choices"]) == 1024 == body["usage"]["completion_tokens"]
    assert [c["seed"] for c in body["choices"]] == [*range(512)] * 2
    stream = chunks(server, "/v1/completions", prompt=["a", "b"], n=16, max_tokens=1, seed=0,
                    temperature=2.0)
    texts, ends = joined(stream, False)
    same = body["choices"][:16] + body["choices"][512:528]
    assert [texts[i] for i in range(32)] == [c["text"] for c in same] and len(ends) == 32
    assert [c["numerics"] for c in stream if "numerics" in c] == [body["numerics"]]


def test_a_drawn_seed_is_told(server):
    first = completion(server, prompt=TEXT, max_tokens=10, temperature=1.5)["choices"][0]
    again = completion(server, prompt=TEXT, max_tokens=10, temperature=1.5, seed=first["seed"])
    assert again["choices"][0]["text"] == first["text"]
    assert chunks(server, "/v1/completions", prompt=TEXT, max_tokens=10, temperature=1.5,
                  seed=first["seed"])[-1]["choices"][0]["seed"] == first["seed"]


def test_defaults_of_max_tokens(server):
    assert completion(server, prompt=TEXT, ignore_eos=True)["usage"]["completion_tokens"] == 16
    ids = [i % 1000 + 100 for i in range(507)]
    body = completion(server, prompt=ids, ignore_eos=True)
    assert body["usage"]["completion_tokens"] == 5  # what is left of the context
    body = chat(server, ignore_eos=True, min_tokens=20, max_completion_tokens=20, max_tokens=3)
    assert body["usage"]["completion_tokens"] == 20


def test_chat_roles_parts_and_templates(server):
    def ids(**fields):
        status, body = server.post("/tokenize", fields)
        assert status == 200, body
        return body["tokens"]
    parts = [{"role": "user", "content": [{"type": "text", "text": "one"},
                                          {"type": "text", "text": "two"}]}]
    assert ids(messages=parts) == ids(messages=[{"role": "user", "content": "one\ntwo"}])
    talk = [*ASK, {"role": "assistant", "content": "Red"}]
    opened = ids(messages=talk, add_generation_prompt=False)
    going_on = ids(messages=talk, continue_final_message=True)
    assert opened[:len(going_on)] == going_on and len(opened) > len(going_on)
    assert ids(messages=talk)[:len(opened)] == opened
    body = chat(server, messages=talk, continue_final_message=True, max_tokens=5,
                return_token_ids=True, **GREEDY)
    assert body["prompt_token_ids"] == going_on
    told = chat(server, messages=talk, continue_final_message=True, max_tokens=5, echo=True,
                **GREEDY)
    text = body["choices"][0]["message"]["content"]
    assert told["choices"][0]["message"]["content"] == "Red" + text
    texts, _ = joined(chunks(server, "/v1/chat/completions", messages=talk, max_tokens=5,
                             continue_final_message=True, echo=True, **GREEDY), True)
    assert texts == {0: "Red" + text}


def test_tools_pass_through(server):
    """A template that knows no tools leaves them out; assistants may have called some."""
    tool = {"type": "function", "function": {"name": "now", "parameters": {}}}
    talk = [ASK[1], {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "now", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"}]
    for choice in ("auto", "none"):
        body = chat(server, messages=ASK, tools=[tool], tool_choice=choice, max_tokens=3)
        assert body["choices"][0]["message"]["tool_calls"] == []
    status, body = server.post("/v1/chat/completions", {"messages": talk, "tools": [tool],
                                                        "max_tokens": 3})
    # this model's template concatenates content: null is its own refusal, a 400
    assert status == 200 or (status == 400 and "template" in body["error"]["message"])
    talk[1]["content"] = ""
    assert chat(server, messages=talk, tools=[tool], max_tokens=3)["choices"]


# ---- log-probabilities ----------------------------------------------------------------------------

def test_legacy_logprobs(server):
    body = completion(server, prompt=TEXT, max_tokens=8, logprobs=3, **GREEDY)
    choice = body["choices"][0]
    lp = choice["logprobs"]
    assert "".join(lp["tokens"]) == choice["text"]
    assert len({len(lp[k]) for k in ("tokens", "token_logprobs", "top_logprobs",
                                     "text_offset")}) == 1
    at = 0
    for token, p, top, offset in zip(lp["tokens"], lp["token_logprobs"], lp["top_logprobs"],
                                     lp["text_offset"]):
        assert offset == at and 3 <= len(top) <= 4 and list(top)[0] == token
        assert top[token] == p == max(top.values())  # greedy
        at += len(token)
    stream = chunks(server, "/v1/completions", prompt=TEXT, max_tokens=8, logprobs=3, **GREEDY)
    parts = [c["choices"][0]["logprobs"] for c in stream if c["choices"][0]["logprobs"]]
    assert {k: sum((p[k] for p in parts), []) for k in lp} == lp
    none = completion(server, prompt=TEXT, max_tokens=8, logprobs=0, **GREEDY)["choices"][0]
    assert [list(t) for t in none["logprobs"]["top_logprobs"]] == [[t] for t in lp["tokens"]]


def test_chat_logprobs(server):
    body = chat(server, max_tokens=8, logprobs=True, top_logprobs=4, **GREEDY)
    choice = body["choices"][0]
    content = choice["logprobs"]["content"]
    assert len(content) == body["usage"]["completion_tokens"]
    shown = content[:-1] if choice["finish_reason"] == "stop" else content
    raw = b"".join(bytes(e["bytes"]) for e in shown)
    assert raw.decode("utf-8", "replace") == choice["message"]["content"]
    for e in content:
        top = [t["logprob"] for t in e["top_logprobs"]]
        assert len(top) == 4 and top == sorted(top, reverse=True)
        assert e["top_logprobs"][0]["token"] == e["token"] and top[0] == e["logprob"] <= 0
        assert sum(map(math.exp, top)) <= 1 + 1e-6
    plain = chat(server, max_tokens=8, logprobs=True, **GREEDY)["choices"][0]["logprobs"]
    assert [e["logprob"] for e in plain["content"]] == [e["logprob"] for e in content]
    assert all(e["top_logprobs"] == [] for e in plain["content"])
    stream = chunks(server, "/v1/chat/completions", messages=ASK, max_tokens=8, logprobs=True,
                    top_logprobs=4, **GREEDY)
    assert sum((c["choices"][0]["logprobs"]["content"] for c in stream
                if c["choices"][0]["logprobs"]), []) == content


def test_tokens_as_ids_and_named_ids(server):
    fields = {"prompt": TEXT, "max_tokens": 4, "logprobs": 1, "return_token_ids": True,
              "return_tokens_as_token_ids": True, "logprob_token_ids": [5, 6, 7], **GREEDY}
    body = completion(server, **fields)
    choice = body["choices"][0]
    assert choice["logprobs"]["tokens"] == [f"token_id:{i}" for i in choice["token_ids"]]
    for top in choice["logprobs"]["top_logprobs"]:
        assert {"token_id:5", "token_id:6", "token_id:7"} <= set(top)
    stream = chunks(server, "/v1/completions", **fields)
    assert sum((c["choices"][0].get("token_ids", []) for c in stream), []) == choice["token_ids"]
    assert stream[0]["choices"][0]["prompt_token_ids"] == choice["prompt_token_ids"]
    named = chat(server, max_tokens=2, logprob_token_ids=[5, 6], **GREEDY)
    assert [len(e["top_logprobs"]) for e in named["choices"][0]["logprobs"]["content"]] == [2, 2]


def test_echo(server):
    answer = completion(server, prompt=TEXT, max_tokens=4, **GREEDY)["choices"][0]["text"]
    ids = server.post("/tokenize", {"prompt": TEXT})[1]["tokens"]
    for prompt in (TEXT, ids):
        body = completion(server, prompt=prompt, max_tokens=4, echo=True, **GREEDY)
        assert body["choices"][0]["text"] == TEXT + answer
        assert body["choices"][0]["logprobs"] is None
        body = completion(server, prompt=prompt, max_tokens=4, echo=True, logprobs=2, n=2, **GREEDY)
        texts, _ = joined(chunks(server, "/v1/completions", prompt=prompt, max_tokens=4, n=2,
                                 echo=True, logprobs=2, **GREEDY), False)
        for choice in body["choices"]:
            lp = choice["logprobs"]
            assert choice["text"] == TEXT + answer == texts[choice["index"]]
            assert "".join(lp["tokens"]) == choice["text"] and len(lp["tokens"]) == len(ids) + 4
            assert lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
            assert lp["text_offset"] == [len("".join(lp["tokens"][:i]))
                                         for i in range(len(lp["tokens"]))]
            assert all(p <= 0 for p in lp["token_logprobs"][1:])


def test_scoring_a_prompt(server):
    """max_tokens 0 with echo: what the model would say is not generated."""
    body = completion(server, prompt=TEXT, max_tokens=0, echo=True, logprobs=1)
    choice = body["choices"][0]
    assert choice["text"] == TEXT and body["usage"]["completion_tokens"] == 0
    assert choice["finish_reason"] == "length"
    n = body["usage"]["prompt_tokens"]
    assert len(choice["logprobs"]["tokens"]) == n
    plain = completion(server, prompt=TEXT, max_tokens=0, echo=True)["choices"][0]
    assert plain["text"] == TEXT and plain["logprobs"] is None
    told = completion(server, prompt=TEXT, max_tokens=1, prompt_logprobs=1)["choices"][0]
    assert told["prompt_logprobs"][0] is None and len(told["prompt_logprobs"]) == n
    for want, got, token in zip(choice["logprobs"]["token_logprobs"][1:],
                                told["prompt_logprobs"][1:], choice["logprobs"]["tokens"][1:]):
        first = next(iter(got.values()))
        assert first["logprob"] == want and first["decoded_token"] == token
        assert first["rank"] >= 1 and len(got) == (1 if first["rank"] == 1 else 2)
        assert all(int(k) >= 0 for k in got)
    spoken = chat(server, max_tokens=1, prompt_logprobs=0)
    assert len(spoken["prompt_logprobs"]) == spoken["usage"]["prompt_tokens"]
    texts, ends = joined(chunks(server, "/v1/completions", prompt=TEXT, max_tokens=0, echo=True,
                                logprobs=1), False)
    assert texts == {0: TEXT} and ends == {0: ("length", None)}


# ---- streams --------------------------------------------------------------------------------------

@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_usage_in_streams(server, path):
    """E04: a chunk of its own, only when asked for."""
    prompt = {"prompt": TEXT} if path == "/v1/completions" else {"messages": ASK}
    fields = {**prompt, "max_tokens": 5, "ignore_eos": True, **GREEDY}
    for options in (None, {"include_usage": False}, {}, {"include_usage": None}):
        stream = chunks(server, path, stream_options=options, **fields)
        assert all(c["choices"] and "usage" not in c for c in stream)
    stream = chunks(server, path, stream_options={"include_usage": True}, **fields)
    assert stream[-1]["choices"] == [] and stream[-1]["usage"]["completion_tokens"] == 5
    assert all(c["usage"] is None and len(c["choices"]) == 1 for c in stream[:-1])
    stream = chunks(server, path, stream_options={"include_usage": True,
                                                  "continuous_usage_stats": True}, **fields)
    counts = [c["usage"]["completion_tokens"] for c in stream]
    assert counts == sorted(counts) and counts[-1] == 5 and counts[0] <= 1
    assert len({c["usage"]["prompt_tokens"] for c in stream}) == 1


def stops_of(text):
    """Stop strings inside a text that cross its words, so that no token holds one; a list whose
    first member never comes."""
    at = [i for i in range(3, len(text) - 3) if text[i] == " "]
    at = at if len(at) > 3 else range(3, len(text) - 3, 5)  # a small model's text has few words
    a, b = (text[i - 2:i + 3] for i in (at[1], at[3]))
    return [a], b, ["zzz", text[at[2]:at[3] + 2], b]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_stop_strings(server, path):
    """E01: stop strings over several tokens, streamed and whole."""
    is_chat = path != "/v1/completions"
    fields = {"max_tokens": 16, **GREEDY,
              **({"messages": ASK} if is_chat else {"prompt": "Once upon a time, there"})}

    def ask(**more):
        status, body = server.post(path, {**fields, **more})
        assert status == 200, body
        choice = body["choices"][0]
        return choice["message"]["content"] if is_chat else choice["text"], choice
    text, _ = ask()
    for stop in stops_of(text):
        stops = [stop] if isinstance(stop, str) else stop
        at, found = min((text.find(s), s) for s in stops if s in text)
        got, choice = ask(stop=stop)
        assert (got, choice["finish_reason"]) == (text[:at], "stop")
        assert choice["stop_reason"] == found
        texts, ends = joined(chunks(server, path, stop=stop, **fields), is_chat)
        assert texts == {0: text[:at]} and ends == {0: ("stop", found)}
        assert ask(stop=stop, include_stop_str_in_output=True)[0] == text[:at] + found


def test_stop_ids(server):
    ids = completion(server, prompt=TEXT, max_tokens=6, return_token_ids=True,
                     **GREEDY)["choices"][0]["token_ids"]
    choice = completion(server, prompt=TEXT, max_tokens=6, stop_token_ids=[ids[3]],
                        **GREEDY)["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_reason"] == ids[3]


def test_stream_interval_and_the_log_as_json(serve, smollm2):
    s = serve(smollm2.parent.name, *SERVER_FLAGS, "--stream-interval", 4, "--log-format", "json",
              "--response-role", "bot", "--served-model-name", "a", "--served-model-name",
              "b").ready()
    stream = chunks(s, "/v1/chat/completions", messages=ASK, max_tokens=10, ignore_eos=True,
                    return_token_ids=True, **GREEDY)
    sizes = [len(c["choices"][0].get("token_ids", [])) for c in stream]
    assert sizes == [0, 1, 4, 4, 1]  # the role, the first at once, then by four
    assert stream[0]["choices"][0]["delta"]["role"] == "bot" and stream[0]["model"] == "a"
    assert [m["id"] for m in json.loads(s.get("/v1/models")[2])["data"]] == ["a", "b"]
    assert s.post("/v1/completions", {"model": "b", "prompt": "x", "max_tokens": 1})[1][
        "model"] == "b"
    assert s.stop() == 0
    entries = [json.loads(x) for x in s.lines if x.startswith('{"event":"request"')]
    assert [e["output_tokens"] for e in entries] == [10, 1]
    assert entries[0]["finish_reason"] == "length" and entries[0]["status"] == 200
    assert 0 <= entries[0]["queue_s"] <= entries[0]["ttft_s"] <= entries[0]["total_s"]


# ---- names, bookkeeping ---------------------------------------------------------------------------

def test_ids_and_their_sources(server):
    fields = {"prompt": TEXT, "max_tokens": 1}
    header = {"X-Request-Id": "abc-1"}
    body = server.post("/v1/completions", {**fields, "request_id": "mine"}, headers=header)[1]
    assert body["id"] == "cmpl-abc-1"
    body = server.post("/v1/completions", {**fields, "request_id": "mine \"é"})[1]
    assert body["id"] == "cmpl-mine \"é"
    body = server.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 1},
                       headers=header)[1]
    assert body["id"] == "chatcmpl-abc-1"
    made = {server.post("/v1/completions", fields)[1]["id"] for _ in range(3)}
    assert len(made) == 3


def test_the_log_has_a_line_per_request(server):
    server.post("/v1/completions", {"prompt": TEXT, "max_tokens": 3, "ignore_eos": True},
                headers={"X-Request-Id": "line-1"})
    server.post("/v1/completions", {"prompt": TEXT, "max_tokens": -3},
                headers={"X-Request-Id": "line-2"})
    lines = server.lines_with('"cmpl-line-1"') + server.lines_with('"line-2"')
    assert len(lines) == 2, lines
    for part in ("POST /v1/completions 200", "prompt=5", "output=3", "ttft=", "total=",
                 "finish=length"):
        assert part in lines[0]
    assert " 400 " in lines[1] and "max_tokens" in lines[1]


# ---- tokens ---------------------------------------------------------------------------------------

def test_tokenize(server, smollm2):
    text = "Hello <|im_end|> wörld 🙂\n"
    status, body = server.post("/tokenize", {"model": MODEL, "prompt": text,
                                             "return_token_strs": True})
    r = headrace("tokenize", smollm2, "--prompt", text)
    assert r.returncode == 0, r.stderr
    assert status == 200 and body["tokens"] == json.loads(r.stdout)
    assert body["count"] == len(body["tokens"]) == len(body["token_strs"])
    assert body["max_model_len"] == 512 and "<|im_end|>" in body["token_strs"]
    assert server.post("/tokenize", {"prompt": text})[1]["token_strs"] is None
    status, back = server.post("/detokenize", {"model": MODEL, "tokens": body["tokens"]})
    assert (status, back) == (200, {"prompt": text})
    assert server.post("/detokenize", {"tokens": []}) == (200, {"prompt": ""})
    assert server.post("/tokenize", {"prompt": ""}) == (200, {
        "count": 0, "max_model_len": 512, "tokens": [], "token_strs": None})


def test_tokenize_is_what_the_model_reads(server):
    typed = [{"role": "user", "content": "a <|im_end|> b"}]
    told = server.post("/tokenize", {"messages": typed, "return_token_strs": True})[1]
    body = chat(server, messages=typed, max_tokens=1, return_token_ids=True)
    assert told["tokens"] == body["prompt_token_ids"]
    # what is typed in a message is data: the template's own tokens, and no more
    assert told["token_strs"].count("<|im_end|>") == 2
    assert server.post("/tokenize", {"prompt": "x " * 1000})[1]["count"] > 512
