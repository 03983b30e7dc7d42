#!/usr/bin/env python3
"""Makes the model that speed is measured on: Qwen2.5-0.5B's shape and tokenizer, random weights.

    .cache/venv/bin/python bench/checkpoints.py              all five, 3.3 GB, some minutes
    .cache/venv/bin/python bench/checkpoints.py bf16 q4_0    some of them

What a token costs depends on shapes and formats, not on what the weights say, and a random model
needs no download. Every tensor is drawn from a generator seeded with its name, so that all formats
hold the same numbers, rounded their own way, on every machine. What exists already stays.

    .cache/bench/qwen2.5-0.5b-random/bf16/       Hugging Face layout, safetensors
    .cache/bench/qwen2.5-0.5b-random/w8a8/       compressed-tensors, int8 weights per channel and int8
                                                 activations per token, as llm-compressor writes it
    .cache/bench/qwen2.5-0.5b-random/q8_0.gguf   every matrix in that format, the embedding, which is
    .cache/bench/qwen2.5-0.5b-random/q4_0.gguf   the head as well, among them
    .cache/bench/qwen2.5-0.5b-random/f16.gguf    for those who read GGUF files and no bf16
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import struct
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
HOME = ROOT / ".cache/bench/qwen2.5-0.5b-random"
TOKENIZER = ROOT / ".cache/tokenizers/qwen2_5"
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCAB = 24, 896, 4864, 14, 2, 64, 151936
CONTEXT, EPSILON, THETA, SPREAD = 32768, 1e-6, 1e6, 0.02
END, TURN_END = 151643, 151645
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": END,
    "eos_token_id": TURN_END, "hidden_act": "silu", "hidden_size": HIDDEN,
    "initializer_range": SPREAD, "intermediate_size": INNER, "max_position_embeddings": CONTEXT,
    "max_window_layers": LAYERS, "model_type": "qwen2", "num_attention_heads": HEADS,
    "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS, "rms_norm_eps": EPSILON,
    "rope_theta": THETA, "sliding_window": None, "tie_word_embeddings": True,
    "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
    "vocab_size": VOCAB,
}
W8A8 = {
    "quant_method": "compressed-tensors", "format": "int-quantized",
    "quantization_status": "compressed", "global_compression_ratio": None, "ignore": ["lm_head"],
    "kv_cache_scheme": None,
    "config_groups": {"group_0": {
        "targets": ["Linear"], "output_activations": None,
        "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel",
                    "dynamic": False, "group_size": None, "block_structure": None,
                    "actorder": None, "observer": "minmax", "observer_kwargs": {}},
        "input_activations": {"num_bits": 8, "type": "int", "symmetric": True,
                              "strategy": "token", "dynamic": True, "group_size": None,
                              "block_structure": None, "actorder": None, "observer": None,
                              "observer_kwargs": {}}}},
}


# ---- tensors ------------------------------------------------------------------------------------

def shapes():
    """Hugging Face's names, with shapes, in the order of the layers."""
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for i in range(LAYERS):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        for x, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield at + f"self_attn.{x}_proj.weight", (rows * HEAD, HIDDEN)
            yield at + f"self_attn.{x}_proj.bias", (rows * HEAD,)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        yield at + "mlp.gate_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.up_proj.weight", (INNER, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, INNER)
    yield "model.norm.weight", (HIDDEN,)


def bf16_bits(x):
    """To the nearest bfloat16, ties to even; no NaN and no infinity is among the weights."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def weight(name, shape):
    """What the bf16 file holds, as float32: the other formats are made from it."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    x = np.random.Generator(np.random.PCG64(seed)).standard_normal(shape, np.float32)
    x *= SPREAD
    if name.endswith("norm.weight"):
        x += 1
    return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32)


# ---- Hugging Face -------------------------------------------------------------------------------

