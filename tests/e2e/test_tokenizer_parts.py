"""Every component of a tokenizer.json, made by the `tokenizers` package and compared with it.

Boundaries of pieces show because ByteLevel with add_prefix_space begins each with a blank; texts
show because every byte is a token.
"""
import json
import random

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from test_tokenizer import ALL, BASE, byte_level, check, mixed, plain_bytes, run, same
from conftest import headrace

R = random.Random
MOST = ALL[:135]  # up to U+20DC7: nothing changes behind


def words(n, alphabet, seed, longest=12):
    r = R(seed)
    return ["".join(r.choice(alphabet) for _ in range(r.randint(0, longest))) for _ in range(n)]


BLANKS = [" ", "  ", "\u2581", "\n", "\t", "\xa0", "a", "b", "Z", "é", "\u3000", "x ", "<m>", "\x1f"]


# ---- normalizers -----------------------------------------------------------------------------

@pytest.mark.sanitize
@pytest.mark.parametrize("normalizer", [
    normalizers.Lowercase(), normalizers.Strip(), normalizers.Strip(left=False),
    normalizers.Strip(right=False), normalizers.ByteLevel(),
    normalizers.Replace(Regex(r"\s+"), "_"), normalizers.Replace(Regex(r"^\s|b$"), ""),
    normalizers.Replace(Regex(r"\p{L}(?=\s)"), "é"),
    normalizers.Replace("  ", " "),
    normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                          normalizers.Replace(Regex(" {2,}"), "\u2581"), normalizers.Prepend("q")]),
], ids=repr)
def test_normalizers(tmp_path, normalizer):
    texts = MOST + words(500, BLANKS, 1) + ["İı ΑΣ ΣΑΣ ǅ ꟋꟌ", " ", "\u200b "]
    check(tmp_path, byte_level(plain_bytes(), normalizer), texts)


# ---- pre-tokenizers --------------------------------------------------------------------------

def seen(*stages):
    return pre_tokenizers.Sequence([*stages, plain_bytes(True)])


@pytest.mark.sanitize
@pytest.mark.parametrize("stage", [
    pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(),
    pre_tokenizers.CharDelimiterSplit("b"), pre_tokenizers.CharDelimiterSplit("é"),
    *(pre_tokenizers.Punctuation(b) for b in ("isolated", "removed", "merged_with_previous",
                                              "merged_with_next", "contiguous")),
], ids=repr)
def test_pre_tokenizers(tmp_path, stage):
    texts = MOST + words(500, [*BLANKS, "!", "¿?", "-", "_", "1", "\u200d", "ⓐ", "\u0301"], 2)
    check(tmp_path, byte_level(seen(stage)), texts)


