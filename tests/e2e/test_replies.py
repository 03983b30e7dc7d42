"""Answers taken apart (src/text/reply.h): against a parser of whole texts written here, whatever was
generated and however it is cut. The runner cuts every text at each byte, in two and into single
characters, and refuses when the message is another one."""
import json
import pathlib
import random
import re
import subprocess

import pytest
from conftest import BIN

MARKS = {"hermes": ("<tool_call>", "</tool_call>"), "llama3_json": ("<|python_tag|>", None),
         "mistral": ("[TOOL_CALLS]", None), "none": (None, None)}
THOUGHTS = {"deepseek_r1": ("<think>", "</think>"), "qwen3": ("<think>", "</think>"),
            "mistral": ("[THINK]", "[/THINK]")}
BLANK = " \n\t\r"
OPENS, CLOSES = "\ue000", "\ue001"  # special tokens that the text does not show


def answers(jobs):
    runner = pathlib.Path(BIN).parent / "reply_runner"
    lines = "".join(json.dumps(j) + "\n" for j in jobs)
    r = subprocess.run([runner], input=lines, capture_output=True, text=True, check=True, timeout=300)
    out = [json.loads(line) for line in r.stdout.splitlines()]
    assert len(out) == len(jobs)
    return out


def one(text, calls="hermes", reasoning="none", **more):
    return answers([{"calls": calls, "reasoning": reasoning, "text": [text], **more}])[0]


# ---- the oracle: whole texts ----------------------------------------------------------------------

class Malformed(Exception):
    """Not a call; `at` is the first place that was not read."""

    def __init__(self, at):
        self.at = at


def no_twins(pairs):
    if len({k for k, _ in pairs}) < len(pairs):
        raise ValueError("twice")
    return dict(pairs)


def no_constant(name):
    raise ValueError(name)


def load(text):
    return json.loads(text, object_pairs_hook=no_twins, parse_constant=no_constant)


class Call:
    """One call's object out of s[at:]."""

    def __init__(self, s, at, style):
        self.s, self.i, self.style = s, at, style
        self.name = self.arguments = None
        self.committed = self.broken = False

    def blanks(self):
        while self.i < len(self.s) and self.s[self.i] in BLANK:
            self.i += 1

    def here(self):
        """The next character; the end, or a special token, ends what is being read."""
        if self.i >= len(self.s) or self.s[self.i] in OPENS + CLOSES:
            raise Malformed(self.i)
        return self.s[self.i]

    def value(self):
        """The raw text of the value here; None when it is cut off or broken."""
        start, depth, scalar = self.i, 0, self.here() not in '"{['
        if self.s[start] in ",:}]":
            raise Malformed(start)
        while True:
            c = self.here()
            if scalar and c in ",}]" + BLANK:
                return self.s[start:self.i]
            if c == "<" and self.style == "hermes":
                raise Malformed(self.i)
            if c == '"':
                m = re.compile(r'"(?:[^"\\\ue000\ue001]|\\[^\ue000\ue001])*').match(self.s, self.i)
                self.i = m.end()
                self.here()
            depth += (c in "{[") - (c in "}]")
            self.i += 1
            if not scalar and not depth:
                return self.s[start:self.i]

    def tell(self, key, raw, end):
        try:
            if key == "name":
                self.name = load(raw)
                good = isinstance(self.name, str) and self.name
            elif key in ("arguments", "parameters") and self.arguments is None:
                v = load(raw)
                self.arguments = {str: lambda: v, dict: lambda: raw}.get(type(v), lambda: "{}")()
                good = isinstance(load(self.arguments), dict) and (v is None or isinstance(v, (str, dict)))
            else:
                good = bool(raw) and (load(raw), True)[1]
        except ValueError:
            good = False
        if not good:
            raise Malformed(end)
        self.committed = self.name is not None and self.arguments is not None

    def stream(self):
        self.committed, start = True, self.i
        try:
            self.arguments = self.value()
        except Malformed:
            self.arguments = self.s[start:self.i]
            raise

    def member(self):
        start = self.i
        self.i += 1
        while self.here() != '"':
            self.i += 1 + (self.s[self.i] == "\\" and self.i + 1 < len(self.s)
                           and self.s[self.i + 1] not in OPENS + CLOSES)
        self.i += 1
        try:
            key = load(self.s[start:self.i])
        except ValueError:
            raise Malformed(self.i) from None
        self.blanks()
        self.want(":")
        self.blanks()
        wanted = key in ("arguments", "parameters") and self.arguments is None and not self.committed
        if wanted and self.here() == "{" and self.name is not None:
            self.stream()
            return
        raw = self.value()
        if not self.committed:
            self.tell(key, raw, self.i)

    def want(self, c):
        if self.here() != c:
            raise Malformed(self.i)
        self.i += 1

    def read(self):
        """To behind its closing brace. Malformed before it is a call, else .broken."""
        try:
            self.want("{")
            self.blanks()
            first = True
            while True:
                if self.here() == "}" and first or not first and self.s[self.i] == "}":
                    break
                if not first:
                    self.want(",")
                    self.blanks()
                if self.here() != '"':
                    raise Malformed(self.i)
                self.member()
                self.blanks()
                self.here()
                first = False
            if not self.committed:
                if self.name is None or self.style == "llama3_json":
                    raise Malformed(self.i)
                self.committed, self.arguments = True, "{}"
            self.i += 1
        except Malformed:
            if not self.committed:
                raise
            self.broken = True
        return self


