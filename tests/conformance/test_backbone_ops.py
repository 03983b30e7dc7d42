"""Every backbone op against NumPy float64, on ref and on cpu under every instruction set here.

Each oracle returns the exact value y and its `noise`: the sum of the magnitudes that meet a
rounding, so that arithmetic with unit roundoff u in any order is off by u * noise at most (for a
sum of K products (K + c) * sum|x w|, Higham, Accuracy and Stability, ch. 3; c counts the few
roundings beside the sum). The tolerance follows: u * noise for the arithmetic (u = 2^-53 on ref,
2^-24 on cpu) plus one rounding to the result's dtype. Copies, casts, single operations and integer
results are compared exactly.
"""

import math

import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from child import EVERY_LEG, LEGS
from ops import Const, Input, OpError, Runner, Weight, from_bf16, to_bf16

FLOATS = ["f32", "bf16", "f16"]
ROUNDOFF = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}
SMALLEST = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-24}
BLOCKS = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


@pytest.fixture(scope="module", params=LEGS)
def runner(request):
    with Runner(request.param, threads=2) as r:
        r.unit = 2.0**-53 if request.param == "ref" else 2.0**-24
        r.full = request.param.startswith("pjrt")
        yield r


every_leg = pytest.mark.parametrize("runner", EVERY_LEG, indirect=True)


@pytest.fixture
def rng(request):
    seed = [ord(c) for c in request.node.name.split("[")[0]]
    return np.random.default_rng(seed)


def rounded(x, dtype):
    """x as the nearest number of dtype, as float64."""
    x = np.asarray(x, np.float32)
    if dtype == "bf16":
        return from_bf16(to_bf16(x)).astype(np.float64)
    with np.errstate(over="ignore"):
        return (x.astype(np.float16) if dtype == "f16" else x).astype(np.float64)


def encode(x, dtype):
    x = np.asarray(x, np.float32)
    return {"f32": lambda: x, "bf16": lambda: to_bf16(x), "f16": lambda: x.astype(np.float16)}[dtype]()


def decode(y, dtype):
    return (from_bf16(y) if dtype == "bf16" else y).astype(np.float64)


def tensor(rng, shape, dtype, scale=1.0):
    """Random numbers of dtype: (operand data, their values as float64)."""
    data = encode(rng.normal(size=shape) * scale, dtype)
    return data, decode(data, dtype)


def close(runner, got, y, noise, dtype, inner=0.0):
    """inner: magnitude of what is rounded to dtype on the way, once."""
    arithmetic = runner.unit * np.asarray(noise, np.float64) + 1.01 * ROUNDOFF[dtype] * inner
    # half dtypes are reached through f32, which rounds too
    last = ROUNDOFF[dtype] + (0 if dtype == "f32" else ROUNDOFF["f32"])
    bound = arithmetic + last * (np.abs(y) + arithmetic) * 1.001 + SMALLEST[dtype]
    error = np.abs(decode(got, dtype) - y)
    worst = np.unravel_index(np.argmax(error - bound), error.shape)
    assert (error <= bound).all(), f"{error[worst]} > {bound[worst]} at {worst}, y {y[worst]}"


# ---- weights -------------------------------------------------------------------------------


