"""The process's life: it starts or says why not, tells the truth about its health, shares its steps
fairly, and ends as told. The letters are known faults of engines like this one."""
import asyncio
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
from conftest import BIN, ROOT, headrace
from wire import Connection, Gone, head_of

import make_tiny
from test_service import metric

FLAGS = ["--load-format", "dummy", "--max-num-seqs", 8, "--max-model-len", 4096]
LONG = {"prompt": "abc", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
SANITIZED = bool(os.environ.get("HEADRACE_SANITIZED"))
SLOW = 20 if SANITIZED else 1  # how much longer things may take


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("operations") / "model"
    make_tiny.hf(path, "llama")
    return path


@pytest.fixture
def up(serve, model):
    """A server that is ready, its flags on top of the module's."""
    def start(*flags, **more):
        return serve(model, *FLAGS, *flags, **more).ready()
    return start


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ---- start -------------------------------------------------------------------------------------

class Poller(threading.Thread):
    """Asks a port for /health until told to stop; keeps every status it ever said."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.said, self.end = port, set(), threading.Event()
        self.start()

    def run(self):
        while not self.end.is_set():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5) as a:
                    self.said.add(a.status)
            except urllib.error.HTTPError as e:
                with e:
                    self.said.add(e.code)
            except OSError:
                time.sleep(0.001)

    def stop(self):
        self.end.set()
        self.join()
        return self.said


def broken_model(tmp_path, model, how):
    """A copy of the model with one thing wrong; the word that the message must have."""
    m = tmp_path / "model"
    shutil.copytree(model, m)
    if how == "weights cut short":
        os.truncate(m / "model.safetensors", (m / "model.safetensors").stat().st_size - 1000)
        return m, "model.safetensors"
    if how == "no weights":
        (m / "model.safetensors").unlink()
        return m, "safetensors"
    if how == "no config":
        (m / "config.json").unlink()
        return m, "config.json"
    if how == "unknown family":
        c = json.loads((m / "config.json").read_text())
        (m / "config.json").write_text(json.dumps({**c, "architectures": ["NoSuchModel"]}))
        return m, "NoSuchModel"
    (m / "tokenizer_config.json").write_text('{"chat_template": "{% for x %}"}')
    return m, "chat template"


@pytest.mark.sanitize
@pytest.mark.parametrize("how", ["weights cut short", "no weights", "no config", "unknown family",
                                 "template that does not parse"])
def test_h03_a_model_that_does_not_load(tmp_path, model, how):
    """F04, H03: a message, a status that is not zero, and never a 200."""
    m, word = broken_model(tmp_path, model, how)
    port = free_port()
    poller = Poller(port)
    r = headrace("serve", m, "--port", port, "--max-model-len", 256)
    assert 200 not in poller.stop()
    assert r.returncode == 1 and word in r.stderr, (r.returncode, r.stderr)


@pytest.mark.parametrize("flags,word", [
    (["--kv-cache-memory-bytes", 1], "kv-cache-memory-bytes"),
    (["--kv-cache-memory-bytes", 1 << 50], "kv"), (["--max-model-len", 10**9], "max-model-len"),
    (["--host", "no.such.host.invalid"], "no.such.host.invalid"), (["--port", 70000], "port"),
    (["--host", "203.0.113.7"], "203.0.113.7"), (["--uds", "/no/such/folder/s"], "/no/such/folder"),
    (["--ssl-certfile", "/no/cert"], "ssl"),
    (["--ssl-certfile", "/no/cert", "--ssl-keyfile", "/no/key"], "/no/"),
    (["--api-key", ""], "api-key"), (["--chat-template", "/no/template"], "/no/template"),
    (["--manifest", "/no/such/folder/m"], "manifest"), (["--device", "pjrt:/no/plugin"], "device"),
    (["--scheduling-policy", "lottery"], "scheduling-policy"), (["--log-format", "xml"], "log-format"),
    (["--max-num-seqs", 0], "max-num-seqs"), (["--shutdown-timeout", -1], "shutdown-timeout"),
    (["--stream-interval", -1], "stream-interval"), (["--max-request-bytes", -1], "max-request-bytes"),
    (["--kv-cache-dtype", "fp3"], "kv-cache-dtype"), (["--no-such-flag"], "no-such-flag"),
    (["--override-generation-config", "{"], "override"), (["--threads", -3], "threads"),
    (["--generation-config", "hf"], "generation-config"), (["--dtype", "int3"], "dtype"),
], ids=lambda v: " ".join(map(str, v)) if isinstance(v, list) else "")
def test_flags_that_cannot_be(model, flags, word):
    port = free_port()
    before = [] if "--port" in flags else ["--port", port]
    poller = Poller(port)
    r = headrace("serve", model, "--max-model-len", 256, *before, *flags, timeout=30)
    assert 200 not in poller.stop()
    assert r.returncode not in (0, None) and r.returncode > 0, (r.returncode, r.stderr)
    assert word.replace("-", "_") in r.stderr.replace("-", "_"), r.stderr


def test_h03_taken_port(up, model):
    s = up()
    r = headrace("serve", model, *FLAGS, "--port", s.port, timeout=20)
    assert r.returncode == 1 and str(s.port) in r.stderr and "taken" in r.stderr
    assert s.get("/health")[0] == 200
    assert s.stop() == 0
    with socket.socket() as other:  # somebody else's, which is no server of ours
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        r = headrace("serve", model, *FLAGS, "--port", port, timeout=20)
        assert r.returncode == 1 and str(port) in r.stderr


def test_a_port_is_free_again_at_once(serve, model):
    """Connections that the server closed linger in the kernel; a restart must not wait for them."""
    port = free_port()
    for _ in range(2):
        s = serve(model, *FLAGS, "--port", port).ready()
        assert s.port == port
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200
        assert s.stop() == 0


def test_h03_health_while_loading(serve, smollm2):
    """503 from the first answer on, then 200, and never back."""
    s = serve(smollm2, "--max-num-seqs", 64)
    assert s.bound.wait(30)
    said = []
    end = time.monotonic() + 60 * SLOW
    while time.monotonic() < end and (not said or said[-1][0] != 200):
        status, headers, body = s.get("/health")
        said.append((status, headers.get("Retry-After"), body))
    statuses = [status for status, _, _ in said]
    assert statuses == [503] * (len(said) - 1) + [200] and len(said) > 1, statuses
    assert json.loads(said[0][2])["error"]["code"] == 503 and said[0][1]
    assert s.stop() == 0


def test_h01_threads_follow_the_affinity(serve, model):
    """One CPU given, one compute thread made; a flag has the last word."""
    for flags, want in (([], 1), (["--threads", 2], 2)):
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(mine)})  # inherited by the server
        try:
            s = serve(model, *FLAGS, *flags)
        finally:
            os.sched_setaffinity(0, mine)
        s.ready()
        assert f"{want} compute thread" in s.log, s.log
        names = [p.read_text().strip() for p in
                 pathlib.Path(f"/proc/{s.process.pid}/task").glob("*/comm")]
        assert sum(n == "hr-compute" for n in names) == want - 1, names
        assert s.stop() == 0


# ---- fairness ----------------------------------------------------------------------------------

async def first_event(c, body):
    """A stream's head and its first chunk with a token; the events that follow."""
    await c.send(head_of("POST", "/v1/completions", {**body, "stream": True}))
    status, _ = await c.head()
    assert status == 200
    events = c.events()
    await events.__anext__()
    return events


async def fair(port, long_prompt, tokens):
    """A stream, a prompt that fills the context beside it, and what of the stream was still to
    come when that had its answer."""
    async with Connection(port) as a, Connection(port) as b:
        events = await first_event(a, {**LONG, "max_tokens": tokens, "return_token_ids": True})
        asked = asyncio.ensure_future(b.post("/v1/completions", {
            "prompt": long_prompt, "max_tokens": 1, "temperature": 0}))
        left = 0
        async for _ in events:
            left = left + 1 if asked.done() else 0
        answer = await asked
        assert answer.status == 200, answer.body
        assert answer.json()["usage"]["prompt_tokens"] == len(long_prompt)
        return left


@pytest.mark.parametrize("flags", [[], ["--max-num-batched-tokens", 64],
                                   ["--long-prefill-token-threshold", 100]],
                         ids=["as it is", "budget", "threshold"])
def test_a_long_prompt_stops_no_stream(up, flags):
    """Every step of the engine, chunks of the long prompt included, has a token of the stream in
    it: there are as many steps as the stream has tokens, not one more. And the prompt is not
    starved: it is answered while the stream still runs."""
    s = up("--no-enable-prefix-caching", *flags)
    before, tokens = metric(s, "headrace:steps_total"), 700
    left = asyncio.run(fair(s.port, [7 + i % 200 for i in range(4095)], tokens))
    assert metric(s, "headrace:steps_total") - before == tokens
    assert 0 < left < tokens
    assert metric(s, "vllm:num_preemptions_total") == 0
    assert s.stop() == 0


def test_nobody_waits_for_ever(up):
    """A queue of long prompts and one short answer behind them; and few rows, many clients."""
    s = up("--max-num-seqs", 2, "--max-num-batched-tokens", 64)

    async def crowd():
        async def one(i):
            async with Connection(s.port) as c:
                return await c.post("/v1/completions", {
                    "prompt": [5 + i] * (600 if i % 2 else 3), "max_tokens": 1 + i % 7, "seed": i})
        return await asyncio.wait_for(asyncio.gather(*(one(i) for i in range(24))), 60 * SLOW)
    assert {a.status for a in asyncio.run(crowd())} == {200}
    assert s.stop() == 0


def test_h03_health_under_a_long_prefill(up):
    """Answered at once, whatever the engine does; the time is generous, the prefill far longer."""
    s = up("--max-num-batched-tokens", 4096)

    async def busy():
        async with Connection(s.port) as a, Connection(s.port) as b:
            asked = [asyncio.ensure_future(c.post("/v1/completions", {
                "prompt": [[i % 250] * 4000 for i in range(4)], "max_tokens": 1})) for c in (a,)]
            slowest = 0
            while not all(q.done() for q in asked):
                begin = time.monotonic()
                assert (await b.get("/health")).status == 200
                slowest = max(slowest, time.monotonic() - begin)
            assert (await asked[0]).status == 200
            return slowest
    print(f"figure: slowest /health beside a long prefill: {asyncio.run(busy()) * 1000:.1f} ms")
    assert s.stop() == 0


# ---- the end -----------------------------------------------------------------------------------

def terminate(server, number=signal.SIGTERM):
    server.process.send_signal(number)


def ended(server, timeout=20):
    """The exit status; it must come by itself."""
    return server.process.wait(timeout * SLOW)


@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_an_idle_server_ends_at_once(up, number):
    s = up()

    async def idle():
        async with Connection(s.port) as kept, Connection(s.port) as silent:
            assert (await kept.get("/health")).status == 200
            terminate(s, number)
            assert await asyncio.wait_for(kept.reader.read(), 10 * SLOW) == b""  # closed, not reset
            assert await asyncio.wait_for(silent.reader.read(), 10 * SLOW) == b""
    asyncio.run(idle())
    assert ended(s) == 0, s.log
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", s.port), 1)


async def running_and_new(s, tokens):
    """SIGTERM with a stream and a whole answer on their way; what they, and a newcomer, get."""
    async with Connection(s.port) as a, Connection(s.port) as b:
        events = await first_event(a, {**LONG, "max_tokens": tokens})
        whole = asyncio.ensure_future(b.post("/v1/completions", {**LONG, "max_tokens": tokens}))
        await asyncio.sleep(0.05)
        terminate(s)
        await asyncio.sleep(0.05)
        refused = await Connection(s.port).post("/v1/completions", {"prompt": "x"})
        health = await Connection(s.port).get("/health")
        return [e async for e in events], await whole, refused, health


@pytest.mark.sanitize
@pytest.mark.threads
def test_sigterm_lets_running_ones_finish(up):
    s = up()
    events, whole, refused, health = asyncio.run(running_and_new(s, 200 if SANITIZED else 1500))
    assert ended(s) == 0, s.log
    assert events[-1] == b"[DONE]"
    assert json.loads(events[-2])["choices"][0]["finish_reason"] == "length"
    assert whole.status == 200 and whole.headers["connection"] == "close"
    assert whole.json()["choices"][0]["finish_reason"] == "length"
    for answer in (refused, health):
        assert answer.status == 503 and answer.headers["retry-after"], answer.headers
        assert answer.headers["connection"] == "close"
        assert answer.json()["error"]["code"] == 503
    assert "SIGTERM" in s.log and s.lines[-1].endswith("ended")


@pytest.mark.sanitize
@pytest.mark.threads
def test_sigterm_ends_what_takes_too_long(up):
    s = up("--shutdown-timeout", 0.2)

    async def cut():
        async with Connection(s.port) as a, Connection(s.port) as b:
            events = await first_event(a, LONG)
            whole = asyncio.ensure_future(b.post("/v1/completions", {**LONG, "n": 2}))
            await asyncio.sleep(0.1)
            terminate(s)
            return [e async for e in events], await whole
    events, whole = asyncio.run(cut())
    assert ended(s) == 0, s.log
    assert events[-1] == b"[DONE]" and json.loads(events[-2])["error"]["code"] == 503
    assert whole.status == 503 and whole.json()["error"]["message"]


def test_a_client_that_reads_nothing_cannot_hold_the_end_up(up):
    s = up("--shutdown-timeout", 0.3)

    async def stuck():
        c = await Connection(s.port, receive_buffer=4096).open()
        body = {**LONG, "logprobs": 20, "n": 8, "stream": True}
        await c.send(head_of("POST", "/v1/completions", body))
        for _ in range(1000):  # until the kernel's buffers are full, or near enough
            if metric(s, "vllm:generation_tokens_total") > 1500:
                break
            await asyncio.sleep(0.02)
        terminate(s)
        return c
    c = asyncio.run(stuck())
    assert ended(s) == 0, s.log
    del c


@pytest.mark.sanitize
@pytest.mark.threads
def test_a_second_signal_ends_it_at_once(up):
    s = up("--shutdown-timeout", 1000)

    async def twice():
        async with Connection(s.port) as a:
            events = await first_event(a, LONG)
            terminate(s)
            await asyncio.sleep(0.1)
            assert s.process.poll() is None
            terminate(s)
            with pytest.raises(Gone):  # no [DONE]: cut is what was asked for
                async for _ in events:
                    pass
    asyncio.run(twice())
    assert ended(s, 5) not in (0, -signal.SIGTERM), s.log
    s.reader.join(5)  # the log is read by a thread
    assert "second signal" in s.log


def test_sigterm_while_loading(serve, smollm2):
    s = serve(smollm2, "--max-num-seqs", 64)
    assert s.bound.wait(30)
    terminate(s)
    assert ended(s, 60) == 0, s.log


def test_clients_that_leave_during_the_end(up):
    """The last one gone, the server ends: no waiting for the timeout."""
    s = up("--shutdown-timeout", 1000)

    async def leave():
        a = await Connection(s.port).open()
        await first_event(a, LONG)
        terminate(s)
        await asyncio.sleep(0.05)
        a.reset()
    asyncio.run(leave())
    assert ended(s) == 0, s.log


def test_half_a_request_does_not_hold_the_end_up(up):
    s = up("--shutdown-timeout", 1000)
    with socket.create_connection(("127.0.0.1", s.port)) as c:
        c.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
        time.sleep(0.1)
        terminate(s)
        assert ended(s) == 0, s.log


def test_the_socket_file_goes_with_the_server(model, tmp_path):
    path = tmp_path / "s"
    p = subprocess.Popen([BIN, "serve", str(model), *map(str, FLAGS), "--uds", str(path)],
                         stderr=subprocess.PIPE, text=True)
    try:
        log = []
        for line in p.stderr:
            log.append(line)
            if "ready" in line:
                break
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(path))
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b" 200 " in c.makefile("rb").readline()
        r = headrace("serve", model, *FLAGS, "--uds", path, timeout=20)
        assert r.returncode == 1 and str(path) in r.stderr
        p.send_signal(signal.SIGTERM)
        assert p.wait(20) == 0 and not path.exists(), log
    finally:
        p.kill()
        p.wait()
        p.stderr.close()


