"""Tool calls and reasoning in chat answers, through the official client. The model is too small to
call tools: what it says is forced by a structured choice with one text, so that everything from its
tokens to the client is real."""
import json
import random

import openai
import pytest

MODEL = "smollm2-135m"
SERVER_FLAGS = ["--max-num-seqs", 8, "--max-num-batched-tokens", 512, "--max-model-len", 512]
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
ASK = [{"role": "user", "content": "How is the weather in Paris?"}]
ARGUMENTS = '{"city": "Paris, \\"France\\" </tool_call> {", "days": [1, 2]}'
CALL = '{"name": "get_weather", "arguments": %s}' % ARGUMENTS
HERMES = f"<tool_call>\n{CALL}\n</tool_call>"
TEXTS = {
    "hermes": HERMES, "llama3_json": CALL.replace("arguments", "parameters"),
    "mistral": f"[TOOL_CALLS][{CALL}]",
}


def client_of(server):
    return openai.OpenAI(base_url=server.address + "/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module", params=list(TEXTS))
def style(request, serve, smollm2):
    """A server for each format: its name, a client."""
    s = serve(smollm2.parent.name, *SERVER_FLAGS, "--tool-call-parser", request.param,
              "--reasoning-parser", "qwen3").ready()
    yield request.param, client_of(s)
    s.stop()


def say(client, text, **more):
    """The answer that the model is made to give."""
    extra = {"structured_outputs": {"choice": [text]}, **more.pop("extra_body", {})}
    more = {"tools": TOOLS, "messages": ASK, "temperature": 0, **more}
    return client.chat.completions.create(model=MODEL, extra_body=extra, **more)


def stream(client, text, **more):
    """Chunks as the client has them, and what its stream helper makes of the same."""
    return list(say(client, text, stream=True, **more))


def joined(chunks, index=0):
    """A message out of a stream, as clients write that by hand."""
    content, reasoning, calls, finish = "", "", [], None
    for choice in (c for chunk in chunks for c in chunk.choices if c.index == index):
        content += choice.delta.content or ""
        thought = getattr(choice.delta, "reasoning", None)
        assert thought == getattr(choice.delta, "reasoning_content", None)
        reasoning += thought or ""
        for t in choice.delta.tool_calls or []:
            if t.id:
                assert t.index == len(calls) and t.type == "function" and t.function.name
                calls.append({"id": t.id, "name": t.function.name, "arguments": ""})
            else:
                assert t.index == len(calls) - 1 and not t.function.name and not t.type
            calls[t.index]["arguments"] += t.function.arguments
        if choice.finish_reason:
            assert not finish
            finish = choice.finish_reason
    return content, reasoning, calls, finish


def message(choice):
    m = choice.message
    assert m.reasoning == m.reasoning_content
    return (m.content or "", m.reasoning or "",
            [{"name": t.function.name, "arguments": t.function.arguments} for t in m.tool_calls or []],
            choice.finish_reason)


def without_ids(m):
    return (*m[:2], [{k: v for k, v in c.items() if k != "id"} for c in m[2]], m[3])


def test_a_call_is_told_as_openai_tells_it(style):
    name, client = style
    answer = say(client, TEXTS[name]).choices[0]
    assert answer.finish_reason == "tool_calls" and answer.message.content is None
    call, = answer.message.tool_calls
    assert call.type == "function" and call.function.name == "get_weather"
    assert call.function.arguments == ARGUMENTS
    if name == "mistral":
        assert len(call.id) == 9 and call.id.isalnum()
    else:
        assert call.id.startswith("chatcmpl-tool-") and len(call.id) == 30


def test_a_stream_is_the_same_message(style):
    name, client = style
    text = TEXTS[name]
    for text in (text, "<think>\nHm < 1\n</think>\n\n" + text, "Nothing to call. <tool [TOOL < {"):
        chunks = stream(client, text)
        whole = say(client, text)
        got = joined(chunks)
        assert without_ids(got) == message(whole.choices[0])
        if got[2]:
            deltas = [t for c in chunks for t in c.choices[0].delta.tool_calls or []]
            assert len(deltas) > 5  # arguments come as they are written
    assert got[0] == text and got[3] == "stop"


