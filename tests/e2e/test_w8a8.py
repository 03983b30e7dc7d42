"""compressed-tensors w8a8 checkpoints, whole models: every spelling of their scales (known fault
G04), every instruction set, the plugin, several devices; and what is refused, by name.

The truth multiplies the same integers in NumPy. Rounding to 8 bits is a step function, so the bound
is the effect of the steps themselves, as for the block formats in test_logits.py.
"""
import json

import numpy as np
import pytest
from conftest import generate, headrace

import make_tiny
import plugins
import reference
from test_logits import DEVICES, PROMPT, rms, run

no_plugin = pytest.mark.skipif(bool(plugins.lacking("pjrt")), reason=str(plugins.lacking("pjrt")))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    kept, root = {}, tmp_path_factory.mktemp("w8a8")

    def get(family, kind="column"):
        if (family, kind) not in kept:
            path = root / f"{family}-{kind}"
            kept[family, kind] = (path, *make_tiny.w8a8(path, family, kind))
        return kept[family, kind]
    return get


def check(model, config, tensors, integers, device, *more, most=0.25):
    truth = reference.Model(config, tensors, integers=integers).logprobs(PROMPT)[:-1]
    plain = reference.Model(config, tensors).logprobs(PROMPT)[:-1]
    ours, answer = run(model, device, *more)
    assert answer["numerics"]["rows"] == "int8 per row"
    off, steps = rms(ours - truth), rms(plain - truth)
    assert off <= most * steps, (off, steps)
    return answer


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["llama", "llama_bias", "qwen2", "qwen3"])
def test_family(made, family, device):
    answer = check(*made(family), device)
    if device != "ref":
        assert answer["numerics"]["kernels"]["I8C"] == "i8xrow"


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", make_tiny.W8A8)
def test_spellings(made, kind):
    check(*made("llama", kind), DEVICES[-1])


@no_plugin
@pytest.mark.parametrize("family,kind", [("llama", "column"), ("qwen2", "one"), ("llama", "whole")])
def test_plugin(made, family, kind):
    check(*made(family, kind), "pjrt", "--dtype", "float32", most=0.75)


@no_plugin
def test_several_devices(made):
    """o and down stay whole, for a row's scale is of all its columns; the rest is dealt out."""
    check(*made("qwen2"), "pjrt", "--dtype", "float32", "--tensor-parallel-size", 2, most=0.75)


def test_dummy_weights(made):
    answer, = generate(made("llama")[0], "--load-format", "dummy", "--prompt-ids", "1,2,3",
                       "--max-tokens", 4, "--prompt-logprobs", 1, "--temperature", 0)
    assert answer["numerics"]["rows"] == "int8 per row"
    assert all(np.isfinite(p["logprob"]) for p in answer["prompt_logprobs"][1:])


# ---- what is refused ---------------------------------------------------------------------------

GROUP = "config_groups", "group_0"


def changed(config, path, value):
    """The config with one field set, or removed where the value is ..."""
    config = json.loads(json.dumps(config))
    at = config["quantization_config"]
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    if value is ...:
        del at[path[-1]]
    return config


@pytest.fixture(scope="module")
def plan(made, tmp_path_factory):
    """What `headrace plan` says of a model whose quantization_config has a field of another kind."""
    source, folder = made("llama")[0], tmp_path_factory.mktemp("refused")
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).symlink_to(source / name)
    config = json.loads((source / "config.json").read_text())

    def run_plan(path, value):
        (folder / "config.json").write_text(json.dumps(changed(config, path, value)))
        return headrace("plan", folder)
    return run_plan