class Text:
    """The content and the calls of a text without reasoning."""

    def __init__(self, s, style):
        self.s, self.style, self.i = s, style, 0
        self.content, self.calls, self.fresh = "", [], style != "none"
        self.open, self.close = MARKS[style]

    def say(self, text):
        self.content += text.translate({ord(OPENS): None, ord(CLOSES): None})
        self.fresh = False

    def take(self, call):
        self.calls.append([call.name, call.arguments])
        self.i = call.i
        self.fresh = True
        if call.broken or self.style == "hermes":
            self.tail()

    def tail(self):
        marks = [m for m in (self.open, self.close, OPENS, CLOSES) if m]
        m = re.compile("|".join(map(re.escape, marks))).search(self.s, self.i)
        self.i = len(self.s) if not m else m.end() if m[0] in (self.close, CLOSES) else m.start()

    def bare(self):
        m = re.compile(r"""([^\x00-\x20"{}\[\]<>(),;\ue000\ue001]{1,256})"""
                       r"(?=[ \n\t\r\[{])").match(self.s, self.i)
        plain = re.compile(r"""[^\x00-\x20"{}\[\]<>(),;\ue000\ue001]{0,256}""").match(self.s, self.i)
        if not m:
            raise Malformed(plain.end())
        call = Call(self.s, m.end(), self.style)
        depth = 0
        while not (call.here() == "{" and not depth):
            c = self.s[call.i]
            if not re.match(r"[\[\] \n\t\r0-9A-Za-z_]", c):
                raise Malformed(call.i)
            depth = {"[": 1, "]": 0}.get(c, depth)
            call.i += 1
        call.name = m[1]
        try:
            call.stream()
        except Malformed:
            call.broken = True
        self.take(call)

    def listed(self):
        while True:
            j = self.i
            while j < len(self.s) and self.s[j] in BLANK:
                j += 1
            if j >= len(self.s) or self.s[j] != "{":
                raise Malformed(j)
            self.take(Call(self.s, j, self.style).read())
            if self.i < len(self.s) and self.s[self.i - 1] != "}":
                return
            while self.i < len(self.s) and self.s[self.i] in BLANK:
                self.i += 1
            if self.i >= len(self.s):
                return
            if self.s[self.i] == "]":
                self.i += 1
                return
            if self.s[self.i] != ",":
                self.tail()
                return
            self.i += 1

    def marked(self, start):
        """Behind a mark that began at `start`."""
        while self.i < len(self.s) and self.s[self.i] in BLANK:
            self.i += 1
        at = self.s[self.i:self.i + 1]
        if at == "{" or self.style != "mistral" or not at:
            self.take(Call(self.s, self.i, self.style).read())
        elif at == "[":
            self.i += 1
            self.listed()
        else:
            self.bare()

    def read(self):
        while self.i < len(self.s):
            blank = re.compile(r"[ \n\t\r;]*" if self.style == "llama3_json" and self.calls
                               else r"[ \n\t\r]*").match(self.s, self.i)
            if self.fresh:
                gap, self.i = blank[0], blank.end()
                if self.i == len(self.s):
                    if not self.calls:
                        self.say(gap)
                    return self
            else:
                gap = ""
            start, n = self.i, len(self.calls)
            here = self.s.startswith(self.open, start) if self.open else False
            try:
                if here or self.s[start] == OPENS:
                    self.i += len(self.open) if here else 1
                    self.marked(start)
                elif self.style == "llama3_json" and self.fresh and self.s[start] == "{":
                    self.take(Call(self.s, start, self.style).read())
                else:
                    self.say(gap + self.s[start])
                    self.i += 1
            except Malformed as e:
                if len(self.calls) > n:  # a later element of a list: its own text alone
                    gap, start = "", self.i
                self.say(gap + self.s[start:e.at])
                self.i = e.at
        return self


