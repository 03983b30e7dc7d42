"""What --device can name, the plugins that are found, and the programs written as StableHLO."""
import json
import os
import pathlib
import re
import re
import struct

import pytest

import make_tiny
from conftest import ROOT
from test_cli import headrace, wrong

LACKING = "this build has no PJRT backend; run tools/setup.sh pjrt and build again"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("devices") / "tiny"
    make_tiny.hf(path, "llama")
    return path


@pytest.fixture(scope="module")
def has_pjrt():
    return LACKING not in headrace("devices").stdout


def listed(env):
    r = headrace("devices", env=env)
    assert r.returncode == 0 and r.stderr == "", r.stderr
    return r.stdout.splitlines()


def test_native_devices_come_first():
    first, second, *_ = listed({})
    assert first.startswith("cpu: native, ") and first.endswith(" threads")
    assert second == "ref: the naive reference interpreter"


def test_plugins_of_the_environment(tmp_path):
    there = tmp_path / "my_pjrt_plugin.so"
    there.touch()
    lines = listed({"HEADRACE_PJRT_PLUGINS": f"{there}::/no/such/libtpu.so"})
    assert f"pjrt:{there}: a plugin" in lines
    assert "pjrt:/no/such/libtpu.so: Google TPU, but there is no such file" in lines


def test_plugins_of_python_packages(tmp_path):
    site = tmp_path / "a [venv]*" / "lib/python3.11/site-packages"
    for path in ("libtpu/libtpu.so", "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
                 "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so", "jax_plugins/xla_cuda13/versions.so"):
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).touch()
    ours = [line for line in listed({"VIRTUAL_ENV": str(tmp_path / "a [venv]*")})
            if str(tmp_path) in line]
    assert ours == [f"pjrt:{site}/libtpu/libtpu.so: Google TPU",
                    f"pjrt:{site}/jax_plugins/xla_cuda13/xla_cuda_plugin.so: NVIDIA GPU",
                    f"pjrt:{site}/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so: XLA on this CPU"]


EMPTY = {"HEADRACE_PJRT_PLUGINS": "", "VIRTUAL_ENV": "", "HOME": "/nonexistent"}


def has_hardware():
    return any(pathlib.Path(p).exists() for p in ("/dev/accel0", "/dev/nvidia0", "/dev/kfd"))


@pytest.mark.skipif(has_hardware(), reason="this machine has what these tests lack")
def test_devices_by_kind(model, tmp_path):
    """Nothing installed: the package is named. Installed, but nothing to drive: said, not tried."""
    for kind, package in ("tpu", "pip install libtpu"), ("gpu", "pip install jax-cuda13-pjrt"):
        wrong("devices", "--device", kind, status=1, naming=package, env=EMPTY)
    site = tmp_path / "lib/python3.11/site-packages"
    for path in "libtpu/libtpu.so", "jax_plugins/xla_cuda13/xla_cuda_plugin.so":
        (site / path).parent.mkdir(parents=True)
        (site / path).touch()
    there = {**EMPTY, "VIRTUAL_ENV": str(tmp_path)}
    for kind, name in ("tpu", "Google TPU"), ("gpu", "NVIDIA GPU"):
        wrong("devices", "--device", kind, status=1, naming=f"for a {name} is installed", env=there)
    assert "auto: cpu" in listed(there)
    r = headrace("generate", model, "-p", "a", "--max-tokens", 1, "--device", "auto", "--log-level",
                 "info", env=there)
    assert r.returncode == 0 and "device: auto is cpu" in r.stderr


def test_one_device():
    r = headrace("devices", "--device", "cpu")
    assert r.returncode == 0 and r.stdout.startswith("cpu: native, ")


@pytest.mark.parametrize("arguments,naming", [
    (("--device", "npu"), "--device npu: it is auto, cpu, tpu, gpu, ref or pjrt:PATH"),
    (("--device", "pjrt:"), "names no plugin"),
    (("--device", "cpu", "--device-option", "a=1"), "only a plugin takes options"),
    (("--device", "pjrt:x.so", "--device-option", "a=1", "--device-option", "b"), "'b'"),
    (("--device", "pjrt:x.so", "--device-option", "=1"), "KEY=VALUE"),
])
def test_devices_that_are_none(model, arguments, naming):
    wrong("devices", *arguments, status=1, naming=naming)
    wrong("generate", model, "-p", "a", *arguments, status=1, naming=naming)


def test_command_lines_refused():
    wrong("devices", "model", status=2, naming="takes no model")
    wrong("devices", "--device-option", "a=1", status=2, naming="needs --device")
    wrong("compile", "model", status=2, naming="--dump DIR")
    wrong("compile", "model", "--dump", "there", "--device", "pjrt:x", status=2,
          naming="leave --device out")
    wrong("compile", "model", "--topology", "v6e:2x2x1", status=2, naming="need each other")
    wrong("compile", "model", "--plugin", "x.so", status=2, naming="need each other")
    wrong("compile", "model", "--topology", "v6e:2x2x1", "--plugin", "x.so", "--device", "pjrt:x",
          status=2, naming="leave --device out")
    wrong("compile", "--dump", "there", status=2, naming="which model")


def test_a_plugin_that_is_not_there(model, has_pjrt):
    naming = "/no/such/plugin.so" if has_pjrt else LACKING
    wrong("devices", "--device", "pjrt:/no/such/plugin.so", status=1, naming=naming)
    wrong("generate", model, "-p", "a", "--device", "pjrt:/no/such/plugin.so", status=1,
          naming=naming)


