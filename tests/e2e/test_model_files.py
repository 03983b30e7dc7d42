"""Model files through the command line: good ones answer, malformed ones are refused before any
answer, naming file and tensor (known faults F01-F09, G05).

Files are written by the `safetensors`, `tokenizers` and `gguf` packages, independent of our readers,
and then damaged.
"""
import json
import os
import shutil
import struct

import gguf
import numpy as np
import pytest
from conftest import generate, headrace
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

H, L, N, KV, D, I = 64, 2, 4, 2, 16, 96
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
V = len(ALPHABET) + 1  # and one end-of-text token
EOS = V - 1


def tokenizer_json():
    vocab = {c: i for i, c in enumerate(ALPHABET)}
    t = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|end|>"])
    return t.to_str()


def shapes():
    out = {"model.embed_tokens.weight": (V, H), "model.norm.weight": (H,), "lm_head.weight": (V, H)}
    for l in range(L):
        p = f"model.layers.{l}."
        out |= {
            p + "input_layernorm.weight": (H,),
            p + "self_attn.q_proj.weight": (N * D, H),
            p + "self_attn.k_proj.weight": (KV * D, H),
            p + "self_attn.v_proj.weight": (KV * D, H),
            p + "self_attn.o_proj.weight": (H, N * D),
            p + "post_attention_layernorm.weight": (H,),
            p + "mlp.gate_proj.weight": (I, H),
            p + "mlp.up_proj.weight": (I, H),
            p + "mlp.down_proj.weight": (H, I),
        }
    return out


def tensors(dtype=np.float32):
    rng = np.random.default_rng(7)
    out = {}
    for name, shape in shapes().items():
        if name.endswith("norm.weight"):
            out[name] = (1 + 0.1 * rng.standard_normal(shape)).astype(dtype)
        else:
            out[name] = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(dtype)
    return out


CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": H,
    "num_hidden_layers": L, "num_attention_heads": N, "num_key_value_heads": KV, "head_dim": D,
    "intermediate_size": I, "vocab_size": V, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "torch_dtype": "float32",
    "tie_word_embeddings": False, "bos_token_id": EOS, "eos_token_id": EOS,
}