def oracle(job):
    text = "".join(t if isinstance(t, str) else OPENS if t[0] == MARKS[job["calls"]][0] else CLOSES
                   for t in job["text"])
    reasoning, prompt = "", job.get("prompt", "").strip()
    if job["reasoning"] != "none":
        opens, closes = THOUGHTS[job["reasoning"]]
        inside = job["reasoning"] == "deepseek_r1" or prompt.endswith(opens)
        m = re.match(r"[ \n\t\r]*" + re.escape(opens), text)
        if not prompt.endswith(closes) and (m or inside):
            reasoning, _, text = text[m.end() if m else 0:].partition(closes)
    t = Text(text, job["calls"]).read()
    calls = t.calls[:1] if job.get("one_call") else t.calls
    return {"content": t.content, "reasoning": reasoning, "calls": calls}


# ---- answers that are made up ---------------------------------------------------------------------

WORDS = ["get_weather", "a", "x\"y", "naïve", "{", "}", "[", "]", "<tool_call>", "</tool_call>",
         "\\", "\n", "日本", "[TOOL_CALLS]", "<|python_tag|>", ";", ",", "<", "😀", ""]


def made_value(r, depth=0):
    kind = r.randrange(8 if depth < 3 else 5)
    if kind < 2:
        return "".join(r.choice(WORDS) for _ in range(r.randrange(3)))
    if kind < 5:
        return r.choice([0, -1.5, 1e30, True, False, None])
    if kind == 5:
        return [made_value(r, depth + 1) for _ in range(r.randrange(3))]
    return {r.choice("abcde") + str(i): made_value(r, depth + 1) for i in range(r.randrange(3))}


def made_object(r):
    """A call's object, whole or with a flaw."""
    arguments = {f"k{i}": made_value(r) for i in range(r.randrange(3))}
    members = [("name", r.choice(["f", "get_weather", "a.b", "naïve"])),
               (r.choice(["arguments", "parameters"]), arguments)]
    flaw = r.randrange(12)
    if flaw == 0:
        members.pop(r.randrange(2))
    if flaw == 1:
        members.insert(r.randrange(3), (r.choice(["id", "type"]), made_value(r)))
    if flaw == 2:
        members.reverse()
    if flaw == 3:
        members[1] = members[1][0], r.choice([json.dumps(arguments), None, 5, "no", [1]])
    if flaw == 4:
        members[0] = "name", r.choice(["", None, 7, ["f"]])
    text = json.dumps(dict(members), ensure_ascii=r.random() < 0.5,
                      separators=r.choice([(",", ":"), (", ", ": "), (" ,\n ", " :\t")]))
    if flaw == 5:
        at = r.randrange(len(text))
        text = text[:at] + r.choice(['"', "{", "}", "<", ",", "x", "]"]) + text[at + r.randrange(2):]
    return text


