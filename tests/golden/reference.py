"""Llama, Qwen, Phi-3 and Gemma in NumPy, for any float dtype: the oracle of whole models.

Written from the model cards and Hugging Face's documented configuration, independent of the C code:
plain matrix products over whole sequences, no cache, no chunks. In float64 it is the truth; in
float32 it shows what error the same mathematics has in single precision.

half=True rounds what every operation gives to bfloat16, as a device with bfloat16 activations does.
rows="int8" quantises the input of every linear as the engine declares for GGUF block formats: per
32 columns absmax/127, round to nearest even. `integers` holds {module: (int8 [N,K], float32 [N])}:
these linears quantise whole rows so and multiply integers, as compressed-tensors' w8a8 does.
`row_groups` holds {module: columns}: these take int8 rows with a scale per so many columns.
"""
import numpy as np


def inv_freq(config, longest):
    """Rope frequencies [F] in float64 and the attention factor; `longest`: the context they are for."""
    d = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    d = int(d * config.get("partial_rotary_factor", 1))
    theta = config["rope_theta"]
    base = theta ** -(np.arange(0, d, 2, dtype=np.float64) / d)
    s = config.get("rope_scaling") or {"rope_type": "default"}
    kind = s.get("rope_type", s.get("type"))
    if kind == "default":
        return base, 1.0
    if kind in ("longrope", "su"):
        old, new = config["original_max_position_embeddings"], config["max_position_embeddings"]
        factors = s["long_factor" if longest > old else "short_factor"]
        return base / np.array(factors), np.sqrt(1 + np.log(new / old) / np.log(old))
    factor = s["factor"]
    if kind == "linear":
        return base / factor, 1.0
    old = s["original_max_position_embeddings"]
    if kind == "llama3":
        low, high = s["low_freq_factor"], s["high_freq_factor"]
        wavelength = 2 * np.pi / base
        smooth = np.clip((old / wavelength - low) / (high - low), 0, 1)
        return (1 - smooth) * base / factor + smooth * base, 1.0
    if kind == "yarn":
        fast, slow = s.get("beta_fast", 32), s.get("beta_slow", 1)

        def dimension(rotations):
            return d * np.log(old / (rotations * 2 * np.pi)) / (2 * np.log(theta))

        low = max(np.floor(dimension(fast)), 0)
        high = min(np.ceil(dimension(slow)), d - 1)
        ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
        return base / factor * ramp + base * (1 - ramp), 0.1 * np.log(factor) + 1
    raise ValueError(kind)


def quantise_rows(x, group=32):
    """int8 per so many columns, given back as numbers."""
    g = x.reshape(*x.shape[:-1], -1, group)
    scale = np.abs(g).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(127)
    safe = np.where(scale == 0, np.float32(1), scale)
    q = np.clip(np.rint(g.astype(np.float32) / safe), -127, 127)
    return (q.astype(x.dtype) * safe.astype(x.dtype)).reshape(x.shape)


def product_w8a8(x, q, scale):
    """int8 × int8 in integers, then × the row's scale, × the channel's, in the dtype of x."""
    row = np.abs(x).max(axis=-1, keepdims=True).astype(np.float32) / np.float32(127)
    row = np.where(row == 0, np.float32(1), row)
    x_q = np.clip(np.rint(x.astype(np.float32) / row), -127, 127).astype(np.int64)
    return (x_q @ q.T.astype(np.int64)).astype(x.dtype) * row.astype(x.dtype) * scale.astype(x.dtype)


def bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return (u + 0x7FFF + (u >> 16 & 1) & 0xFFFF0000).astype(np.uint32).view(np.float32)


