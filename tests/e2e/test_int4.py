"""4-bit checkpoints of compressed-tensors, GPTQ and AWQ, and weight-only 8-bit ones: whole models
against NumPy in float64 over the numbers that the layouts' definitions give; what is refused, by
name. The rules are those of test_logits.py."""
import json

import numpy as np
import pytest
from conftest import headrace

import make_tiny
import reference
from test_logits import DEVICES, PROMPT, rms, run
from test_w8a8 import no_plugin


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    kept, root = {}, tmp_path_factory.mktemp("int4")

    def get(family, kind):
        if (family, kind) not in kept:
            path = root / f"{family}-{kind}"
            kept[family, kind] = (path, *make_tiny.int4(path, family, kind))
        return kept[family, kind]
    return get


def check_float(model, config, tensors, _, device, *more):
    truth = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    single = reference.Model(config, tensors, np.float32).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device, "--dtype", "float32", *more)
    assert answer["numerics"]["rows"] == "float"
    assert rms(ours - truth) <= 4 * rms(single - truth), (rms(ours - truth), rms(single - truth))


def check_int8(model, config, tensors, modules, device, *more, whole=False, most=0.5):
    columns = {m: tensors[m + ".weight"].shape[1] if whole else 32 for m in modules}
    truth = reference.Model(config, tensors, row_groups=columns).logprobs(PROMPT)[:-1]
    plain = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device, *more)
    assert answer["numerics"]["rows"] == ("int8 per row" if whole else "int8 per 32")
    off, steps = rms(ours - truth), rms(plain - truth)
    assert off <= most * steps, (off, steps)
    return answer


