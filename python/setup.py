"""A wheel that holds libheadrace and its header beside the package.

HEADRACE_BUILD is the folder of the build whose library goes in (../build/release). The library needs
Debian 12's libpcre2-8, libutf8proc and libcrypto, so the wheel is for this kind of machine: linux_*,
not manylinux.
"""
import os
import pathlib
import re
import shutil

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("HEADRACE_BUILD", ROOT / "build/release"))
HEADER = ROOT / "include/headrace/headrace.h"


class with_library(build_py):
    def run(self):
        super().run()
        package = pathlib.Path(self.build_lib) / "headrace"
        for file in (BUILD / "libheadrace.so.0", HEADER):
            if not file.exists():
                raise SystemExit(f"{file} is missing: build it first, with make")
            shutil.copy(file, package / file.name)


class for_any_python(bdist_wheel):
    """ctypes asks nothing of the interpreter; the machine is the library's."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


version = re.search(r"project\(headrace VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
setup(version=version, distclass=WithLibrary,
      cmdclass={"build_py": with_library, "bdist_wheel": for_any_python})
