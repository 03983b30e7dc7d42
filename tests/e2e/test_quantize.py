"""headrace quantize, and --quantization at load: the integers against NumPy's, bit for bit; what is
written is what the `safetensors` package reads; the model against float64 with the same integers."""
import json
import re
import shutil

import gguf
import numpy as np
import pytest
from conftest import headrace
from safetensors import safe_open

import make_tiny
import plugins
from test_int4 import check_float, check_int8
from test_logits import DEVICES, PROMPT, run
from test_w8a8 import check, no_plugin


def quantised(tensors, dtype, ignore=("lm_head",)):
    """{module: (int8 [N,K], f32 scales [N])} by the declared rule, from the numbers of the file."""
    out = {}
    for name, x in tensors.items():
        module = name.removesuffix(".weight")
        if x.ndim == 1 or "embed" in name or any(
                re.match(i[3:], module) if i.startswith("re:") else i == module for i in ignore):
            continue
        most = np.abs(x).max(axis=1).astype(np.float32)
        scale = np.where(most > 0, most / np.float32(127), np.float32(1)).astype(np.float32)
        if dtype == "bf16":  # up to the next one
            scale = ((scale.view(np.uint32) + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(
                np.float32)
        q = np.clip(np.rint(x.astype(np.float32) / scale[:, None]), -127, 127).astype(np.int8)
        out[module] = q, scale
    return out


def known(tensors, integers):
    return {name: integers[m][0] * integers[m][1][:, None] if (m := name.removesuffix(".weight"))
            in integers else x for name, x in tensors.items()}


def written(folder):
    """{name: (dtype, shape, bytes)} of a folder's files, and the numbers of F32 and I8 tensors."""
    out = {}
    for file in sorted(folder.glob("*.safetensors")):
        raw = file.read_bytes()
        n = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + n])
        assert header.pop("__metadata__") == {"format": "pt"} and n % 8 == 0
        for name, t in header.items():
            begin, end = t["data_offsets"]
            out[name] = t["dtype"], t["shape"], raw[8 + n + begin:8 + n + end]
        with safe_open(file, "np") as f:  # the package takes the file as well
            assert sorted(f.keys()) == sorted(header)
    return out


def quantize(source, out, *flags):
    r = headrace("quantize", source, out, "--scheme", "w8a8", "--json", "--no-progress", *flags)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    kept, root = {}, tmp_path_factory.mktemp("quantize")

    def get(family, dtype="f32", shards=1):
        key = family, dtype, shards
        if key not in kept:
            path = root / "-".join(map(str, key))
            config, tensors = make_tiny.hf(path, *key)
            kept[key] = (path, config, tensors, quantize(path, path.with_suffix(".w8a8")))
        return kept[key]
    return get


@pytest.mark.sanitize
@pytest.mark.parametrize("family,dtype,shards", [("llama", "f32", 1), ("qwen2", "bf16", 3),
                                                 ("qwen3", "f16", 1), ("llama_bias", "bf16", 1)])