def chars(pre, unk="<u>", byte_fallback=False, fuse_unk=False, added=(), normalizer=None):
    """A BPE of characters, some of which it does not know."""
    vocab = ["<u>", *"ab \u2581_ZĠ", *(f"<0x{i:02X}>" for i in range(256)), "\u2581a", "\u2581\u2581",
             "ab", "aa"]
    merges = [("\u2581", "a"), ("\u2581", "\u2581"), ("a", "b"), ("a", "a")]
    t = Tokenizer(models.BPE({x: i for i, x in enumerate(vocab)}, merges, unk_token=unk,
                             byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    t.pre_tokenizer = pre
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    if normalizer:
        t.normalizer = normalizer
    if added:
        t.add_tokens(list(added))
    return t


@pytest.mark.sanitize
@pytest.mark.parametrize("scheme", ["always", "first", "never"])
@pytest.mark.parametrize("splits", [False, True])
def test_metaspace(tmp_path, scheme, splits):
    texts = words(600, [*BLANKS, "<n>", "aa", "q"], 3) + [" a", "a", "\u2581a", "  a b ", "<m>a<m> a"]
    added = [AddedToken("<m>", normalized=False), AddedToken("<n>", normalized=True, rstrip=True)]
    stage = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits)
    for before in ([], [pre_tokenizers.WhitespaceSplit()], [pre_tokenizers.Punctuation("removed")],
                   [pre_tokenizers.Whitespace()]):
        for normalizer in (None, normalizers.Strip(), normalizers.Replace("q", "")):
            oracle = chars(pre_tokenizers.Sequence([*before, stage]), added=added,
                           normalizer=normalizer)
            check(tmp_path, oracle, texts)


def test_metaspace_as_older_files_spell_it(tmp_path):
    path = tmp_path / "tokenizer.json"
    chars(pre_tokenizers.Metaspace()).save(str(path))
    for spelt in ({"add_prefix_space": True}, {},
                  {"add_prefix_space": False, "prepend_scheme": "never", "str_rep": "\u2581"}):
        file = json.loads(path.read_text())
        file["pre_tokenizer"] = {"type": "Metaspace", "replacement": "\u2581", **spelt}
        old = tmp_path / "old.json"
        old.write_text(json.dumps(file))
        texts = words(100, BLANKS, 4)
        oracle = Tokenizer.from_file(str(old))
        assert run(old, texts) == [e.ids for e in oracle.encode_batch(texts)]


@pytest.mark.sanitize
def test_stages_after_byte_level(tmp_path):
    """They see the byte-level alphabet, as Falcon's file has it: U+00B2 there is a number."""
    pre = pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(False),
        pre_tokenizers.Split(Regex("[0-9][0-9][0-9]"), "isolated")])
    oracle = byte_level(pre)
    check(tmp_path, oracle, mixed(500, 5) + MOST[:60] + ["²³1234½ \u00b2"])


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("fallback", [False, True])
@pytest.mark.parametrize("unk", [None, "<u>"])
def test_bytes_that_the_vocabulary_does_not_know(tmp_path, fuse, fallback, unk):
    for pre in (plain_bytes(), pre_tokenizers.Metaspace()):
        oracle = chars(pre, unk, fallback, fuse)
        check(tmp_path, oracle, words(400, [*"ab Zé", "aa", "\u2581", "好", "\x00"], 6))


def test_dropout_is_ignored(tmp_path):
    oracle = chars(pre_tokenizers.Metaspace())
    path = tmp_path / "tokenizer.json"
    oracle.save(str(path))
    file = json.loads(path.read_text())
    file["model"]["dropout"] = 0.5
    path.write_text(json.dumps(file))
    texts = words(200, [*"ab ", "aa"], 7)
    assert run(path, texts) == [e.ids for e in oracle.encode_batch(texts)]


# ---- decoders --------------------------------------------------------------------------------

D = decoders
CHAINS = [
    None, D.Fuse(), D.ByteFallback(), D.Metaspace(), D.Metaspace(prepend_scheme="never"),
    D.Metaspace(prepend_scheme="first"), D.Replace("a", "xyz"), D.Strip("a", 2, 0), D.Strip("b", 0, 1),
    D.Strip("\u2581", 1, 0), D.Sequence([D.Replace("\u2581", " "), D.Fuse(), D.Strip(" ", 1, 0)]),
    D.Sequence([D.Replace("\u2581", " "), D.Replace(" ", "_"), D.Replace("a", "")]),
    D.Sequence([D.Fuse(), D.Strip("a", 1, 0)]), D.Sequence([D.Strip("a", 1, 0), D.Replace("b", "a")]),
    D.Sequence([D.ByteFallback(), D.Metaspace()]), D.Sequence([D.Metaspace(), D.ByteFallback()]),
    D.ByteLevel(),
]


@pytest.mark.sanitize
@pytest.mark.parametrize("decoder", CHAINS, ids=repr)
def test_decoders(tmp_path, decoder):
    special = AddedToken("<s>", special=True)
    t = chars(pre_tokenizers.Metaspace(), added=[AddedToken("a b\u2581"), AddedToken("\u2581 ")])
    t.add_special_tokens([special])
    if decoder:
        t.decoder = decoder
    path = tmp_path / "tokenizer.json"
    t.save(str(path))
    if not decoder:
        path.write_text(json.dumps({**json.loads(path.read_text()), "decoder": None}))
        t = Tokenizer.from_file(str(path))
    r = R(8)
    ascii_bytes = range(8 + 0x20, 8 + 0x80)
    ids = [i for i in range(t.get_vocab_size()) if i < 8 or i >= 8 + 256 or i in ascii_bytes]
    often = [i for i in ids if i not in ascii_bytes]
    lists = [[r.choice(often if r.random() < 0.8 else ids) for _ in range(r.randint(1, 8))]
             for _ in range(500)]
    for skip in (False, True):
        got = run(path, lists, *(["--no-special"] if skip else []))
        want = t.decode_batch(lists, skip_special_tokens=skip)
        for one, ours, theirs in zip(lists, got, want):
            assert ours == theirs, [t.id_to_token(i) for i in one]


