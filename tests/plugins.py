"""The PJRT plugins that tests run on. One may abort or leak: child processes load it, never this one.

HEADRACE_PJRT_PLUGIN names a plugin in place of those that tools/setup.sh pjrt fetches, to run the
tests on another device.
"""
import functools
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
FETCHED = {"pjrt": "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
           "pjrt-newer": "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"}
BIN = ROOT / os.environ.get("HEADRACE_BIN", "build/release/headrace")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def path(name):
    """None when HEADRACE_PJRT_PLUGIN leaves nothing for that name."""
    named = os.environ.get("HEADRACE_PJRT_PLUGIN")
    if named:
        return pathlib.Path(named) if name == "pjrt" else None
    return ROOT / ".cache/pjrt" / FETCHED[name]


def device(name):
    return f"pjrt:{path(name)}"


@functools.cache
def built():
    said = subprocess.run([BIN, "devices"], capture_output=True, text=True)
    return said.returncode == 0 and "no PJRT backend" not in said.stdout


def lacking(name):
    """Why there is no such leg, or None."""
    if os.environ.get("HEADRACE_SANITIZED"):
        return "plugins are not instrumented"
    if not built():
        return "this build has no PJRT backend"
    if not path(name):
        return "HEADRACE_PJRT_PLUGIN names the one to test"
    return None if path(name).exists() else "tools/setup.sh pjrt fetches the plugin"


def legs(names=tuple(FETCHED)):
    """The names that tests can run on; conformance/test_plugins.py skips the others."""
    return [name for name in names if not lacking(name)]