class Model:
    def __init__(self, config, tensors, dtype=np.float64, rows="float", half=False,
                 integers=None, row_groups=None, longest=64):
        self.c, self.dtype, self.rows = config, dtype, rows
        self.integers, self.row_groups = integers or {}, row_groups or {}
        self.given = (lambda x: bf16(x).astype(dtype)) if half else (lambda x: x)
        self.w = {k: v.astype(dtype) for k, v in tensors.items()}
        f, self.factor = inv_freq(config, longest)
        self.freq = f.astype(np.float32)
        self.gemma = "gemma" in config["model_type"]
        if "rope_local_base_freq" in config:
            plain = {**config, "rope_theta": config["rope_local_base_freq"], "rope_scaling": None}
            self.local_freq = inv_freq(plain, longest)[0].astype(np.float32)
        self.heads = config["num_attention_heads"]
        self.kv = config.get("num_key_value_heads", self.heads)
        self.d = config.get("head_dim") or config["hidden_size"] // self.heads
        self.eps = dtype(config["rms_norm_eps"])

    def linear(self, x, name):
        if self.rows == "int8" or name in self.row_groups:
            x = quantise_rows(x, self.row_groups.get(name, 32))
        y = self.given(product_w8a8(x, *self.integers[name]) if name in self.integers else
                       x @ self.w[name + ".weight"].T)
        bias = self.w.get(name + ".bias")
        return y if bias is None else self.given(y + self.given(bias))

    def norm(self, x, name):
        scale = np.sqrt((x * x).mean(axis=-1, keepdims=True, dtype=self.dtype) + self.eps)
        return self.given(x / scale * (self.w[name + ".weight"] + self.dtype(self.gemma)))

    def rope(self, x, freq):
        """x [T,N,D]; halves rotate against each other. The angle is a float32 product, as
        transformers computes it and models were trained with: part of the model, not an error."""
        position = np.arange(x.shape[0], dtype=np.float32)
        angle = (position[:, None] * freq).astype(np.float64)
        cos = (np.cos(angle) * self.factor).astype(self.dtype)[:, None]
        sin = (np.sin(angle) * self.factor).astype(self.dtype)[:, None]
        n = len(freq)
        a, b, rest = x[..., :n], x[..., n:2 * n], x[..., 2 * n:]
        return self.given(np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1))

    def window(self, layer):
        """How many keys a query of this layer sees, its own among them; None for all."""
        c = self.c
        if "layer_types" in c:
            return c["sliding_window"] if c["layer_types"][layer] == "sliding_attention" else None
        if c["model_type"].startswith("qwen"):
            asked = c.get("use_sliding_window") and layer >= c.get("max_window_layers", 28)
            return c["sliding_window"] if asked else None
        every = {"gemma2": 2, "gemma3_text": c.get("sliding_window_pattern", 6)}.get(c["model_type"])
        return None if every and (layer + 1) % every == 0 else c.get("sliding_window")

    def parts(self, x, name, sizes):
        """The results of linears, joined in one matrix or not; sizes {linear: columns}."""
        if name + ".weight" in self.w:
            return np.split(self.linear(x, name), np.cumsum(list(sizes.values()))[:-1], axis=-1)
        return [self.linear(x, name.rsplit(".", 1)[0] + "." + one) for one in sizes]

    def attention(self, x, p, layer):
        t = x.shape[0]
        sizes = {"q_proj": self.heads * self.d, "k_proj": self.kv * self.d, "v_proj": self.kv * self.d}
        q, k, v = (y.reshape(t, -1, self.d) for y in self.parts(x, p + "self_attn.qkv_proj", sizes))
        if p + "self_attn.q_norm.weight" in self.w:
            q, k = self.norm(q, p + "self_attn.q_norm"), self.norm(k, p + "self_attn.k_norm")
        freq = self.freq
        if self.window(layer) and "rope_local_base_freq" in self.c:
            freq = self.local_freq
        q, k = self.rope(q, freq), self.rope(k, freq)
        k, v = (np.repeat(a, self.heads // self.kv, axis=1) for a in (k, v))
        out = np.empty_like(q)
        mask = np.triu(np.full((t, t), -np.inf, dtype=self.dtype), 1)
        if self.window(layer):
            mask += np.tril(np.full((t, t), -np.inf, dtype=self.dtype), -self.window(layer))
        for h in range(self.heads):
            s = q[:, h] @ k[:, h].T / self.dtype(np.sqrt(self.c.get("query_pre_attn_scalar", self.d)))
            s = self.cap(s, "attn_logit_softcapping") + mask
            e = np.exp(s - s.max(axis=-1, keepdims=True))
            out[:, h] = (e / e.sum(axis=-1, keepdims=True)) @ v[:, h]
        return self.linear(self.given(out.reshape(t, -1)), p + "self_attn.o_proj")

    def cap(self, x, key):
        most = self.c.get(key)
        return x if most is None else self.dtype(most) * np.tanh(x / self.dtype(most))

    def act(self, x):
        if self.gemma:
            inner = self.dtype(np.sqrt(2 / np.pi)) * (x + self.dtype(0.044715) * x * x * x)
            return x * (1 + np.tanh(inner)) / 2
        return x / (1 + np.exp(-x))

    def experts(self, x, where, names):
        """Each row's best experts, weighted by a softmax over all, or over those."""
        gate, up, down = names
        scores = self.linear(x, where + "gate")
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        out = np.zeros_like(x)
        for t in range(len(x)):
            best = np.argsort(-scores[t], kind="stable")[:self.c["num_experts_per_tok"]]
            whole = e[t, best].sum() if self.c.get("norm_topk_prob", True) else e[t].sum()
            for i in best:
                p, row = f"{where}experts.{i}.", x[t:t + 1]
                y = self.given(self.act(self.linear(row, p + gate))) * self.linear(row, p + up)
                y = self.given(self.linear(self.given(y), p + down) * (e[t, i] / whole))
                out[t] = self.given(out[t] + y[0])
        return out

    def mlp(self, x, p):
        if p + "block_sparse_moe.gate.weight" in self.w:
            return self.experts(x, p + "block_sparse_moe.", ("w1", "w3", "w2"))
        if p + "mlp.gate.weight" in self.w:
            return self.experts(x, p + "mlp.", ("gate_proj", "up_proj", "down_proj"))
        i = self.c["intermediate_size"]
        gate, up = self.parts(x, p + "mlp.gate_up_proj", {"gate_proj": i, "up_proj": i})
        return self.linear(self.given(self.given(self.act(gate)) * up), p + "mlp.down_proj")

    def hidden(self, ids):
        x = self.given(self.w["model.embed_tokens.weight"][np.asarray(ids)])
        if self.gemma:
            x = self.given(x * self.given(self.dtype(np.sqrt(self.c["hidden_size"]))))
            return self.gemma_layers(x)
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            x = self.given(x + self.attention(self.norm(x, p + "input_layernorm"), p, layer))
            x = self.given(x + self.mlp(self.norm(x, p + "post_attention_layernorm"), p))
        return self.norm(x, "model.norm")

    def gemma_layers(self, x):
        for layer in range(self.c["num_hidden_layers"]):
            p = f"model.layers.{layer}."
            y = self.attention(self.norm(x, p + "input_layernorm"), p, layer)
            x = self.given(x + self.norm(y, p + "post_attention_layernorm"))
            y = self.mlp(self.norm(x, p + "pre_feedforward_layernorm"), p)
            x = self.given(x + self.norm(y, p + "post_feedforward_layernorm"))
        return self.norm(x, "model.norm")

    def logprobs(self, ids):
        """Log-probabilities [T,V] of the token after each position."""
        tied = self.c.get("tie_word_embeddings", self.gemma)
        head = "model.embed_tokens.weight" if tied else "lm_head.weight"
        x = self.hidden(ids)
        if self.rows == "int8":
            x = quantise_rows(x)
        logits = (product_w8a8(x, *self.integers["lm_head"]) if "lm_head" in self.integers else
                  x @ self.w[head].T)
        logits = self.cap(logits, "final_logit_softcapping")
        m = logits.max(axis=-1, keepdims=True)
        return logits - m - np.log(np.exp(logits - m).sum(axis=-1, keepdims=True))
