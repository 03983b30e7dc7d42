#!/usr/bin/env python3
"""docs/REFERENCE.md's tables, from the lists that the program itself is made of: flags.def, the commands
of main.c, openai_fields.def, metrics.def.

    tools/reference.py           writes what lies between the page's markers
    tools/reference.py --check   fails where it is not what it should be
"""
import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/REFERENCE.md"


# ---- lists of macro calls ------------------------------------------------------------------------

def arguments(text, at):
    """The arguments of a call whose opening bracket is at `at`, as text; and where it ends."""
    depth, quoted, out, begin = 0, False, [], at + 1
    i = at
    while True:
        c = text[i]
        if quoted:
            i += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        if not quoted and ((c == "," and depth == 1) or depth == 0):
            out.append(text[begin:i].strip())
            begin = i + 1
            if depth == 0:
                return out, i + 1
        i += 1


def calls(path, prefix):
    """[(macro, [argument, …])] of a .def file, in order; comments and #defines are no calls."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(), flags=re.S)
    found = []
    for m in re.finditer(rf"^({prefix}\w*)\(", text, re.M):
        found.append((m[1], arguments(text, m.end() - 1)[0]))
    return found


def string(argument):
    """A C string, perhaps in several pieces."""
    pieces = re.findall(r'"(?:[^"\\]|\\.)*"', argument)
    return "".join(ast.literal_eval(p) for p in pieces)


def letters(path):
    """#define G X | Y of a .def file, each as the set of names that it stands for."""
    out = {}
    for name, value in re.findall(r"^#define (\w+) +(.+)$", (ROOT / path).read_text(), re.M):
        out[name] = names(value, out)
    return out


def names(expression, defined):
    parts = [p.strip() for p in expression.strip("() ").split("|")]
    return [n for p in parts for n in defined.get(p, [p])]


# ---- tables --------------------------------------------------------------------------------------

def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(cell, r)) + " |" for r in rows])


def commands():
    """(name, bit, summary) in the overview's order."""
    text = (ROOT / "src/cli/main.c").read_text()
    begin = text.index("hr_cli_entries[] = {")
    entries, at = [], text.index("{", begin) + 1
    while text[at:].lstrip()[0] != "}":
        parts, at = arguments(text, text.index("{", at))
        entries.append((string(parts[0]), parts[1], string(parts[3])))
        at = text.index(",", at - 1) + 1
    return entries


def command_table():
    return table(["command", ""], [(f"`headrace {n}`", s) for n, _, s in commands()])


def flag_table():
    defined, by_bit = letters("src/cli/flags.def"), {bit: name for name, bit, _ in commands()}
    rows = []
    for _, (name, value, _, _, _, bits, text) in calls("src/cli/flags.def", "HR_FLAG"):
        shown = string(name) + ("" if value == "NULL" else f" {string(value)}")
        used = [by_bit[b] for b in names(bits, defined)]
        rows.append((f"`{shown}`", string(text), ", ".join(u for u in by_bit.values() if u in used)))
    return table(["flag", "", "commands"], sorted(rows, key=lambda r: r[0].strip("`-").lower()))


ENDPOINTS = {"HR_OPENAI_COMPLETIONS": "completions", "HR_OPENAI_CHAT": "chat",
             "HR_OPENAI_TOKENIZE": "tokenize", "HR_OPENAI_DETOKENIZE": "detokenize"}
KINDS = {"INT": "an integer", "I64": "an integer", "U32": "an integer", "F64": "a number",
         "FLAG": "true or false", "TEXT": "a string", "C_TEXT": "a string", "IDS": "a list of integers",
         "C_TEXTS": "a string or a list of them"}
FATES = {"HR_FIELD_REFUSED": "refused", "HR_FIELD_HARMLESS": "no effect", "HR_FIELD_CALL": "honoured",
         "HR_FIELD": "honoured", "HR_FIELD_LIST": "honoured", "HR_FIELD_ONLY": "one value alone"}
WHERE = {"HR_FIELD": 3, "HR_FIELD_LIST": 4, "HR_FIELD_CALL": 2, "HR_FIELD_ONLY": 2}


def field_table():
    defined, rows = letters("src/server/openai_fields.def"), []
    for macro, a in calls("src/server/openai_fields.def", "HR_FIELD"):
        of = [ENDPOINTS[n] for n in names(a[WHERE.get(macro, 1)], defined)]
        kind = KINDS[a[1]] if macro in ("HR_FIELD", "HR_FIELD_LIST") else ""
        rows.append((f"`{string(a[0])}`", kind, ", ".join(of), FATES[macro]))
    return table(["field", "", "endpoints", ""], rows)


METRICS = {"HR_GAUGE": ("gauge", 0, 2), "HR_COUNTER": ("counter", 0, 2),
           "HR_HISTOGRAM": ("histogram", 1, 3), "HR_FAMILY": (None, 0, 3), "HR_PROCESS": (None, 0, 3)}


def metric_table():
    rows = []
    for macro, a in calls("src/server/metrics.def", "HR_"):
        kind, name, text = METRICS[macro]
        rows.append((f"`{string(a[name])}`", kind or string(a[1]), string(a[text])))
    return table(["metric", "type", ""], rows)


TABLES = {"commands": command_table, "flags": flag_table, "fields": field_table, "metrics": metric_table}


def written(text):
    for name, make in TABLES.items():
        text, n = re.subn(rf"(<!-- {name}: tools/reference.py -->\n).*?(<!-- /{name} -->)",
                          lambda m: m[1] + make() + "\n" + m[2], text, flags=re.S)
        if n != 1:
            sys.exit(f"{PAGE}: its marker '{name}' is missing")
    return text


def main(arguments):
    have = PAGE.read_text()
    want = written(have)
    if arguments == ["--check"]:
        if have != want:
            sys.exit(f"{PAGE.relative_to(ROOT)} is not what the lists say: run tools/reference.py")
        print(f"reference: {sum(line.startswith('| `') for line in want.splitlines())} rows are current")
        return
    if arguments:
        sys.exit(__doc__)
    PAGE.write_text(want)


if __name__ == "__main__":
    main(sys.argv[1:])
