"""Older machines, played by qemu: the right path is chosen, every instruction on it exists there, and
the bits are those of the same path on this machine.

qemu ends a program at the first instruction that the named processor lacks, which the first test
makes sure of. What no run happens to reach is looked for in the object files.
"""
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess

import pytest
from conftest import BIN, headrace, instruction_sets

import make_tiny

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="not an x86-64 machine")
needs_qemu = pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="qemu-x86_64 is missing")
FLAGS = ["-p", "abcdefgh\n12 é", "--temperature", "0.8", "--seed", "4", "--max-tokens", "12",
         "--top-p", "0.9", "--frequency-penalty", "0.3", "--repetition-penalty", "1.1",
         "--logprobs", "3", "--prompt-logprobs", "2", "--max-num-seqs", "8",
         "--max-num-batched-tokens", "32", "--max-model-len", "64", "--threads", "2", "--json"]
HASWELL, NEHALEM, CORE2 = "Haswell", "Nehalem", "Conroe"  # AVX2; SSE4.2; SSSE3 and no popcnt


def on(processor, program, *arguments, stdin=None):
    return subprocess.run(["qemu-x86_64", "-cpu", processor, program, *map(str, arguments)],
                          input=stdin, capture_output=True, text=True, timeout=300)


def complaint(r):
    """Standard error without qemu's own lines about features that it does not play."""
    return "\n".join(x for x in r.stderr.splitlines() if "TCG doesn't support" not in x)


def answer(r):
    assert r.returncode == 0, complaint(r)
    a = json.loads(r.stdout)
    return a["numerics"]["isa"], json.dumps([a["prompt_logprobs"], a["choices"]])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    root, made = tmp_path_factory.mktemp("qemu"), {}

    def get(kind):
        if kind not in made:
            made[kind] = root / kind
            if kind in make_tiny.FAMILIES:
                make_tiny.hf(made[kind], kind)
            else:
                make_tiny.gguf_file(made[kind].with_suffix(".gguf"), "qwen3", kind)
                made[kind] = made[kind].with_suffix(".gguf")
        return made[kind]
    return get


@needs_qemu
def test_qemu_knows_what_a_processor_lacks(tmp_path):
    instructions = {"avx2": ("vpaddd %%ymm0,%%ymm0,%%ymm0", 1, 0),
                    "popcnt": ("popcnt %%rax,%%rax", 1, 1),
                    "fma": ("vfmadd231ps %%ymm0,%%ymm0,%%ymm0", 1, 0),
                    "bmi2": ("pext %%rax,%%rax,%%rax", 1, 0),
                    "avx512": ("vpaddd %%zmm0,%%zmm0,%%zmm0", 0, 0)}
    for name, (text, haswell, nehalem) in instructions.items():
        source = tmp_path / f"{name}.c"
        source.write_text(f'int main(void) {{ __asm__ volatile("{text}" ::: "rax", "xmm0");'
                          " return 0; }\n")
        subprocess.run(["cc", source, "-o", tmp_path / name], check=True)
        for processor, has in ((HASWELL, haswell), (NEHALEM, nehalem), (CORE2, 0)):
            assert (on(processor, tmp_path / name).returncode == 0) == bool(has), (name, processor)


@needs_qemu
@pytest.mark.skipif("avx2" not in instruction_sets(), reason="this machine lacks avx2 to compare")
@pytest.mark.parametrize("kind", ["llama", *make_tiny.TYPES])
def test_haswell(models, kind):
    isa, bits = answer(on(HASWELL, BIN, "generate", models(kind), *FLAGS))
    here, want = answer(headrace("generate", models(kind), *FLAGS, "--isa", "avx2"))
    assert isa == here == "avx2" and bits == want


@needs_qemu
@pytest.mark.parametrize("processor", [NEHALEM, CORE2])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "BF16", "Q8_0", "Q4_1", "Q4_K", "Q6_K"])
def test_older_still(models, processor, kind):
    isa, bits = answer(on(processor, BIN, "generate", models(kind), *FLAGS))
    here, want = answer(headrace("generate", models(kind), *FLAGS, "--isa", "scalar"))
    assert isa == here == "scalar" and bits == want


@needs_qemu
def test_a_path_that_is_not_there_is_refused(models):
    for processor, isa in ((NEHALEM, "avx2"), (HASWELL, "avx512"), (CORE2, "avx512")):
        r = on(processor, BIN, "generate", models("llama"), *FLAGS, "--isa", isa)
        assert r.returncode == 1 and r.stdout == "" and f"{isa}: this machine lacks" in r.stderr
        environment = {**os.environ, "HEADRACE_ISA": isa}
        r = subprocess.run(["qemu-x86_64", "-cpu", processor, BIN, "generate", models("llama"),
                            *FLAGS], env=environment, capture_output=True, text=True, timeout=300)
        assert r.returncode == 1 and "this machine lacks" in r.stderr


@needs_qemu
def test_text_on_the_oldest(smollm2, tmp_path):
    """Tokenizer and templates: no kernels, but compiled with -O3 all the same."""
    text = "It's 12,345 o'clock — 日本語, naïve café 🙂\n\n\tdef f(x):\r\n  return x**2"
    want = headrace("tokenize", smollm2, stdin=text).stdout
    assert on(CORE2, BIN, "tokenize", smollm2, stdin=text).stdout == want != ""
    chat = json.dumps([{"role": "user", "content": text}])
    want = headrace("render", smollm2, "--messages", "-", stdin=chat).stdout
    assert on(CORE2, BIN, "render", smollm2, "--messages", "-", stdin=chat).stdout == want != ""


# Per folder of object files: what must not be in them, as objdump prints it.
NEWER = r"\t(v[a-z0-9]+|pdep|pext|mulx|rorx|sarx|shlx|shrx|bzhi|andn|bextr|lzcnt|popcnt|crc32\w*|movbe) "
AVX512 = r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|\{%k|\tk(mov|or|and|test|unpck|shift)\w* "


@pytest.mark.parametrize("folder,forbidden", [("headrace_objects", NEWER), ("headrace", NEWER),
                                              ("kernels_scalar", NEWER), ("kernels_avx2", AVX512)])
def test_object_files(folder, forbidden):
    objects = sorted((pathlib.Path(BIN).parent / "CMakeFiles" / f"{folder}.dir").rglob("*.o"))
    assert objects
    code = subprocess.run(["objdump", "-d", "--no-show-raw-insn", *objects], check=True,
                          capture_output=True, text=True).stdout
    assert code.count("\n") > 1000
    found = [x for x in code.splitlines() if re.search(forbidden, x) and "\tverr" not in x
             and "\tverw" not in x]
    assert not found, found[:5]


def test_object_files_of_newer_paths_hold_what_is_looked_for():
    """The two patterns above do match what they should."""
    root = pathlib.Path(BIN).parent / "CMakeFiles"
    for folder, pattern in (("kernels_avx2", NEWER), ("kernels_avx512", AVX512)):
        code = subprocess.run(["objdump", "-d", "--no-show-raw-insn",
                               *sorted((root / f"{folder}.dir").rglob("*.o"))], check=True,
                              capture_output=True, text=True).stdout
        assert len(re.findall(pattern, code)) > 1000