# ---- what is refused -------------------------------------------------------------------------

def meta(**changes):
    return {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", **changes}


@pytest.mark.sanitize
@pytest.mark.parametrize("change,naming", [
    ({"pre_tokenizer": meta(replacement="ab")}, "replacement: 'ab' is not one character"),
    ({"pre_tokenizer": meta(prepend_scheme="last")}, "prepend_scheme last"),
    ({"pre_tokenizer": meta(add_prefix_space=False)}, "add_prefix_space is false, but"),
    ({"pre_tokenizer": {"type": "Punctuation", "behavior": "Odd"}}, "behavior Odd"),
    ({"pre_tokenizer": {"type": "CharDelimiterSplit", "delimiter": ""}}, "delimiter"),
    ({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "-"}}, "empty String"),
    ({"normalizer": {"type": "BertNormalizer"}}, "normalizer of type BertNormalizer"),
    ({"decoder": {"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}}, "with a Regex"),
    ({"decoder": {"type": "Replace", "pattern": {"String": ""}, "content": "-"}}, "empty String"),
    ({"decoder": {"type": "Sequence", "decoders": [
        meta(), {"type": "Replace", "pattern": {"String": "a"}, "content": ""}]}},
     "Replace after Metaspace"),
    ({"decoder": {"type": "Sequence", "decoders": [
        {"type": "Strip", "content": "a", "start": 1, "stop": 0}, meta()]}}, "Metaspace after"),
    ({"decoder": {"type": "Strip", "content": "a", "start": -1, "stop": 0}}, "below 0"),
])
def test_refusals(tmp_path, change, naming):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({**BASE, **change}))
    r = headrace("tokenize", path, "--prompt", "a")
    assert r.returncode == 1 and naming in r.stderr and "tokenizer.json" in r.stderr, r.stderr


# ---- byte-level merges in any order --------------------------------------------------------------

def hostile(seed):
    """Merges of bytes in an order that no training gives: whole characters late or never, tokens
    that hold a part of one across its boundary, the same token made in two ways."""
    r = random.Random(seed)
    letters = "好妈吗。é\u0301Ж하a b"
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocab, merges = dict(alphabet), []
    for _ in range(r.randint(5, 120)):
        text = level.pre_tokenize_str("".join(r.choices(letters, k=r.randint(1, 4))))[0][0]
        at = r.randrange(len(text))
        end = min(len(text), at + r.randint(2, 6))
        parts, taken = text[at:end], sorted(vocab, key=len, reverse=True)
        for cut in r.sample(range(1, max(2, len(parts))), k=max(1, len(parts) - 1)):
            pair = parts[:cut], parts[cut:]
            if pair[0] in vocab and pair[1] in vocab and pair not in merges:
                merges.append(pair)
                vocab.setdefault(parts, len(vocab))
        left, right = r.choice(taken[:40]), r.choice(list(alphabet))
        if r.random() < 0.3 and (left, right) not in merges and len(left) < 8:
            merges.append((left, right))
            vocab.setdefault(left + right, len(vocab))
    for c in r.sample(letters, k=6):  # whole characters, two bytes at a time, after all the others
        text = level.pre_tokenize_str(c)[0][0]
        for end in range(2, len(text) + 1):
            if (text[:end - 1], text[end - 1]) not in merges and text[:end - 1] in vocab:
                merges.append((text[:end - 1], text[end - 1]))
                vocab.setdefault(text[:end], len(vocab))
    if r.random() < 0.5:
        head = merges[:len(alphabet)]
        r.shuffle(head)
        merges[:len(head)] = head
    t = Tokenizer(models.BPE(vocab, merges))
    t.pre_tokenizer = level
    t.decoder = decoders.ByteLevel()
    return t, ["".join(r.choices(letters, k=r.randint(1, 30))) for _ in range(200)]


@pytest.mark.parametrize("seed", range(100))
def test_merges_in_any_order(tmp_path, seed):
    oracle, texts = hostile(seed)
    oracle.save(str(tmp_path / "tokenizer.json"))
    same(tmp_path / "tokenizer.json", oracle, texts)
