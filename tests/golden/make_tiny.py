"""Tiny random checkpoints of every family: Hugging Face folders and GGUF twins of every type.

Files are written by the `safetensors` and `gguf` packages. Each maker returns the configuration and
the exact numbers the file holds, so that an oracle can be run on them.
"""
import json
import pathlib
import re

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
V = len(ALPHABET) + 4
BASE = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": V,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "hidden_act": "silu", "tie_word_embeddings": False, "bos_token_id": V - 2,
        "eos_token_id": V - 1}
LLAMA = {**BASE, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
PHI3 = {**BASE, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3"}
LONG = {"short_factor": [1 + i / 16 for i in range(12)], "long_factor": [2 + i * i for i in range(12)]}
GEMMA = {**BASE, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6}
del GEMMA["tie_word_embeddings"], GEMMA["hidden_act"]
FAMILIES = {
    "llama": LLAMA,
    "llama_tied": {**LLAMA, "tie_word_embeddings": True},
    "llama_bias": {**LLAMA, "attention_bias": True, "mlp_bias": True},
    "llama3": {**LLAMA, "rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 512}},
    "llama_linear": {**LLAMA, "rope_scaling": {"type": "linear", "factor": 4.0}},
    "llama_yarn": {**LLAMA, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                             "original_max_position_embeddings": 1024}},
    "mistral": {**BASE, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                "sliding_window": None, "head_dim": 32},
    "mistral_window": {**BASE, "architectures": ["MistralForCausalLM"], "model_type": "mistral",
                       "sliding_window": 7},
    "qwen2_window": {**BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
                     "sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1},
    "qwen2": {**BASE, "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2",
              "rope_theta": 1000000.0, "tie_word_embeddings": True, "use_sliding_window": False},
    "phi3": {**PHI3, "sliding_window": 9, "rope_scaling": None},
    # LongRoPE: the factors for long contexts, and in the older spelling those for short ones
    "phi4_mini": {**PHI3, "partial_rotary_factor": 0.75, "tie_word_embeddings": True,
                  "original_max_position_embeddings": 32, "rope_scaling": {"type": "longrope", **LONG}},
    "phi3_su": {**PHI3, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 2048,
                "rope_scaling": {"type": "su", **LONG}},
    "gemma2": {**GEMMA, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2",
               "sliding_window": 6, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 3.0,
               "final_logit_softcapping": 2.0},
    "gemma3": {**GEMMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
               "sliding_window": 6, "sliding_window_pattern": 2, "query_pre_attn_scalar": 24,
               "attn_logit_softcapping": None, "final_logit_softcapping": None,
               "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
               "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    # four of nine, shares of all; every second layer is dense
    "qwen3_moe": {**BASE, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
                  "head_dim": 64, "num_experts": 9, "num_experts_per_tok": 4,
                  "moe_intermediate_size": 256, "norm_topk_prob": False, "decoder_sparse_step": 2,
                  "mlp_only_layers": []},
    "mixtral": {**BASE, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
                "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 256,
                "sliding_window": None},
    "qwen3": {**BASE, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 64,
              "rope_theta": 1000000.0, "attention_bias": False, "use_sliding_window": False},
}


def tokenizer():
    special = [f"<|{i}|>" for i in range(4)]
    t = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(ALPHABET)}, merges=[]))
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(special)
    return t


def shapes(c):
    h, i, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    d = c.get("head_dim") or h // c["num_attention_heads"]
    n, kv = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    qkv_bias = c.get("attention_bias") or c["model_type"] == "qwen2"
    out = {"model.embed_tokens.weight": (v, h), "model.norm.weight": (h,)}
    if not c.get("tie_word_embeddings", True):
        out["lm_head.weight"] = (v, h)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        fused = {"self_attn.qkv_proj": (n + 2 * kv, h), "self_attn.o_proj": (h, n),
                 "mlp.gate_up_proj": (2 * i, h), "mlp.down_proj": (h, i)}
        linears = {"self_attn.q_proj": (n, h), "self_attn.k_proj": (kv, h),
                   "self_attn.v_proj": (kv, h), "self_attn.o_proj": (h, n),
                   "mlp.gate_proj": (i, h), "mlp.up_proj": (i, h), "mlp.down_proj": (h, i)}
        for name, shape in (fused if c["model_type"] == "phi3" else linears).items():
            if "mlp" in name and expert_shapes(c, p):
                continue
            out[p + name + ".weight"] = shape
            biased = qkv_bias if name[10:11] in "qkv" and "attn" in name else (
                c.get("attention_bias") if "o_proj" in name else c.get("mlp_bias"))
            if biased:
                out[p + name + ".bias"] = shape[:1]
        out.update(expert_shapes(c, p))
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = (h,)
        if "gemma" in c["model_type"]:
            for when in "pre", "post":
                out[f"{p}{when}_feedforward_layernorm.weight"] = (h,)
        if c["model_type"] in ("qwen3", "qwen3_moe", "gemma3_text"):
            out[p + "self_attn.q_norm.weight"] = out[p + "self_attn.k_norm.weight"] = (d,)
    return out


def expert_shapes(c, p):
    """{name: shape} of a layer's mixture; {} where the layer at prefix `p` has none."""
    h, experts = c["hidden_size"], c.get("num_experts") or c.get("num_local_experts")
    if not experts or (int(p.split(".")[2]) + 1) % c.get("decoder_sparse_step", 1):
        return {}
    where, i = p + "mlp.", c.get("moe_intermediate_size", c["intermediate_size"])
    names = {"gate_proj": (i, h), "up_proj": (i, h), "down_proj": (h, i)}
    if c["model_type"] == "mixtral":
        where, names = p + "block_sparse_moe.", {"w1": (i, h), "w3": (i, h), "w2": (h, i)}
    return {where + "gate.weight": (experts, h), **{
        f"{where}experts.{e}.{n}.weight": s for e in range(experts) for n, s in names.items()}}


def random_tensors(c, seed=3):
    rng = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes(c).items():
        x = rng.standard_normal(shape)
        if name.endswith("norm.weight"):
            x = 0.2 * x + ("gemma" not in c["model_type"])
        elif name.endswith("bias"):
            x = 0.1 * x
        elif "embed" in name or "lm_head" in name:
            x = 0.15 * x
        else:
            x = x * 1.2 / np.sqrt(shape[1])
        out[name] = x.astype(np.float32)
    return out


def bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + (u >> 16 & 1)) >> 16).astype(np.uint16)