def made_call(r, style):
    opens, closes = MARKS[style]
    blank = r.choice(["", "\n", " ", "\n\n"])
    if style == "hermes":
        return opens + blank + made_object(r) + blank + r.choice([closes, closes, closes, ""])
    if style == "llama3_json":
        return r.choice([opens, "", ""]) + made_object(r)
    if r.random() < 0.5:
        items = [made_object(r) for _ in range(r.randrange(1, 3))]
        return opens + blank + "[" + r.choice([", ", ","]).join(items) + r.choice(["]", "]", ""])
    name = r.choice(["f", "get_weather", "a b", "f[ARGS]", "f[CALL_ID]a1[ARGS]", "f("])
    return opens + name + blank + json.dumps({"k": made_value(r)})


def made_text(r, style):
    parts = []
    for _ in range(r.randrange(1, 5)):
        kind = r.randrange(5)
        if kind < 3 and style != "none":
            parts.append(made_call(r, style))
        elif kind == 3:
            parts.append(r.choice(["\n", " ", "; ", "Sure, let me see.\n", "x", "<", "[", "<tool_",
                                   "[TOOL", "<|python", "日本", "<<tool_call>", "{\"a\": 1}", "  "]))
        else:
            parts.append(r.choice(WORDS))
    text = "".join(parts)
    return text[:r.randrange(len(text) + 1)] if r.random() < 0.3 else text


def made_job(r):
    style = r.choice(list(MARKS))
    thoughts = r.choice(["none", "none", *THOUGHTS])
    job = {"calls": style, "reasoning": thoughts, "one_call": r.random() < 0.2}
    text = made_text(r, style)
    if thoughts != "none":
        opens, closes = THOUGHTS[thoughts]
        think = r.choice(["", "\n", "Let me think.", "a < b", closes[:4], "<tool_call>", "日本"])
        text = (r.choice([opens, "\n" + opens, "", opens[:3]]) + think
                + r.choice([closes, closes, ""]) + r.choice(["", "\n\n"]) + text)
        job["prompt"] = r.choice(["", "<|im_start|>assistant\n", f"x{opens}\n", f"{opens}\n\n{closes}\n\n"])
    job["text"] = [text]
    return job


@pytest.mark.sanitize
@pytest.mark.parametrize("seed", range(2))
def test_made_up_answers_are_read_as_the_oracle_reads_them(seed):
    r = random.Random(seed)
    jobs = [made_job(r) for _ in range(2500)]
    met = set()
    for job, got in zip(jobs, answers(jobs)):
        want = oracle(job)
        assert got == want, (job, want)
        met |= {(job["calls"], len(got["calls"]), bool(got["content"]), bool(got["reasoning"]))}
    for style in ("hermes", "llama3_json", "mistral"):
        assert {(style, n, c, t) for n in (0, 1, 2) for c in (False, True) for t in (False, True)} - {
            (style, 0, False, False)} <= met | {(style, 0, False, False)}, met


# ---- special tokens, prompts, names ---------------------------------------------------------------

def hidden(job, r):
    """The same with marks of calls and reasoning as special tokens here and there."""
    opens, closes = MARKS[job["calls"]]
    marks = [m for m in (opens, closes) if m]
    parts = re.split("(" + "|".join(map(re.escape, marks)) + ")", job["text"][0])
    text = []
    for i, part in enumerate(parts):
        if i % 2 and r.random() < 0.7:
            text.append([part])
        elif part:
            text.append(part)
    return {**job, "text": text, "reasoning": "none"}


