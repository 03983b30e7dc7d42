"""HTTP as clients really speak it, over raw sockets: framing, limits, hang-ups, hostile input.

What a table of bytes can show is in tests/unit/test_http.c; here is what needs a connection.
"""
import contextlib
import json
import os
import pathlib
import re
import resource
import select
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

import conftest
import make_tiny
from conftest import SERVER_FLAGS

MAX_BODY = 32 << 20


class Raw:
    """One connection, spoken to in bytes."""

    def __init__(self, server, timeout=20, context=None):
        self.s = socket.create_connection(("127.0.0.1", server.port), timeout)
        if context:
            self.s = context.wrap_socket(self.s, server_hostname="localhost")
        self.got = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.s.close()

    def send(self, data):
        self.s.sendall(data.encode() if isinstance(data, str) else data)
        return self

    def more(self):
        data = self.s.recv(1 << 16)
        self.got += data
        return data

    def until(self, mark):
        while mark not in self.got:
            assert self.more(), f"closed before {mark!r}: {self.got!r}"
        at = self.got.index(mark) + len(mark)
        taken, self.got = self.got[:at], self.got[at:]
        return taken

    def exactly(self, n):
        while len(self.got) < n:
            assert self.more(), f"closed at {len(self.got)} of {n} bytes"
        taken, self.got = self.got[:n], self.got[n:]
        return taken

    def answer(self, head_only=False):
        """Status, headers (lower case), body."""
        head = self.until(b"\r\n\r\n").decode()
        lines = head.split("\r\n")
        headers = {k.lower(): v for k, v in (x.split(": ", 1) for x in lines[1:-2])}
        body = b""
        if "content-length" in headers and not head_only:
            body = self.exactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            while size := int(self.until(b"\r\n"), 16):
                body += self.exactly(size)
                assert self.exactly(2) == b"\r\n"
            assert self.exactly(2) == b"\r\n"
        return int(lines[0].split()[1]), headers, body

    def is_closed(self):
        """The server closes, orderly, and says nothing more."""
        rest = self.got
        while data := self.s.recv(1 << 16):
            rest += data
        return rest == b""

    def reset(self):
        """Leaves with a RST."""
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.s.close()


def request(path="/health", method="GET", body=None, headers="", host="Host: a\r\n", version="1.1"):
    head = f"{method} {path} HTTP/{version}\r\n{host}{headers}"
    if body is None:
        return (head + "\r\n").encode()
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    if "Content-Type" not in headers:
        head += "Content-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def completion(**fields):
    fields = {"prompt": "Once upon a time", "max_tokens": 4, "temperature": 0, **fields}
    return request("/v1/completions", "POST", fields)


def endless(**fields):
    """A request that runs for as long as the context allows."""
    return completion(max_tokens=2000, ignore_eos=True, **fields)