def write_dir(folder, config=None, weights=None, shards=1):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | (config or {})))
    (folder / "tokenizer.json").write_text(tokenizer_json())
    weights = tensors() if weights is None else weights
    if shards == 1:
        save_file(weights, folder / "model.safetensors")
        return folder
    names, weight_map = sorted(weights), {}
    for s in range(shards):
        file = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        part = {n: weights[n] for n in names[s::shards]}
        save_file(part, folder / file)
        weight_map |= {n: file for n in part}
    index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def interleave(w, heads):
    """What convert_hf_to_gguf.py does to llama's q and k."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name):
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight":
           "output_norm.weight", "lm_head.weight": "output.weight"}
    if name in top:
        return top[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[rest.removesuffix('.weight')]}.weight"


def write_gguf(path):
    w = gguf.GGUFWriter(path, "llama")
    w.add_block_count(L)
    w.add_context_length(4096)
    w.add_embedding_length(H)
    w.add_feed_forward_length(I)
    w.add_head_count(N)
    w.add_head_count_kv(KV)
    w.add_rope_dimension_count(D)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([*ALPHABET, "<|end|>"])
    w.add_token_types([1] * len(ALPHABET) + [3])
    w.add_eos_token_id(EOS)
    w.add_add_bos_token(False)
    for name, data in tensors().items():
        if "q_proj" in name or "k_proj" in name:
            data = interleave(data, N if "q_proj" in name else KV)
        w.add_tensor(gguf_name(name), np.ascontiguousarray(data))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


FLAGS = ["--max-tokens", 4, "--temperature", 0, "--logprobs", 3, "--dtype", "float32",
         "--max-model-len", 2304, "--max-num-seqs", 8]


def answer(model, ids=(5, 6, 7), *flags):
    a, = generate(model, "--prompt-ids", ",".join(map(str, ids)), *FLAGS, *flags)
    choice = a["choices"][0]
    return choice["token_ids"], [x["logprob"] for x in choice["logprobs"]]


def refused(model, *words, env=None):
    """Ends with a status, not a signal, before any answer; the sentence holds `words`."""
    r = headrace("generate", model, "--prompt-ids", "5,6,7", "--json", *FLAGS, env=env)
    assert 0 < r.returncode < 128, (r.returncode, r.stderr)
    assert r.stdout == ""
    for w in words:
        assert w in r.stderr, r.stderr


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return write_dir(tmp_path_factory.mktemp("good") / "m")


# ---- good files -----------------------------------------------------------------------------


def test_single_file_shards_and_gguf_answer_the_same(good, tmp_path):
    want = answer(good)
    assert len(want[0]) == 4 or want[0][-1] == EOS
    assert answer(write_dir(tmp_path / "shards", shards=3)) == want
    assert answer(write_gguf(tmp_path / "m.gguf")) == want  # f32 all through: the same numbers


def test_bf16_and_f16_files_equal_their_f32_twins(tmp_path):
    f16 = tensors(np.float16)
    a = write_dir(tmp_path / "a", {"torch_dtype": "float16"}, f16)
    b = write_dir(tmp_path / "b", weights={k: v.astype(np.float32) for k, v in f16.items()})
    assert answer(a) == answer(b)


# F07: equal meanings, equal answers at position 2000.
def test_rope_spellings_agree_at_position_2000(tmp_path):
    ids = [i * 7 % (V - 1) for i in range(2000)]
    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 512}
    groups = [
        [{"rope_theta": 5e5, "rope_scaling": None},
         {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500000}},
         {"rope_theta": 500000, "rope_parameters": {"rope_type": "default"}}],
        [{"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **llama3}},
         {"rope_theta": None, "rope_parameters": {"type": "llama3", "rope_theta": 5e5, **llama3}}],
        [{"rope_scaling": {"type": "yarn", "factor": 2.0}},
         {"rope_scaling": {"rope_type": "yarn", "factor": 2,
                           "original_max_position_embeddings": 4096}}],
    ]
    answers = []
    for g, spellings in enumerate(groups):
        got = [answer(write_dir(tmp_path / f"{g}.{i}", c), ids) for i, c in enumerate(spellings)]
        assert all(x == got[0] for x in got)
        answers.append(got[0])
    assert answers[0] != answers[1] != answers[2] != answers[0]


# F06
def test_tied_embeddings(tmp_path, good):
    w = tensors()
    del w["lm_head.weight"]
    tied = answer(write_dir(tmp_path / "tied", {"tie_word_embeddings": True}, w))
    stray = answer(write_dir(tmp_path / "stray", {"tie_word_embeddings": True}))
    assert tied == stray != answer(good)
    refused(write_dir(tmp_path / "none", weights=w), "lm_head.weight", "missing")


def test_dummy_weights_need_no_tensors(tmp_path):
    m = write_dir(tmp_path / "m")
    (m / "model.safetensors").unlink()
    refused(m, "model.safetensors")
    dummy = ["--load-format", "dummy"]
    assert answer(m, (5, 6, 7), *dummy) == answer(m, (5, 6, 7), *dummy)


# ---- refused --------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_shards_cut_missing_and_foreign(tmp_path, good):
    want = answer(good)
    m = write_dir(tmp_path / "cut", shards=2)
    shard = m / "model-00002-of-00002.safetensors"
    os.truncate(shard, shard.stat().st_size - 1000)
    refused(m, shard.name, "cut short")
    shard.unlink()
    refused(m, shard.name)
    m = write_dir(tmp_path / "foreign", shards=2)
    other = {k: v * 0 for k, v in tensors().items()}
    save_file(other, m / "model.safetensors")
    assert answer(m) == want


@pytest.mark.sanitize
@pytest.mark.parametrize("config, words", [
    ({"rope_scaling": {"type": "foo", "factor": 2}}, ["config.json", "foo"]),
    ({"architectures": ["GPT2LMHeadModel"]}, ["config.json", "GPT2LMHeadModel"]),
    ({"hidden_size": None}, ["config.json", "hidden_size"]),
    ({"num_hidden_layers": 10**6}, ["config.json", "1000000"]),
    ({"num_hidden_layers": 3}, ["model.layers.2.input_layernorm.weight", "missing"]),
    ({"num_hidden_layers": 1}, ["model.safetensors", "model.layers.1.", "no place"]),
    ({"intermediate_size": 95}, ["model.safetensors", "mlp.gate_proj.weight", "[96,64]"]),
    ({"quantization_config": {"quant_method": "hqq"}}, ["quantization_config", "hqq"]),
    ({"attention_bias": True}, ["self_attn.q_proj.bias", "missing"]),
])
def test_configs_that_do_not_fit(tmp_path, config, words):
    refused(write_dir(tmp_path / "m", config), *words)


@pytest.mark.sanitize
def test_a_tensor_too_many(tmp_path):
    w = tensors() | {"model.layers.0.self_attn.o_proj.bias": np.zeros(H, np.float32)}
    refused(write_dir(tmp_path / "m", weights=w), "model.safetensors",
            "model.layers.0.self_attn.o_proj.bias")


def patch_header(path, change):
    """Rewrites a safetensors header with change(dict)."""
    raw = path.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + n])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + n:])


NAME = "model.layers.1.mlp.up_proj.weight"


def set_field(key, value):
    return lambda h: h[NAME].__setitem__(key, value)


@pytest.mark.sanitize
@pytest.mark.parametrize("change", [
    set_field("shape", [1000, 1000]),
    set_field("shape", [2**32, 2**32]),
    set_field("shape", [-1, H]),
    set_field("dtype", "F99"),
    set_field("dtype", "I32"),
    set_field("data_offsets", [8, 4]),
    set_field("data_offsets", [0, I * H * 4]),
    set_field("data_offsets", [2**62, 2**62 + I * H * 4]),
], ids=["shape", "wrap", "negative", "dtype", "int", "reversed", "overlap", "past end"])
def test_safetensors_headers(tmp_path, change):
    m = write_dir(tmp_path / "m")
    patch_header(m / "model.safetensors", change)
    refused(m, "model.safetensors", "tensor '")


@pytest.mark.sanitize
@pytest.mark.parametrize("length", [0, 2**63, 2**64 - 1, 10**9])
def test_safetensors_header_length(tmp_path, length):
    m = write_dir(tmp_path / "m")
    p = m / "model.safetensors"
    p.write_bytes(struct.pack("<Q", length) + p.read_bytes()[8:])
    refused(m, "model.safetensors", "header")


@pytest.mark.sanitize
def test_gguf_cut_short(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    size = path.stat().st_size
    for keep, words in [(size - 4096, ["tensor '", "cut short"]), (3000, []), (20, []), (0, [])]:
        os.truncate(path, keep)
        refused(path, "m.gguf", *words)


@pytest.mark.sanitize
def test_gguf_fields(tmp_path):
    path = write_gguf(tmp_path / "m.gguf")
    raw = path.read_bytes()
    at = raw.index(b"token_embd.weight") + len("token_embd.weight")
    for offset, fmt, value in [(at, "<I", 5), (at, "<I", 0), (at + 4, "<Q", 2**62 - 1),
                               (at + 12, "<Q", 2**63 - 1), (at + 20, "<I", 999),
                               (at + 20, "<I", 12), (at + 24, "<Q", 2**63), (at + 24, "<Q", 32)]:
        bad = bytearray(raw)
        struct.pack_into(fmt, bad, offset, value)
        path.write_bytes(bad)
        refused(path, "m.gguf", "token_embd.weight" if value != 32 else "tensor '")
    for offset, value in [(8, 2**60), (16, 2**60)]:  # tensor and metadata counts
        bad = bytearray(raw)
        struct.pack_into("<Q", bad, offset, value)
        path.write_bytes(bad)
        refused(path, "m.gguf")


# G05
@pytest.mark.sanitize
@pytest.mark.parametrize("type_, columns", [(gguf.GGMLQuantizationType.Q8_0, 172),
                                            (gguf.GGMLQuantizationType.Q4_K, 896)])
def test_gguf_rows_that_split_a_block(tmp_path, type_, columns):
    path = tmp_path / "m.gguf"
    block, size = gguf.GGML_QUANT_SIZES[type_]
    rows = block  # so that the total, but not the row, is a multiple of the block
    data = np.zeros(rows * columns // block * size, np.uint8)
    name = b"token_embd.weight"
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + struct.pack("<Q", len(name)) + name
    out += struct.pack("<IQQIQ", 2, columns, rows, type_, 0)
    out += b"\0" * (-len(out) % 32) + data.tobytes()
    path.write_bytes(out)
    refused(path, "m.gguf", "token_embd.weight", str(columns))


@pytest.mark.sanitize
def test_names_that_mean_nothing(tmp_path):
    refused(tmp_path / "nowhere", "nowhere")
    refused("no-such-org/no-such-model", "hf download no-such-org/no-such-model")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "config.json")
    refused("smollm2-135m", "tools/setup.sh model", env={"XDG_CACHE_HOME": str(tmp_path)})
    shutil.copy(__file__, tmp_path / "text.gguf")
    refused(tmp_path / "text.gguf", "text.gguf", "not a GGUF file")
