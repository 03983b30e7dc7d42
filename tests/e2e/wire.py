"""A small HTTP/1.1 client on asyncio: many connections, every byte seen, little work per request.

Strict about what it reads: an answer that is framed wrongly is an error, never guessed at."""
import asyncio
import json
import socket
import struct


class Gone(Exception):
    """The server closed the connection before the answer was whole."""


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)


def head_of(method, path, body=None, headers=()):
    """The bytes of a request; a body that is no bytes is sent as JSON."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: test"]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{k}: {v}" for k, v in headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")


class Connection:
    """One connection, kept open from answer to answer."""

    def __init__(self, port, receive_buffer=None):
        self.port, self.receive_buffer = port, receive_buffer
        self.reader = self.writer = None

    async def __aenter__(self):
        return await self.open()

    async def __aexit__(self, *_):
        self.close()

    async def open(self):
        """Connected; a no-op when it already is."""
        if self.writer is not None:
            return self
        s = socket.socket()
        s.setblocking(False)
        if self.receive_buffer:  # before connect, or the window is already wider
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(s, ("127.0.0.1", self.port))
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.reader, self.writer = await asyncio.open_connection(
                sock=s, limit=self.receive_buffer or 1 << 20)
        except BaseException:
            s.close()
            raise
        return self

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    def reset(self):
        """Ends it the rude way: the peer gets RST and not FIN."""
        if self.writer is None:
            return
        s = self.writer.get_extra_info("socket")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()
        self.reader = self.writer = None

    def half_close(self):
        self.writer.write_eof()

    async def send(self, data):
        await self.open()
        self.writer.write(data)
        await self.writer.drain()

    async def line(self):
        try:
            line = await self.reader.readuntil(b"\r\n")
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Gone(str(e)) from e
        return line[:-2]

    async def exactly(self, n):
        try:
            return await self.reader.readexactly(n)
        except (asyncio.IncompleteReadError, ConnectionError) as e:
            raise Gone(str(e)) from e

    async def head(self):
        """Status and headers, their names in small letters."""
        line = (await self.line()).decode()
        version, status, reason = line.split(" ", 2)
        assert version == "HTTP/1.1" and status.isdigit() and reason, line
        headers = {}
        while line := (await self.line()).decode():
            name, colon, value = line.partition(":")
            assert colon and name.strip() == name and name.lower() not in headers, line
            headers[name.lower()] = value.strip()
        return int(status), headers

    async def chunks(self):
        """The chunks of a chunked body."""
        while True:
            size = int(await self.line(), 16)
            data = await self.exactly(size + 2)
            assert data[size:] == b"\r\n"
            if size == 0:
                return
            yield data[:size]

    async def body(self, headers):
        if headers.get("transfer-encoding") == "chunked":
            assert "content-length" not in headers
            return b"".join([c async for c in self.chunks()])
        return await self.exactly(int(headers["content-length"]))

    async def answer(self):
        status, headers = await self.head()
        body = await self.body(headers)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return Answer(status, headers, body)

    async def request(self, method, path, body=None, headers=()):
        await self.send(head_of(method, path, body, headers))
        return await self.answer()

    async def get(self, path):
        return await self.request("GET", path)

    async def post(self, path, body, headers=()):
        return await self.request("POST", path, body, headers)

    async def events(self):
        """What `data:` lines of a stream hold, after its head has been read."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n\n")
            for event in whole:
                assert event.startswith(b"data: ") and b"\n" not in event, event
                yield event[6:]
        assert not rest, rest


def exact(text):
    """JSON whose numbers stay as they are written, so that equal means equal to the last digit."""
    return json.loads(text, parse_float=str)


def join(chunks):
    """Chunks of one choice as if it had come at once: texts and lists joined, the rest the last
    value that is not null."""
    out = {}
    for chunk in chunks:
        for key, value in chunk.items():
            old = out.get(key)
            if value is None or old is None:
                out[key] = value if old is None else old
            elif isinstance(value, dict):
                out[key] = join([old, value])
            elif isinstance(value, list) or (isinstance(value, str) and key in ("text", "content")):
                out[key] = old + value
            else:
                out[key] = value
    return out


def choices_of(bodies):
    """Index → choice, of one whole answer or of all the chunks of a stream; a chat's delta becomes
    its message."""
    found = {}
    for body in bodies:
        for choice in body["choices"]:
            choice = dict(choice)
            if "delta" in choice:
                choice["message"] = choice.pop("delta")
            found.setdefault(choice["index"], []).append(choice)
    return {i: join(parts) for i, parts in sorted(found.items())}


async def stream(connection, path, body):
    """A streamed answer: its chunks, parsed exactly; [DONE] must have come."""
    await connection.send(head_of("POST", path, {**body, "stream": True}))
    status, headers = await connection.head()
    if status != 200:
        raise AssertionError((status, await connection.body(headers)))
    assert headers["content-type"].startswith("text/event-stream")
    events = [e async for e in connection.events()]
    assert events[-1] == b"[DONE]"
    if headers.get("connection", "").lower() == "close":
        connection.close()
    return [exact(e) for e in events[:-1]]