def write_safetensors(path, entries):
    """entries: (name, type, shape, what gives the array), written one after the other."""
    size = {"BF16": 2, "I8": 1}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, type_, shape, _ in entries:
        end = at + size[type_] * int(np.prod(shape))
        header[name] = {"dtype": type_, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, make in entries:
            f.write(make().tobytes())


def int8_rows(name, shape):
    """Rows of int8 and their scales, of which bfloat16 is kept: rounding uses the kept scale."""
    x = weight(name, shape)
    scale = bf16_bits(np.ascontiguousarray(np.abs(x).max(axis=1, keepdims=True) / 127))
    wide = (scale.astype(np.uint32) << 16).view(np.float32)
    return np.clip(np.rint(x / wide), -128, 127).astype(np.int8), scale


def hf_entries(int8):
    entries = []
    for name, shape in shapes():
        def whole(name=name, shape=shape):
            return bf16_bits(weight(name, shape))
        if int8 and name.endswith("_proj.weight"):
            entries += [(name, "I8", shape, lambda n=name, s=shape: int8_rows(n, s)[0]),
                        (name + "_scale", "BF16", (shape[0], 1),
                         lambda n=name, s=shape: int8_rows(n, s)[1])]
        else:
            entries.append((name, "BF16", shape, whole))
    return entries


def write_hf(folder, int8=False):
    folder.mkdir()
    config = {**CONFIG, **({"quantization_config": W8A8} if int8 else {})}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(
        {"bos_token_id": END, "pad_token_id": END, "eos_token_id": [TURN_END, END]}, indent=2))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(TOKENIZER / name, folder / name)
    write_safetensors(folder / "model.safetensors", hf_entries(int8))


# ---- GGUF ---------------------------------------------------------------------------------------

def gguf_name(name):
    parts = {"model.embed_tokens": "token_embd", "model.norm": "output_norm",
             "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
             "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
    stem, kind = name.rsplit(".", 1)
    if stem in parts:
        return f"{parts[stem]}.{kind}"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{parts[part]}.{kind}"


def add_vocabulary(w):
    """Ids that the tokenizer does not name are filled up, as llama.cpp's own converter does."""
    spec = json.loads((TOKENIZER / "tokenizer.json").read_text())
    settings = json.loads((TOKENIZER / "tokenizer_config.json").read_text())
    kinds = gguf.TokenType
    tokens = [f"[PAD{i}]" for i in range(VOCAB)]
    types = [kinds.UNUSED] * VOCAB
    for token, i in spec["model"]["vocab"].items():
        tokens[i], types[i] = token, kinds.NORMAL
    for a in spec["added_tokens"]:
        tokens[a["id"]] = a["content"]
        types[a["id"]] = kinds.CONTROL if a["special"] else kinds.USER_DEFINED
    merges = [m if isinstance(m, str) else " ".join(m) for m in spec["model"]["merges"]]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    w.add_token_types(types)
    w.add_token_merges(merges)
    w.add_bos_token_id(END)
    w.add_eos_token_id(TURN_END)
    w.add_pad_token_id(END)
    w.add_add_bos_token(False)
    w.add_chat_template(settings["chat_template"])


def write_gguf(path, type_):
    kind = gguf.GGMLQuantizationType[type_]
    w = gguf.GGUFWriter(path, "qwen2")
    w.add_name("qwen2.5-0.5b-random")
    w.add_block_count(LAYERS)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(HIDDEN)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_rope_freq_base(THETA)
    w.add_layer_norm_rms_eps(EPSILON)
    w.add_file_type(gguf.LlamaFileType["MOSTLY_" + type_])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_vocabulary(w)
    for name, shape in shapes():
        x = weight(name, shape)
        if len(shape) == 2:
            w.add_tensor(gguf_name(name), gguf.quants.quantize(x, kind), raw_dtype=kind)
        else:
            w.add_tensor(gguf_name(name), x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


FORMATS = {
    "bf16": ("bf16", write_hf),
    "w8a8": ("w8a8", lambda path: write_hf(path, int8=True)),
    "q8_0": ("q8_0.gguf", lambda path: write_gguf(path, "Q8_0")),
    "q4_0": ("q4_0.gguf", lambda path: write_gguf(path, "Q4_0")),
    "f16": ("f16.gguf", lambda path: write_gguf(path, "F16")),
}


def paths(home=HOME):
    return {name: home / file for name, (file, _) in FORMATS.items()}


def make(name, home=HOME):
    """The checkpoint's path. It appears whole or not at all."""
    file, write = FORMATS[name]
    path, part = home / file, home / f"part-{os.getpid()}-{file}"
    if path.exists():
        return path
    if not (TOKENIZER / "tokenizer.json").exists():
        sys.exit("the tokenizer is missing: tools/setup.sh test")
    home.mkdir(parents=True, exist_ok=True)
    print(f"== making {path}", file=sys.stderr, flush=True)
    write(part)
    part.rename(path)
    return path


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("formats", nargs="*", metavar="format", help=", ".join(FORMATS))
    p.add_argument("--home", type=pathlib.Path, default=HOME, help="the folder they are kept in")
    a = p.parse_args()
    unknown = set(a.formats) - set(FORMATS)
    if unknown:
        sys.exit(f"no such format: {', '.join(sorted(unknown))}; there are {', '.join(FORMATS)}")
    for name in a.formats or FORMATS:
        print(make(name, a.home))


if __name__ == "__main__":
    main()
