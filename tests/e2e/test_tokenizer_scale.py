"""20,000 strings by a fixed seed through every real tokenizer: ids and texts equal `tokenizers`, and
the ids' digest is the one in tests/golden/tokenizer_digests.json, so that neither side moves unseen.

Prose is GSM8K's, code is written below in ten languages; the rest is made: all of Unicode, random
bytes, and what breaks tokenizers. After a change that is meant: HEADRACE_GOLDEN=write.
"""
import hashlib
import json
import os
import random

import pytest
from tokenizers import Tokenizer

from test_tokenizer import FOLDER, PIECES, SURROGATES, from_gguf, run
from conftest import ROOT

DIGESTS = ROOT / "tests/golden/tokenizer_digests.json"
COUNT = 20_000
CODE = [
    "#include <stdio.h>\nint main(void)\n{\n\tprintf(\"%d\\n\", 1 << 3);\n\treturn 0;\n}\n",
    "std::map<std::string, int>& m = *this; for (auto&& [k, v] : m) v += k.size() ? 1'000 : 0;\n",
    "class Foo(Bar):\n    def __init__(self, *args, **kw):\n        super().__init__(f\"{args!r:>10}\")\n",
    "const f = async ({a, ...rest}) => { await fetch(`/x?q=${a}`); return rest ?? null; };\n",
    "fn main() -> Result<(), Box<dyn Error>> {\n    let v: Vec<_> = (0..10).map(|x| x * 2).collect();\n}\n",
    "func (s *Server) Serve(l net.Listener) error {\n\tif err := s.init(); err != nil {\n\t\treturn err\n",
    "public static <T extends Comparable<T>> T max(List<? super T> xs) { return xs.get(0); }\r\n",
    "SELECT u.id, COUNT(*) AS n FROM users u LEFT JOIN t ON t.uid = u.id WHERE n >= 10 GROUP BY 1;\n",
    "#!/bin/sh\nset -eu\nfor f in \"$@\"; do [ -f \"$f\" ] && sed -i 's/a\\/b/c/g' \"$f\" >/dev/null 2>&1; done\n",
    "<!DOCTYPE html>\n<div class=\"a b\" id='c'>&nbsp;&lt;x&gt;<br/>\n  <!-- é --></div>\n",
    "def fib: Int => BigInt = { case 0 | 1 => 1; case n => fib(n - 1) + fib(n - 2) } // λ\n",
]
NASTY = [" ", "  ", "\t", "\n", "\r\n", "\r", "\n\n\n", " \n ", "\0", "\u0301", "\u0323\u0301", "e\u0301",
         "\u200d", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "\ufeff", "\u2028", "\x85", "\xa0", "\u3000", "\u1100\u1161", "ﬁ",
         "½", "٣", "'ſ", "İ", "ß", "\u2581", "<0x41>", "���"]


def strings(special):
    """As many of each kind; `special` is what the tokenizer adds, met adjacent and nested."""
    r = random.Random(20_000)
    prose = [json.loads(line)["question"] for line in
             (ROOT / "tests/data/gsm8k/test.jsonl").read_text().splitlines()]
    code = "".join(CODE)
    nasty = NASTY + special + [s[:-1] for s in special] + [s + s[1:] for s in special]

    def part(text, most):
        at = r.randrange(len(text))
        return text[at:at + r.randint(1, most)]

    def unicode():
        low = r.randrange(0, 0x33480, 64) if r.random() < 0.9 else r.randrange(0x33480, 0x110000, 64)
        return "".join(chr(c) for c in r.choices(range(low, low + 64), k=r.randint(1, 20))
                       if c not in SURROGATES)
    kinds = [
        lambda: part(r.choice(prose), 160), lambda: part(code, 160), unicode,
        lambda: r.randbytes(r.randint(1, 24)).decode(errors="replace"),
        lambda: "".join(r.choice(nasty) for _ in range(r.randint(1, 10))),
        lambda: "".join(r.choice(PIECES) for _ in range(r.randint(1, 6))),
        lambda: r.choice("ab \n_é1") * r.randint(1, 60),
    ]
    return [kinds[i % len(kinds)]() for i in range(COUNT)]


def digest(lists):
    return hashlib.sha256(json.dumps(lists, separators=(",", ":")).encode()).hexdigest()


def check_digest(name, ids):
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    if os.environ.get("HEADRACE_GOLDEN") == "write":
        DIGESTS.write_text(json.dumps({**known, name: digest(ids)}, indent=1, sort_keys=True) + "\n")
        return
    assert digest(ids) == known[name]


@pytest.mark.parametrize("name", ["llama2", "llama3", "llama3_1", "qwen2_5", "qwen3", "gemma3",
                                  "gpt4o", "deepseek_v3", "smollm2"])
def test_twenty_thousand_strings(name, request):
    if name == "smollm2":
        path = request.getfixturevalue("smollm2")
        oracle = from_gguf(path)
    else:
        path = FOLDER / name / "tokenizer.json"
        if not path.exists():
            pytest.skip(f"{path} is missing: tools/setup.sh fetches it")
        oracle = Tokenizer.from_file(str(path))
    added = [t.content for t in oracle.get_added_tokens_decoder().values()]
    texts = strings(added[:6] + added[-6:])
    ids = run(path, texts)
    for text, ours, theirs in zip(texts, ids, oracle.encode_batch(texts)):
        assert ours == theirs.ids, text
    check_digest(name, ids)
    some = [i for i in ids[::5] if i]
    want = oracle.decode_batch(some, skip_special_tokens=False)
    assert run(path, some) == want