def rounded(x, dtype):
    if dtype == "bf16":
        return (bf16_bits(x).astype(np.uint32) << 16).view(np.float32)
    return x.astype(np.float16).astype(np.float32) if dtype == "f16" else x


def save_bf16(tensors, path):
    save_raw({name: ("BF16", x) for name, x in tensors.items()}, path)


def save_raw(tensors, path):
    """A safetensors file of {name: (dtype, numbers)}. NumPy has no BF16, so it is written here."""
    header, offset, blobs = {}, 0, []
    numpy = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I32": np.int32, "I64": np.int64}
    for name, (dtype, x) in tensors.items():
        blob = (bf16_bits(x) if dtype == "BF16" else np.asarray(x, numpy[dtype])).tobytes()
        header[name] = {"dtype": dtype, "shape": list(np.shape(x)),
                        "data_offsets": [offset, offset + len(blob)]}
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def read_raw(path):
    """What save_raw wrote, but for BF16, which comes as float32 numbers."""
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    numpy = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I32": np.int32, "I64": np.int64,
             "BF16": np.uint16}
    out = {}
    for name, e in json.loads(data[8:8 + n]).items():
        begin, end = e["data_offsets"]
        x = np.frombuffer(data[8 + n + begin:8 + n + end], numpy[e["dtype"]]).reshape(e["shape"])
        if e["dtype"] == "BF16":
            x = (x.astype(np.uint32) << 16).view(np.float32)
        out[name] = e["dtype"], x
    return out