KINDS = make_tiny.INT4
TOKEN = [k for k, v in KINDS.items() if v.get("rows") == "token"]
OTHERS = [k for k in KINDS if k not in TOKEN]


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", OTHERS)
def test_float_rows(made, kind):
    """Every layout on the widest instruction set; the last bits of sums are the formats', which
    tests/kernels looks at on all."""
    check_float(*made("llama", kind), DEVICES[-1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["packed_128", "gptq", "awq", "w8a16"])
def test_float_rows_everywhere(made, kind, device):
    check_float(*made("qwen2", kind), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["packed_32_zeros", "packed_128", "awq"])
def test_8_bit_rows(made, kind, device):
    """Left to itself the engine rounds rows to 8 bits per 32 columns, as for GGUF's blocks. Two
    paths differ in the last bits of norms, so some numbers round to the other neighbour; rows of
    another kind would be off by a whole step and more."""
    check_int8(*made("llama", kind), device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", TOKEN)
def test_8_bit_rows_of_the_checkpoint(made, kind, device):
    check_int8(*made("llama_bias", kind), device, whole=True)


@no_plugin
@pytest.mark.parametrize("kind", ["packed_64_zeros", "w8a16"])
def test_plugin(made, kind):
    check_float(*made("llama", kind), "pjrt")


@no_plugin
def test_plugin_8_bit_rows(made):
    check_int8(*made("llama", "packed_w4a8"), "pjrt", "--dtype", "float32", whole=True, most=0.75)


@no_plugin
def test_several_devices(made):
    """Of rows with one scale o and down stay whole."""
    check_int8(*made("qwen2", "packed_w4a8"), "pjrt", "--dtype", "float32",
               "--tensor-parallel-size", 2, whole=True, most=0.75)


@pytest.mark.parametrize("kind", ["packed_w4a8", "gptq", "w8a16"])
def test_dummy_weights(made, kind):
    p = headrace("generate", made("llama", kind)[0], "--load-format", "dummy", "--prompt-ids",
                 "1,2,3", "--max-tokens", 4, "--prompt-logprobs", 1, "--temperature", 0, "--json")
    answer = json.loads(p.stdout.splitlines()[-1])
    assert all(np.isfinite(x["logprob"]) for x in answer["prompt_logprobs"][1:])
    kind = "I8C" if kind == "w8a16" else "I4G128"
    assert kind in answer["numerics"]["kernels"]


def test_lists_by_fused_names(made, tmp_path):
    """An engine that joins q, k and v writes its lists so."""
    source, config, tensors, modules = made("llama", "packed_128")
    held = make_tiny.read_raw(source / "model.safetensors")
    random = make_tiny.random_tensors(config)
    kept = [m for m in modules if m.endswith(("0.self_attn.q_proj", "0.self_attn.k_proj",
                                              "0.self_attn.v_proj"))]
    for m in kept:
        for tail in ("packed", "scale", "shape"):
            del held[f"{m}.weight_{tail}"]
        held[m + ".weight"] = ("F32", random[m + ".weight"])
        tensors = {**tensors, m + ".weight": random[m + ".weight"]}
    text = json.loads((source / "config.json").read_text())
    text["quantization_config"]["ignore"].append("model.layers.0.self_attn.qkv_proj")
    (tmp_path / "config.json").write_text(json.dumps(text))
    (tmp_path / "tokenizer.json").symlink_to(source / "tokenizer.json")
    make_tiny.save_raw(held, tmp_path / "model.safetensors")
    check_float(tmp_path, config, tensors, None, DEVICES[-1])


# ---- what is refused ---------------------------------------------------------------------------

UP = "model.layers.0.mlp.up_proj"
WEIGHTS = ("config_groups", "group_0", "weights")


def changed(made, folder, kind, path=None, value=None, tensors=None):
    """What `headrace plan` says of the model with one field or some tensors of another kind."""
    source = made("llama", kind)[0]
    config = json.loads((source / "config.json").read_text())
    at = config["quantization_config"]
    for key in (path or [])[:-1]:
        at = at[key]
    if path:
        at[path[-1]] = value
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").symlink_to(source / "tokenizer.json")
    held = make_tiny.read_raw(source / "model.safetensors")
    if tensors:
        tensors(held)
    make_tiny.save_raw(held, folder / "model.safetensors")
    return headrace("plan", folder)


@pytest.mark.parametrize("kind,path,value,words", [
    ("packed_128", (*WEIGHTS, "num_bits"), 3, "weights.num_bits 3 is not supported; 8 or 4"),
    ("packed_128", (*WEIGHTS, "group_size"), 16, "group_size 16 is not supported; multiples of 32"),
    ("packed_128", (*WEIGHTS, "group_size"), None, "weights.group_size (absent) is not supported"),
    ("packed_channel", (*WEIGHTS, "group_size"), 64, "with strategy channel it is -1 or null"),
    ("packed_128", (*WEIGHTS, "actorder"), "group", "weights.actorder group is not supported"),
    ("packed_128", (*WEIGHTS, "strategy"), "tensor_group", "strategy tensor_group is not supported"),
    ("packed_128", (*WEIGHTS, "type"), "float", "weights.type float is not supported; int is"),
    ("packed_128", ("format",), "nvfp4-pack-quantized", "format nvfp4-pack-quantized is not"),
    ("packed_128", ("format",), "mixed-precision", "config_groups.group_0.format is missing"),
    ("w8a16", (*WEIGHTS, "strategy"), "tensor", "strategy tensor is not supported with pack"),
    ("w8a16", (*WEIGHTS, "symmetric"), False, "weights.symmetric false is not supported"),
    ("w8a16", (*WEIGHTS, "group_size"), 128, "weights.group_size 128 is not supported"),
    ("gptq", ("bits",), 8, "quantization_config.bits 8 is not supported; 4 is"),
    ("gptq", ("group_size",), 48, "group_size 48 is not supported; -1 and multiples of 32"),
    ("gptq", ("dynamic",), {"+:.*": {"bits": 8}}, "quantization_config.dynamic"),
    ("gptq", ("checkpoint_format",), "marlin", "checkpoint_format marlin is not supported"),
    ("gptq", ("secret",), 1, "quantization_config.secret 1 is not supported"),
    ("awq", ("version",), "gemv", "quantization_config.version gemv is not supported; gemm"),
    ("awq", ("zero_point",), False, "quantization_config.zero_point false is not supported"),
    ("awq", ("quant_method",), "hqq", "quant_method hqq is not supported; compressed-tensors or"),
])
def test_refuses_by_name(made, tmp_path, kind, path, value, words):
    p = changed(made, tmp_path, kind, path, value)
    assert p.returncode and words in p.stderr, p.stderr


def put(name, dtype, x):
    return lambda held: held.update({name: (dtype, x)})


def shuffled(held):
    held[UP + ".g_idx"] = ("I32", held[UP + ".g_idx"][1][::-1])


@pytest.mark.parametrize("kind,tensors,words", [
    ("packed_128", lambda t: t.pop(UP + ".weight_packed"), "model.layers.0.mlp.up_proj.weight"),
    ("packed_128", lambda t: t.pop(UP + ".weight_scale"), f"'{UP}.weight_scale' is missing"),
    ("packed_32_zeros", lambda t: t.pop(UP + ".weight_zero_point"), "zero_point' is missing"),
    ("packed_128", put(UP + ".weight_scale", "F32", np.ones((512, 4))),
     "F32 [512,4], quantization_config makes it F32, F16 or BF16 [512,2]"),
    ("packed_128", put(UP + ".weight_packed", "F32", np.ones((512, 32))), "weight_packed' is no packed matrix"),
    ("packed_128", put(UP + ".weight_shape", "I64", [512, 255]), "says [512,255]"),
    ("packed_128", put(UP + ".weight", "F32", np.ones((512, 256))), "makes it weight_packed"),
    ("packed_32_zeros", put(UP + ".weight_zero_point", "I32", np.ones((512, 8))),
     "I32 [512,8], quantization_config makes it I32 [64,8]"),
    ("bytes_w4a8", put(UP + ".weight", "F32", np.ones((512, 256))), "makes it I8"),
    ("gptq", shuffled, "columns out of order (quantization_config.desc_act) are not supported"),
    ("gptq", put(UP + ".qweight", "I32", np.ones((2, 512))), "[512,16] in groups of 128 columns"),
    ("gptq", put(UP + ".bias", "F16", np.ones(512)), f"'{UP}.bias' has no place"),
    ("gptq", lambda t: t.pop(UP + ".qzeros"), f"'{UP}.qzeros' is missing"),
    ("awq", put(UP + ".scales", "F16", np.ones((2, 512))), "F16 [2,512], quantization_config makes"),
    ("awq", put("model.norm.weight", "I32", np.ones(256)), "'model.norm.weight': unsupported dtype"),
    ("awq", put("lm_head.qweight", "I64", np.ones((8, 8))), "'lm_head.qweight' is no packed matrix"),
])
def test_refuses_tensors_by_name(made, tmp_path, kind, tensors, words):
    p = changed(made, tmp_path, kind, tensors=tensors)
    assert p.returncode and words in p.stderr, p.stderr


def test_numbers_of_too_many_bits(made, tmp_path):
    """Found when they are read."""
    changed(made, tmp_path, "bytes_w4a8", tensors=put(UP + ".weight", "I8", np.full((512, 256), 9)))
    p = headrace("generate", tmp_path, "-p", "a", "--max-tokens", 1)
    assert p.returncode and f"'{UP}.weight' has 9, which is no 4-bit number" in p.stderr