def test_what_goes_on_after_the_first_call(style):
    name, client = style
    more = {"hermes": "\n" + HERMES, "llama3_json": "; " + TEXTS["llama3_json"],
            "mistral": f"[TOOL_CALLS]get_weather{ARGUMENTS}"}[name]
    two = say(client, TEXTS[name] + more).choices[0].message.tool_calls
    assert [t.function.arguments for t in two] == [ARGUMENTS] * 2
    assert two[0].id != two[1].id
    assert len(joined(stream(client, TEXTS[name] + more))[2]) == 2
    single = {"parallel_tool_calls": False}
    assert len(say(client, TEXTS[name] + more, **single).choices[0].message.tool_calls) == 1
    assert len(joined(stream(client, TEXTS[name] + more, **single))[2]) == 1


def test_without_tools_or_choice_all_is_content(style):
    name, client = style
    for more in ({"tools": openai.NOT_GIVEN}, {"tool_choice": "none"}):
        choice = say(client, TEXTS[name], **more).choices[0]
        assert choice.message.content == TEXTS[name] and not choice.message.tool_calls
        assert choice.finish_reason == "stop"
        assert joined(stream(client, TEXTS[name], **more))[::3] == (TEXTS[name], "stop")


def test_an_answer_cut_in_a_call_keeps_its_arguments_so_far(style):
    name, client = style
    whole = say(client, TEXTS[name])
    for n in random.Random(0).sample(range(2, whole.usage.completion_tokens - 1), 6):
        cut = say(client, TEXTS[name], max_tokens=n)
        choice = cut.choices[0]
        assert choice.finish_reason == "length" and cut.usage.completion_tokens == n
        assert without_ids(joined(stream(client, TEXTS[name], max_tokens=n))) == message(choice)
        if choice.message.tool_calls:
            assert ARGUMENTS.startswith(choice.message.tool_calls[0].function.arguments)
        else:
            assert TEXTS[name].startswith(choice.message.content)


# ---- one format -----------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def hermes(serve, smollm2):
    s = serve(smollm2.parent.name, *SERVER_FLAGS, "--tool-call-parser", "hermes",
              "--reasoning-parser", "deepseek_r1", "--exclude-tools-when-tool-choice-none").ready()
    yield s
    s.stop()


def test_log_probabilities_and_usage_count_every_token(hermes):
    client = client_of(hermes)
    text = "Hm.</think>Let me see.\n" + HERMES
    more = {"logprobs": True, "top_logprobs": 2, "extra_body": {"return_token_ids": True}}
    whole = say(client, text, **more)
    listed = whole.choices[0].logprobs.content
    spelt = "".join(bytes(t.bytes).decode() for t in listed if t.token != "<|im_end|>")
    assert spelt == text and len(listed) == whole.usage.completion_tokens
    assert len(whole.choices[0].token_ids) == len(listed)
    chunks = stream(client, text, stream_options={"include_usage": True}, **more)
    parts = [c.choices[0] for c in chunks if c.choices]
    assert [t for p in parts if p.logprobs for t in p.logprobs.content] == listed
    assert sum((getattr(p, "token_ids", None) or [] for p in parts), []) == whole.choices[0].token_ids
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert joined(chunks)[:2] == ("Let me see.\n", "Hm.")


def test_reasoning_may_be_left_out(hermes):
    client = client_of(hermes)
    text = "I think.</think>Yes."
    assert message(say(client, text).choices[0])[:2] == ("Yes.", "I think.")
    more = {"logprobs": True, "extra_body": {"include_reasoning": False, "return_token_ids": True}}
    hidden = say(client, text, **more).choices[0]
    assert message(hidden)[:2] == ("Yes.", "") and not hidden.logprobs
    assert not getattr(hidden, "token_ids", None)
    chunks = stream(client, text, **more)
    assert joined(chunks)[:2] == ("Yes.", "")
    assert not any(c.choices[0].logprobs for c in chunks)


def test_reasoning_that_never_ends_leaves_no_content(hermes):
    whole = say(client_of(hermes), "I think and think").choices[0]
    assert whole.message.content is None and whole.message.reasoning == "I think and think"
    assert whole.finish_reason == "stop"


def test_each_choice_has_calls_of_its_own(hermes):
    client = client_of(hermes)
    text = "</think>" + HERMES
    whole = say(client, text, n=3)
    ids = {c.message.tool_calls[0].id for c in whole.choices}
    assert len(ids) == 3 and all(c.finish_reason == "tool_calls" for c in whole.choices)
    chunks = stream(client, text, n=3)
    for i in range(3):
        assert without_ids(joined(chunks, i)) == message(whole.choices[i])