def hf(folder, family, dtype="f32", shards=1):
    """A Hugging Face folder of a family, or of a configuration; returns that and the numbers in it."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    c = FAMILIES[family] if isinstance(family, str) else family
    tensors = {k: rounded(v, dtype) for k, v in random_tensors(c).items()}
    names = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
    (folder / "config.json").write_text(json.dumps({**c, "torch_dtype": names[dtype]}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [V - 1, V - 3]}))
    tokenizer().save(str(folder / "tokenizer.json"))
    parts = [dict(list(tensors.items())[i::shards]) for i in range(shards)]
    files = (["model.safetensors"] if shards == 1 else
             [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)])
    for part, file in zip(parts, files):
        if dtype == "bf16":
            save_bf16(part, folder / file)
        else:
            save_file({k: v.astype(np.float16 if dtype == "f16" else np.float32)
                       for k, v in part.items()}, folder / file)
    if shards > 1:
        weight_map = {k: f for part, f in zip(parts, files) for k in part}
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map}))
    return c, tensors


# ---- compressed-tensors ------------------------------------------------------------------------

# What the files of w8a8 models vary in: strategy, shape and dtype of the scales, what is ignored.
W8A8 = {
    "column": {},
    "vector": {"shape": lambda n: (n,), "dtype": "BF16"},
    "one": {"strategy": "tensor", "shape": lambda n: (1,), "dtype": "F16"},
    "scalar": {"strategy": "tensor", "shape": lambda n: ()},
    "zero_points": {"zero_points": True},
    "ignore": {"ignore": ["lm_head", r"re:.*layers\.0\.self_attn\.[qk]_proj$",
                          "model.layers.1.mlp.down_proj"]},
    "whole": {"ignore": []},
}


def w8a8_config(strategy="channel", ignore=("lm_head",)):
    """quantization_config as llm-compressor writes it."""
    common = {"num_bits": 8, "type": "int", "symmetric": True, "group_size": None,
              "block_structure": None, "actorder": None, "observer_kwargs": {}}
    return {"quant_method": "compressed-tensors", "format": "int-quantized",
            "quantization_status": "compressed", "global_compression_ratio": 1.5,
            "kv_cache_scheme": None, "ignore": list(ignore), "sparsity_config": {},
            "transform_config": {}, "version": "0.10.2", "config_groups": {"group_0": {
                "targets": ["Linear"], "output_activations": None,
                "weights": {**common, "strategy": strategy, "dynamic": False,
                            "observer": "minmax"},
                "input_activations": {**common, "strategy": "token", "dynamic": True,
                                      "observer": None}}}}


def is_quantised(module, ignore):
    return not any(re.match(i[3:], module) if i.startswith("re:") else i == module for i in ignore)


def w8a8(folder, family, kind="column"):
    """A folder of int8 linears. Returns configuration, numbers, and {module: (int8, scales)}."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    v = W8A8[kind]
    c, ignore = FAMILIES[family], v.get("ignore", ["lm_head"])
    shape, dtype = v.get("shape", lambda n: (n, 1)), v.get("dtype", "F32")
    tensors, integers, held = random_tensors(c), {}, {}
    for name, x in list(tensors.items()):
        module = name[:-len(".weight")]
        if x.ndim == 1 or "embed" in name or not is_quantised(module, ignore):
            held[name] = ("F32", x)
            continue
        count = int(np.prod(shape(x.shape[0])))
        most = np.abs(x).max(axis=1) if count > 1 else np.abs(x).max(keepdims=True)[0]
        scale = rounded(most.astype(np.float32) / np.float32(127), dtype.lower())
        q = np.clip(np.rint(x / scale[:, None]), -128, 127).astype(np.int8)
        held[name], held[module + ".weight_scale"] = ("I8", q), (dtype, scale.reshape(shape(len(q))))
        if v.get("zero_points"):
            held[module + ".weight_zero_point"] = ("I8", np.zeros(shape(len(q))))
        scale = np.broadcast_to(scale, len(q))
        integers[module] = q, scale
        tensors[name] = q * scale[:, None]
    (folder / "config.json").write_text(json.dumps({
        **c, "torch_dtype": "float32",
        "quantization_config": w8a8_config(v.get("strategy", "channel"), ignore)}))
    tokenizer().save(str(folder / "tokenizer.json"))
    save_raw(held, folder / "model.safetensors")
    return c, tensors, integers


# ---- 4-bit groups ------------------------------------------------------------------------------