def test_flags_of_the_native_backend(model, has_pjrt):
    for flag, value in ("--isa", "scalar"), ("--threads", 2):
        wrong("generate", model, "-p", "a", "--device", "pjrt:x.so", flag, value, status=1,
              naming=flag if has_pjrt else LACKING)


def test_dtypes_are_known(model):
    wrong("generate", model, "-p", "a", "--dtype", "float16", status=1,
          naming="--dtype float16: it is auto, bfloat16 or float32")


def test_programs_are_written(model, has_pjrt, tmp_path):
    to = tmp_path / "programs"
    command = ("compile", model, "--dump", to, "--max-num-seqs", 4, "--max-num-batched-tokens", 32)
    if not has_pjrt:
        wrong(*command, status=1, naming=LACKING)
        return
    r = headrace(*command)
    assert r.returncode == 0, r.stderr
    files = [pathlib.Path(line) for line in r.stdout.splitlines()]
    assert [f.name for f in files] == [
        "backbone_t16.mlir", "backbone_t32.mlir", "select_t16_r8.mlir", "select_t32_r8.mlir",
        "sampler_r8.mlir", "prompt_logprobs_r8.mlir", "tables.mlir"]
    assert sorted(to.iterdir()) == sorted(files)
    for f in files:
        assert "@main" in f.read_text()
    assert "bf16" in (to / "backbone_t16.mlir").read_text()
    again = {f.name: f.read_bytes() for f in files}
    assert headrace(*command, "--dtype", "float32").returncode == 0
    assert "bf16" not in (to / "backbone_t16.mlir").read_text().replace("bf16_", "")
    assert headrace(*command).returncode == 0
    assert again == {f.name: f.read_bytes() for f in files}


def test_attention_by_custom_call(model, has_pjrt, tmp_path):
    command = ("compile", model, "--dump", tmp_path, "--max-num-seqs", 8,
               "--max-num-batched-tokens", 16, "--dtype", "bfloat16",
               "--attention-custom-call", "vendor.ragged$paged")
    if not has_pjrt:
        wrong(*command, status=1, naming=LACKING)
        return
    r = headrace(*command)
    assert r.returncode == 0, r.stderr
    text = (tmp_path / "backbone_t16.mlir").read_text()
    calls = [line for line in text.splitlines() if "custom_call" in line]
    assert len(calls) == text.count("// attention") > 0
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
    dim = config.get("head_dim") or config["hidden_size"] // heads
    scale = struct.pack(">f", dim ** -0.5).hex().upper()
    for line in calls:
        assert '@"vendor.ragged$paged"(' in line and "api_version = 4 : i32" in line
        assert f"scale = 0x{scale} : f32, window = 0 : i64" in line
        assert re.search(rf"\(tensor<16x{heads}x{dim}xbf16>, (tensor<\d+x16x{kv}x{dim}xbf16>, ){{2}}"
                         rf"tensor<8x\d+xi32>, tensor<9xi32>, tensor<8xi32>\) -> "
                         rf"tensor<16x{heads}x{dim}xbf16>$", line), line


def test_custom_calls_refused(model, has_pjrt):
    flag = "--attention-custom-call"
    wrong("generate", model, "-p", "a", flag, "x", status=1, naming="the device is none")
    wrong("generate", model, "-p", "a", "--device", "pjrt:x.so", flag, 'a"b', status=1,
          naming='a"b' if has_pjrt else LACKING)


def test_a_folder_that_cannot_be_made(model, has_pjrt, tmp_path):
    (tmp_path / "file").touch()
    wrong("compile", model, "--dump", tmp_path / "file" / "x", status=1,
          naming=str(tmp_path / "file") if has_pjrt else LACKING)


SMALL = ("--max-num-seqs", 4, "--max-num-batched-tokens", 16)


def test_a_topology_that_is_none(model, has_pjrt):
    wrong("compile", model, "--topology", "v6e:2x2x1", "--plugin", "/no/such/plugin.so", status=1,
          naming="/no/such/plugin.so" if has_pjrt else LACKING)


def test_programs_compile_for_a_tpu_that_is_not_here(model, has_pjrt):
    """What libtpu's compiler takes. Says nothing of speed: nothing is run."""
    libtpu = pathlib.Path(os.environ.get("HEADRACE_TPU_PLUGIN",
                                         ROOT / ".cache/pjrt/libtpu/libtpu.so"))
    if not has_pjrt or not libtpu.is_file():
        pytest.skip("libtpu is fetched on request: tools/setup.sh tpu")
    r = headrace("compile", model, "--topology", "v6e:2x2x1", "--plugin", libtpu, *SMALL)
    assert r.returncode == 0, r.stderr
    head, *lines = r.stdout.splitlines()
    assert "topology v6e:2x2x1, platform tpu" in head
    for i, coords in enumerate(("0,0,0", "1,0,0", "0,1,0", "1,1,0")):
        assert f"device {i}: process 0, kind TPU v6 lite" in lines[i]
        assert f"coords={coords} core_on_chip=0" in lines[i]
    *programs, total = lines[4:]
    assert [p.split()[0] for p in programs] == ["backbone", "select", "sampler", "prompt_logprobs",
                                                "tables"]
    for p in programs:
        found = re.search(r"([\d.]+) s  code +([\d.]+) MiB  peak HBM +([\d.]+) MiB", p)
        assert found and float(found[2]) > 0, p
    assert total.startswith("total: 5 of 5 programs")