def test_a_stop_string_ends_a_call(hermes):
    choice = say(client_of(hermes), "</think>" + HERMES, stop=["France"]).choices[0]
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Paris, \\"'
    assert choice.finish_reason == "tool_calls"


def test_the_clients_stream_helper_takes_it(hermes):
    client = client_of(hermes)
    with client.chat.completions.stream(
            model=MODEL, messages=ASK, tools=TOOLS, temperature=0,
            extra_body={"structured_outputs": {"choice": ["</think>Ah. " + HERMES]}}) as s:
        kinds = {e.type for e in s}
        final = s.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds and "content.delta" in kinds
    assert final.message.content == "Ah. " and final.finish_reason == "tool_calls"
    assert json.loads(final.message.tool_calls[0].function.arguments) == json.loads(ARGUMENTS)


def test_a_conversation_with_calls_goes_on(hermes):
    """What was answered can be sent back as it is, with the tool's result."""
    client = client_of(hermes)
    first = say(client, "Hm.</think>" + HERMES).choices[0].message
    result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "sunny"}
    history = [*ASK, first.model_dump(exclude_none=True), result]
    assert say(client, "</think>Sunny.", messages=history).choices[0].message.content == "Sunny."


# ---- what templates are given ---------------------------------------------------------------------

@pytest.fixture(scope="module")
def printing(serve, smollm2, tmp_path_factory):
    """A server whose template prints what it was given: prompt(messages, …) is that."""
    path = tmp_path_factory.mktemp("template") / "template"
    path.write_text("{{ tools | length if tools else 'no' }} tools\n{% for m in messages %}"
                    "{{ [m.content, m.reasoning | default(0), m.reasoning_content | default(0), "
                    "m.tool_calls[0].function.arguments.city if m.tool_calls else 0] | tojson }}\n"
                    "{% endfor %}")
    s = serve(smollm2.parent.name, *SERVER_FLAGS, "--chat-template", path,
              "--exclude-tools-when-tool-choice-none").ready()

    def prompt(messages, **more):
        body = {"messages": messages, "max_tokens": 1, "return_token_ids": True, **more}
        status, answer = s.post("/v1/chat/completions", body)
        assert status == 200, answer
        return s.post("/detokenize", {"tokens": answer["prompt_token_ids"]})[1]["prompt"]
    yield prompt
    s.stop()


def test_messages_are_filled_as_vllm_fills_them(printing):
    calls = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"city": "Rom"}'}}]
    lines = printing([
        {"role": "assistant", "tool_calls": calls},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "assistant", "content": "x", "reasoning": "new"},
        {"role": "assistant", "content": "x", "reasoning_content": "old", "reasoning": None},
        {"role": "assistant", "content": "x", "reasoning": "a", "reasoning_content": "b"}]).splitlines()
    assert [json.loads(line) for line in lines[1:]] == [
        ["", 0, 0, "Rom"], ["", 0, 0, "Rom"],
        ["x", "new", "new", 0], ["x", "old", "old", 0], ["x", "a", "b", 0]]


def test_tools_that_are_not_to_be_called_may_be_kept_from_the_template(printing, hermes):
    assert printing(ASK, tools=TOOLS).startswith("1 tools")
    assert printing(ASK, tools=TOOLS, tool_choice="none").startswith("no tools")


# ---- flags ----------------------------------------------------------------------------------------

def test_names_that_are_no_parsers_end_the_server_at_once(serve, smollm2):
    for flag, names in (("--tool-call-parser", "hermes, llama3_json, mistral"),
                        ("--reasoning-parser", "deepseek_r1, qwen3, mistral")):
        s = serve(smollm2.parent.name, flag, "gpt")
        assert s.process.wait(20) != 0
        s.reader.join(5)
        assert flag in s.log and names in s.log


def test_the_templates_look_decides(serve, smollm2, tmp_path):
    for text, calls, reasoning in (("<tool_call>{{ messages }}</think>", "hermes", "qwen3"),
                                   ("{{ messages }}", "none", "none")):
        (tmp_path / "template").write_text(text)
        s = serve(smollm2.parent.name, *SERVER_FLAGS, "--chat-template", tmp_path / "template",
                  "--no-enable-auto-tool-choice").ready()
        assert s.lines_with(f"tool-call parser {calls} (off), reasoning parser {reasoning}")
        assert message(say(client_of(s), HERMES).choices[0])[0] == HERMES
        s.stop()
