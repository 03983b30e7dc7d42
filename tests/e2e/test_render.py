"""headrace render: what a template's author needs, without a model."""
import json
import time

import jinja2
import pytest

from conftest import headrace
from rendering import Renderer, oracle

MESSAGES = [{"role": "user", "content": "hi"}]


def render(folder, template, *more, messages=MESSAGES):
    (folder / "t.jinja").write_bytes(template.encode())
    (folder / "m.json").write_text(json.dumps(messages))
    return headrace("render", "--template", folder / "t.jinja", "--messages", folder / "m.json", *more)


@pytest.mark.sanitize
def test_what_a_template_can_be_given(tmp_path):
    (tmp_path / "tools.json").write_text('[{"type": "function", "function": {"name": "f"}}]')
    (tmp_path / "documents.json").write_text('[{"title": "T"}]')
    r = render(tmp_path, "{{ messages[0].content }}{{ tools[0].function.name }}{{ documents[0].title }}"
               "{{ bos_token }}{{ x }}{{ add_generation_prompt }}",
               "--tools", tmp_path / "tools.json", "--documents", tmp_path / "documents.json",
               "--chat-template-kwargs", '{"x": 1.0, "bos_token": "<s>"}')
    assert (r.stdout, r.stderr, r.returncode) == ("hifT<s>1.0True", "", 0)
    r = render(tmp_path, "", "--chat-template-kwargs", "{x}")
    assert r.returncode == 1 and "--chat-template-kwargs: JSON at byte 1" in r.stderr


# The source, its place, the line that is shown. Columns count bytes, the caret characters.
PLACES = [
    ("a\n  {{ 'é' + messages.x.y }}\n", "2:24", "  {{ 'é' + messages.x.y }}"),
    ("a\r\n{% frob %}", "2:4", "{% frob %}"),
    ("{{ 1 +\n }}", "2:2", " }}"),
    ("\n\n{{ 'x }}", "3:4", "{{ 'x }}"),
    ("{% for x in [1] %}\n{{ x | nope }}{% endfor %}", "2:8", "{{ x | nope }}{% endfor %}"),
    ("{{ messages\n | first\n / 2 }}", "3:2", " / 2 }}"),
    ("x{{ raise_exception('no') }}", "1:5", "x{{ raise_exception('no') }}"),
    ("{% macro m() %}\n\t{{ 1 // 0 }}{% endmacro %}{{ m() }}", "2:7",
     "\t{{ 1 // 0 }}{% endmacro %}{{ m() }}"),
    ("{% if x %}", "1:11", "{% if x %}"),
    ("{% include 'x' %}", "1:4", "{% include 'x' %}"),
]


@pytest.mark.sanitize
@pytest.mark.parametrize("template,place,line", PLACES)
def test_errors_are_shown_where_they_are(tmp_path, template, place, line):
    r = render(tmp_path, template)
    assert r.returncode == 1 and r.stdout == ""
    message, where, source, caret = r.stderr.rstrip("\n").split("\n")
    assert where == f"{tmp_path / 't.jinja'}:{place}"
    assert source == "  " + line
    column = int(place.split(":")[1])
    before = line.encode()[:column - 1].decode()
    assert caret == "  " + "".join("\t" if c == "\t" else " " for c in before) + "^"
    number, _ = place.split(":")
    assert f"line {number} column {column}: " in message or message == "headrace: no"
    _, refusal = oracle(template, {"messages": MESSAGES})
    if isinstance(refusal, jinja2.TemplateSyntaxError):
        assert refusal.lineno in (int(number), int(number) - 1)  # jinja2 names the last token's


def test_a_long_line_is_shown_in_part(tmp_path):
    r = render(tmp_path, "{# é #}" * 500 + "{{ 1 / 0 }}" + "é" * 300)
    _, where, source, caret = r.stderr.rstrip("\n").split("\n")
    assert where.endswith(":1:4006") and len(source) < 140
    assert source[len(caret) - 1:].startswith("/ 0 }}")


def test_large_outputs_and_histories_are_quick():
    """The bound that a server needs: a second."""
    renderer = Renderer()
    for template, variables in [
            ("{% for i in range(1000) %}{{ 'é' * 500 }}{% endfor %}", {}),
            ("{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim }}\n{% endfor %}",
             {"messages": [{"role": "user", "content": f" message {i} é "} for i in range(10000)]}),
            ("{% set ns = namespace(t='') %}{% for m in messages[::-1] %}"
             "{% if m.content is string and '<think>' in m.content %}{% set ns.t = loop.index %}{% endif %}"
             "{{ m | tojson }}{% endfor %}{{ ns.t }}",
             {"messages": [{"role": "user", "content": "<think>" * (i % 7)} for i in range(10000)]})]:
        text = json.dumps(variables)
        start = time.monotonic()
        answer = renderer.template(template, text)
        assert time.monotonic() - start < 1
        assert answer["text"] == oracle(template, variables)[0]
    renderer.close()


def test_what_never_ends_is_refused():
    renderer = Renderer()
    for template, word in [
            ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep"),
            ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps"),
            ("{% set x = 'a' * 1000000 %}{{ x * 1000000 }}", "long"),
            ("{% set ns = namespace(x='aa') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}"
             "{% endfor %}", "long")]:
        start = time.monotonic()
        answer = renderer.template(template, "{}")
        assert answer["status"] == "RESOURCE_EXHAUSTED" and word in answer["error"], answer
        assert "line 1 column " in answer["error"] and time.monotonic() - start < 5
    renderer.close()