@pytest.mark.parametrize("path,value,words", [
    (("quant_method",), "hqq", "quant_method hqq is not supported; compressed-tensors or gptq or awq"),
    (("format",), "float-quantized", "quantization_config.format float-quantized is not supported"),
    (("format",), ..., "quantization_config.format (absent) is not supported; int-quantized or pack"),
    (("kv_cache_scheme",), {"num_bits": 8}, "quantization_config.kv_cache_scheme"),
    (("transform_config",), {"config_groups": {"a": 1}}, "quantization_config.transform_config"),
    (("sparsity_config",), {"format": "sparse-24-bitmask"},
     "sparsity_config.format sparse-24-bitmask is not supported; dense is"),
    (("news",), 1, "quantization_config.news 1 is not supported"),
    (("config_groups",), {}, "config_groups must be an object of groups"),
    (("ignore",), "lm_head", "quantization_config.ignore must be a list"),
    (("ignore",), ["re:(", "lm_head"], "pattern '(': missing closing parenthesis"),
    ((*GROUP, "output_activations"), {"num_bits": 8}, "group_0.output_activations"),
    ((*GROUP, "input_activations", "dynamic"), False,
     "group_0.input_activations.dynamic false is not supported; true is"),
    ((*GROUP, "input_activations", "strategy"), "tensor",
     "group_0.input_activations.strategy tensor is not supported; token is"),
    ((*GROUP, "input_activations", "symmetric"), False, "input_activations.symmetric false"),
    ((*GROUP, "weights", "num_bits"), 2, "group_0.weights.num_bits 2 is not supported; 8 or 4"),
    ((*GROUP, "weights", "type"), "float", "group_0.weights.type float is not supported; int is"),
    ((*GROUP, "weights", "symmetric"), False, "group_0.weights.symmetric false is not supported"),
    ((*GROUP, "weights", "strategy"), "group",
     "group_0.weights.strategy group is not supported; channel or tensor is"),
    ((*GROUP, "weights", "group_size"), 128, "group_0.weights.group_size 128 is not supported"),
    ((*GROUP, "weights", "actorder"), "group", "group_0.weights.actorder group is not supported"),
    ((*GROUP, "weights", "secret"), True, "group_0.weights.secret true is not supported"),
])
def test_refuses_by_name(plan, path, value, words):
    p = plan(path, value)
    assert p.returncode and words in p.stderr, p.stderr


@pytest.mark.parametrize("path,value", [
    (("sparsity_config",), {"format": "dense"}),
    (("kv_cache_scheme",), ...),
    ((*GROUP, "weights", "num_bits"), ...),
    ((*GROUP, "weights", "group_size"), -1),
    ((*GROUP, "weights", "observer"), "mse"),
    ((*GROUP, "format"), "int-quantized"),
    ((*GROUP, "targets"), [r"re:.*(self_attn\.[qkvo]|mlp\.(gate|up|down))_proj", "lm_head"]),
    (("ignore",), ["Embedding", r"re:.*lm_head"]),
])
def test_takes_other_spellings(plan, path, value):
    p = plan(path, value)
    assert p.returncode == 0, p.stderr


def test_old_name_of_the_config(made, tmp_path):
    source = made("llama")[0]
    config = json.loads((source / "config.json").read_text())
    config["compression_config"] = config.pop("quantization_config")
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).symlink_to(source / name)
    assert "i8xrow" in str(run(tmp_path, DEVICES[-1])[1]["numerics"])


UP = "model.layers.0.mlp.up_proj"


def with_tensors(made, folder, change):
    """The model's file with tensors changed in place."""
    source = made("llama")[0]
    held = make_tiny.read_raw(source / "model.safetensors")
    change(held)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).symlink_to(source / name)
    make_tiny.save_raw(held, folder / "model.safetensors")
    return headrace("plan", folder)


@pytest.mark.parametrize("change,words", [
    (lambda t: t.pop(UP + ".weight_scale"), f"tensor '{UP}.weight_scale' is missing"),
    (lambda t: t.update({UP + ".weight_scale": ("F32", np.ones((511, 1)))}),
     "F32 [511,1]; scales are F32, F16 or BF16, one or [512] or [512,1]"),
    (lambda t: t.update({UP + ".weight_scale": ("I8", np.ones((512, 1)))}),
     f"'{UP}.weight_scale' is I8C [512,1]"),
    (lambda t: t.update({UP + ".weight": ("F32", np.ones((512, 256)))}),
     f"'{UP}.weight' is F32, and quantization_config (group_0) makes it I8"),
    (lambda t: t.update({UP + ".weight_zero_point": ("I8", np.eye(512, 1))}),
     f"'{UP}.weight_zero_point' is not all zeros"),
    (lambda t: t.update({UP + ".input_scale": ("F32", np.ones(1))}),
     f"'{UP}.input_scale': static activation scales are not supported"),
    (lambda t: t.update({"lm_head.weight": ("I8", np.ones((make_tiny.V, 256)))}),
     "'lm_head.weight': unsupported dtype I8"),
    (lambda t: t.update({"model.norm.weight": ("I8", np.ones(256))}),
     "'model.norm.weight': unsupported dtype I8"),
    (lambda t: t.update({UP + ".weight_g_idx": ("F32", np.ones(256))}),
     f"'{UP}.weight_g_idx' has no place"),
])
def test_refuses_tensors_by_name(made, tmp_path, change, words):
    p = with_tensors(made, tmp_path, change)
    assert p.returncode and words in p.stderr, p.stderr