# How files of 4-bit numbers differ: whose layout, columns of a group (0 = all), dtype of the scales,
# zero points, and what rows the linears take ("" = the engine's choice).
INT4 = {
    "packed_128": {"layout": "packed", "group": 128, "dtype": "BF16"},
    "packed_32_zeros": {"layout": "packed", "group": 32, "dtype": "F32", "zeros": True},
    "packed_64_zeros": {"layout": "packed", "group": 64, "dtype": "F16", "zeros": True},
    "packed_channel": {"layout": "packed", "group": 0, "dtype": "BF16"},
    "packed_w4a8": {"layout": "packed", "group": 128, "dtype": "BF16", "rows": "token"},
    "bytes_w4a8": {"layout": "bytes", "group": 64, "dtype": "F32", "rows": "token"},
    "bytes_zeros": {"layout": "bytes", "group": 32, "dtype": "F16", "zeros": True},
    "w8a16": {"layout": "packed", "bits": 8, "dtype": "BF16", "rows": "float"},
    "w8a16_bytes": {"layout": "bytes", "bits": 8, "dtype": "F16", "rows": "float"},
    "gptq": {"layout": "gptq", "group": 128, "dtype": "F16", "zeros": True},
    "gptq_v2": {"layout": "gptq", "group": 64, "dtype": "F16", "zeros": True, "version": 2},
    "gptq_channel": {"layout": "gptq", "group": 0, "dtype": "F16", "zeros": True},
    "awq": {"layout": "awq", "group": 64, "dtype": "F16", "zeros": True},
}


def words(u, axis):
    """Eight 4-bit numbers along an axis to an int32 each, the first in the low bits; a last word
    that is not full has zeros."""
    u = np.moveaxis(np.asarray(u, np.uint32), axis, -1)
    u = np.concatenate([u, np.zeros((*u.shape[:-1], -u.shape[-1] % 8), np.uint32)], axis=-1)
    u = u.reshape(*u.shape[:-1], -1, 8) << np.arange(0, 32, 4, dtype=np.uint32)
    return np.moveaxis(u.sum(axis=-1, dtype=np.uint32).view(np.int32), -1, axis)