@pytest.mark.sanitize
def test_special_tokens_are_marks_that_no_text_spells():
    r = random.Random(9)
    jobs = [j for j in (made_job(r) for _ in range(2000)) if j["calls"] != "none"]
    jobs = [hidden(j, r) for j in jobs]
    for job, got in zip(jobs, answers(jobs)):
        assert got == oracle(job), (job, oracle(job))
    assert sum(isinstance(t, list) for j in jobs for t in j["text"]) > 700


def test_a_special_mark_is_never_shown():
    for calls, mark, text in (("llama3_json", "<|python_tag|>", "print(1)"),
                              ("mistral", "[TOOL_CALLS]", " no call"), ("hermes", "<tool_call>", "{]")):
        got, = answers([{"calls": calls, "reasoning": "none", "text": [[mark], text]}])
        assert got == {"content": text, "reasoning": "", "calls": []}
    got, = answers([{"calls": "hermes", "reasoning": "qwen3",
                     "text": [["<think>"], "hm", ["</think>"], "Yes", ["</think>"], ["<|other|>"]]}])
    assert got == {"content": "Yes", "reasoning": "hm", "calls": []}
    # without reasoning, whatever the parser
    call = '{"name": "f", "arguments": {}}'
    got, = answers([{"calls": "hermes", "reasoning": "qwen3", "text": [["<tool_call>"], call]}])
    assert got["calls"] == [["f", "{}"]]
    # a mark inside of reasoning is a thought
    got, = answers([{"calls": "hermes", "reasoning": "deepseek_r1", "text": [["<tool_call>"], call]}])
    assert got == {"content": "", "reasoning": call, "calls": []}


@pytest.mark.parametrize("prompt,anywhere,inside", [
    ("<|im_start|>assistant\n<think>\n", False, True), ("<think>", False, True),
    ("<think>\n\n</think>\n\n", False, False), ("<|im_start|>assistant\n", False, False),
    ("<think>a</think>b<|im_start|>assistant\n", False, False), ("<think>a", True, True),
    ("<think>a</think>b", True, False), ("", True, False)])
def test_what_a_prompt_says_about_reasoning(prompt, anywhere, inside):
    got = one("hm</think>Yes", reasoning="qwen3", prompt=prompt, anywhere=anywhere)
    assert got["reasoning"] == ("hm" if inside else "")
    assert got["content"] == ("Yes" if inside else "hm</think>Yes")


@pytest.mark.parametrize("template,calls,reasoning", [
    ("", "none", "none"), ("{{ tools }} <tool_call>", "hermes", "none"),
    ("<tool_call> <function=x> </think>", "none", "qwen3"), ("<tool_call><arg_key>", "none", "none"),
    ("[TOOL_CALLS] [THINK]", "mistral", "mistral"), ("<|python_tag|> \"parameters\"", "llama3_json", "none"),
    ("<|python_tag|>", "none", "none")])
def test_auto_goes_by_the_template(template, calls, reasoning):
    got, = answers([{"template": template}])
    assert got == {"calls": calls, "reasoning": reasoning}


def test_a_wrong_name_is_refused_with_the_right_ones():
    for job, names in (({"calls": "qwen"}, "auto, hermes, llama3_json, mistral or none"),
                       ({"reasoning": "r1"}, "auto, deepseek_r1, qwen3, mistral or none")):
        assert names in answers([job])[0]["error"]


def test_time_is_linear():
    """A megabyte of what is hardest to decide, in seconds."""
    for text in ("<tool_call>" * 90000, '<tool_call>{"a": "' + "x" * 10 ** 6, "<" * 10 ** 6, " " * 10 ** 6,
                 '<tool_call>{"a": ' + "[" * 10 ** 6, '<tool_call>{"a":1,' * 60000):
        job = {"calls": "hermes", "reasoning": "none", "text": [text], "uncut": True}
        assert answers([job])[0]["content"] == text
