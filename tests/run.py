#!/usr/bin/env python3
"""Builds and runs every test; ends with one line: N passed, N failed, N skipped.

    tests/run.py fast   build, lint, unit tests
    tests/run.py all    also kernels, conformance, sanitizers, fuzzing, end-to-end tests on every
                        instruction set this machine has
Sums the counts of all runners (cmocka, pytest, the lint scripts); a runner that ends badly without
naming a failed test counts as one. The exit status is the verdict.
"""
import os
import pathlib
import platform
import plugins
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = str(ROOT / ".cache/venv/bin/python")
# What the tests open when they mean a real plugin; a caller may name others. Sanitizers see none:
# XLA is not built for them.
PLUGINS = {variable: str(plugins.path(name) or "")
           for name, (variable, _) in plugins.FETCHED.items()}
PLUGINS["HEADRACE_TPU_PLUGIN"] = os.environ.get("HEADRACE_TPU_PLUGIN",
                                                str(ROOT / ".cache/pjrt/libtpu/libtpu.so"))
NO_PLUGINS = dict.fromkeys(PLUGINS, "")
JOBS = str(len(os.sched_getaffinity(0)))


class Totals:
    def __init__(self):
        self.passed = self.failed = 0
        self.skips, self.failures = [], []

    def add(self, name, passed, failed, skips=()):
        self.passed += passed
        self.failed += failed
        self.skips += skips
        if failed:
            self.failures.append(name)
        print(f"   {name}: {passed} passed, {failed} failed"
              + (f", {len(skips)} skipped" if skips else ""), flush=True)


def heading(text):
    print(f"== {text}", flush=True)


def run(command, env=None, timeout=1500):
    """Exit status and everything printed. A timeout is a failure like any other."""
    try:
        r = subprocess.run(command, cwd=ROOT, env={**os.environ, **(env or {})}, text=True,
                           errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=timeout)
        return r.returncode, r.stdout
    except subprocess.TimeoutExpired as e:
        out = e.stdout or b""
        return 124, (out if isinstance(out, str) else out.decode(errors="replace")) + "\ntimed out\n"


