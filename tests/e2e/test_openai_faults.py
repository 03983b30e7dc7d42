"""What must not go wrong behind the endpoints: every row of the error table, and the known faults of
engines like this one (the letters name the report: A sampler, B shapes and caches, C text, E API)."""
import concurrent.futures
import json
import re
import socket
import threading
import time
from random import Random

import pytest
from conftest import ROOT
from conftest import SERVER_FLAGS as USUAL
from test_faults import with_nan

import make_tiny

SERVER_FLAGS = ["--max-num-seqs", 16, "--max-num-batched-tokens", 128, "--max-model-len", 512,
                "--enable-prompt-tokens-details"]
V = 49152
TEXT = "The capital of France is"
ASK = [{"role": "user", "content": "Say hello."}]
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
BOTH = [(COMPLETIONS, {"prompt": TEXT}), (CHAT, {"messages": ASK})]


def strict(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")
    return json.loads(text, parse_constant=refuse)


def ask(server, path, body, **more):
    """Status, parsed body. Whatever the status: strict JSON, and errors in the one shape."""
    status, headers, text = server.request(path, body, **more)
    assert headers["Content-Type"] == "application/json"
    answer = strict(text.decode("utf-8", "strict"))
    if status != 200:
        e = answer["error"]
        assert set(answer) == {"error"} and set(e) == {"message", "type", "param", "code"}
        assert e["code"] == status and e["message"] and isinstance(e["message"], str)
        assert e["type"] == {400: "BadRequestError", 404: "NotFoundError",
                             503: "ServiceUnavailableError"}.get(status, e["type"])
    return status, answer


def text_of(server, **fields):
    status, body = ask(server, COMPLETIONS, {"prompt": TEXT, "max_tokens": 7, **fields})
    assert status == 200, body
    return body["choices"][0]["text"]


def refused(server, fields, param, path=COMPLETIONS, status=400):
    prompt = dict(BOTH)[path]
    got, body = ask(server, path, {**prompt, "max_tokens": 2, **fields})
    assert got == status, (fields, body)
    assert body["error"]["param"] == param, body
    if param:
        assert param in body["error"]["message"] or param == "model"
    return body["error"]["message"]


@pytest.fixture(autouse=True)
def alive(request):
    """Whatever a test sent: the server answers as before."""
    yield
    if "server" in request.fixturenames:
        assert request.getfixturevalue("server").get("/health")[0] == 200


@pytest.fixture(scope="module")
def calm(server):
    return text_of(server, temperature=0)


# ---- what is wrong with a request -----------------------------------------------------------------

NUMBERS = {
    "temperature": [-0.1, 2.1, "1", True],
    "top_p": [0, -0.1, 1.5, "0.9"],                                              # A03
    "min_p": [-0.1, 1.1],
    "top_k": [-2, 1.5, "40"],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1, []],
    "repetition_penalty": [0, -1],
    "n": [0, 1025, 1.5, "2", -1],
    "seed": [-2**63 - 1, 2**63, 2**64, 1.5, "7"],                                # E12
    "max_tokens": [-1, 0, 1.5, 10**18, 2147483647, 511, 2**63, "5", False],
    "min_tokens": [-1, 3, 2**64, 1.5],
    "prompt_logprobs": [-1, 21, "1"],
    "priority": [1, 2**63, "high"],
}
LISTS = {
    "stop": [["a"] * 65, [""], "", [1], 5, {"a": 1}, ["a\u0000b"]],
    "stop_token_ids": [[V], [-1], [10**7], [1.5], 5, ["a"], [1] * 65, [2**64]],  # A10
    "allowed_token_ids": [[], [-1], [V], ["a"], 7],
    "logit_bias": [{"10000000": 5}, {"-1": 5}, {"abc": 1}, {"1": "x"}, [1], {"": 1}, {str(V): 1},
                   {str(i): 1 for i in range(1025)}, {"1.0": 1}],
    "bad_words": [[""], ["a"] * 129, 7, [7]],
    "logprob_token_ids": [[V], [-1], [0] * 129],
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
@pytest.mark.parametrize("field", [*NUMBERS, *LISTS])
def test_values_out_of_range(server, path, field):
    for value in (NUMBERS | LISTS)[field]:
        refused(server, {field: value}, field, path)


def raw(**fields):
    """A body whose numbers are written as given."""
    members = [f'"prompt": "{TEXT}", "temperature": 0'] + [f'"{k}": {v}' for k, v in fields.items()]
    return ("{" + ", ".join(members) + "}").encode()


def test_e12_spellings_of_integers(server):
    whole = ask(server, COMPLETIONS, raw(max_tokens="6.0"))[1]["choices"][0]["text"]
    assert whole == ask(server, COMPLETIONS, raw(max_tokens="6"))[1]["choices"][0]["text"]
    assert whole == ask(server, COMPLETIONS, raw(max_tokens="0.6e1"))[1]["choices"][0]["text"]
    for seed in (-2**63, -2**63 + 1, -1, 0, 2**63 - 1):
        status, body = ask(server, COMPLETIONS, raw(max_tokens=2, seed=seed))
        assert status == 200
        assert body["choices"][0]["seed"] == seed or seed == -1
    for bad in ("1e400", "-1e400", "1.5", "9223372036854775808", "1e19"):
        status, body = ask(server, COMPLETIONS, raw(max_tokens=2, seed=bad))
        assert status == 400 and body["error"]["param"] == "seed"
    for field in ("temperature", "top_p", "frequency_penalty"):
        status, body = ask(server, COMPLETIONS, f'{{"prompt": "a", "{field}": 1e400}}'.encode())
        assert status == 400 and body["error"]["param"] == field
    status, body = ask(server, COMPLETIONS, b'{"prompt": "a", "logit_bias": {"1": -1e400}}')
    assert status == 400 and body["error"]["param"] == "logit_bias"
    again = [ask(server, COMPLETIONS, {"prompt": TEXT, "max_tokens": 6, "temperature": 1.5,
                                       "seed": -2**63})[1]["choices"][0]["text"] for _ in range(2)]
    assert again[0] == again[1]


def test_lengths_name_the_limit(server):
    for fields in ({"max_tokens": 512}, {"max_tokens": 2147483647}, {"max_tokens": 10**18}):
        assert "512" in refused(server, fields, "max_tokens")
    for prompt in ([5] * 512, [5] * 600, "x " * 600):
        status, body = ask(server, COMPLETIONS, {"prompt": prompt})
        assert status == 400 and "max_model_len" in body["error"]["message"]
        assert "512" in body["error"]["message"] and body["error"]["param"] == "prompt"
    status, body = ask(server, CHAT, {"messages": [{"role": "user", "content": "x " * 600}]})
    assert status == 400 and "max_model_len" in body["error"]["message"]
    assert body["error"]["param"] == "messages"
    assert ask(server, COMPLETIONS, {"prompt": [5] * 511})[0] == 200
    # in a stream, too, before it begins
    status, body = ask(server, COMPLETIONS, {"prompt": ["a", "x " * 600], "stream": True})
    assert status == 400 and "max_model_len" in body["error"]["message"]


PROMPTS = [None, [], [[]], [[], [1]], 5, {"a": 1}, [1, "a"], ["a", 1], ["a", [1]], [[1], "a"],
           [[1], 1], [True], [1.5], [-1], [V], [5279552648203111001], [2**64], [[-1]], ["a"] * 1025,
           [None], True, ""]


def test_prompts_that_are_none(server, calm):
    for prompt in PROMPTS:
        status, body = ask(server, COMPLETIONS, {"prompt": prompt, "max_tokens": 2})
        assert status == 400 and body["error"]["param"] == "prompt", (prompt, body)
    assert text_of(server, temperature=0) == calm
    refused(server, {"n": 513, "prompt": ["a", "b"]}, "n")


MESSAGES = [None, [], {}, "hi", 5, [5], [[]], [{}], [{"role": "user"}], [{"content": "a"}],
            [{"role": "robot", "content": "a"}], [{"role": 5, "content": "a"}],
            [{"role": "user", "content": 5}], [{"role": "user", "content": {"a": 1}}],
            [{"role": "user", "content": None}], [{"role": "user", "content": [5]}],
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            [{"role": "user", "content": [{"type": "input_audio"}]}],
            [{"role": "user", "content": [{"text": "a"}]}],
            [{"role": "assistant", "content": None}],
            [{"role": "assistant", "content": "a", "function_call": {"name": "f"}}],
            [{"role": "assistant", "content": "a", "tool_calls": 5}],
            [{"role": "assistant", "content": "a", "tool_calls": [
                {"function": {"name": "f", "arguments": "{"}}]}]]


def test_messages_that_are_none(server):
    for messages in MESSAGES:
        status, body = ask(server, CHAT, {"messages": messages, "max_tokens": 2})
        assert status == 400 and body["error"]["param"] == "messages", (messages, body)


UNSUPPORTED = {
    COMPLETIONS: {"best_of": 1, "suffix": "", "prompt_embeds": "x"},
    CHAT: {"audio": {"voice": "x"}, "modalities": ["text", "audio"], "prediction": {"type": "x"},
           "functions": [], "function_call": "auto", "web_search_options": {}, "verbosity": "low",
           "tool_choice": "required", "chat_template": "x", "mm_processor_kwargs": {},
           "thinking_token_budget": 5},
}
UNSUPPORTED_IN_BOTH = {
    "response_format": {"type": "json_object"}, "guided_json": {}, "guided_regex": "a",
    "guided_grammar": "a", "structured_outputs": {"regex": "a"},
    "structural_tag": "x", "use_beam_search": True, "length_penalty": 1.5, "store": True,
    "truncate_prompt_tokens": 5, "logits_processors": [], "kv_transfer_params": {},
    "vllm_xargs": {}, "best_of": 2,
}


@pytest.mark.parametrize("path", [COMPLETIONS, CHAT])
def test_known_fields_that_we_lack_are_refused(server, path):
    for field, value in (UNSUPPORTED_IN_BOTH | UNSUPPORTED[path]).items():
        refused(server, {field: value}, field, path)


ENDPOINTS = {"COMPLETIONS": COMPLETIONS, "CHAT": CHAT, "TOKENIZE": "/tokenize",
             "DETOKENIZE": "/detokenize"}
LEAST = {COMPLETIONS: {"prompt": TEXT, "max_tokens": 1}, CHAT: {"messages": ASK, "max_tokens": 1},
         "/tokenize": {"prompt": TEXT}, "/detokenize": {"tokens": [5]}}


def listed():
    """(kind, name, what follows, paths) of each line of the server's own list."""
    text = (ROOT / "src/server/openai_fields.def").read_text()
    for kind, name, rest in re.findall(r'^HR_FIELD_?(\w*)\("(\w+)", (.*)\)$', text, re.M):
        words = set(re.findall(r"[A-Z_]+", rest))
        words |= {"COMPLETIONS", "CHAT"} if words & {"GENERATE", "ALL"} else set()
        words |= {"TOKENIZE", "DETOKENIZE"} if "ALL" in words else set()
        yield kind, name, rest, [ENDPOINTS[w] for w in ENDPOINTS if w in words]


def test_the_list_of_fields_is_kept(server):
    fields = list(listed())
    assert len(fields) > 80
    for kind, name, rest, paths in fields:
        assert paths, name
        for path in paths:
            def answer(value):
                return ask(server, path, {**LEAST[path], name: value})
            if kind == "REFUSED":
                status, body = answer({})
                assert status == 400 and body["error"]["param"] == name, (name, body)
            if kind == "HARMLESS":
                assert answer("x")[0] == 200, name
            if kind == "ONLY":
                good, bad = (False, True) if rest.startswith("FALSE") else (1.0, 2)
                assert answer(good)[0] == 200 and answer(bad)[0] == 400, name
            if name not in LEAST[path] and name != "prompt":
                assert answer(None)[0] == 200, name


def test_the_list_of_fields_is_told():
    """docs/REQUESTS.md names each field, under what becomes of it."""
    titles = {"REFUSED": "Refused", "ONLY": "Refused", "HARMLESS": "Without effect"}
    told, title = {}, None
    for line in (ROOT / "docs/REQUESTS.md").read_text().splitlines():
        title = line[3:] if line.startswith("## ") else title
        if line.startswith("| `"):
            for name in re.findall(r"`(\w+)`", line.split("|")[1]):
                told.setdefault(title, set()).add(name)
    want = {}
    for kind, name, _, _ in listed():
        want.setdefault(titles.get(kind, "Honoured"), set()).add(name)
    assert told == want


def test_rules_between_fields(server):
    refused(server, {"stream_options": {"include_usage": True}}, "stream_options")
    refused(server, {"stream": True, "stream_options": 5}, "stream_options")
    refused(server, {"stream": True, "stream_options": {"include_usage": 1}}, "stream_options")
    refused(server, {"stream": True, "prompt_logprobs": 1}, "prompt_logprobs")
    refused(server, {"stream": "false"}, "stream")
    refused(server, {"top_logprobs": 2}, "top_logprobs", CHAT)
    refused(server, {"logprobs": True, "top_logprobs": 21}, "top_logprobs", CHAT)
    refused(server, {"logprobs": 5}, "logprobs", CHAT)
    refused(server, {"logprobs": True}, "logprobs")
    refused(server, {"logprobs": 21}, "logprobs")
    refused(server, {"add_generation_prompt": True, "continue_final_message": True},
            "continue_final_message", CHAT)
    refused(server, {"tool_choice": "auto"}, "tool_choice", CHAT)
    refused(server, {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "tool_choice", CHAT)
    refused(server, {"tool_choice": "some"}, "tool_choice", CHAT)
    refused(server, {"tools": [{"type": "function"}]}, "tools", CHAT)
    refused(server, {"tools": {}}, "tools", CHAT)
    refused(server, {"documents": "x"}, "documents", CHAT)
    refused(server, {"chat_template_kwargs": []}, "chat_template_kwargs", CHAT)
    refused(server, {"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", CHAT)
    refused(server, {"cache_salt": ""}, "cache_salt")
    refused(server, {"request_id": "x" * 300}, "request_id")
    refused(server, {"user": "u", "model": "gpt-4"}, "model", status=404)
    refused(server, {"model": "gpt-4"}, "model", CHAT, status=404)
    refused(server, {"max_tokens": 0}, "max_tokens", CHAT)
    for path in ("/tokenize", "/detokenize"):
        assert ask(server, path, {"model": "gpt-4", "prompt": "a", "tokens": [1]})[0] == 404


def test_tokenize_refuses(server):
    for body in ({}, {"prompt": 5}, {"prompt": ["a"]}, {"prompt": [1]}, {"messages": []},
                 {"prompt": "a", "messages": ASK}):
        status, answer = ask(server, "/tokenize", body)
        assert status == 400 and answer["error"]["param"] in ("prompt", "messages"), body
    for body in ({}, {"tokens": "a"}, {"tokens": [V]}, {"tokens": [-1]}, {"tokens": [1.5]},
                 {"tokens": None}):
        status, answer = ask(server, "/detokenize", body)
        assert status == 400, body
        assert answer["error"]["param"] == "tokens"


def test_e07_null_is_absent(server):
    """Every optional field null."""
    names = [*NUMBERS, *LISTS, *UNSUPPORTED_IN_BOTH, *UNSUPPORTED[COMPLETIONS], *UNSUPPORTED[CHAT],
             "stream", "stream_options", "logprobs", "top_logprobs", "echo", "user", "metadata",
             "model", "tools", "documents", "chat_template_kwargs", "add_generation_prompt",
             "continue_final_message", "add_special_tokens", "ignore_eos", "cache_salt",
             "skip_special_tokens", "include_stop_str_in_output", "request_id", "return_token_ids",
             "return_tokens_as_token_ids", "max_completion_tokens", "response_format",
             "reasoning_effort", "service_tier"]
    for path, prompt in BOTH:
        plain = ask(server, path, {**prompt, "seed": 3, "max_tokens": 4})
        nulls = {**{n: None for n in names}, **prompt, "seed": 3, "max_tokens": 4}
        status, body = ask(server, path, nulls)
        assert status == 200, body
        assert body["choices"] == plain[1]["choices"]
        status, body = ask(server, path, {**{n: None for n in names}, **prompt})
        assert status == 200, body


def test_bodies_of_many_members(server):
    for body in ({"prompt": "a", **{f"f{i}": 1 for i in range(1024)}},
                 {"prompt": "a", "tools": [5] * 70000}, {"prompt": "a", "stop": ["a"] * 10**6}):
        assert ask(server, COMPLETIONS, body)[0] == 400 or "tools" in body
    for field in ("messages", "tools", "documents"):
        body = {"messages": ASK, field: [{"role": "user", "content": "a"}] * 70000}
        status, answer = ask(server, CHAT, body)
        assert status == 400 and answer["error"]["param"] == field


def test_unknown_fields_are_ignored_and_logged_once(server):
    for _ in range(2):
        assert text_of(server, never_heard_of={"a": 1}, max_tokens=1)
        assert ask(server, CHAT, {"messages": ASK, "never_heard_of": 1, "max_tokens": 1})[0] == 200
    for i in range(100):
        text_of(server, **{f"odd{i}": i}, max_tokens=1)
    lines = server.lines_with("unknown field", count=64)
    assert sum("never_heard_of" in x for x in lines) == 1 and len(lines) == 64


# ---- what is wrong with the JSON, the path, the method --------------------------------------------

BROKEN = [b"", b"{", b"{:", b"[]", b"null", b'"a"', b"5", b'{"prompt": "a"} x', b'{"prompt": "a",}',
          b'{"prompt": "\xff"}', b'{"prompt": "\xed\xa0\x80"}', b'{"prompt": "\\ud800"}',
          b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "a", "n": NaN}', b'{"prompt": "\\x"}',
          b'{"prompt": "a\nb"}', b'{"prompt": 01}', b"{'prompt': 'a'}", b"\xef\xbb\xbf{}",
          b'{"prompt": ' + b"[" * 65 + b"]" * 65 + b"}", b"[" * 100000, b'{"a":' * 100000]


def test_e08_broken_json(server, calm):
    for path in (COMPLETIONS, CHAT, "/tokenize", "/detokenize"):
        for body in BROKEN:
            status, answer = ask(server, path, body)
            assert status == 400, (path, body[:40], answer)
    assert text_of(server, temperature=0) == calm


def test_paths_methods_types_and_sizes(server):
    assert ask(server, "/v1/nothing", None)[0] == 404
    assert ask(server, "/v1/completions/x", {"prompt": "a"})[0] == 404
    status, headers, _ = server.request(COMPLETIONS)
    assert status == 405 and "POST" in headers["Allow"]
    assert server.request("/v1/models", {})[0] == 405
    status, _ = ask(server, COMPLETIONS, b'{"prompt": "a"}', headers={"Content-Type": "text/plain"})
    assert status == 415
    status, _ = ask(server, COMPLETIONS, b'{"prompt": "' + b"a" * (33 << 20) + b'"}')
    assert status == 413


def test_queue_full_and_strict(serve, smollm2):
    """503 with Retry-After, all prompts or none; what is running goes on."""
    s = serve(smollm2.parent.name, *USUAL, "--max-num-seqs", 1, "--max-num-queued-reqs", 2,
              "--strict").ready()
    refused(s, {"never_heard_of": 1}, "never_heard_of")
    long = {"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "temperature": 0}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = pool.submit(s.post, COMPLETIONS, long)
        while b"num_requests_running{" not in s.get("/metrics")[2] or not any(
                line.endswith(b" 1.0") or line.endswith(b" 1")
                for line in s.get("/metrics")[2].splitlines()
                if line.startswith(b"vllm:num_requests_running{")):
            assert not running.done()
        waiting = pool.submit(s.post, COMPLETIONS, {**long, "max_tokens": 2})
        while not any(line.split()[-1] in (b"1.0", b"1")
                      for line in s.get("/metrics")[2].splitlines()
                      if line.startswith(b"vllm:num_requests_waiting{")):
            assert not running.done()
        status, headers, body = s.request(COMPLETIONS, {**long, "prompt": ["a", "b"]})
        assert status == 503 and int(headers["Retry-After"]) >= 1
        assert json.loads(body)["error"]["type"] == "ServiceUnavailableError"
        refused(s, {"prompt": ["a", "b", "c"]}, "prompt")  # will never fit: no use to come again
        assert running.result()[0] == 200 and waiting.result()[0] == 200
        status, body = s.post(COMPLETIONS, {**long, "prompt": ["a", "b"], "max_tokens": 2})
        assert status == 200, body  # nothing of the refused two is left in the queue
    assert s.stop() == 0


def test_keys(serve, smollm2):
    s = serve(smollm2.parent.name, *USUAL, "--api-key", "one", "--api-key", "two").ready()
    body = {"prompt": "a", "max_tokens": 1}
    for value in (None, "one", "Bearer", "Bearer three", "Basic one", "Bearer one two", "Bearer on"):
        headers = {"Authorization": value} if value else {}
        status, answer = ask(s, COMPLETIONS, body, headers=headers)
        assert status == 401 and answer["error"]["code"] == 401, value
    for value in ("Bearer one", "bearer two", "BEARER one"):
        assert ask(s, COMPLETIONS, body, headers={"Authorization": value})[0] == 200
    assert s.get("/v1/models")[0] == 401 and s.get("/metrics")[0] == 401
    for path in ("/health", "/ping", "/version", "/"):
        assert s.get(path)[0] == 200
    # E16: preflight needs no key, and what follows has the headers, whatever its status
    asked = {"Origin": "http://x", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization,content-type"}
    status, headers, _ = s.request(CHAT, headers=asked, method="OPTIONS")
    assert status in (200, 204) and headers["Access-Control-Allow-Origin"]
    assert "authorization" in headers["Access-Control-Allow-Headers"].lower()
    status, headers, _ = s.request(CHAT, body, headers={"Origin": "http://x"})
    assert status == 401 and headers["Access-Control-Allow-Origin"]


# ---- known faults ---------------------------------------------------------------------------------

def test_a01_tiny_temperatures(server, calm):
    for t in (1e-8, 1e-6, 1e-5, 1e-4):
        assert text_of(server, temperature=t, seed=1) == calm


def test_a03_a05_narrow_choices(server, calm):
    for fields in ({"top_p": 1e-6}, {"top_k": 1, "top_p": 0.01}, {"top_k": 1}, {"min_p": 1.0},
                   {"temperature": 2, "min_p": 1.0}):
        assert text_of(server, **{"temperature": 1, "seed": 9, **fields}) == calm


@pytest.mark.device
def test_a07_greedy_rows_beside_random_ones(server):
    allowed = {"allowed_token_ids": [28, 260, 339], "temperature": 0, "return_token_ids": True}
    def one(fields):
        return ask(server, COMPLETIONS, {"prompt": TEXT, "max_tokens": 7, **fields})[1]["choices"]
    alone = one(allowed)[0]["token_ids"]
    assert set(alone) <= {28, 260, 339}
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        got = list(pool.map(one, [allowed, {"temperature": 1}, allowed, {"temperature": 1}]))
    assert got[0][0]["token_ids"] == got[2][0]["token_ids"] == alone


def test_a10_neighbours_of_bad_ids_are_untouched(server):
    prompt = {"prompt": TEXT, "max_tokens": 40, "temperature": 0, "ignore_eos": True}
    want = ask(server, COMPLETIONS, prompt)[1]["choices"][0]["text"]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        running = pool.submit(ask, server, COMPLETIONS, prompt)
        for fields in ({"stop_token_ids": [10**7], "min_tokens": 1}, {"logit_bias": {"-1": 5}},
                       {"allowed_token_ids": [-1]}, {"prompt": [V]}):
            assert ask(server, COMPLETIONS, {"prompt": TEXT, **fields})[0] == 400
        assert running.result()[1]["choices"][0]["text"] == want


def test_a13_what_penalties_see(server):
    first = {"prompt": [260] * 30, "max_tokens": 1, "temperature": 0, "return_token_ids": True}
    def token(**fields):
        return ask(server, COMPLETIONS, {**first, **fields})[1]["choices"][0]["token_ids"]
    assert token(presence_penalty=2, frequency_penalty=2) == token()
    liked = {"logit_bias": {"260": 30}}
    assert token(**liked) == [260] != token(repetition_penalty=50, **liked)


def test_a16_log_probabilities_are_json(server):
    """-inf becomes -9999.0; ask() reads strictly."""
    fields = {"prompt": TEXT, "max_tokens": 3, "allowed_token_ids": [260]}
    lp = ask(server, COMPLETIONS, {**fields, "logprobs": 5})[1]["choices"][0]["logprobs"]
    assert lp["tokens"][0] == lp["tokens"][1] and len(lp["top_logprobs"][0]) in (5, 6)
    status, body = ask(server, CHAT, {"messages": ASK, "max_tokens": 3, "logprobs": True,
                                      "allowed_token_ids": [260], "top_logprobs": 5})
    assert status == 200
    for more in ({"echo": True, "logprobs": 1, "top_k": 1}, {"prompt_logprobs": 1, "top_k": 1}):
        assert ask(server, COMPLETIONS, {**fields, **more})[0] == 200


def test_a16_processed_log_probabilities_are_json(serve, smollm2):
    s = serve(smollm2.parent.name, *USUAL, "--logprobs-mode", "processed_logprobs").ready()
    status, body = ask(s, CHAT, {"messages": ASK, "max_tokens": 3, "logprobs": True,
                                 "allowed_token_ids": [260], "top_logprobs": 5})
    assert status == 200
    entry = body["choices"][0]["logprobs"]["content"][0]
    assert entry["logprob"] == 0 and [t["logprob"] for t in entry["top_logprobs"]] in (
        [0, *[-9999.0] * 4], [0])
    status, body = ask(s, COMPLETIONS, {"prompt": TEXT, "max_tokens": 2, "logprobs": 3, "top_k": 1,
                                        "logprob_token_ids": [5]})
    assert status == 200
    assert -9999.0 in body["choices"][0]["logprobs"]["top_logprobs"][0].values()


def test_a18_a_row_of_nan_fails_alone(serve, tmp_path):
    """Status 200 and finish_reason "error" for it; whoever is beside it sees nothing."""
    bad = make_tiny.tokenizer().decode([90])
    s = serve(with_nan(tmp_path / "nan", 90), "--max-num-seqs", 8, "--max-num-batched-tokens", 64,
              "--max-model-len", 256).ready()
    def one(prompt):
        return ask(s, COMPLETIONS, {"prompt": prompt, "max_tokens": 7, "temperature": 0,
                                    "logprobs": 2, "seed": 1})
    alone = one("abcde")[1]["choices"]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        got = list(pool.map(one, ["abcde", "p" + bad, "abcde", bad + "z", "abcde"]))
    assert [status for status, _ in got] == [200] * 5
    assert [b["choices"] for _, b in got[::2]] == [alone] * 3
    for _, body in got[1::2]:
        assert body["choices"][0]["finish_reason"] == "error" and not body["choices"][0]["text"]
    _, _, stream = s.request(COMPLETIONS, {"prompt": bad, "stream": True})
    assert b'"finish_reason":"error"' in stream and stream.endswith(b"data: [DONE]\n\n")
    assert b'finished_reason="error"} 3' in s.get("/metrics")[2]


def test_b01_budgets(serve, smollm2, server):
    """Prompts around a token budget that is no power of two, against another server's."""
    s = serve(smollm2.parent.name, "--max-num-seqs", 4, "--max-model-len", 512,
              "--max-num-batched-tokens", 317).ready()
    for n in (1, 16, 17, 316, 317, 318, 500):
        fields = {"prompt": [(7 * i) % 40000 + 50 for i in range(n)], "max_tokens": 4,
                  "temperature": 0, "return_token_ids": True}
        a, b = (ask(x, COMPLETIONS, fields)[1]["choices"][0] for x in (s, server))
        assert a["token_ids"] == b["token_ids"], n


EXTREMES = {
    "temperature": {"temperature": 2.0}, "top_k": {"temperature": 2.0, "top_k": 2},
    "top_p": {"temperature": 2.0, "top_p": 0.5}, "min_p": {"temperature": 2.0, "min_p": 0.3},
    "presence_penalty": {"temperature": 0, "presence_penalty": 2},
    "frequency_penalty": {"temperature": 0, "frequency_penalty": 2},
    "repetition_penalty": {"temperature": 0, "repetition_penalty": 50},
    "seed": {"temperature": 2.0, "seed": 99},
    "logit_bias": {"temperature": 0, "logit_bias": {"28": 100}},
    "allowed_token_ids": {"temperature": 0, "allowed_token_ids": [28, 30]},
    "bad_words": {"temperature": 0, "bad_words": ["beta"]},
    "stop": {"temperature": 0, "stop": ["b"]},
    "stop_token_ids": {"temperature": 0, "stop_token_ids": list(range(100, 164))},
    "min_tokens": {"temperature": 0, "logit_bias": {"2": 100}, "min_tokens": 4},
    "ignore_eos": {"temperature": 0, "logit_bias": {"2": 100}, "ignore_eos": True},
    "max_tokens": {"temperature": 0, "max_tokens": 3},
}
BASES = {"min_tokens": {"temperature": 0, "logit_bias": {"2": 100}},
         "ignore_eos": {"temperature": 0, "logit_bias": {"2": 100}},
         "top_k": {"temperature": 2.0}, "top_p": {"temperature": 2.0}, "min_p": {"temperature": 2.0},
         "seed": {"temperature": 2.0, "seed": 1}}


@pytest.mark.device
@pytest.mark.parametrize("option", EXTREMES)
def test_b02_every_option_has_its_effect(server, option):
    """Alone and beside requests that ask for nothing."""
    base = {"prompt": "alpha beta alpha beta alpha beta alpha", "max_tokens": 10, "seed": 1,
            "return_token_ids": True}
    def one(fields):
        choice = ask(server, COMPLETIONS, {**base, **fields})[1]["choices"][0]
        return choice["token_ids"], choice["text"], choice["finish_reason"]
    plain = one(BASES.get(option, {"temperature": 0}))
    fields = EXTREMES[option]
    if option == "bad_words":  # whatever this model begins with
        fields = {**fields, "bad_words": plain[1].split()[:1]}
    alone = one(fields)
    if option == "stop_token_ids":
        ids = plain[0]
        alone = one({"temperature": 0, "stop_token_ids": [ids[2]]})
        assert alone[2] == "stop" and alone[0] == ids[:ids.index(ids[2]) + 1]
    else:
        assert alone != plain
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        got = list(pool.map(one, [{}, fields, {}]))
    assert got[1] == one(fields) and got[0] == got[2]


def test_b05_log_probabilities_do_not_depend_on_order(server):
    shared = [300 + i for i in range(64)]
    a, b = shared + [5, 6, 7], shared + [8, 9]
    def told(prompt):
        body = ask(server, COMPLETIONS, {"prompt": prompt, "max_tokens": 2, "temperature": 0,
                                         "prompt_logprobs": 2, "logprobs": 2})[1]["choices"][0]
        return body["prompt_logprobs"], body["logprobs"]
    assert (told(a), told(b)) == (lambda y, x: (x, y))(told(b), told(a))


@pytest.mark.device
def test_b06_whole_prompts_from_the_cache(server):
    for n in (15, 16, 17, 32, 48):
        fields = {"prompt": [900 + n + i for i in range(n)], "max_tokens": 5, "temperature": 0,
                  "return_token_ids": True}
        bodies = [ask(server, COMPLETIONS, fields)[1] for _ in range(3)]
        assert len({tuple(b["choices"][0]["token_ids"]) for b in bodies}) == 1
        cached = [b["usage"]["prompt_tokens_details"]["cached_tokens"] for b in bodies]
        assert cached[0] == 0 and cached[1] == cached[2] == (n - 1) // 16 * 16
    salted = [ask(server, COMPLETIONS, {**fields, "cache_salt": salt})[1]["usage"]
              ["prompt_tokens_details"]["cached_tokens"] for salt in ("a", "b", "a")]
    assert salted == [0, 0, 32]


def test_c02_answers_that_end_inside_a_character(server):
    """The bytes of an emoji forced one by one: cut anywhere, it stays valid UTF-8."""
    ids = server.post("/tokenize", {"prompt": "🙂"})[1]["tokens"]
    assert len(ids) > 1
    bias = {"logit_bias": {str(i): 100 for i in ids}, "temperature": 0, "repetition_penalty": 1.9}
    for most in range(1, 9):
        for path, prompt in ((COMPLETIONS, {"prompt": "x"}), (CHAT, {"messages": ASK})):
            fields = {**prompt, **bias, "max_tokens": most, "ignore_eos": True}
            more = {"logprobs": True} if path == CHAT else {"logprobs": 0}
            choice = ask(server, path, {**fields, **more})[1]["choices"][0]
            text = choice["message"]["content"] if path == CHAT else choice["text"]
            if path == CHAT:
                raw_bytes = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"])
                assert text == raw_bytes.decode("utf-8", "replace")
            status, _, stream = server.request(path, {**fields, **more, "stream": True})
            assert status == 200
            events = [strict(e[6:]) for e in stream.decode("utf-8", "strict").split("\n\n")[:-2]]
            pieces = [c.get("text", c.get("delta", {}).get("content"))
                      for e in events for c in e["choices"]]
            assert "".join(pieces) == text


@pytest.mark.device
def test_clients_that_leave(server):
    """Streaming, waiting for the whole or queued: cancelled within a step, gauges back to zero."""
    import http.client
    def gauges():
        page = server.get("/metrics")[2].decode()
        return [float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(
            ("vllm:num_requests_running{", "vllm:num_requests_waiting{",
             "vllm:kv_cache_usage_perc{"))]
    for stream in (True, False):
        clients = []
        for i in range(24):  # more than run at once
            c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            c.request("POST", COMPLETIONS, json.dumps(
                {"prompt": f"{i} and", "max_tokens": 400, "ignore_eos": True, "stream": stream,
                 "n": 2 if i % 3 == 0 else 1}), {"Content-Type": "application/json"})
            clients.append(c)
        end = time.monotonic() + 30
        while not gauges()[0] and time.monotonic() < end:
            time.sleep(0.01)
        for c in clients:
            c.close()
        while any(gauges()) and time.monotonic() < end:
            time.sleep(0.02)
        assert gauges() == [0, 0, 0]
    assert len(server.lines_with(" 499 ", count=48)) == 48


@pytest.mark.device
def test_many_fault_bearers_at_once(server, calm):
    """Good and bad requests from many threads: each good one as when alone."""
    wrong = []
    def good():
        for _ in range(3):
            if text_of(server, temperature=0) != calm:
                wrong.append("text")
    def bad():
        for fields in ({"top_p": 0}, {"prompt": [V]}, {"n": 5000}, {"prompt": "x " * 600}):
            if ask(server, COMPLETIONS, {"prompt": TEXT, **fields})[0] != 400:
                wrong.append(fields)
    threads = [threading.Thread(target=f) for f in [good, bad] * 6]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- the same, in a few strokes, for sanitizers ---------------------------------------------------

@pytest.fixture
def tiny(serve, tmp_path):
    """A model of two small layers, so that a slow binary can serve it."""
    make_tiny.hf(tmp_path / "tiny", "llama")
    (tmp_path / "template").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    return serve(tmp_path / "tiny", "--max-num-seqs", 4, "--max-num-batched-tokens", 64,
                 "--max-model-len", 256, "--served-model-name", "tiny", "--chat-template",
                 tmp_path / "template", "--enable-prompt-tokens-details").ready()


GOOD = [
    (COMPLETIONS, {"prompt": "abc", "max_tokens": 9}),
    (COMPLETIONS, {"prompt": ["abc", "d"], "n": 3, "max_tokens": 5, "logprobs": 3}),
    (COMPLETIONS, {"prompt": [[1, 2], [3]], "max_tokens": 5, "echo": True, "logprobs": 2, "n": 2}),
    (COMPLETIONS, {"prompt": "abc", "max_tokens": 0, "echo": True, "logprobs": 1}),
    (COMPLETIONS, {"prompt": "abc", "prompt_logprobs": 3, "return_token_ids": True}),
    (COMPLETIONS, {"prompt": "abc", "stop": ["a", "zz"], "logit_bias": {"5": 3}, "bad_words": ["q"],
                   "allowed_token_ids": list(range(200)), "stop_token_ids": [3], "min_tokens": 1,
                   "logprob_token_ids": [1, 2, 1], "cache_salt": "s", "request_id": "r"}),
    (CHAT, {"messages": ASK, "max_tokens": 6, "logprobs": True, "top_logprobs": 5}),
    (CHAT, {"messages": [*ASK, {"role": "assistant", "content": [{"type": "text", "text": "So"}]}],
            "continue_final_message": True, "echo": True, "n": 2, "max_tokens": 6,
            "return_token_ids": True, "reasoning_effort": "low",
            "chat_template_kwargs": {"a": [1, {"b": None}]}, "documents": [{"text": "x"}]}),
    ("/tokenize", {"prompt": "abc", "return_token_strs": True}),
    ("/tokenize", {"messages": ASK}),
    ("/detokenize", {"tokens": [1, 2, 3, 250]}),
]


def leave(s, body):
    """Sends a request and goes."""
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        text = json.dumps(body).encode()
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        time.sleep(0.05)


@pytest.mark.device
@pytest.mark.sanitize
@pytest.mark.threads
def test_a_little_of_everything(tiny):
    for path, body in GOOD:
        status, answer = ask(tiny, path, body)
        assert status == 200, (body, answer)
        if path in (COMPLETIONS, CHAT) and "prompt_logprobs" not in body:
            options = {"stream": True, "stream_options": {"include_usage": True,
                                                          "continuous_usage_stats": True}}
            status, _, stream = tiny.request(path, {**body, **options})
            assert status == 200 and stream.endswith(b"data: [DONE]\n\n")
    for field, values in (NUMBERS | LISTS).items():
        for value in values[:4]:
            refused(tiny, {field: value}, field)
    for prompt in PROMPTS:
        assert ask(tiny, COMPLETIONS, {"prompt": prompt, "max_tokens": 2})[0] == 400
    for messages in MESSAGES:
        assert ask(tiny, CHAT, {"messages": messages, "max_tokens": 2})[0] == 400
    for body in BROKEN:
        assert ask(tiny, CHAT, body)[0] == 400
    for stream in (True, False):
        for i in range(8):
            leave(tiny, {"prompt": [f"{i}", "b"], "n": 2, "max_tokens": 200, "ignore_eos": True,
                         "stream": stream, "logprobs": 1})
    leave(tiny, {"prompt": "abc", "max_tokens": 100, "ignore_eos": True})
    assert tiny.stop() == 0, tiny.log[-8000:]


VALUES = [None, True, False, 0, 1, -1, 2, 5, 2**31, 2**63 - 1, 2**63, -2**63, 2**64, 10**30, 0.0, 0.5,
          1.0, 1.5, -0.5, 1e-9, 1e300, "", "a", "auto", "\u0000", "\u00e9\ud83d\ude42", [], [0], [5, 5],
          [-1], [2**64], ["a"], ["a", ""], [None], [[]], [[1, 2], [3]], {}, {"1": 1}, {"1": -100.5},
          {"a": {"b": [None]}}, {"type": "text"}, {"type": "json_object"}, {"include_usage": True},
          [{"role": "user", "content": "a"}], [{"role": "user", "content": [{"type": "text",
                                                                            "text": "b"}]}],
          [{"type": "function", "function": {"name": "f"}}]]


@pytest.mark.sanitize
def test_any_value_in_any_field(tiny):
    """Whatever is in a body: an answer or a refusal, in strict JSON, and a server that lives on."""
    random = Random(11)
    names = sorted({name for _, name, _, _ in listed()} | {"something"})
    seen = set()
    for i in range(3000):
        path, body = random.choice(GOOD)
        body = {**body, **{n: random.choice(VALUES) for n in random.sample(names, i % 4 + 1)}}
        stream = body.get("stream") is True and path in (COMPLETIONS, CHAT)
        if path in (COMPLETIONS, CHAT) and not body.get("max_tokens"):
            body["max_tokens"] = 3
        if stream:
            status, _, text = tiny.request(path, body)
            assert text.endswith(b"data: [DONE]\n\n") if status == 200 else strict(text.decode())
        else:
            status, _ = ask(tiny, path, body)
        assert status in (200, 400, 404), body
        seen.add(status)
    assert seen == {200, 400, 404}
    assert tiny.stop() == 0, tiny.log[-8000:]