def random_rows(rng, format, rows, k):
    """Random bytes that make finite weights of magnitude about one: (raw, values float64)."""
    if format in ("F32", "F16", "BF16"):
        data = encode(rng.normal(size=(rows, k)), format.lower())
        return data, decode(data, format.lower())
    type_ = GGMLQuantizationType[format]
    block, size = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22),
                   "Q5_1": (32, 24), "Q4_K": (256, 144), "Q5_K": (256, 176),
                   "Q6_K": (256, 210)}[format]
    raw = rng.integers(0, 256, (rows * k // block, size), dtype=np.uint8)
    halves = {"Q6_K": [208], "Q4_1": [0, 2], "Q5_1": [0, 2], "Q4_K": [0, 2], "Q5_K": [0, 2]}
    scale = {"Q8_0": 1 / 64, "Q6_K": 1 / 2048, "Q4_K": 1 / 256, "Q5_K": 1 / 512}.get(format, 1 / 8)
    for at in halves.get(format, [0]):
        d = (rng.normal(size=len(raw)) * scale).astype(np.float16)
        raw[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
    raw = raw.reshape(rows, -1)
    return raw, quants.dequantize(raw, type_).astype(np.float64)


def minima(format, raw, k):
    """|min| beside every weight: formats w = d q + m are summed in two parts."""
    blocks = raw.reshape(-1, {"Q4_1": 20, "Q5_1": 24, "Q4_K": 144, "Q5_K": 176}.get(format, 1))
    if format in ("Q4_1", "Q5_1"):
        m = np.ascontiguousarray(blocks[:, 2:4]).view(np.float16).astype(np.float64)
    elif format in ("Q4_K", "Q5_K"):
        dmin = np.ascontiguousarray(blocks[:, 2:4]).view(np.float16).astype(np.float64)
        m = dmin * quants.Q4_K.get_scale_min(np.ascontiguousarray(blocks[:, 4:16]))[1]
    else:
        return 0.0
    return np.abs(np.repeat(m.reshape(-1), 32).reshape(raw.shape[0], k))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("format", ["F32", "F16", "BF16"] + BLOCKS)
def test_embed_is_the_dequantised_row(runner, rng, format, dtype):
    V, H = 37, 512
    raw, w = random_rows(rng, format, V, H)
    ids = np.array([0, V - 1, 5, -1, V, 2**31 - 1, 5, 9], np.int32)
    (got,) = runner.run("embed", [Input(ids, live="tokens"), Weight(raw, format, [V, H])],
                        {"dtype": dtype}, {"tokens": 7})
    inside = (ids >= 0) & (ids < V)
    want = np.where(inside[:, None], w[np.where(inside, ids, 0)], 0)
    want[7] = 0  # past the live count
    assert np.array_equal(decode(got, dtype), rounded(want, dtype))


# ---- linear ----------------------------------------------------------------------------------


def linear_oracle(x, w, minimum=0.0):
    noise = (x.shape[1] + 8) * (np.abs(x) @ (np.abs(w) + 2 * minimum).T)
    return x @ w.T, noise


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("T,N,K", [(1, 1, 256), (3, 17, 256), (16, 48, 512), (33, 31, 768)])
@pytest.mark.parametrize("format", ["F32", "F16", "BF16"] + BLOCKS)
def test_linear_float_rows(runner, rng, format, T, N, K, dtype):
    raw, w = random_rows(rng, format, N, K)
    x, x64 = tensor(rng, (T, K), dtype)
    bias = rng.normal(size=N).astype(np.float32)
    live = max(1, T - 1)
    (got,) = runner.run("linear", [Input(x, dtype, "tokens"), Weight(raw, format, [N, K]),
                                   Const(bias) if T % 2 else None], {"dtype": dtype},
                        {"tokens": live})
    y, noise = linear_oracle(x64, w, minima(format, raw, K))
    inner = np.abs(y) if T % 2 else 0 * y  # the sum is rounded to dtype before the bias
    y = y + rounded(bias, dtype) if T % 2 else y
    close(runner, got[:live], y[:live], noise[:live], dtype, inner[:live])
    assert not got[live:].any()


@pytest.mark.parametrize("K", [8, 33, 96, 100])
@pytest.mark.parametrize("format", ["F32", "F16", "BF16"])
def test_linear_of_any_width(runner, rng, format, K):
    raw, w = random_rows(rng, format, 19, K)
    x, x64 = tensor(rng, (5, K), "f32")
    (got,) = runner.run("linear", [Input(x), Weight(raw, format, [19, K])], {"dtype": "f32"})
    close(runner, got, *linear_oracle(x64, w), "f32")


def quantised(rng, T, K, group):
    q = rng.integers(-127, 128, (T, K), dtype=np.int8)
    scale = (rng.random((T, K // group)) / 64 + 1e-3).astype(np.float32)
    return q, scale, q.astype(np.float64) * np.repeat(scale, group, 1)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("T,N,K", [(1, 16, 256), (2, 33, 512), (17, 5, 1024), (40, 64, 256)])
@pytest.mark.parametrize("format", BLOCKS)
def test_linear_int8_rows(runner, rng, format, T, N, K, dtype):
    raw, w = random_rows(rng, format, N, K)
    q, scale, x64 = quantised(rng, T, K, 32)
    (got,) = runner.run("linear", [Input(q, live="tokens"), Weight(raw, format, [N, K]), None, None,
                                   Input(scale, live="tokens")], {"dtype": dtype}, {"tokens": T})
    close(runner, got, *linear_oracle(x64, w, minima(format, raw, K)), dtype)


@every_leg
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("T,N,K", [(1, 16, 64), (3, 33, 100), (19, 50, 2048)])
def test_linear_w8a8_is_exact(runner, rng, T, N, K, dtype):
    w = rng.integers(-128, 128, (N, K), dtype=np.int8)
    w_scale = (rng.random(N) / 100 + 1e-4).astype(np.float32)
    bias = rng.normal(size=N).astype(np.float32)
    q, scale, _ = quantised(rng, T, K, K)
    (got,) = runner.run("linear", [Input(q), Weight(w, "I8C", [N, K], w_scale), Const(bias), None,
                                   Input(scale)], {"dtype": dtype})
    exact = q.astype(np.int64) @ w.astype(np.int64).T
    y = (exact.astype(np.float32) * scale) * w_scale  # float32, in this order
    y = rounded(rounded(y, dtype) + rounded(bias, dtype), dtype)
    assert np.array_equal(decode(got, dtype), y)


@pytest.mark.parametrize("format", ["F32", "BF16", "Q4_1", "Q6_K", "I8C"])
def test_linear_grouped(runner, rng, format):
    E, T, N, K = 3, 7, 20, 256
    groups = np.array([0, 2, -1, 1, 2, 2, 0], np.int32)
    w_scale, minimum = None, 0.0
    if format == "I8C":
        raw = rng.integers(-127, 128, (E * N, K), dtype=np.int8)
        w_scale = (rng.random(E * N) / 100).astype(np.float32)
        w = (raw * w_scale[:, None]).astype(np.float64)  # float32: the dtype of a weight
    else:
        raw, w = random_rows(rng, format, E * N, K)
        minimum = minima(format, raw, K)
    x, x64 = tensor(rng, (T, K), "f32")
    (got,) = runner.run("linear", [Input(x), Weight(raw, format, [E, N, K], w_scale), None,
                                   Input(groups)], {"dtype": "f32"})
    for t, e in enumerate(groups):
        rows = slice(e * N, e * N + N)
        m = minimum if np.isscalar(minimum) else minimum[rows]
        y, noise = linear_oracle(x64[t:t + 1], w[rows], m)
        if e < 0:
            assert not got[t].any()
        else:
            close(runner, got[t:t + 1], y, noise, "f32")


# ---- rows --------------------------------------------------------------------------------------


def check_quantised(runner, x, x64, dtype, group):
    T, K = x.shape
    got, scale = runner.run("quantise_rows", [Input(x, dtype, "tokens")], {"group": group},
                            {"tokens": T - 1})
    g = x64.astype(np.float32).reshape(T, -1, group)
    s = np.abs(g).max(-1, keepdims=True) / np.float32(127)
    s[s == 0] = 1
    want = np.rint(g / s).astype(np.int8).reshape(T, K)
    assert np.array_equal(scale[:-1], s.reshape(T, -1)[:-1]) and not scale[-1].any()
    assert np.array_equal(got[:-1], want[:-1]) and not got[-1].any()


@every_leg
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("K,group", [(32, 32), (96, 32), (576, 32), (100, 100), (2048, 2048),
                                     (192, 64), (1100, 20), (3000, 1500)])
def test_quantise_rows_is_exact(runner, rng, K, group, dtype):
    x, x64 = tensor(rng, (6, K), dtype, 3.0)
    x[2], x64[2] = 0, 0
    check_quantised(runner, x, x64, dtype, group)


@every_leg
@pytest.mark.parametrize("group", [32, 100])
def test_quantise_rows_divides(runner, rng, group):
    """Quotients beside k + 1/2: the product with an inverse of the scale is another integer."""
    T = 64
    most = np.abs(rng.normal(size=(T, 1)) * 3).astype(np.float32)
    scale = most / np.float32(127)
    x = ((rng.integers(-126, 126, (T, group)) + 0.5) * scale).astype(np.float32)
    x[:, :1] = most
    assert (np.rint(x * (1 / scale)) != np.rint(x / scale)).sum() > 50
    check_quantised(runner, x, x.astype(np.float64), "f32", group)


@every_leg
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_quantise_rows_keeps_nan_visible(runner, rng, bad):
    x, _ = tensor(rng, (2, 64), "f32")
    x[0, 40] = bad
    got, scale = runner.run("quantise_rows", [Input(x)], {"group": 32})
    assert np.isnan(scale[0, 1]) and not got[0, 32:].any()
    assert np.isfinite(scale[0, 0]) and np.isfinite(scale[1]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(5, 64), (3, 576), (4, 3, 24), (1, 2048), (2, 7)])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_rms_norm(runner, rng, shape, dtype, offset):
    x, x64 = tensor(rng, shape, dtype, 2.0)
    H, eps = shape[-1], 1e-5
    w = rng.normal(size=H).astype(np.float32)
    (got,) = runner.run("rms_norm", [Input(x, dtype, "tokens"), Const(w)],
                        {"eps": eps, "offset": offset})
    r = 1 / np.sqrt((x64**2).mean(-1, keepdims=True) + np.float64(np.float32(eps)))
    noise = (H + 8) * np.abs(x64 * r) * (np.abs(w.astype(np.float64)) + offset)
    close(runner, got, x64 * r * (w.astype(np.float64) + offset), noise, dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("H", [8, 65, 768])
def test_layer_norm(runner, rng, H, dtype):
    x, x64 = tensor(rng, (4, H), dtype)
    x64 = decode(encode(x64 + 3, dtype), dtype)  # a mean that must be taken off
    w, b = rng.normal(size=(2, H)).astype(np.float32)
    (got,) = runner.run("layer_norm", [Input(encode(x64, dtype), dtype), Const(w), Const(b)],
                        {"eps": 1e-5})
    mean, size = x64.mean(-1, keepdims=True), np.abs(x64).mean(-1, keepdims=True)
    d = x64 - mean
    r = 1 / np.sqrt((d * d).mean(-1, keepdims=True) + np.float64(np.float32(1e-5)))
    y = d * r * w.astype(np.float64) + b
    off = (H + 4) * (size + np.abs(x64))  # of d
    noise = r * np.abs(w) * off * (1 + np.abs(d) * r) + (H + 8) * np.abs(d * r * w) + np.abs(b)
    close(runner, got, y, noise + np.abs(y), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("D,F,sections", [(64, 32, None), (64, 16, None), (24, 12, [4, 5, 3])])
def test_rope(runner, rng, D, F, sections, dtype):
    T, N, factor = 6, 3, 1.25
    x, x64 = tensor(rng, (T, N, D), dtype)
    positions = rng.integers(0, 8000, (3, T)).astype(np.int32)
    positions[0, 0] = 0
    inv_freq = (10000.0 ** (-np.arange(F) / F)).astype(np.float32)
    attrs = {"scale": factor} | ({"sections": sections} if sections else {})
    (got,) = runner.run("rope", [Input(x, dtype, "tokens"), Input(positions), Const(inv_freq)],
                        attrs, {"tokens": T - 1})
    axis = np.repeat([0, 1, 2], sections) if sections else np.zeros(F, int)
    angle = (positions[axis].astype(np.float32) * inv_freq[:, None]).T[:, None, :]
    assert angle.dtype == np.float32
    c, s = np.cos(angle.astype(np.float64)) * factor, np.sin(angle.astype(np.float64)) * factor
    a, b = x64[..., :F], x64[..., F:2 * F]
    y = np.concatenate([a * c - b * s, b * c + a * s, x64[..., 2 * F:]], -1)
    size = (np.abs(a) + np.abs(b)) * factor
    noise = np.concatenate([8 * size, 8 * size, 0 * x64[..., 2 * F:]], -1)
    close(runner, got[:-1], y[:-1], noise[:-1], dtype)
    assert not got[-1].any()


# ---- elements ------------------------------------------------------------------------------------


def spread(rng, shape, dtype):
    """Small, large, signed and zero."""
    data = encode(rng.normal(size=shape) * 10.0 ** rng.integers(-4, 2, shape), dtype)
    data.reshape(-1)[0] = 0
    return data, decode(data, dtype)


erf = np.vectorize(math.erf)
ACTIVATIONS = {
    "none": (lambda x: x, lambda x, y: 0 * x),
    "relu": (lambda x: np.maximum(x, 0), lambda x, y: 0 * x),
    "silu": (lambda x: x / (1 + np.exp(-x)), lambda x, y: 8 * np.abs(y)),
    # 1 + erf and 1 + tanh cancel for x < 0: their error stands beside x, not y
    "gelu": (lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))), lambda x, y: 8 * np.abs(x)),
    "gelu_tanh": (lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
                  lambda x, y: 8 * np.abs(x)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activation(runner, rng, act, dtype):
    x, x64 = spread(rng, (5, 67), dtype)
    (got,) = runner.run("activation", [Input(x, dtype, "tokens")], {"act": act}, {"tokens": 4})
    formula, noise = ACTIVATIONS[act]
    y = formula(x64)
    close(runner, got[:4], y[:4], noise(x64, y)[:4], dtype)
    assert not got[4:].any()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("act", ["silu", "gelu_tanh"])
def test_gated(runner, rng, act, dtype):
    gate, gate64 = spread(rng, (5, 96), dtype)
    up, up64 = tensor(rng, (5, 96), dtype)
    (got,) = runner.run("gated", [Input(gate, dtype), Input(up, dtype)], {"act": act})
    formula, noise = ACTIVATIONS[act]
    a = formula(gate64)
    # the activation is rounded to dtype before the product
    inner = (np.abs(a) + SMALLEST[dtype] / ROUNDOFF[dtype]) * np.abs(up64)
    close(runner, got, a * up64, noise(gate64, a) * np.abs(up64), dtype, inner)


@every_leg
@pytest.mark.parametrize("dtype", FLOATS)
def test_add_mul_scale_are_correctly_rounded(runner, rng, dtype):
    a, a64 = spread(rng, (7, 33), dtype)
    b, b64 = tensor(rng, (7, 33), dtype)
    operands = [Input(a, dtype, "tokens"), Input(b, dtype, "tokens")]
    for op, y in (("add", a64 + b64), ("mul", a64 * b64)):
        (got,) = runner.run(op, operands, live={"tokens": 6})
        assert np.array_equal(decode(got, dtype)[:6], rounded(y, dtype)[:6]), op
        assert not got[6:].any()
    (got,) = runner.run("scale", operands[:1], {"scale": 0.3})
    assert np.array_equal(decode(got, dtype), rounded(a64 * np.float64(np.float32(0.3)), dtype))


@every_leg
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cast_is_nearest_even(runner, rng, dtype, to):
    x, x64 = spread(rng, (5, 70), dtype)
    (got,) = runner.run("cast", [Input(x, dtype)], {"dtype": to})
    assert np.array_equal(decode(got, to), rounded(x64, to))


def test_cast_of_halfway_and_special_numbers(runner):
    x = np.array([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 65520.0, np.inf,
                   -np.inf, 2**-25, 3 * 2**-26, -0.0, 3e38]], np.float32)
    for to in ("bf16", "f16"):
        (got,) = runner.run("cast", [Input(x)], {"dtype": to})
        assert np.array_equal(decode(got, to), rounded(x, to)), to
    (got,) = runner.run("cast", [Input(np.full((1, 3), np.nan, np.float32))], {"dtype": "bf16"})
    assert np.isnan(from_bf16(got)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_softcap(runner, rng, dtype):
    x, x64 = tensor(rng, (4, 50), dtype, 40.0)
    (got,) = runner.run("softcap", [Input(x, dtype)], {"cap": 30.0})
    # tanh is at most one: a few roundings of one, times the cap
    close(runner, got, 30 * np.tanh(x64 / 30), np.full_like(x64, 8 * 30.0), dtype)


# ---- moving rows ---------------------------------------------------------------------------------


def test_reshape_and_gather_rows(runner, rng):
    x, _ = tensor(rng, (6, 24), "f32")
    (got,) = runner.run("reshape", [Input(x)], shape=[6, 3, 8])
    assert np.array_equal(got, x.reshape(6, 3, 8))
    rows = np.array([5, 0, -3, 99, 2], np.int32)
    (got,) = runner.run("gather_rows", [Input(x, live="tokens"), Input(rows, live="rows")],
                        live={"tokens": 6, "rows": 4})
    assert np.array_equal(got[:4], x[[5, 0, 0, 5]]) and not got[4:].any()


# ---- between devices: alone here, several in tests/unit/test_collectives.c -------------------------


@pytest.mark.parametrize("out", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_all_reduce_of_one_device(runner, rng, dtype, out):
    x, x64 = tensor(rng, (6, 37), dtype)
    bias = rng.normal(size=37).astype(np.float32)
    for b in None, bias:
        (got,) = runner.run("all_reduce", [Input(x, dtype, "tokens"), None if b is None else Const(b)],
                            {"group": 1, "dtype": out}, {"tokens": 5})
        y = rounded(x64, out)
        y = y if b is None else rounded(y + rounded(bias, out), out)
        assert np.array_equal(decode(got[:5], out), y[:5])


@every_leg
@pytest.mark.parametrize("dtype", FLOATS)
def test_mul_rows_is_exact(runner, rng, dtype):
    x, x64 = tensor(rng, (6, 3, 37), dtype)
    by = rng.normal(size=6).astype(np.float32)
    (got,) = runner.run("mul_rows", [Input(x, dtype, "tokens"), Input(by, live="tokens")],
                        live={"tokens": 5})
    y = (x64.astype(np.float32) * by[:, None, None])  # one float32 product
    assert np.array_equal(decode(got[:5], dtype), rounded(y, dtype)[:5]) and not got[5:].any()


@every_leg
@pytest.mark.parametrize("E,n,group", [(1, 0, 0), (8, 0, 2), (8, 1, 2), (8, 7, 0), (40, 3, 4), (129, 5, 3)])
def test_route(runner, rng, E, n, group):
    """The n-th largest, and its share: a stable sort and a softmax of the largest."""
    x = rng.normal(size=(7, E)).astype(np.float32) * 4
    x[1] = np.round(x[1])  # ties
    x[2] = 3
    x[3, E // 2], x[4, 0] = np.nan, np.inf
    ids, share = runner.run("route", [Input(x, live="tokens")], {"n": n, "group": group},
                            {"tokens": 6})
    for t in (0, 1, 2, 5):
        order = np.argsort(-x[t].astype(np.float64), kind="stable")
        e = np.exp(x[t].astype(np.float64) - x[t].max())
        y = e[order[n]] / e[order[:group or E]].sum()
        noise = (4 * np.abs(x[t]).max() + E + 8) * y
        assert ids[t] == order[n]
        close(runner, share[t:t + 1], np.array([y]), noise, "f32")
    assert list(ids[[3, 4, 6]]) == [-1, -1, 0] and np.isnan(share[3:5]).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [0, 1, 36, 37])
def test_all_gather_of_one_device(runner, rng, dtype, n):
    x, _ = tensor(rng, (6, 37), dtype)
    (got,) = runner.run("all_gather", [Input(x, dtype, "tokens")], {"group": 1, "n": n}, {"tokens": 5})
    assert np.array_equal(got[:5], x[:5, :n or 37])


@pytest.mark.parametrize("op,attrs,says", [
    ("all_reduce", {"group": 0, "dtype": "f32"}, "a group of 0 devices"),
    ("all_gather", {"group": 1, "n": 38}, "38 of 37 columns")])
def test_groups_that_are_none(runner, op, attrs, says):
    with pytest.raises(OpError, match=says):
        runner.run(op, [Input(np.zeros((2, 37), np.float32))], attrs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("cache_dtype", FLOATS)
def test_kv_write(runner, rng, dtype, cache_dtype):
    blocks, block, N, D, T = 5, 4, 2, 8, 7
    cache, _ = tensor(rng, (blocks, block, N, D), cache_dtype)
    x, x64 = tensor(rng, (T, N, D), dtype)
    # the last row is padding: never looked at, but by programs of fixed shapes, which need a slot -1
    slots = np.array([3, 0, 19, -1, 8, 7, -1 if runner.full else 1], np.int32)
    (got,) = runner.run("kv_write", [Input(cache, cache_dtype), Input(x, dtype, "tokens"),
                                     Input(slots, live="tokens")], live={"tokens": 6})
    want = decode(cache, cache_dtype).reshape(-1, N, D)
    for t in (0, 1, 2, 4, 5):
        want[slots[t]] = rounded(x64[t], cache_dtype)
    assert np.array_equal(decode(got, cache_dtype).reshape(-1, N, D), want)


def test_kv_write_of_codes(runner, rng):
    """The bytes, and a plane of scales beside them."""
    blocks, block, N, D, T = 5, 4, 3, 20, 4
    cache, x = (rng.integers(-127, 128, s, np.int8) for s in ((blocks, block, N, D), (T, N, D)))
    slots = np.array([17, -1, 0, 9], np.int32)
    planes = [(cache, x), (rng.random((blocks, block, N, 1), np.float32), rng.random((T, N, 1), np.float32))]
    for cache, x in planes:
        (got,) = runner.run("kv_write", [Input(cache), Input(x, live="tokens"),
                                         Input(slots, live="tokens")], live={"tokens": T})
        want = cache.reshape(-1, *x.shape[1:]).copy()
        want[slots[[0, 2, 3]]] = x[[0, 2, 3]]
        assert np.array_equal(got.reshape(want.shape), want)


# ---- attention -----------------------------------------------------------------------------------


def attention_oracle(q, k, v, tables, starts, lens, scale, window=0, cap=0.0, sink=None):
    (T, N, D), block, KV = q.shape, k.shape[1], k.shape[2]
    y, noise = np.zeros((T, N, D)), np.zeros((T, N, D))
    for b in range(len(lens)):
        count = starts[b + 1] - starts[b]
        place = [(tables[b, j // block], j % block) for j in range(lens[b])]
        keys = np.array([k[p] for p in place]).reshape(-1, KV, D)
        values = np.array([v[p] for p in place]).reshape(-1, KV, D)
        for t in range(starts[b], starts[b + 1] if lens[b] else starts[b]):
            at = lens[b] - count + t - starts[b]
            seen = np.arange(max(0, at - window + 1) if window else 0, at + 1)
            for n in range(N):
                h = n // (N // KV)
                s = keys[seen, h] @ q[t, n] * scale
                size = np.abs(keys[seen, h]) @ np.abs(q[t, n]) * scale
                s = cap * np.tanh(s / cap) if cap else s
                most = max(s.max(), sink[n] if sink is not None else -np.inf)
                e = np.exp(s - most)
                p = e / (e.sum() + (np.exp(sink[n] - most) if sink is not None else 0))
                y[t, n] = p @ values[seen, h]
                # the error of a score, twice (numerator and sum), then the roundings of the sums
                off = 2 * (D + 8) * size.max() + 4 * (np.abs(s).max() + abs(most)) + 8 * cap
                noise[t, n] = (off + 2 * len(seen) + 16) * (p @ np.abs(values[seen, h]))
    return y, noise


def pages(rng, shape, dtype):
    """(operand data, its values as float64, the operand of its scales)"""
    if dtype != "i8":
        return *tensor(rng, shape, dtype), None
    codes = rng.integers(-127, 128, shape, np.int8)
    scale = (rng.random((*shape[:-1], 1)) / 64).astype(np.float32)
    return codes, codes * scale.astype(np.float64), Input(scale)


@pytest.mark.parametrize("dtype,cache_dtype", [("f32", "f32"), ("f32", "bf16"), ("f32", "f16"),
                                               ("bf16", "bf16"), ("f16", "f16"), ("f32", "i8"),
                                               ("bf16", "i8")])
@pytest.mark.parametrize("N,KV,D,block", [(4, 2, 16, 8), (9, 3, 64, 16), (2, 2, 80, 4)])
@pytest.mark.parametrize("kind", ["plain", "window", "cap", "sink"])
def test_attention(runner, rng, N, KV, D, block, dtype, cache_dtype, kind):
    lens = np.array([37, 0, 5, 90, 1], np.int32)  # a hole, decodes, a chunk in the middle, a whole
    counts = [1, 0, 5, 20, 1]
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    T, W, blocks = 32, -(-100 // block), 60
    q, q64 = tensor(rng, (T, N, D), dtype)
    (k, k64, k_scale), (v, v64, v_scale) = (pages(rng, (blocks, block, KV, D), cache_dtype)
                                            for _ in range(2))
    tables = np.full((len(lens), W), -1, np.int32)
    free = list(rng.permutation(blocks))
    for b, n in enumerate(lens):
        for i in range(-(-n // block)):
            tables[b, i] = free.pop()
    scale = float(np.float32(D**-0.5))
    options = {"plain": {}, "window": {"window": 7}, "cap": {"cap": 2.0},
               "sink": {"sink": rng.normal(size=N).astype(np.float32)}}[kind]
    attrs = {"scale": scale} | {k: v for k, v in options.items() if k != "sink"}
    operands = [Input(q, dtype, "tokens"), Input(k, cache_dtype), Input(v, cache_dtype),
                Input(tables), Input(starts), Input(lens)]
    operands += [Const(options["sink"])] if kind == "sink" else [None]
    operands += [k_scale, v_scale]
    (got,) = runner.run("attention", operands, attrs, {"tokens": int(starts[-1])})
    y, noise = attention_oracle(q64, k64, v64, tables, starts, lens, scale, **options)
    live = starts[-1]
    close(runner, got[:live], y[:live], noise[:live], dtype)
    assert not got[live:].any()


# ---- composites ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_norms_equal_their_parts(runner, rng, dtype):
    T, H, attrs = 5, 96, {"eps": 1e-6, "offset": 0.0}
    a, _ = tensor(rng, (T, H), dtype)
    b, _ = tensor(rng, (T, H), dtype)
    w = Const(rng.normal(size=H))
    pair = [Input(a, dtype, "tokens"), Input(b, dtype, "tokens")]
    live = {"tokens": T - 1}
    (total,) = runner.run("add", pair, live=live)
    (norm,) = runner.run("rms_norm", [Input(total, dtype, "tokens"), w], attrs, live)
    q, scale = runner.run("quantise_rows", [Input(norm, dtype, "tokens")], {"group": 32}, live)
    same = np.array_equal
    got = runner.run("add_rms_norm", pair + [w], attrs, live)
    assert same(got[0], total) and same(got[1], norm)
    got = runner.run("add_rms_norm_q8", pair + [w], attrs | {"group": 32}, live)
    assert same(got[0], total) and same(got[1], q) and same(got[2], scale)
    got = runner.run("rms_norm_q8", [Input(total, dtype, "tokens"), w], attrs | {"group": 32}, live)
    assert same(got[0], q) and same(got[1], scale)


@pytest.mark.parametrize("dtype", FLOATS)
def test_fused_gated_equals_its_parts(runner, rng, dtype):
    gate, _ = tensor(rng, (4, 96), dtype)
    up, _ = tensor(rng, (4, 96), dtype)
    pair, live = [Input(gate, dtype, "tokens"), Input(up, dtype, "tokens")], {"tokens": 3}
    (y,) = runner.run("gated", pair, {"act": "silu"}, live)
    q, scale = runner.run("quantise_rows", [Input(y, dtype, "tokens")], {"group": 32}, live)
    got = runner.run("gated_q8", pair, {"act": "silu", "group": 32}, live)
    assert np.array_equal(got[0], q) and np.array_equal(got[1], scale)


# ---- refusals -----------------------------------------------------------------------------------------


def attention_of(cache, scale=False):
    pages, scales = np.zeros((2, 4, 1, 8), cache), Input(np.zeros((2, 4, 1, 1), np.float32))
    some = np.zeros(1, np.int32)
    return [Input(np.zeros((3, 2, 8), np.float32)), Input(pages), Input(pages), Input(some[None]),
            Input(np.array([0, 1], np.int32)), Input(some), None] + [scales] * (2 * scale)


@pytest.mark.parametrize("op,operands,attrs,sentence", [
    ("add", [Input(np.zeros((2, 3), np.float32)), Input(np.zeros((2, 4), np.float32))], {},
     "add: a is f32 [2,3], b is f32 [2,4]"),
    ("add", [Input(np.zeros((2, 3), np.float32))], {}, "add: operand b is missing"),
    ("rms_norm", [Input(np.zeros((2, 8), np.float32)), Const(np.zeros(9))], {"eps": 1e-5},
     "its H is 8 in an earlier operand"),
    ("linear", [Input(np.zeros((2, 8), np.int32)), Weight(np.zeros((4, 8), np.float32), "F32",
                                                          [4, 8])], {"dtype": "f32"},
     "linear: x in.0 is i32 [2,8], a dtype that it does not take"),
    ("linear", [Input(np.zeros((2, 64), np.int8)), Weight(np.zeros((4, 68), np.uint8), "Q8_0",
                                                          [4, 64]), None, None,
                Input(np.ones((2, 4), np.float32))], {"dtype": "f32"},
     "x_scale has 4 columns for K 64"),
    ("quantise_rows", [Input(np.zeros((2, 48), np.float32))], {"group": 32}, "group 32"),
    ("top_n", [Input(np.zeros((2, 5), np.float32)), Input(np.zeros(2, np.int32))], {"n": 6},
     "n 6 is not in 1 to V"),
    ("kv_write", [Input(np.zeros((2, 4, 1, 8), np.int8)), Input(np.zeros((3, 1, 8), np.float32)),
                  Input(np.zeros(3, np.int32))], {},
     "kv_write: x in.1 is f32 [3,1,8], a dtype that it does not take"),
    ("attention", attention_of(np.int8), {"scale": 1.0},
     "k_scale goes with i8 pages, and only with them"),
    ("attention", attention_of(np.float32, scale=True), {"scale": 1.0},
     "k_scale goes with i8 pages, and only with them"),
], ids=["add-shapes", "add-missing", "rms_norm-width", "linear-dtype", "linear-scales",
        "quantise_rows-group", "top_n-n", "kv_write-codes", "attention-no-scale",
        "attention-float-scale"])
def test_refusals_name_op_and_operand(runner, op, operands, attrs, sentence):
    with pytest.raises(OpError) as e:
        runner.run(op, operands, attrs)
    assert sentence in str(e.value) and e.value.status == "INVALID_ARGUMENT"
