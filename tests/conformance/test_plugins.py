"""Which PJRT plugins the tests run on: one that they do not is skipped here, by name."""

import subprocess

import pytest

from child import plugins


@pytest.mark.parametrize("name", plugins.FETCHED)
def test_plugin_answers(name):
    if plugins.lacking(name):
        pytest.skip(plugins.lacking(name))
    r = subprocess.run([plugins.BIN, "devices", "--device", plugins.device(name)],
                       capture_output=True, text=True)
    assert r.returncode == 0 and "platform " in r.stdout and "device 0: " in r.stdout, r.stderr