def awq_order(u):
    """Columns 0, 2, 4, 6, 1, 3, 5, 7 of each eight."""
    return u.reshape(len(u), -1, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(u.shape)


def int4_numbers(x, group, dtype, zeros):
    """(codes 0..15 [N,K], scales [N,G], zero points [N,G]): any good rounding will do."""
    g = x.reshape(len(x), -1, group or x.shape[1]).astype(np.float64)
    low, high = np.minimum(g.min(axis=2), 0), np.maximum(g.max(axis=2), 0)
    scale = (high - low) / 15 if zeros else np.abs(g).max(axis=2) / 7.5
    scale = rounded(scale.astype(np.float32), dtype.lower())
    zero = np.clip(np.rint(-low / scale), 1, 15).astype(int) if zeros else np.full(scale.shape, 8)
    u = np.clip(np.rint(g / scale[..., None]) + zero[..., None], 0, 15).astype(int)
    return u.reshape(x.shape), scale, zero


def int4_parts(module, u, scale, zero, v):
    """The tensors that one matrix becomes in a layout, by the layout's own definition."""
    kind, dtype = v["layout"], v["dtype"]
    if kind == "packed":
        held = {"weight_packed": ("I32", words(u, 1)), "weight_scale": (dtype, scale),
                "weight_shape": ("I64", np.array(u.shape))}
        if v.get("zeros"):
            held["weight_zero_point"] = ("I32", words(zero, 0))
    elif kind == "bytes":
        held = {"weight": ("I8", u - 8), "weight_scale": (dtype, scale)}
        if v.get("zeros"):
            held["weight_zero_point"] = ("I8", zero - 8)
    elif kind == "gptq":
        stored = zero.T - (v.get("version") != 2)
        held = {"qweight": ("I32", words(u.T, 0)), "qzeros": ("I32", words(stored, 1)),
                "scales": (dtype, scale.T),
                "g_idx": ("I32", np.arange(u.shape[1]) // (v["group"] or u.shape[1]))}
    else:
        held = {"qweight": ("I32", words(awq_order(u.T), 1)),
                "qzeros": ("I32", words(awq_order(zero.T), 1)), "scales": (dtype, scale.T)}
    return {f"{module}.{name}": part for name, part in held.items()}


def int8_parts(module, x, v):
    scale = rounded(np.abs(x).max(axis=1, keepdims=True) / np.float32(127), v["dtype"].lower())
    q = np.clip(np.rint(x / scale), -128, 127).astype(np.int8)
    packed = (q.view(np.uint8) ^ 0x80).view(np.uint32).view(np.int32)
    held = {"weight": ("I8", q)} if v["layout"] == "bytes" else {
        "weight_packed": ("I32", packed), "weight_shape": ("I64", np.array(q.shape))}
    held["weight_scale"] = (v["dtype"], scale)
    return {f"{module}.{name}": part for name, part in held.items()}, q * scale


def int4_config(v):
    kind, group, ignore = v["layout"], v.get("group", 0), ["lm_head"]
    if kind in ("gptq", "awq"):
        shared = {"quant_method": kind, "bits": 4, "group_size": group or -1}
        return {**shared, "desc_act": True, "sym": False, "checkpoint_format":
                "gptq_v2" if v.get("version") == 2 else "gptq"} if kind == "gptq" else {
            **shared, "version": "gemm", "zero_point": True, "modules_to_not_convert": None}
    config = w8a8_config("group" if group else "channel", ignore)
    config["format"] = "pack-quantized" if kind == "packed" else "int-quantized"
    weights = config["config_groups"]["group_0"]["weights"]
    weights |= {"num_bits": v.get("bits", 4), "group_size": group or None,
                "symmetric": not v.get("zeros")}
    if v.get("rows") != "token":
        config["config_groups"]["group_0"]["input_activations"] = None
    return config


def int4(folder, family, kind):
    """A folder of 4-bit (or weight-only 8-bit) linears. Returns configuration, the numbers that they
    stand for, and the modules."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    v, c = INT4[kind], FAMILIES[family]
    tensors, held, modules = random_tensors(c), {}, []
    for name, x in list(tensors.items()):
        module = name.removesuffix(".weight")
        if x.ndim == 1 or "embed" in name or module == "lm_head":
            held[name] = ("F32", x)
            continue
        modules.append(module)
        if v.get("bits") == 8:
            parts, tensors[name] = int8_parts(module, x, v)
        else:
            u, scale, zero = int4_numbers(x, v["group"], v["dtype"], v.get("zeros"))
            parts = int4_parts(module, u, scale, zero, v)
            columns = v["group"] or x.shape[1]
            tensors[name] = ((u - np.repeat(zero, columns, 1)).astype(np.float32) *
                             np.repeat(scale, columns, 1))
        held |= parts
        if v["layout"] == "gptq" and module + ".bias" not in tensors:
            held[module + ".bias"] = ("F16", np.zeros(len(x)))
    (folder / "config.json").write_text(json.dumps({
        **c, "torch_dtype": "float16", "quantization_config": int4_config(v)}))
    tokenizer().save(str(folder / "tokenizer.json"))
    save_raw(held, folder / "model.safetensors")
    return c, tensors, modules


# ---- GGUF ------------------------------------------------------------------------------------

K_BLOCKS = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
         "post_attention_layernorm": "ffn_norm", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "mlp.gate": "ffn_gate_inp",
         "block_sparse_moe.gate": "ffn_gate_inp"}
OWN_NAMES = {"phi3": {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
             "gemma": {"post_attention_layernorm": "post_attention_norm",
                       "pre_feedforward_layernorm": "ffn_norm",
                       "post_feedforward_layernorm": "post_ffw_norm"}}


def gguf_name(name, arch="llama"):
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
             "model.norm.weight": "output_norm.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    names = {**NAMES, **OWN_NAMES.get(arch.rstrip("23"), {}), **OWN_NAMES.get(arch, {})}
    return f"blk.{layer}.{names[stem]}.{kind}"


def expert_name(name):
    """The tensor that holds the matrices of all experts."""
    what = {"gate_proj": "gate", "w1": "gate", "up_proj": "up", "w3": "up", "down_proj": "down",
            "w2": "down"}[name.split(".")[-2]]
    return f"blk.{name.split('.')[2]}.ffn_{what}_exps.weight"


def k_blocks(rng, shape, kind):
    """Random valid blocks of a K type: any bits will do but for the scales, which must be sane."""
    size, halves = K_BLOCKS[kind]
    raw = rng.integers(0, 256, (shape[0], shape[1] // 256, size), dtype=np.uint8)
    step = {"Q4_K": (3e-4, 2e-3), "Q5_K": (1.5e-4, 2e-3), "Q6_K": (4e-5,)}[kind]
    for at, value in zip(halves, step):
        bits = (value * (0.5 + rng.random(raw.shape[:2]))).astype(np.float16).view(np.uint16)
        raw[..., at], raw[..., at + 1] = bits & 255, bits >> 8
    return raw.reshape(shape[0], -1)


def permuted(x, heads):
    """Rows of q and k as llama GGUF files hold them: pairs of a head side by side."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def unpermuted(x, heads):
    return x.reshape(heads, x.shape[0] // heads // 2, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)


def gguf_extras(w, c):
    """Keys and vectors that some families have, as llama.cpp's converter writes them."""
    if c.get("sliding_window"):
        w.add_sliding_window(c["sliding_window"])
    if c.get("sliding_window_pattern"):
        w.add_uint32(w.arch + ".attention.sliding_window_pattern", c["sliding_window_pattern"])
    if c.get("attn_logit_softcapping"):
        w.add_attn_logit_softcapping(c["attn_logit_softcapping"])
        w.add_final_logit_softcapping(c["final_logit_softcapping"])
    experts = c.get("num_experts") or c.get("num_local_experts")
    if experts:
        w.add_expert_count(experts)
        w.add_expert_used_count(c["num_experts_per_tok"])
    if "moe_intermediate_size" in c:
        w.add_expert_feed_forward_length(c["moe_intermediate_size"])
    scaling = c.get("rope_scaling") or {}
    if scaling.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(scaling["factor"])
    if "long_factor" in scaling:
        n = c["original_max_position_embeddings"]
        w.add_rope_scaling_orig_ctx_len(n)
        stretch = c["max_position_embeddings"] / n
        w.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(stretch) / np.log(n))))
        for name in "long", "short":
            w.add_tensor(f"rope_factors_{name}.weight", np.float32(scaling[f"{name}_factor"]))


def gguf_file(path, family, kind):
    """A GGUF file whose matrices are all of one type; returns configuration and its numbers."""
    c = FAMILIES[family]
    arch = {"mistral": "llama", "mixtral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}.get(c["model_type"], c["model_type"])
    w = gguf.GGUFWriter(path, arch)
    d = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    if "gemma" in arch:  # there is no key for it
        c = {**c, "query_pre_attn_scalar": d}
    if "num_experts" in c:  # nor for these
        c = {**c, "norm_topk_prob": True, "decoder_sparse_step": 1}
    gguf_extras(w, c)
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(int(d * c.get("partial_rotary_factor", 1)))
    w.add_key_length(d)
    w.add_value_length(d)
    w.add_vocab_size(c["vocab_size"])
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([*ALPHABET, *(f"<|{i}|>" for i in range(4))])
    w.add_token_types([1] * len(ALPHABET) + [3] * 4)
    w.add_token_merges([])
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    rng = np.random.default_rng(5)
    held, stacks = {}, {}
    for name, x in random_tensors(c).items():
        heads = c["num_attention_heads"] if "q_proj" in name else c["num_key_value_heads"]
        swap = arch == "llama" and ("q_proj" in name or "k_proj" in name)
        if x.ndim == 1:
            if "gemma" in arch:  # the 1 that its norms add stands in the file
                x = x + np.float32(1)
            held[name] = x - np.float32("gemma" in arch)
            w.add_tensor(gguf_name(name, arch), permuted(x, heads) if swap else x)
            continue
        t = gguf.GGMLQuantizationType[kind]
        x = permuted(x, heads) if swap else x
        raw = k_blocks(rng, x.shape, kind) if kind in K_BLOCKS else gguf.quants.quantize(x, t)
        numbers = gguf.quants.dequantize(raw, t).reshape(x.shape).astype(np.float32)
        if ".experts." in name:
            stacks.setdefault(expert_name(name), []).append(raw)
        else:
            w.add_tensor(gguf_name(name, arch), raw, raw_dtype=t)
        held[name] = unpermuted(numbers, heads) if swap else numbers
    for name, raw in stacks.items():
        w.add_tensor(name, np.stack(raw), raw_dtype=gguf.GGMLQuantizationType[kind])
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return c, held


TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def like_packaged(path, packaged):
    """A GGUF file with the packaged model's tokenizer and template, and two small layers of float
    weights in place of its own: for what is about texts and requests, on devices that are slow."""
    r = gguf.GGUFReader(packaged)
    w = gguf.GGUFWriter(path, "llama")
    for name, field in r.fields.items():
        if name.startswith("tokenizer.") or name == "llama.context_length":
            kind, sub = field.types[0], field.types[1] if len(field.types) > 1 else None
            w.add_key_value(name, field.contents(), kind, sub)
    v = len(r.fields["tokenizer.ggml.tokens"].data)
    c = {**LLAMA, "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
         "vocab_size": v, "tie_word_embeddings": True}
    w.add_embedding_length(64)
    w.add_block_count(2)
    w.add_feed_forward_length(128)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(16)
    w.add_vocab_size(v)
    for name, x in random_tensors(c).items():
        w.add_tensor(gguf_name(name), x)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
