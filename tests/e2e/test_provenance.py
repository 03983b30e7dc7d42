"""Where each byte comes from: what a client sent is data after every filter, method and operator, and
after templates made at random; what the template wrote is not. Client text is of circled letters, which
no template here writes, so each of them in the output must lie in a data span, whatever it became."""
import json
import os
import random
import re

import pytest

from rendering import Renderer
from test_random_templates import FILTERS, METHODS, Maker
from test_templates import VARIABLES

# Circled letters as they are, and as \uXXXX, \\xXX and %XX escapes spell them.
TRACE = re.compile(r"[ⓐ-ⓩⒶ-Ⓩ①-⑨]|\\u24[0-9a-fA-F]{2}|%E2%9[123]%[0-9A-F]{2}")
CLIENT = {
    "s": "ⓐⓑ ⓒ,ⓓ\nⓔ ⓕ", "l": ["ⓖⓗ", "ⓘ", "ⓙ ⓚ"], "d": {"ⓛ": "ⓜ", "a": "ⓝ", "k": ["ⓞ"]},
    "o": [{"n": "ⓟ", "k": "ⓠ"}, {"n": "ⓡ", "k": "ⓢ"}], "deep": {"items": [{"x": {"y": "ⓣ"}}]},
}


@pytest.fixture(scope="module")
def renderer():
    r = Renderer()
    yield r
    r.close()


def traces(answer):
    """How often a client's text shows; each time it must be data, and wholly."""
    seen = 0
    for text, data in answer["spans"]:
        found = TRACE.findall(text)
        assert data or not found, answer["spans"]
        seen += len(found)
    # an escape that is split between spans is in none of them whole
    assert seen == len(TRACE.findall(answer["text"])), answer["spans"]
    return seen


def render(renderer, template, variables):
    return renderer.template(template, json.dumps(variables), ("bos_token",))


@pytest.mark.parametrize("operation", [f"|{f}" for f in FILTERS] + [f".{m}" for m in METHODS])
def test_filters_and_methods(renderer, operation):
    """On every kind of value; some do not take some."""
    for name in CLIENT:
        answer = render(renderer, f"[{{{{ {name}{operation} }}}}]", CLIENT)
        if "text" in answer:
            traces(answer)
            assert answer["spans"][0][0].startswith("[") and not answer["spans"][0][1]
            assert answer["spans"][-1][0].endswith("]") and not answer["spans"][-1][1]


@pytest.mark.parametrize("template,shown", [
    ("{{ s + 'x' }}", 6), ("{{ 'x' ~ s ~ 1 }}", 6), ("{{ s * 3 }}", 18), ("{{ s[::-1] }}", 6),
    ("{{ s[1:] }}", 5), ("{{ s[0] }}{{ s|first }}{{ s|last }}", 3), ("{{ '%s|%5r' % (s, l) }}", 11),
    ("{{ '%(a)s' % d }}", 1), ("{{ s % () }}", 6), ("{{ '{} {x!r:>40}'.format(s, x=l) }}", 11),
    ("{{ '{0[a]}'.format(d) }}", 1), ("{{ s.format(1) }}", 6), ("{{ 'a-b'.replace('-', s) }}", 6),
    ("{{ s.replace('ⓐ', 'x') }}", 5), ("{{ s.split(',')|join('|') }}", 6), ("{{ s.join('ab') }}", 6),
    ("{{ l|join(s) }}", 17), ("{{ s|tojson(ensure_ascii=true) }}", 6), ("{{ d|tojson(indent=2) }}", 4),
    ("{{ [s, l, d] }}", 15), ("{{ s|urlencode }}", 6), ("{{ s|indent(s, true) }}", 18),
    ("{{ 'abc'|center(9)|replace(' ', s) }}", 36), ("{{ 'x'.center(3, s[0]) }}", 2),
    ("{{ 'abcdef'|truncate(4, true, s[0], 0) }}", 1), ("{{ s|upper|lower|title|trim }}", 6),
    ("{% set x = s %}{{ x }}", 6), ("{% set x %}a{{ s }}b{% endset %}{{ x|upper }}", 6),
    ("{% set ns = namespace(x=s) %}{% set ns.x = ns.x ~ s %}{{ ns.x }}", 12),
    ("{% macro m(a, b=s) %}{{ a }}{{ b }}{% endmacro %}{{ m(s)|upper }}", 12),
    ("{% macro m() %}{{ caller(s) }}{% endmacro %}{% call(a) m() %}<{{ a }}>{% endcall %}", 6),
    ("{% filter upper %}a{{ s }}{% endfilter %}", 6), ("{% for c in s %}{{ c }}{% endfor %}", 6),
    ("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", 4), ("{{ d.keys()|list }}", 1),
    ("{% for x in deep['items'] recursive %}{{ x.x.y }}{% endfor %}", 1),
    ("{{ (s|safe) + '<' }}{{ ('<%s>'|safe) % s }}{{ ('<'|safe) + s }}", 18), ("{{ s|e|string }}", 6),
    ("{{ o|map(attribute='n')|list }}{{ o|groupby('k') }}", 8), ("{{ dict(a=s)['a'] }}", 6),
    ("{{ s if true else 'x' }}{{ none or s }}{{ nope|default(s) }}", 18),
    ("{% with a = s %}{{ a }}{% endwith %}{{ cycler(s, 'x').next() }}", 12),
    ("{{ strftime_now(s) }}", 6), ("{% generation %}{{ s }}{% endgeneration %}", 6)])
