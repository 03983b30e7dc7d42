"""`headrace serve` under a manager of services: sockets handed over, readiness and the watchdog told,
keys and certificates read again, traces passed through; the unit files."""
import os
import pathlib
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest
from conftest import BIN, ROOT

import make_tiny

FLAGS = ["--max-num-seqs", 4, "--max-num-batched-tokens", 64, "--max-model-len", 256]
ASK = {"prompt": "abc", "max_tokens": 3, "temperature": 0, "ignore_eos": True}
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("managed") / "model"
    make_tiny.hf(path, "llama")
    return path


def certificate(folder, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                    "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", folder / "key.new",
                    "-out", folder / "crt.new"], check=True, capture_output=True)
    (folder / "key.new").rename(folder / "key")  # new files under the old names
    (folder / "crt.new").rename(folder / "crt")


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def allowed(s, key):
    return s.get("/v1/models", headers=bearer(key))[0] == 200


def reload(s, *said):
    before = len(s.lines_with(*said, count=0))
    s.process.send_signal(signal.SIGHUP)
    assert len(s.lines_with(*said, count=before + 1)) > before, s.log


def test_keys_and_traces(serve, model, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# for the web\n\none\n  two \r\n")
    s = serve(model, *FLAGS, "--api-key", "fixed", "--api-key-file", keys, "--log-format", "json")
    s.ready()
    assert [k for k in ("fixed", "one", "two", "three", "# for the web", "") if allowed(s, k)] == \
        ["fixed", "one", "two"]
    (tmp_path / "new").write_text("three\n")
    (tmp_path / "new").rename(keys)
    reload(s, "2 API keys")
    assert [k for k in ("fixed", "one", "two", "three") if allowed(s, k)] == ["fixed", "three"]
    for broken in ("\n# nothing\n", None):  # the old ones hold
        keys.write_text(broken) if broken else keys.unlink()
        reload(s, "the keys stay as they were: --api-key-file", str(keys))
        assert allowed(s, "three") and allowed(s, "fixed") and not allowed(s, "one")
    for sent in (TRACE, TRACE.replace("00-", "cc-", 1) + "-what-will-be"):
        _, headers, _ = s.request("/v1/completions", ASK,
                                  headers={**bearer("three"), "traceparent": sent})
        assert headers["traceparent"] == sent
    assert len(s.lines_with('"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"', count=2)) == 2
    for bad in (TRACE.upper(), "ff" + TRACE[2:], TRACE + "-x", TRACE.replace("4bf", "xyz"), "1",
                TRACE[:3] + "0" * 32 + TRACE[35:], TRACE[:36] + "0" * 16 + TRACE[52:]):
        _, headers, _ = s.request("/version", headers={"traceparent": bad})
        assert headers["traceparent"] is None, bad
    assert s.stop() == 0
    assert not [k for k in ("fixed", "three") if f"{k} " in s.log or f'"{k}"' in s.log]


def peer(s):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", s.port)) as c, context.wrap_socket(c) as t:
        return t.getpeercert(True)


def test_certificates_read_again(serve, model, tmp_path):
    certificate(tmp_path, "one")
    s = serve(model, *FLAGS, "--ssl-certfile", tmp_path / "crt", "--ssl-keyfile", tmp_path / "key")
    assert s.lines_with("server: ready", timeout=60), s.log
    first = peer(s)
    certificate(tmp_path, "two")
    reload(s, "certificates are read again")
    second = peer(s)
    assert second != first and second == ssl.PEM_cert_to_DER_cert((tmp_path / "crt").read_text())
    (tmp_path / "key").write_text("none")
    reload(s, "the certificate stays as it was: --ssl-keyfile")
    assert peer(s) == second
    assert s.stop() == 0


def start(model, sockets, tmp_path, *flags, env=None):
    """As systemd starts a service: sockets from descriptor 3 on, a socket to tell."""
    code = ("import os, sys\nos.environ['LISTEN_PID'] = str(os.getpid())\n"
            "fds = [int(x) for x in sys.argv[1].split(',')]\n"
            "for i, fd in enumerate(fds): os.dup2(fd, 100 + i)\n"
            "for i in range(len(fds)): os.dup2(100 + i, 3 + i); os.close(100 + i)\n"
            "os.execv(sys.argv[2], sys.argv[2:])\n")
    fds = [s.fileno() for s in sockets]
    return subprocess.Popen([sys.executable, "-c", code, ",".join(map(str, fds)), BIN, "serve",
                             str(model), *map(str, FLAGS), *map(str, flags)], pass_fds=fds,
                            stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "LISTEN_FDS": str(len(fds)), **(env or {})})


def test_systemd(model, tmp_path):
    tell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    tell.bind(str(tmp_path / "notify"))
    tell.settimeout(60)
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(str(tmp_path / "listen"))
    unix.listen()
    early = socket.create_connection(tcp.getsockname())  # before there is a server
    early.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    p = start(model, [tcp, unix], tmp_path,
              env={"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "200000"})
    try:
        said = [tell.recv(200).decode() for _ in range(3)]
        assert [x for x in said if "READY=1" in x], said
        assert "WATCHDOG=1" in [tell.recv(200).decode() for _ in range(2)]
        assert early.makefile("rb").readline().startswith(b"HTTP/1.1 200")
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(tmp_path / "listen"))
            c.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert b" 200 " in c.makefile("rb").readline()
        p.send_signal(signal.SIGTERM)
        end = time.monotonic() + 20
        while not tell.recv(200).startswith(b"STOPPING=1"):
            assert time.monotonic() < end
        assert p.wait(20) == 0, p.stderr.read()
        assert (tmp_path / "listen").exists()  # it is systemd's
    finally:
        p.kill()
        p.wait()
        p.stderr.close()
        for s in (tell, tcp, unix, early):
            s.close()


@pytest.mark.parametrize("flags, word", [(["--host", "127.0.0.1"], "--host"),
                                         ([], "no listening stream socket")])
def test_sockets_that_cannot_be(model, tmp_path, flags, word):
    s = socket.create_server(("127.0.0.1", 0)) if flags else socket.socket()
    with s, start(model, [s], tmp_path, *flags) as p:
        assert p.wait(20) == 1 and word in p.stderr.read()


def test_the_unit_files(tmp_path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("systemd-analyze is not installed")
    for unit in ("headrace.service", "headrace.socket"):
        text = (ROOT / "packaging" / unit).read_text()
        (tmp_path / unit).write_text(text.replace("/usr/bin/headrace", BIN))
    r = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / "headrace.service",
                        tmp_path / "headrace.socket"], capture_output=True, text=True, timeout=60)
    ours = [x for x in (r.stdout + r.stderr).splitlines() if "headrace" in x]
    assert not ours, ours
