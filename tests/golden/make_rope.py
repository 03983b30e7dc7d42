"""Writes rope.json: rotary frequency tables in double precision, by numpy, from the papers.

    .cache/venv/bin/python tests/golden/make_rope.py

Each case is a config.json fragment and the table [head_dim / 2] that it means. Sources: RoFormer
(Su et al. 2021, section 3.2.2); YaRN (Peng et al. 2023, equations 17-23); the Llama 3.1 rule as
Meta published it (llama-models, apply_scaling). Written apart from the C code.
"""
import json
import pathlib

import numpy as np


def plain(theta, dim):
    return 1.0 / np.power(np.float64(theta), np.arange(0, dim, 2, dtype=np.float64) / dim)


def llama3(theta, dim, factor, low, high, original):
    out = []
    for f in plain(theta, dim):
        wavelen = 2 * np.pi / f
        if wavelen < original / high:
            out.append(f)
        elif wavelen > original / low:
            out.append(f / factor)
        else:
            smooth = (original / wavelen - low) / (high - low)
            out.append((1 - smooth) * f / factor + smooth * f)
    return np.array(out)


def yarn(theta, dim, factor, original, fast=32, slow=1, truncate=True):
    freqs = plain(theta, dim)
    # column (in pairs) at which a wave turns r times over the context: f(c) * original = 2 pi r
    column = lambda r: np.log(original / (2 * np.pi * r)) / np.log(theta) * dim / 2
    low, high = column(fast), column(slow)
    if truncate:
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    return freqs / factor * ramp + freqs * (1 - ramp)


def longrope(theta, dim, factors):
    return plain(theta, dim) / np.array(factors, np.float64)


SHORT, LONG = [1 + i / 8 for i in range(24)], [1 + i for i in range(24)]
FACTORS = dict(short_factor=SHORT, long_factor=LONG)
L3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192)
CASES = [
    (64, {"rope_theta": 100000.0}, plain(100000.0, 64), 1.0, 8192),
    (128, {"rope_theta": 1000000, "rope_scaling": None}, plain(1e6, 128), 1.0, 8192),
    (80, {}, plain(10000.0, 80), 1.0, 8192),
    (64, {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, plain(5e5, 64), 1.0, 8192),
    (64, {"rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}}, plain(5e5, 64), 1.0, 8192),
    (64, {"rope_scaling": {"type": "linear", "factor": 4}}, plain(1e4, 64) / 4, 1.0, 8192),
    (64, {"rope_scaling": {"type": "dynamic", "factor": 4}}, plain(1e4, 64), 1.0, 8192),
    (128, {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **L3}},
     llama3(5e5, 128, 8.0, 1.0, 4.0, 8192), 1.0, 8192),
    (64, {"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5, **L3, "factor": 32.0}},
     llama3(5e5, 64, 32.0, 1.0, 4.0, 8192), 1.0, 8192),
    (128, {"rope_theta": 1e6, "rope_scaling": {"type": "yarn", "factor": 4.0,
                                               "original_max_position_embeddings": 32768}},
     yarn(1e6, 128, 4.0, 32768), 0.1 * np.log(4.0) + 1, 131072),
    (64, {"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "type": "yarn", "factor": 2.0}},
     yarn(1e4, 64, 2.0, 8192), 0.1 * np.log(2.0) + 1, 16384),
    (64, {"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 40, "beta_fast": 16,
                                              "beta_slow": 2, "attention_factor": 1.25,
                                              "original_max_position_embeddings": 4096}},
     yarn(1e4, 64, 40.0, 4096, 16, 2), 1.25, 163840),
    (64, {"rope_theta": 1e4, "rope_scaling": {"rope_type": "yarn", "factor": 8, "truncate": False,
                                              "mscale": 1.0, "mscale_all_dim": 0.5}},
     yarn(1e4, 64, 8.0, 8192, truncate=False),
     (0.1 * np.log(8.0) + 1) / (0.1 * 0.5 * np.log(8.0) + 1), 65536),
    (48, {"rope_scaling": {"type": "su", **FACTORS}, "original_max_position_embeddings": 1024},
     longrope(1e4, 48, SHORT), np.sqrt(1 + np.log(8.0) / np.log(1024)), 8192),
    (64, {"rope_parameters": {"rope_type": "longrope", "rope_theta": 5e4, "attention_factor": 1.5,
                              "partial_rotary_factor": 0.75, "original_max_position_embeddings": 4096,
                              **FACTORS}},
     longrope(5e4, 48, SHORT), 1.5, 8192),
]

out = [{"head_dim": d, "config": c, "inv_freq": [float(x) for x in f], "attention_factor": float(a),
        "max_positions": m} for d, c, f, a, m in CASES]
path = pathlib.Path(__file__).with_name("rope.json")
path.write_text("[\n" + ",\n".join(json.dumps(o) for o in out) + "\n]\n")