def test_what_is_shown_is_data(renderer, template, shown):
    assert traces(render(renderer, template, CLIENT)) == shown


@pytest.mark.parametrize("template,own", [
    ("{{ bos_token ~ s ~ '</s>' }}", "<s></s>"), ("{{ '<' }}{{ s|length }}{{ '>' }}", "<10>"),
    ("{{ (bos_token ~ s).upper() }}", "<S>"), ("{{ 'a' if s else 'b' }}{{ loop is defined }}", "aFalse"),
    ("{% for c in l %}{{ loop.index }}{% endfor %}", "123"), ("{{ s is string }}", "True")])
def test_what_a_template_writes_is_its_own(renderer, template, own):
    answer = render(renderer, template, {**CLIENT, "bos_token": "<s>"})
    assert "".join(text for text, data in answer["spans"] if not data) == own


def test_escapes_and_numbers(renderer):
    """One character that becomes several; a number, which has no marks of its own."""
    for template, text in [("{{ x|e }}", "&lt;&#39;"), ("{{ x|tojson }}", '"<\'"'),
                           ("{{ [x] }}", '["<\'"]'), ("{{ x|urlencode }}", "%3C%27")]:
        answer = render(renderer, template, {"x": "<'"})
        data = "".join(text for text, data in answer["spans"] if data)
        assert answer["text"] == text and data == text.strip('["]')
    for template in ("{{ n }}", "{{ n + 1 - 1 }}", "{{ '%d' % n }}", "{{ n|string }}", "{{ n * 1.0 }}",
                     "{{ '{:,}'.format(n) }}", "{{ [n][0] }}", "{{ n|round }}", "{{ n|tojson }}",
                     "{{ -n }}", "{{ n|float|int }}", "{{ ('%s' % n)|int }}", "{{ b }}", "{{ none_ }}"):
        answer = render(renderer, template, {"n": 7777, "b": True, "none_": None})
        assert all(data for _, data in answer["spans"]), (template, answer)


def circled(value):
    """The same variables, their texts of circled letters; keys stay, templates ask for them."""
    if isinstance(value, str):
        return "".join(chr(0x24D0 + ord(c) % 26) if c.isalpha() else c for c in value)
    if isinstance(value, list):
        return [circled(v) for v in value]
    return {k: circled(v) for k, v in value.items()} if isinstance(value, dict) else value


class ClientsMaker(Maker):
    """Most values are a client's."""

    def atom(self):
        return self.pick("name", "msgs", "d", "keyed", "objs", "tool", "tool.a", "tool.description",
                         "msgs[0]", "objs[0]", "'-'", "1", "'%s'", "'{}'", "[name, d]")


def test_random_templates(renderer):
    maker = ClientsMaker(random.Random(int(os.environ.get("HEADRACE_TEMPLATES_SEED", 9))))
    variables = json.dumps(circled(json.loads(VARIABLES)))
    shown = 0
    for _ in range(2500):
        answer = renderer.template(maker.template(), variables)
        shown += traces(answer) if "text" in answer else 0
    assert shown > 1000
