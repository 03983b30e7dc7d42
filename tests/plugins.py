"""The PJRT plugins that tests run on. One may abort or leak: child processes load it, never this one.

tests/run.py names them in the environment, "" for none; by hand they are those that
tools/setup.sh test fetches. HEADRACE_PJRT_PLUGIN may name that of another device.
"""
import atexit
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
FETCHED = {"pjrt": ("HEADRACE_PJRT_PLUGIN", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"),
           "pjrt-newer": ("HEADRACE_PJRT_PLUGIN_NEWER",
                          "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")}
BIN = ROOT / os.environ.get("HEADRACE_BIN", "build/release/headrace")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def path(name):
    variable, fetched = FETCHED[name]
    named = os.environ.get(variable, str(ROOT / ".cache/pjrt" / fetched))
    return pathlib.Path(named) if named else None


def device(name):
    return f"pjrt:{path(name)}"


@functools.cache
def compiled():
    """A folder for the programs that this run of the tests compiles: most are wanted again."""
    if "HEADRACE_TEST_COMPILED" in os.environ:
        return os.environ["HEADRACE_TEST_COMPILED"]
    folder = tempfile.mkdtemp(prefix="headrace-compiled-")
    atexit.register(shutil.rmtree, folder, True)
    return folder


def flags(name):
    return ["--device", device(name), "--compile-cache", compiled()]


def one_bucket(tokens, requests):
    """Flags for a single program of each kind, where one will do."""
    path = pathlib.Path(compiled(), f"buckets-{tokens}-{requests}.json")
    path.write_text(f'{{"tokens": [{tokens}], "requests": [{requests}]}}')
    return ["--max-num-batched-tokens", tokens, "--max-num-seqs", requests, "--buckets", path]


# The legs that the engine's and the server's suites run on (HEADRACE_TEST_DEVICE, see
# e2e/conftest.py): a plugin, what its commands are given, and which suites.
SUITES = {
    "pjrt": ("pjrt", [], ["tests/e2e"]),
    "pjrt-2": ("pjrt", ["--tensor-parallel-size", "2", "--device-option", "cpu_device_count=2"],
               ["tests/e2e/test_openai.py", "tests/e2e/test_prefix_cache.py"]),
}


def suite_flags(leg):
    name, more, _ = SUITES[leg]
    return [*flags(name), "--dtype", "float32", *more]


@functools.cache
def built():
    said = subprocess.run([BIN, "devices"], capture_output=True, text=True)
    return said.returncode == 0 and "no PJRT backend" not in said.stdout


def lacking(name):
    """Why there is no such leg, or None."""
    if os.environ.get("HEADRACE_SANITIZED"):
        return "plugins are not instrumented"
    if not path(name):
        return "no plugin is named"
    if not built():
        return "this build has no PJRT backend"
    return None if path(name).exists() else "tools/setup.sh test fetches the plugin"


def legs(names=tuple(FETCHED)):
    """The names that tests can run on; conformance/test_plugins.py skips the others."""
    return [name for name in names if not lacking(name)]