def test_what_is_written(made, family, dtype, shards):
    source, _, tensors, report = made(family, dtype, shards)
    out, integers = source.with_suffix(".w8a8"), quantised(tensors, dtype)
    files, plain = written(out), written_source(source)
    assert sorted(files) == sorted([*plain, *(m + ".weight_scale" for m in integers)])
    for name, (kind, shape, data) in files.items():
        module = name.rsplit(".", 1)[0]
        if name.endswith(".weight_scale"):
            scale = integers[module][1]
            assert shape == [len(scale), 1] and kind == ("BF16" if dtype == "bf16" else "F32")
            want = (scale.view(np.uint32) >> 16).astype(np.uint16) if kind == "BF16" else scale
            assert data == want.tobytes(), name
        elif name.endswith(".weight") and module in integers:
            assert kind == "I8" and data == integers[module][0].tobytes(), name
        else:
            assert (kind, shape, data) == plain[name], name
    config = json.loads((out / "config.json").read_text())
    quantization = config.pop("quantization_config")
    assert config == json.loads((source / "config.json").read_text())
    assert quantization["ignore"] == ["lm_head"]
    assert quantization["config_groups"]["group_0"]["targets"] == ["Linear"]
    for name in ("tokenizer.json", "generation_config.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    layers = {layer["name"].removesuffix(".weight"): layer for layer in report["layers"]}
    assert layers.keys() == integers.keys()
    for module, (q, scale) in integers.items():
        old = tensors[module + ".weight"].astype(np.float64)
        new = q.astype(np.float64) * scale[:, None]
        assert layers[module]["max_error"] == pytest.approx(np.abs(new - old).max())
        assert layers[module]["rms_error"] == pytest.approx(
            np.sqrt(((new - old) ** 2).mean() / (old ** 2).mean()))
        assert layers[module]["cosine"] == pytest.approx(
            (new * old).sum() / np.sqrt((new ** 2).sum() * (old ** 2).sum()))


def written_source(folder):
    out = {}
    for file in folder.glob("*.safetensors"):
        raw = file.read_bytes()
        n = int.from_bytes(raw[:8], "little")
        for name, t in json.loads(raw[8:8 + n]).items():
            if name != "__metadata__":
                begin, end = t["data_offsets"]
                out[name] = t["dtype"], t["shape"], raw[8 + n + begin:8 + n + end]
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family,dtype", [("llama", "f32"), ("qwen2", "bf16")])
def test_model(made, family, dtype, device):
    """Both ways against float64 with the same integers, and against each other to the bit."""
    source, config, tensors, _ = made(family, dtype)
    integers = quantised(tensors, dtype)
    rest = config, known(tensors, integers), integers
    answer = check(source.with_suffix(".w8a8"), *rest, device)
    at_load = check(source, *rest, device, "--quantization", "w8a8")
    assert answer["choices"] == at_load["choices"]
    assert answer["prompt_logprobs"] == at_load["prompt_logprobs"]
    assert answer["numerics"] == at_load["numerics"]


@no_plugin
def test_plugin(made):
    source, config, tensors, _ = made("llama", "bf16")
    integers = quantised(tensors, "bf16")
    check(source, config, known(tensors, integers), integers, "pjrt", "--dtype", "float32",
          "--quantization", "w8a8", most=0.75)


def test_gguf_at_load(tmp_path):
    """The numbers that its blocks stand for are what is quantised, rows of q and k in order."""
    path = tmp_path / "tiny.gguf"
    config, tensors = make_tiny.gguf_file(path, "llama", "Q8_0")
    integers = quantised(tensors, "f32")
    check(path, config, known(tensors, integers), integers, DEVICES[-1], "--quantization", "w8a8")


def test_ignore(made, tmp_path):
    source, config, tensors, _ = made("llama")
    ignore = ["model.layers.0.mlp.down_proj", r"re:.*\.1\.self_attn\..*"]
    flags = [x for name in ignore for x in ("--ignore", name)]
    quantize(source, tmp_path / "out", *flags)
    integers = quantised(tensors, "f32", ["lm_head", *ignore])
    kinds = {name: kind for name, (kind, _, _) in written(tmp_path / "out").items()}
    assert {n.removesuffix(".weight") for n, k in kinds.items() if k == "I8"} == integers.keys()
    check(tmp_path / "out", config, known(tensors, integers), integers, DEVICES[-1])


def test_zero_rows_and_ties(tmp_path):
    """Rows of zeros; halves between integers, which go to the even one."""
    config, tensors = make_tiny.hf(tmp_path / "in", "llama")
    name = "model.layers.0.mlp.up_proj.weight"
    x = tensors[name].copy()
    x[3] = 0
    x[4] = (np.arange(x.shape[1]) % 254 - 126.5).clip(-127, 127)
    x[4, 0] = 127
    tensors[name] = x
    make_tiny.save_raw({k: ("F32", v) for k, v in tensors.items()},
                       tmp_path / "in/model.safetensors")
    quantize(tmp_path / "in", tmp_path / "out")
    q, scale = quantised(tensors, "f32")[name.removesuffix(".weight")]
    assert (q[3] == 0).all() and scale[3] == 1 and q[4, 1] == -126 and q[4, 2] == -124
    assert written(tmp_path / "out")[name][2] == q.tobytes()


# ---- 4 bits, and GGUF's blocks -------------------------------------------------------------------

def grouped(tensors, dtype, columns):
    """{module: (int8 -8..7 [N,K], f32 scales [N,G])}: the largest of a group is 7.5 steps."""
    out = {}
    for module, _ in quantised(tensors, dtype).items():
        x = tensors[module + ".weight"].astype(np.float32)
        g = x.reshape(len(x), -1, columns)
        scale = (np.abs(g).max(axis=2) / np.float32(7.5)).astype(np.float32)
        if dtype == "bf16":
            scale = ((scale.view(np.uint32) + 0xFFFF) & 0xFFFF0000).astype(np.uint32).view(
                np.float32)
        q = np.clip(np.rint(g / scale[..., None]), -8, 7).astype(np.int8)
        out[module] = q.reshape(x.shape), scale
    return out


@pytest.mark.sanitize
@pytest.mark.parametrize("family,dtype,flags,columns", [
    ("llama", "f32", [], 128), ("qwen2", "bf16", ["--group-size", 32], 32)])
def test_4_bits(made, tmp_path, family, dtype, flags, columns):
    """The file, the report, and the model, which at load is the same to the bit."""
    source, config, tensors, _ = made(family, dtype)
    out, integers = tmp_path / "out", grouped(tensors, dtype, columns)
    r = headrace("quantize", source, out, "--scheme", "w4a8", "--json", "--no-progress", *flags)
    assert r.returncode == 0, r.stderr
    layers = {layer["name"].removesuffix(".weight"): layer for layer in json.loads(r.stdout)["layers"]}
    files = written(out)
    for module, (q, scale) in integers.items():
        assert files[module + ".weight"] == ("I8", list(q.shape), q.tobytes())
        want = (scale.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else scale
        kind = "BF16" if dtype == "bf16" else "F32"
        assert files[module + ".weight_scale"] == (kind, list(scale.shape), want.tobytes())
        old = tensors[module + ".weight"].astype(np.float64)
        new = q.astype(np.float64) * np.repeat(scale, columns, 1)
        assert layers[module]["max_error"] == pytest.approx(np.abs(new - old).max(), rel=1e-5)
        assert layers[module]["rms_error"] == pytest.approx(
            np.sqrt(((new - old) ** 2).mean() / (old ** 2).mean()), rel=1e-5)
    weights = json.loads((out / "config.json").read_text())["quantization_config"][
        "config_groups"]["group_0"]["weights"]
    assert (weights["num_bits"], weights["strategy"], weights["group_size"]) == (4, "group", columns)
    numbers = {**tensors, **{m + ".weight": q * np.repeat(s, columns, 1)
                             for m, (q, s) in integers.items()}}
    answer = check_int8(out, config, numbers, integers, DEVICES[-1], whole=True)
    if not flags:
        at_load = run(source, DEVICES[-1], "--quantization", "w4a8")[1]
        assert answer["prompt_logprobs"] == at_load["prompt_logprobs"]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_blocks_at_load(made, kind):
    """As the `gguf` package quantises and dequantises; embedding and head are Q8_0."""
    source, config, tensors, _ = made("llama")
    numbers = dict(tensors)
    for name, x in tensors.items():
        if x.ndim == 2:
            t = gguf.GGMLQuantizationType["Q8_0" if "layers" not in name else kind]
            numbers[name] = gguf.quants.dequantize(gguf.quants.quantize(x, t), t).reshape(x.shape)
    modules = [n.removesuffix(".weight") for n, x in tensors.items() if x.ndim == 2]
    check_float(source, config, numbers, modules, DEVICES[-1], "--quantization", kind.lower())


# ---- what is refused ---------------------------------------------------------------------------

def refused(*arguments):
    r = headrace("quantize", *arguments)
    assert r.returncode in (1, 2) and not r.stdout
    return r.stderr


def test_refusals(made, tmp_path, smollm2):
    source, out = made("llama")[0], tmp_path / "out"
    assert "which model?" in refused()
    assert "into which folder?" in refused(source)
    assert "in which precision?" in refused(source, out)
    assert "--scheme fp8: it is w8a8 or w4a8" in refused(source, out, "--scheme", "fp8")
    assert "is quantised already" in refused(source.with_suffix(".w8a8"), out, "--scheme", "w8a8")
    assert "is no folder" in refused(smollm2, out, "--scheme", "w8a8")
    assert "--quantization int4: it is auto, w8a8, w4a8, q8_0 or q4_0" in headrace(
        "generate", source, "-p", "a", "--quantization", "int4").stderr
    assert "--group-size goes with --scheme w4a8" in refused(source, out, "--scheme", "w8a8",
                                                             "--group-size", 64)
    assert "--group-size 48: it is 32, 64 or 128" in refused(source, out, "--scheme", "w4a8",
                                                             "--group-size", 48)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    assert "not empty" in refused(source, tmp_path / "full", "--scheme", "w8a8")
    assert "is there already" in refused(source, tmp_path / "full/file", "--scheme", "w8a8")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(made, tmp_path, bad):
    """Named, and nothing is left behind."""
    source, _, tensors, _ = made("llama")
    shutil.copytree(source, tmp_path / "in")
    name = "model.layers.1.self_attn.o_proj.weight"
    x = tensors[name].copy()
    x[7, 9] = bad
    make_tiny.save_raw({k: ("F32", x if k == name else v) for k, v in tensors.items()},
                       tmp_path / "in/model.safetensors")
    assert f"{name} has numbers that are not finite" in refused(
        tmp_path / "in", tmp_path / "out", "--scheme", "w8a8")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    assert name in headrace("generate", tmp_path / "in", "-p", "a", "--quantization",
                            "w8a8").stderr
