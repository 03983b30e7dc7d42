"""Thousands of requests from 64 connections, a third given up, a tenth broken: the server stays as
it was. What is checked, and how memory is measured, is told in soak.py."""
import asyncio
import json
import os
import signal

import pytest
from soak import Soak

import make_tiny

SANITIZED = bool(os.environ.get("HEADRACE_SANITIZED"))
FLAGS = ["--load-format", "dummy", "--max-num-seqs", 64, "--max-model-len", 512, "--strict",
         "--disable-log-requests"]
CHAT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}[assistant]"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The smallest that has everything: tokenizer, chat template, two layers."""
    path = tmp_path_factory.mktemp("soak") / "model"
    make_tiny.hf(path, "llama3")
    (path / "model.safetensors").unlink()
    config = json.loads((path / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=96, num_attention_heads=4)
    (path / "config.json").write_text(json.dumps(config))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT}))
    return path


@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("flags", [
    ["--kv-cache-memory-bytes", 448 << 10],
    ["--scheduling-policy", "priority", "--max-num-batched-tokens", 317]], ids=["few blocks", "wide"])
def test_soak(serve, model, flags):
    few = "--kv-cache-memory-bytes" in flags
    if SANITIZED:
        requests = 600 if few else 200
    else:
        requests = 5000 if few else 1000
    s = serve(model, *FLAGS, *flags).ready()
    soak = Soak(s.port, pid=s.process.pid)
    growth = asyncio.run(soak.run(requests, 0 if SANITIZED else 20))
    assert not soak.failures, "\n".join(soak.failures[:20]) + "\n" + s.log[-3000:]
    assert soak.counts["given_up"] >= requests // 3 - 6
    assert soak.counts["broken"] >= requests // 10 - 6
    m = asyncio.run(soak.metrics())
    if few:
        assert m["vllm:num_preemptions_total"] > 0
    if requests >= 5000:  # a sanitizer keeps what was freed, and finds leaks in its own way; the
        assert growth < 0.02  # smaller run is too short for memory to come to rest
    assert s.stop() == 0, s.log[-5000:]  # under ASan: nothing leaked


async def until_the_end(s, soak, seconds, signals):
    """Clients of all kinds, and the signals in the middle of it; their answers do not matter."""
    clients = asyncio.ensure_future(soak.round(100000))
    await asyncio.sleep(seconds)
    s.process.terminate()
    if signals > 1:
        await asyncio.sleep(0.02)
        s.process.terminate()
    while s.process.poll() is None:
        await asyncio.sleep(0.01)
    soak.todo.clear()
    await clients


@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("seconds,signals,timeout", [(0.4, 1, 0.05), (0.7, 1, 30), (0.5, 2, 30)],
                         ids=["cut short", "in time", "at once"])
def test_the_end_comes_in_the_middle(serve, model, seconds, signals, timeout):
    """SIGTERM under load: whatever was on its way is let go of, in order, by every thread."""
    s = serve(model, *FLAGS, "--kv-cache-memory-bytes", 448 << 10, "--shutdown-timeout",
              timeout).ready()
    asyncio.run(asyncio.wait_for(until_the_end(s, Soak(s.port, seed=signals), seconds, signals),
                                 120))
    s.stop()
    assert "ERROR" not in s.log and "WARNING: ThreadSanitizer" not in s.log, s.log[-5000:]
    if signals == 1:
        assert s.process.returncode == 0, s.log[-5000:]
    else:  # the second may find it at its end already, or past the loop that would say so
        right = (1,) if "second signal" in s.log else (0, -signal.SIGTERM)
        assert s.process.returncode in right, (s.process.returncode, s.log[-5000:])