# ---- the demo ----------------------------------------------------------------------------------

def test_options_demo(serve, smollm2):
    """Every sampling option on and off: each has its effect, and none compiles anything."""
    s = serve(smollm2, "--max-num-seqs", 32, "--max-model-len", 512).ready()
    r = subprocess.run([sys.executable, str(ROOT / "bench/options_demo.py"), "--url", s.address],
                       capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stdout + r.stderr
    assert "0 answers differ" in r.stdout and "NOTHING" not in r.stdout
    assert s.stop() == 0


# ---- what a client may make the server do ------------------------------------------------------

def test_work_is_bounded_before_it_begins(up):
    """Texts that can come to nothing, or only to much work that others wait for, are refused
    unread; a large one that makes sense is not."""
    s = up()
    big = "hello world " * 700_000  # 8 MiB
    for path, body, field in (
            ("/v1/completions", {"prompt": big}, "prompt"),
            ("/tokenize", {"prompt": big}, "prompt"),
            ("/v1/completions", {"prompt": "a", "bad_words": [big]}, "bad_words")):
        status, answer = s.post(path, body)
        assert status == 400 and field in answer["error"]["message"], answer
        assert "bytes" in answer["error"]["message"]
    status, answer = s.post("/tokenize", {"prompt": big[:3_000_000]})
    assert status == 200 and answer["count"] == 3_000_000
    assert s.stop() == 0
