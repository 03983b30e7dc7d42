"""The packaged model as NumPy sees it: dequantised weights, configuration, tokenizer. An oracle."""
import gguf
import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def value(reader, key):
    return reader.fields[key].contents()


def load(path):
    """Configuration and float32 tensors by Hugging Face name."""
    r = gguf.GGUFReader(path)
    heads, kv = (value(r, f"llama.attention.head_count{s}") for s in ("", "_kv"))
    c = {"hidden_size": value(r, "llama.embedding_length"),
         "num_hidden_layers": value(r, "llama.block_count"), "num_attention_heads": heads,
         "num_key_value_heads": kv, "rms_norm_eps": value(r, "llama.attention.layer_norm_rms_epsilon"),
         "rope_theta": value(r, "llama.rope.freq_base"), "tie_word_embeddings": True}
    stems = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
             "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm",
             "ffn_norm": "post_attention_layernorm"}
    out = {}
    for t in r.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        parts = t.name.split(".")
        if parts[0] == "token_embd":
            out["model.embed_tokens.weight"] = x
        elif parts[0] == "output_norm":
            out["model.norm.weight"] = x
        else:
            if parts[2] in ("attn_q", "attn_k"):  # llama files hold head halves interleaved
                n = heads if parts[2] == "attn_q" else kv
                x = x.reshape(n, x.shape[0] // n // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
            out[f"model.layers.{parts[1]}.{stems[parts[2]]}.{parts[3]}"] = x
    return c, out


def tokenizer(path):
    """The file's vocabulary in the `tokenizers` package: digits singly, then GPT-2's pattern."""
    r = gguf.GGUFReader(path)
    tokens = value(r, "tokenizer.ggml.tokens")
    types = value(r, "tokenizer.ggml.token_type")
    merges = [tuple(m.split(" ")) for m in value(r, "tokenizer.ggml.merges")]
    t = Tokenizer(models.BPE(vocab={s: i for i, s in enumerate(tokens)}, merges=merges))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False)
                          for s, kind in zip(tokens, types) if kind == 3])
    return t
