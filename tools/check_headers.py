#!/usr/bin/env python3
"""Every header compiles alone, in C; the installed one also as C++.

Not headers, whatever their suffix: templates named *_body.h, which a file includes after it has
defined their parameters, and vec_<isa>.h, the parts that vec.h chooses from.
"""
import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c11", "-D_GNU_SOURCE", '-DHR_VERSION="0"', "-Wall", "-Wextra", "-Wpedantic", "-Werror",
         "-Wno-unused-function", "-fsyntax-only", "-I", str(ROOT / "src"), "-I",
         str(ROOT / "include")]
# The header of PJRT's C API; where setup has not fetched it, the header that includes it is not built.
PJRT = ROOT / ".cache/pjrt/xla_plugins/xla_cpu_pjrt/include"
PART = re.compile(r"_body\.h$|^vec_[a-z0-9]+\.h$")
# What a kernel file is compiled with, for the headers that only kernels include.
VECTOR = {"avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi2"],
          "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx512vnni", "-mavx2",
                     "-mfma", "-mf16c", "-mbmi2"],
          "amx": ["-mamx-tile", "-mamx-int8", "-mamx-bf16"]}


def alone(header):
    isa = next((i for i in VECTOR if header.stem.endswith("_" + i)), "scalar")
    extra = VECTOR.get(isa, []) + [f"-DHR_ISA={isa}", f"-DHR_ISA_IS_{isa}=1"]
    r = subprocess.run(["gcc", "-x", "c", *FLAGS, *extra, "-isystem", str(PJRT), str(header)],
                       capture_output=True, text=True)
    return header, r.returncode, r.stderr


def main():
    headers = sorted(ROOT.glob("src/**/*.h")) + sorted(ROOT.glob("include/**/*.h"))
    headers = [h for h in headers if not PART.search(h.name)]
    if not PJRT.exists():
        headers.remove(ROOT / "src/pjrt/pjrt_int.h")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(alone, headers))
    public = ROOT / "include/headrace/headrace.h"
    r = subprocess.run(["gcc", "-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Werror",
                        "-fsyntax-only", str(public)], capture_output=True, text=True)
    results.append((f"{public} as C++", r.returncode, r.stderr))
    bad = [(h, e) for h, code, e in results if code]
    for header, error in bad:
        print(f"{header} does not compile alone:\n{error}")
    print(f"headers: {len(results) - len(bad)} of {len(results)} compile alone")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
