"""What tests of templates share: jinja2 set up as transformers sets it up, and ours."""
import datetime
import json
import pathlib
import subprocess

import jinja2
import jinja2.ext
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from conftest import BIN

NOW = datetime.datetime(2024, 12, 2, 9, 5, 7, 123)

# ---- the oracle ----------------------------------------------------------------------------------


class Generation(jinja2.ext.Extension):
    """The generation tag of transformers, without its tracking: a call block that calls its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_run"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _run(self, context, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


ENV = environment()


def oracle(template, variables):
    """(text, None) or (None, the exception)."""
    try:
        return ENV.from_string(template).render(**variables), None
    except Exception as e:  # whatever Python raises is a refusal
        return None, e


class Renderer:
    def __init__(self):
        runner = pathlib.Path(BIN).parent / "render_runner"
        if not runner.exists():
            pytest.fail(f"{runner} is not built: ninja c_tests")
        self.process = subprocess.Popen([str(runner)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(30) == 0

    def ask(self, job):
        self.process.stdin.write(job.replace("\n", " ") + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the runner died with {self.process.wait()} on {job}"
        return json.loads(line)

    def template(self, source, variables, trusted=(), repeat=None):
        """`variables` is JSON text, so that its numbers arrive as they are spelt."""
        now = [NOW.year, NOW.month, NOW.day, NOW.hour, NOW.minute, NOW.second,
               (NOW.weekday() + 1) % 7, NOW.timetuple().tm_yday - 1, NOW.microsecond]
        more = f', "repeat": {repeat}' if repeat else ""
        return self.ask('{"template": %s, "variables": %s, "trusted": %s, "now": %s%s}' %
                        (json.dumps(source), variables, json.dumps(list(trusted)), now, more))

    def chat(self, source, **chat):
        return self.ask(json.dumps({"template": source, "chat": chat}))


def same(answer, template, expected, refusal):
    if refusal is None:
        assert answer.get("text") == expected, (template, answer)
        return
    assert "text" not in answer, (template, answer, refusal)
    if type(refusal) is jinja2.exceptions.TemplateError:  # raise_exception: its words alone
        assert answer["error"] == str(refusal)
    if isinstance(refusal, jinja2.exceptions.UndefinedError):
        assert str(refusal) in answer["error"] or "inline if-expression" in str(refusal) \
            or "parameter" in str(refusal), (template, answer, refusal)