def stream(command, env, until, timeout=2400):
    """The same, each line shown as it comes, up to one that matches until."""
    out, quiet = [], False
    with subprocess.Popen(command, cwd=ROOT, env={**os.environ, **env}, text=True, errors="replace",
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as p:
        timer = threading.Timer(timeout, p.kill)
        timer.start()
        for line in p.stdout:
            out.append(line)
            quiet = quiet or bool(until.match(line))
            if not quiet:
                print(f"   {line}", end="", flush=True)
        timer.cancel()
    return p.returncode, "".join(out)


def check(totals, name, command, env=None):
    """One command, one test."""
    code, out = run(command, env)
    if code:
        print(out)
    totals.add(name, int(code == 0), int(code != 0))
    return code == 0


def make(preset, targets, nice=0):
    """Configures and builds; what failed ("configure" or "build"), or None, and everything printed."""
    # Warnings are errors in the build that ships; gcc's flow analysis misreads instrumented code.
    strict = "ON" if preset == "release" else "OFF"
    code, out = run(["cmake", "--preset", preset, f"-DHR_WERROR={strict}"])
    if code:
        return "configure", out
    code, out = run(["nice", "-n", str(nice), "ninja", "-C", f"build/{preset}", *targets])
    return "build" if code else None, out


def built(totals, preset, result):
    """Reports a build; whether its programs may be run."""
    wrong, out = result
    if wrong:
        print(out[-6000:])
        totals.add(f"{wrong} {preset}", 0, 1)
    return not wrong


def build(totals, preset, targets):
    heading(f"build {preset}")
    return built(totals, preset, make(preset, targets))


class Ahead:
    """Builds of the sanitizers at the lowest priority, one after another, beside the Python tests:
    those wait on servers for much of their time."""

    def __init__(self, builds):
        self.pool = ThreadPoolExecutor(1)
        self.results = {preset: self.pool.submit(make, preset, targets, 19)
                        for preset, targets in builds.items()}

    def ready(self, totals, preset):
        heading(f"build {preset}")
        return built(totals, preset, self.results[preset].result())


def cmocka(totals, name, command, env=None):
    """A cmocka program: its own counts, and its exit status as the verdict."""
    code, out = run(command, env)
    passed = sum(map(int, re.findall(r"\[  PASSED  \] (\d+) test", out)))
    failed = sum(map(int, re.findall(r"\[  FAILED  \].*?(\d+) test\(s\), listed", out)))
    skips = [f"{name}: {s}" for s in re.findall(r"\[  SKIPPED \] ([A-Za-z_]\w*)", out)]
    if code and not failed:
        failed = 1
    if code == 0 and passed == 0 and not skips:
        failed = 1  # a program that tests nothing
    if failed:
        print(out[-8000:])
    totals.add(name, passed, failed, sorted(set(skips)))


def pytest(totals, name, arguments, env=None):
    """Lines are shown as they come; counts and the names of skips are read from the JUnit file."""
    report = ROOT / "build" / f"{name.replace(' ', '-')}.xml"
    report.unlink(missing_ok=True)
    code, out = stream([PYTHON, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider",
                        f"--junitxml={report}", *arguments],
                       {"HEADRACE_CHECK_RECOMPILATION": "1", **(env or {})},
                       until=re.compile("=+ (PASSES|FAILURES|ERRORS) =+"))
    passed = failed = 0
    skips = []
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else []:
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif skip is not None:
            skips.append(f"{name}: {case.get('name')}: {skip.get('message')}")
        else:
            passed += 1
    if code and not failed:
        failed = 1  # it ended badly, or selected no test
    if failed:
        print(out[-20000:])
    print("\n".join(line for line in out.splitlines() if line.startswith("figure:")))
    totals.add(name, passed, failed, skips)


def c_tests(kind):
    return sorted(p.stem for p in (ROOT / "tests" / kind).glob("test_*.c"))


def isa_list():
    if platform.machine() != "x86_64":
        return ["scalar"]
    flags = set(re.search(r"flags\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())[1].split())
    have = ["scalar"]
    if {"avx2", "fma", "f16c", "bmi2"} <= flags:
        have.append("avx2")
    if {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"} <= flags:
        have.append("avx512")
    return have


def lint(totals):
    heading("lint")
    for script in ("check_layers", "check_sizes", "check_headers"):
        check(totals, script, [sys.executable, f"tools/{script}.py"])
    check(totals, "tools/reference.py --check", [sys.executable, "tools/reference.py", "--check"])
    files = run(["git", "-c", "safe.directory=*", "ls-files", "*.c", "*.h"])[1].split()
    if shutil.which("clang-format"):
        check(totals, "clang-format", ["clang-format", "--dry-run", "--Werror", *files])
    else:
        totals.skips.append("clang-format: not installed")


def unit(totals):
    heading("unit tests")
    for name in c_tests("unit"):
        cmocka(totals, name, [f"build/release/{name}"], PLUGINS)
    newer = PLUGINS["HEADRACE_PJRT_PLUGIN_NEWER"]
    if os.path.isfile(newer):
        cmocka(totals, "test_pjrt, newer plugin", ["build/release/test_pjrt"],
               {**PLUGINS, "HEADRACE_PJRT_PLUGIN": newer})
    else:
        totals.skips.append("test_pjrt, newer plugin: tools/setup.sh test fetches it")


def deep(totals):
    heading("kernels and conformance, every instruction set")
    for kind in ("kernels", "conformance"):
        for name in c_tests(kind):
            cmocka(totals, name, [f"build/release/{name}"], PLUGINS)
    heading("Python: conformance and end to end")
    # As many files beside one another as there are cores; a file's tests stay together and in order,
    # for they share a server or a model.
    pytest(totals, "pytest", ["-n", JOBS, "--dist", "loadfile", "--no-loadscope-reorder", "tests"],
           {"HEADRACE_BIN": "build/release/headrace", **PLUGINS})


# Of the engine, on a plugin too: what is not about the native backend, or about memory that ends.
DEVICE_TESTS = ["test_engine_door", "test_engine_overlap", "test_preemption", "test_prefix_cache"]


def devices(totals):
    heading("engine and server on PJRT devices")
    for leg, (name, _, suites) in plugins.SUITES.items():
        if plugins.lacking(name):
            totals.skips.append(f"suites on {leg}: {plugins.lacking(name)}")
            continue
        pytest(totals, f"pytest on {leg}", ["-m", "device", *suites],
               {"HEADRACE_BIN": "build/release/headrace", "HEADRACE_TEST_DEVICE": leg, **PLUGINS})
    if plugins.lacking("pjrt"):
        return
    env = {"HEADRACE_BED_DEVICE": plugins.device("pjrt"),
           "HEADRACE_BED_COMPILED": plugins.compiled()}
    for test in DEVICE_TESTS:
        cmocka(totals, f"{test} on pjrt", [f"build/release/{test}"], env)
        if test != "test_preemption":  # the longest
            cmocka(totals, f"{test} on pjrt-2", [f"build/release/{test}"],
                   {**env, "HEADRACE_BED_PAIR": "1"})


SANITIZERS = {"ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1",
              "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1"}
FUZZ_SECONDS = 10  # a target; longer by hand: build/fuzz/fuzz_jinja -max_total_time=600 FOLDER


def fuzz_targets():
    return sorted(p.stem for p in (ROOT / "tests/fuzz").glob("fuzz_*.c"))


def corpus(target):
    """tests/fuzz/corpus/<what>: seeds, and every input that once found something."""
    return [str(p) for p in sorted((ROOT / "tests/fuzz/corpus" / target[5:]).iterdir())]


def replay(totals):
    """The corpus through every target, for a compiler without libFuzzer."""
    for target in fuzz_targets():
        check(totals, f"asan {target}, the corpus", [f"build/asan/{target}", *corpus(target)],
              SANITIZERS)


def fuzz_one(target):
    work, found = ROOT / "build/fuzz/work" / target, ROOT / "build/fuzz/found" / target
    for folder in (work, found):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    words = ROOT / "tests/fuzz" / f"{target[5:]}.dict"
    return run([f"build/fuzz/{target}", f"-max_total_time={FUZZ_SECONDS}", "-timeout=5",
                "-max_len=4096", "-rss_limit_mb=1024", f"-artifact_prefix={found}/",
                *([f"-dict={words}"] if words.exists() else []), str(work),
                f"tests/fuzz/corpus/{target[5:]}"], SANITIZERS, timeout=120)


def fuzz(totals, ahead):
    heading(f"fuzzing, {FUZZ_SECONDS} s a target")
    if not shutil.which("clang-14"):
        totals.skips += [f"{t}: clang-14 is not installed" for t in fuzz_targets()]
        return
    if not ahead.ready(totals, "fuzz"):
        return
    with ThreadPoolExecutor(int(JOBS)) as pool:
        for target, (code, out) in zip(fuzz_targets(), pool.map(fuzz_one, fuzz_targets())):
            runs = re.search(r"Done (\d+) runs", out)
            if code or not runs:
                print(out[-4000:])
            totals.add(f"{target}, {runs[1] if runs else 'no'} inputs", int(not code), int(code != 0))


ALL_SUITES = [n for k in ("unit", "kernels", "conformance") for n in c_tests(k)]
THREADED = [n for n in c_tests("unit")
            if re.search("pool|plan|queue|engine|api|sync|prefix|preempt|processor|pjrt_cache", n)]


def sanitizer_builds():
    builds = {"asan": ["headrace", "fuzz", "reply_runner", *ALL_SUITES], "tsan": ["headrace", *THREADED]}
    if shutil.which("clang-14"):
        builds["fuzz"] = ["fuzz"]
    return builds


def sanitizers(totals, ahead):
    if ahead.ready(totals, "asan"):
        heading("address and undefined-behaviour sanitizers")
        env = {**SANITIZERS, "HEADRACE_SANITIZED": "1", **NO_PLUGINS}
        for name in ALL_SUITES:
            cmocka(totals, f"asan {name}", [f"build/asan/{name}"], env)
        replay(totals)
        pytest(totals, "asan pytest", ["tests/e2e", "-m", "sanitize"],
               {**env, "HEADRACE_BIN": "build/asan/headrace"})
    if ahead.ready(totals, "tsan"):
        heading("thread sanitizer")
        env = {"TSAN_OPTIONS": "halt_on_error=1", "HEADRACE_SANITIZED": "1", **NO_PLUGINS}
        for name in THREADED:
            cmocka(totals, f"tsan {name}", [f"build/tsan/{name}"], env)
        pytest(totals, "tsan pytest", ["tests/e2e", "-m", "threads"],
               {**env, "HEADRACE_BIN": "build/tsan/headrace"})


def main(mode):
    start = time.monotonic()
    totals = Totals()
    every = c_tests("unit") if mode == "fast" else ["c_tests", "op_runner"]
    lint(totals)
    works = build(totals, "release", ["all", *every])
    if works:
        unit(totals)
    if mode == "all":
        ahead = Ahead(sanitizer_builds())
        print(f"   instruction sets: {' '.join(isa_list())}")
        if works:
            deep(totals)
            devices(totals)
        sanitizers(totals, ahead)
        fuzz(totals, ahead)
    for skip in totals.skips:
        print(f"skipped: {skip}")
    for name in totals.failures:
        print(f"FAILED: {name}")
    print(f"took {time.monotonic() - start:.0f} s on {JOBS} cores")
    print(f"{totals.passed} passed, {totals.failed} failed"
          + (f", {len(totals.skips)} skipped" if totals.skips else ""))
    return 1 if totals.failed else 0


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("fast", "all"):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