def is_error(answer, status):
    """The one shape of errors, in an answer that a strict reader takes."""
    got, headers, body = answer
    assert got == status, (got, body)
    assert headers["content-type"] == "application/json"
    error = json.loads(body.decode("utf-8"))["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["code"] == status
    assert error["message"] and error["type"].endswith("Error")
    return error


def gauges(server):
    text = server.get("/metrics")[2].decode()
    return [int(float(re.search(rf"^vllm:num_requests_{what}{{[^}}]*}} (\S+)$", text, re.M)[1]))
            for what in ("running", "waiting")]


def settles(server, wanted=(0, 0), timeout=5):
    end = time.monotonic() + timeout
    while gauges(server) != list(wanted) and time.monotonic() < end:
        time.sleep(0.02)
    return gauges(server) == list(wanted)


def waited(task):
    """Seconds that a thread was ready to run and had no processor: other programs' doing."""
    try:
        with open(f"/proc/{task}/schedstat") as f:
            return int(f.read().split()[1]) * 1e-9
    except OSError:
        return 0


def health_time(server):
    """Seconds that /health takes, but for the time that the server's I/O thread and this one stood
    in line for a processor: so the bound on it holds on a machine that has more to do."""
    tasks = (f"{server.process.pid}/task/{server.process.pid}", "thread-self")
    begin, before = time.monotonic(), sum(map(waited, tasks))
    assert server.get("/health")[0] == 200
    took = time.monotonic() - begin - (sum(map(waited, tasks)) - before)
    return 0 if "HEADRACE_SANITIZED" in os.environ else took  # instrumented code has its own time


@pytest.fixture(scope="module")
def idlers(server):
    """Connections that begin what they do not end, opened first and looked at last: what becomes
    of them takes 30 seconds, which the tests between use."""
    pieces = {"head": b"GET /health HTTP/1.1\r\nHost:", "line": b"GET /hea",
              "body": request("/v1/completions", "POST", b"x" * 100)[:-50], "silent": b""}
    opened = time.monotonic()
    all_ = {name: Raw(server, 60).send(data) for name, data in pieces.items()}
    yield opened, all_
    for r in all_.values():
        r.s.close()


# ---- one request, one answer ---------------------------------------------------------------------

def test_plain_requests(server, idlers):
    with Raw(server) as c:
        status, headers, body = c.send(request()).answer()
        assert (status, body) == (200, b"") and "connection" not in headers
        assert re.fullmatch(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", headers["date"])
        # one connection goes on and on, byte by byte too
        for b in request("/version"):
            c.send(bytes([b]))
        status, headers, body = c.answer()
        assert status == 200 and set(json.loads(body)) == {"version"}
        status, headers, body = c.send(request("/version", "HEAD")).answer(head_only=True)
        assert status == 200 and int(headers["content-length"]) > 0
        status, headers, body = c.send(completion()).answer()
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 4
        status, headers, body = c.send(request(headers="Connection: close\r\n")).answer()
        assert status == 200 and headers["connection"] == "close" and c.is_closed()


def test_http_1_0(server):
    with Raw(server) as c:
        status, headers, _ = c.send(request(version="1.0", host="")).answer()
        assert status == 200 and headers["connection"] == "close" and c.is_closed()
    with Raw(server) as c:
        for _ in range(2):
            c.send(request(version="1.0", host="", headers="Connection: keep-alive\r\n"))
            status, headers, _ = c.answer()
            assert status == 200 and headers["connection"] == "keep-alive"
    with Raw(server) as c:  # a stream ends where the connection ends
        c.send(completion(stream=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head = c.until(b"\r\n\r\n")
        assert b"chunked" not in head and b"200 OK" in head
        while c.more():
            pass
        assert c.got.endswith(b"data: [DONE]\n\n") and c.got.startswith(b"data: {")


def test_chunked_request(server):
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    head = request("/v1/completions", "POST", headers="Content-Type: application/json\r\n"
                   "Transfer-Encoding: chunked\r\n")
    pieces = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, b) for b in body)
    with Raw(server) as c:
        status, _, answer = c.send(head + pieces + b"0\r\nX-Trailer: 1\r\n\r\n").answer()
        assert status == 200, answer
        assert c.send(request()).answer()[0] == 200


BAD = [
    (b"GET / HTTP/1.1\nHost: a\n\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    (b"nonsense\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost: a\r\nX\xe9: 1\r\n\r\n", 400),
    (b"GET /%ff%fe\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    (b"GET /health HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (65 << 10) + b"\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: 1\r\n" * 300 + b"\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
     400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
     b"Content-Type: application/json\r\n\r\nzz\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 413),
]


@pytest.mark.sanitize
@pytest.mark.parametrize("data,status", BAD, ids=[str(i) for i in range(len(BAD))])
def test_what_cannot_be_framed_is_refused_and_closed(server, data, status):
    with Raw(server) as c:
        answer = c.send(data).answer()
        is_error(answer, status)
        assert answer[1]["connection"] == "close" and c.is_closed()


def test_paths_and_methods(server):
    with Raw(server) as c:
        is_error(c.send(request("/nowhere")).answer(), 404)
        error = is_error(c.send(request("/%c3%28")).answer(), 404)  # not UTF-8: its answer is
        assert "\ufffd" in error["message"]
        for method, path, allow in (("POST", "/health", "GET, HEAD, OPTIONS"),
                                    ("GET", "/v1/completions", "POST, OPTIONS"),
                                    ("BREW", "/ping", "GET, HEAD, POST, OPTIONS")):
            answer = c.send(request(path, method)).answer()
            is_error(answer, 405)
            assert answer[1]["allow"] == allow
        status, headers, _ = c.send(request("/v1/completions", "OPTIONS")).answer()
        assert status == 204 and headers["allow"] == "POST, OPTIONS"


@pytest.mark.parametrize("content_type,status", [
    ("application/json", 200), ("Application/JSON ; charset=utf-8", 200), ("text/plain", 415),
    ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415), ("", 415), (None, 415)])
def test_content_type(server, content_type, status):
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    line = "" if content_type is None else f"Content-Type: {content_type}\r\n"
    with Raw(server) as c:
        c.send(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\n{line}"
               f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = c.answer()
        assert answer[0] == status if status == 200 else is_error(answer, status)
        assert c.send(request()).answer()[0] == 200  # the connection lives on


def test_content_encoding_is_refused(server):
    with Raw(server) as c:
        c.send(request("/v1/completions", "POST", b"\x1f\x8b", "Content-Encoding: gzip\r\n"
                       "Content-Type: application/json\r\n"))
        is_error(c.answer(), 415)


@pytest.mark.sanitize
# ---- bodies --------------------------------------------------------------------------------------

def test_expect_continue(server):
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    with Raw(server) as c:
        head = request("/v1/completions", "POST", b"x" * len(body), "Expect: 100-continue\r\n")
        c.send(head[:-len(body)])
        assert c.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        assert c.send(body).answer()[0] == 200
        # what is refused gets no 100
        head = request("/nowhere", "POST", b"x", "Expect: 100-continue\r\n")
        is_error(c.send(head[:-1]).answer(), 404)
        assert c.is_closed()
    with Raw(server) as c:
        c.send(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
               f"Expect: 100-continue\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n")
        is_error(c.answer(), 413)
        assert c.is_closed()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_too_large(server, chunked):
    """Its answer is read also by a client that goes on sending."""
    head = "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    with Raw(server) as c:
        if chunked:
            c.send(head + "Transfer-Encoding: chunked\r\n\r\n")
            block = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
            for _ in range(33):
                c.send(block)
        else:
            c.send(head + f"Content-Length: {MAX_BODY + 1}\r\n\r\n")
            c.send(b" " * (1 << 20))
        is_error(c.answer(), 413)


def large_bodies():
    """As large as bodies may be, each hard on a reader in its own way."""
    yield "text", json.dumps({"prompt": "a b " * (MAX_BODY // 4 - 100)}).encode()
    escapes = b"\\u0041" * (MAX_BODY // 6 - 100)
    yield "escapes", b'{"prompt": "' + escapes + b'"}'
    yield "values", b'{"prompt": [' + b"1," * (MAX_BODY // 2 - 100) + b"1]}"
    yield "nested", b'{"prompt": ' + b"[" * (MAX_BODY // 2) + b"}"
    yield "keys", b'{"prompt": "a"' + b"".join(b',"%x":0' % i for i in range(1 << 20)) + b"}"
    yield "invalid", b'{"prompt": "' + b"a" * (MAX_BODY - 100) + b"\xff\"}"


class HealthWatch:
    """Asks /health all the time, from a thread; .slowest in seconds."""

    def __init__(self, server):
        self.server, self.slowest, self.stop = server, 0, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stop.is_set():
            self.slowest = max(self.slowest, health_time(self.server))
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


LARGE = {name: request("/v1/completions", "POST", body) for name, body in large_bodies()}


@pytest.mark.parametrize("name", LARGE)
def test_largest_bodies_do_not_hold_up_others(server, name):
    """Each is refused for what it is; /health answers in time all along. (Three tries: the kernel
    has locks on which a busy machine makes both wait.)"""
    slowest = []
    while len(slowest) < 3 and min(slowest, default=1) >= 0.1:
        with HealthWatch(server) as watch, Raw(server, 60) as c:
            error = is_error(c.send(LARGE[name]).answer(), 400)
            assert len(error["message"]) < 1000
        slowest.append(watch.slowest)
    print(f"slowest /health {min(slowest) * 1e3:.1f} ms")
    assert min(slowest) < 0.1, slowest


@pytest.mark.sanitize
# ---- order ---------------------------------------------------------------------------------------

def test_pipelined_requests_are_answered_in_order(server):
    seeds = range(6)
    with Raw(server, 60) as c:
        data = b""
        for seed in seeds:
            data += completion(seed=seed, stream=seed % 2 == 1, max_tokens=3 + seed)
            data += request("/version") + request("/nowhere")
        c.send(data)
        for seed in seeds:
            status, headers, body = c.answer()
            assert status == 200
            if seed % 2:
                assert headers["transfer-encoding"] == "chunked"
                assert body.count(b"data: {") >= 3 + seed and body.endswith(b"data: [DONE]\n\n")
            else:
                assert json.loads(body)["usage"]["completion_tokens"] == 3 + seed
            assert "version" in json.loads(c.answer()[2])
            is_error(c.answer(), 404)


def test_a_flood_of_pipelined_requests_is_not_read_ahead(server):
    """Behind an answer that takes long, a client's further bytes stay in the kernel."""
    with Raw(server, 60) as c:
        c.send(endless())
        c.s.settimeout(0.5)
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 64 << 20:
                sent += c.s.send(request("/version") * 1000)
        assert health_time(server) < 0.1
        c.reset()
    assert settles(server)  # it is known to have hung up, unread bytes or not


def test_answers_nobody_reads_are_not_made(server):
    """A client that asks without reading is not served on: its answers do not pile up."""
    with Raw(server) as c:
        c.s.settimeout(0.5)
        with pytest.raises(TimeoutError):
            while True:
                c.s.send(request("/metrics") * 100)
        assert health_time(server) < 0.1


# ---- clients that leave --------------------------------------------------------------------------

LEAVING = {
    "close": lambda c: c.s.close(),
    "reset": lambda c: c.reset(),
    "half": lambda c: c.s.shutdown(socket.SHUT_WR),
}


@pytest.mark.device
@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("how", LEAVING)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_place(server, how, stream):
    with Raw(server) as c:
        c.send(endless(stream=stream))
        if stream:
            c.until(b"data: {")
        assert settles(server, (1, 0))
        LEAVING[how](c)
        begin = time.monotonic()
        assert settles(server), gauges(server)
        print(f"figure: a client's place was free after {time.monotonic() - begin:.3f} s")


@pytest.mark.sanitize
@pytest.mark.parametrize("how", LEAVING)
def test_clients_that_leave_the_queue(server, how):
    """More than run at once: those that wait leave too, and so do those behind a closed socket."""
    with contextlib.ExitStack() as stack:
        all_ = [stack.enter_context(Raw(server)) for _ in range(40)]
        for c in all_:
            c.send(endless())
        assert settles(server, (16, 24))
        for c in all_:
            LEAVING[how](c)
        assert settles(server), gauges(server)


def test_a_half_closed_client_still_reads_what_is_ready(server):
    with Raw(server) as c:
        c.send(request() + request("/version"))
        c.s.shutdown(socket.SHUT_WR)
        assert c.answer()[0] == 200 and c.answer()[0] == 200
        assert c.is_closed()


def test_a_half_request_then_the_end(server):
    for data in (b"", b"GET /hea", request("/v1/completions", "POST", b"x" * 9)[:-3]):
        with Raw(server) as c:
            c.send(data)
            c.s.shutdown(socket.SHUT_WR)
            assert c.is_closed()


@pytest.mark.sanitize
def test_a_slow_reader_is_bounded_and_slows_nobody(server):
    """A stream that nobody reads: others run at their speed meanwhile."""
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            c = stack.enter_context(Raw(server))
            c.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.send(endless(stream=True, logprobs=5))
        with Raw(server) as c:
            for _ in range(5):
                assert c.send(completion(max_tokens=16)).answer()[0] == 200
    assert settles(server)


# ---- many, and slow ------------------------------------------------------------------------------

def test_500_slow_clients(server):
    """Slow-loris: each sends a byte now and then; the others do not feel it."""
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(Raw(server)) for _ in range(500)]
        data = request("/version")
        for c in slow:
            c.send(data[:4])
        times = []
        for at in range(4, 9):
            for c in slow:
                c.send(data[at:at + 1])
            times.append(health_time(server))
            with Raw(server) as c:
                assert c.send(completion()).answer()[0] == 200
        assert max(times) < 0.1
        for c in slow:
            c.send(data[9:])
        assert all(c.answer()[0] == 200 for c in slow)


# ---- a second server, with keys, TLS and few descriptors ------------------------------------------

@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", folder / f"{name}.key", "-out", folder / f"{name}.crt"],
                       check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def guarded(serve, smollm2, certificate):
    """Keys, TLS, chosen origins, request ids, a small limit of bodies."""
    return serve(smollm2, *SERVER_FLAGS, "--api-key", "first", "--api-key", "second",
                 "--ssl-certfile", certificate / "one.crt", "--ssl-keyfile", certificate / "one.key",
                 "--allowed-origins", "https://page.example", "--enable-request-id-headers",
                 "--max-request-bytes", 100000)


@pytest.fixture(scope="module")
def secure(guarded, certificate):
    """Opens TLS connections to it, once it is ready."""
    context = ssl.create_default_context(cafile=certificate / "one.crt")
    assert guarded.bound.wait(30) and guarded.address.startswith("https://"), guarded.log
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with Raw(guarded, context=context) as c:
            if c.send(request()).answer()[0] == 200:
                return lambda **o: Raw(guarded, context=context, **o)
        time.sleep(0.05)
    raise AssertionError(guarded.log)


def bearer(key, scheme="Bearer"):
    return f"Authorization: {scheme} {key}\r\n"


def test_tls(secure, guarded, certificate):
    with secure() as c:
        assert c.s.version() in ("TLSv1.2", "TLSv1.3")
        for stream in (False, True):
            c.send(completion(stream=stream).replace(b"\r\n", b"\r\n" + bearer("first").encode(), 1))
            assert c.answer()[0] == 200
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(certificate / "one.crt")
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, OSError)), Raw(guarded, context=old):
        pass
    with Raw(guarded) as c, contextlib.suppress(ConnectionResetError):  # plain HTTP
        c.send(request())
        assert not c.more().startswith(b"HTTP")
    with secure() as c:
        assert c.send(request()).answer()[0] == 200


@pytest.mark.sanitize
def test_tls_clients_that_leave(secure, guarded):
    key = bearer("second").encode()

    def metrics():
        with secure() as c:
            text = c.send(request("/metrics", headers=bearer("first"))).answer()[2].decode()
        return re.search(r"^vllm:num_requests_running{[^}]*} (\S+)$", text, re.M)[1]

    for end in (lambda c: c.s.unwrap(), lambda c: c.s.close()):
        c = secure()
        c.send(endless(stream=True).replace(b"\r\n", b"\r\n" + key, 1))
        c.until(b"data: {")
        assert float(metrics()) == 1
        with contextlib.suppress(OSError):
            end(c)
        for _ in range(100):
            if float(metrics()) == 0:
                break
            time.sleep(0.02)
        assert float(metrics()) == 0
        c.s.close()


@pytest.mark.parametrize("line,status", [
    ("", 401), (bearer("first"), 200), (bearer("second", "bearer"), 200),
    (bearer("second", "BEARER"), 200), (bearer(" first "), 200), (bearer("firs"), 401),
    (bearer("first1"), 401), (bearer("first", "Basic"), 401), ("Authorization: Bearerfirst\r\n", 401),
    ("Authorization: first\r\n", 401), ("Authorization: Bearer\r\n", 401), (bearer("\xe9"), 401)])
def test_keys(secure, line, status):
    with secure() as c:
        answer = c.send(request("/v1/models", headers=line)).answer()
        if status == 200:
            assert answer[0] == 200
        else:
            is_error(answer, 401)
            assert answer[1]["www-authenticate"] == "Bearer"


def test_what_needs_no_key(secure):
    with secure() as c:
        for path, status in (("/health", 200), ("/ping", 200), ("/version", 200), ("/", 200),
                             ("/metrics", 401), ("/load", 401), ("/nowhere", 401)):
            assert c.send(request(path)).answer()[0] == status, path


def test_what_is_refused_is_refused_before_its_body(secure, server):
    with secure() as c:
        c.send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        is_error(c.answer(), 401)
        assert c.is_closed()
    with Raw(server) as c:
        c.send(request("/nowhere", "POST", b"x" * 1000000)[:300])
        is_error(c.answer(), 404)
        assert c.is_closed()
    with Raw(server) as c:  # a small one is read over, and the connection lives on
        c.send(request("/nowhere", "POST", b"x" * 10000))
        is_error(c.answer(), 404)
        assert c.send(request()).answer()[0] == 200


def test_cors(secure):
    origin = "Origin: https://page.example\r\n"
    ask = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n"
    with secure() as c:
        status, headers, _ = c.send(request("/v1/chat/completions", "OPTIONS",
                                            headers=origin + ask)).answer()
        assert status in (200, 204)
        assert headers["access-control-allow-origin"] == "https://page.example"
        assert "POST" in headers["access-control-allow-methods"]
        assert headers["access-control-allow-headers"].lower() == "authorization"
        answer = c.send(request("/v1/chat/completions", "POST", {}, origin)).answer()
        is_error(answer, 401)
        assert answer[1]["access-control-allow-origin"] == "https://page.example"
        assert answer[1]["vary"] == "Origin"
        answer = c.send(request("/health", headers="Origin: https://evil.example\r\n")).answer()
        assert "access-control-allow-origin" not in answer[1]
        is_error(c.send(request("/health", "OPTIONS", headers="Origin: https://evil.example\r\n"
                                + ask)).answer(), 400)
        c.send(completion(stream=True).replace(
            b"\r\n", b"\r\n" + (origin + bearer("first")).encode(), 1))
        assert c.answer()[1]["access-control-allow-origin"] == "https://page.example"


def test_cors_of_an_open_server(server):
    with Raw(server) as c:
        assert c.send(request(headers="Origin: null\r\n")).answer()[1][
            "access-control-allow-origin"] == "*"
        assert "access-control-allow-origin" not in c.send(request()).answer()[1]


def test_request_ids(secure, server):
    with secure() as c:
        assert c.send(request(headers="X-Request-Id: my-1\r\n")).answer()[1]["x-request-id"] == "my-1"
        made = c.send(request()).answer()[1]["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)
        for odd in ("a b", "a\xe9", "x" * 999):
            got = c.send(request(headers=f"X-Request-Id: {odd}\r\n")).answer()[1]["x-request-id"]
            assert re.fullmatch("[0-9a-f]{32}", got) and got != made
    with Raw(server) as c:
        assert "x-request-id" not in c.send(request()).answer()[1]


def test_the_limit_of_bodies_is_a_flag(secure):
    with secure() as c:
        c.send(f"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 100001\r\n\r\n")
        is_error(c.answer(), 413)


# ---- starting ------------------------------------------------------------------------------------

def fails(serve, *arguments):
    """The message of a start that must fail."""
    s = serve(*arguments)
    assert s.process.wait(60) != 0
    s.reader.join(5)
    assert "ready" not in s.log
    return s.log


def test_a_taken_port_fails_at_once(server, serve):
    log = fails(serve, "no-such-model", "--port", server.port)
    assert str(server.port) in log and "taken" in log and "no-such-model" not in log


def test_starts_that_must_fail(serve, smollm2, certificate, tmp_path):
    one, two = certificate / "one.crt", certificate / "two.key"
    assert "no-such-model" in fails(serve, "no-such-model")
    assert "--host" in fails(serve, smollm2, "--host", "no.such.host.invalid")
    assert "--ssl-keyfile" in fails(serve, smollm2, "--ssl-certfile", one)
    assert "two.key" in fails(serve, smollm2, "--ssl-certfile", one, "--ssl-keyfile", two)
    (tmp_path / "junk").write_text("junk")
    for flag, path in (("--ssl-certfile", tmp_path / "junk"), ("--ssl-keyfile", tmp_path / "none")):
        files = {"--ssl-certfile": one, "--ssl-keyfile": certificate / "one.key", flag: path}
        log = fails(serve, smollm2, *[x for pair in files.items() for x in pair])
        assert flag in log and str(path) in log
    assert "junk" in fails(serve, smollm2, "--uds", tmp_path / "junk")
    assert (tmp_path / "junk").read_text() == "junk"
    assert "--uds" in fails(serve, smollm2, "--uds", tmp_path / ("x" * 200))


def over_unix(path, data):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(str(path))
        s.sendall(data)
        return s.recv(4096)


def test_unix_socket(serve, smollm2, tmp_path):
    path = tmp_path / "hr.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()  # the file stays, nobody listens
    s = serve(smollm2, *SERVER_FLAGS, "--uds", path)
    end = time.monotonic() + 60
    answer = b""
    while b" 200 " not in answer and time.monotonic() < end:
        with contextlib.suppress(OSError):
            answer = over_unix(path, request())
        time.sleep(0.05)
    assert b" 200 " in answer, s.log
    assert "listens there" in fails(serve, smollm2, "--uds", path)
    assert b" 200 " in over_unix(path, completion(stream=True))
    assert s.stop() == 0
    assert not path.exists()


def test_descriptors_run_out(smollm2, serve, tmp_path):
    """With 100 descriptors in all, 300 clients: some wait, none is lost, nothing spins."""
    wrapper = tmp_path / "few"
    wrapper.write_text(f'#!/bin/sh\nulimit -n 100\nexec "{conftest.BIN}" "$@"\n')
    wrapper.chmod(0o755)
    own, conftest.BIN = conftest.BIN, str(wrapper)
    try:
        s = serve(smollm2, *SERVER_FLAGS)
    finally:
        conftest.BIN = own
    s.ready()
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(Raw(s)) for _ in range(300)]
        for c in many:
            c.send(request(headers="Connection: close\r\n"))
        assert all(c.answer()[0] == 200 for c in many)
    assert "no more for now" in s.log
    assert s.ready() and s.stop() == 0


# ---- ending --------------------------------------------------------------------------------------

def spoken(raw):
    """What is left to read, until the end."""
    with contextlib.suppress(OSError):
        while raw.more():
            pass
    return raw.got


@pytest.mark.device
def test_sigterm_lets_answers_finish(serve, smollm2):
    s = serve(smollm2, *SERVER_FLAGS, "--shutdown-timeout", 60).ready()
    with Raw(s, 60) as running, Raw(s, 60) as whole, Raw(s) as idle, Raw(s) as late:
        idle.send(request()).answer()
        late.send(request()).answer()
        running.send(completion(stream=True, max_tokens=200, ignore_eos=True))
        whole.send(completion(max_tokens=200, ignore_eos=True))
        running.until(b"data: {")
        late.send(request()[:10])
        time.sleep(0.05)
        s.process.send_signal(signal.SIGTERM)
        assert idle.is_closed()
        with Raw(s) as new:
            answer = new.send(completion()).answer()
            is_error(answer, 503)
            assert answer[1]["retry-after"] and answer[1]["connection"] == "close"
            assert new.is_closed()
        answer = late.send(request()[10:]).answer()
        is_error(answer, 503)
        status, headers, body = whole.answer()
        assert status == 200 and json.loads(body)["usage"]["completion_tokens"] == 200
        assert headers["connection"] == "close"
        text = spoken(running)
        assert text.count(b"data: {") >= 199 and text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        assert b'"error"' not in text
    assert s.process.wait(20) == 0


def test_large_requests_are_bounded_in_sum(serve, smollm2):
    """16 of the largest and 64 MiB: what comes above that is refused, what is there is kept."""
    s = serve(smollm2, *SERVER_FLAGS, "--max-request-bytes", 4_000_000).ready()
    body = json.dumps({"prompt": "a", "max_tokens": 1}).encode()
    whole = request("/v1/completions", "POST", body + b" " * (4_000_000 - len(body)))
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(Raw(s)) for _ in range(40)]
        for c in many:
            c.send(whole[:-1])
        # which of them are refused is a matter of whose bytes were read first
        refused, end = set(), time.monotonic() + 30
        while len(refused) < 40 - 128 * (1 << 20) // 4_000_000 and time.monotonic() < end:
            for sock in select.select([c.s for c in many if c not in refused], [], [], 1)[0]:
                c = next(c for c in many if c.s is sock)
                is_error(c.answer(), 503)
                refused.add(c)
        assert len(refused) >= 40 - 128 * (1 << 20) // 4_000_000
        kept = next(c for c in many if c not in refused)
        assert kept.send(whole[-1:]).answer()[0] == 200
    assert Raw(s).send(whole).answer()[0] == 200  # they have gone: there is room again
    assert s.stop() == 0


def test_sigterm_ends_what_takes_too_long(serve, smollm2):
    s = serve(smollm2, *SERVER_FLAGS, "--shutdown-timeout", 0.3).ready()
    with Raw(s) as streaming, Raw(s) as whole:
        streaming.send(endless(stream=True))
        whole.send(endless())
        streaming.until(b"data: {")
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        is_error(whole.answer(), 503)
        events = [e for e in re.findall(rb"data: (.*)\n\n", spoken(streaming))]
        assert events[-1] == b"[DONE]" and json.loads(events[-2])["error"]["code"] == 503
    assert s.process.wait(20) == 0
    assert time.monotonic() - begin < 3


def test_a_second_sigterm_ends_at_once(serve, smollm2):
    s = serve(smollm2, *SERVER_FLAGS).ready()
    with Raw(s) as c:
        c.send(endless(stream=True)).until(b"data: {")
        s.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        assert s.process.poll() is None
        begin = time.monotonic()
        s.process.send_signal(signal.SIGTERM)
        assert s.process.wait(20) != 0
        assert time.monotonic() - begin < 0.5


def test_sigint_ends_an_idle_server(serve, smollm2):
    s = serve(smollm2, *SERVER_FLAGS).ready()
    s.process.send_signal(signal.SIGINT)
    assert s.process.wait(20) == 0


def test_sigterm_while_loading(serve, smollm2):
    s = serve(smollm2, *SERVER_FLAGS)
    assert s.bound.wait(30), s.log
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(20) == 0, s.log


@pytest.mark.skipif("HEADRACE_SANITIZED" in os.environ, reason="memory is the sanitizer's own")
def test_an_engine_that_fails_ends_the_server(serve, tmp_path):
    """A step without memory: its requests get 500 or an error event, and the process ends, since
    whoever runs it can start it again."""
    make_tiny.hf(tmp_path / "tiny", "llama")
    # every large piece of memory is the kernel's again when it is free
    env = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": "65536",
           "MALLOC_TRIM_THRESHOLD_": "65536"}
    s = serve(tmp_path / "tiny", "--device", "ref", "--max-num-seqs", 4, "--max-model-len", 1024,
              "--max-num-batched-tokens", 1024, "--long-prefill-token-threshold", 1024, env=env).ready()
    with Raw(s) as streaming, Raw(s) as whole:
        streaming.send(completion(stream=True, max_tokens=900, ignore_eos=True)).until(b"data: {")
        status = pathlib.Path(f"/proc/{s.process.pid}/status").read_text()
        size = int(re.search(r"VmSize:\s+(\d+) kB", status)[1]) * 1024
        # room for a request, not for a step of 960 tokens
        resource.prlimit(s.process.pid, resource.RLIMIT_AS, (size + (256 << 10), 2 * size))
        whole.send(completion(prompt="abc" * 320))
        is_error(whole.answer(), 500)
        events = re.findall(rb"data: (.*)\n\n", spoken(streaming))
        assert events[-1] == b"[DONE]" and json.loads(events[-2])["error"]["code"] == 500
    assert s.process.wait(20) == 1
    assert "the engine has stopped" in s.log


def test_health_while_loading_and_a_failed_load(serve, tmp_path):
    """503 until it is ready; a load that fails was never healthy."""
    folder = tmp_path / "broken"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    s = serve(folder)
    seen = set()
    while s.process.poll() is None:
        if s.bound.wait(0.01) and s.address:
            with contextlib.suppress(OSError):
                seen.add(s.get("/health", timeout=5)[0])
    assert s.process.returncode != 0 and seen <= {503}


# ---- last: those that were idle since the beginning -----------------------------------------------

def test_half_requests_end_after_30_seconds(server, idlers):
    opened, all_ = idlers
    for name in ("head", "line", "body"):
        is_error(all_[name].answer(), 408)
        assert time.monotonic() - opened > 29
        assert all_[name].is_closed()
    assert all_["silent"].is_closed()
    assert settles(server)
