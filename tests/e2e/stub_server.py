"""A small OpenAI-like server that does as a test tells it, and remembers what it was asked.

It stands in for other people's servers: what the clients must cope with (odd chunking, no usage,
errors, connections that break) can be had here at will and at a known time.
"""
import http.server
import json
import re
import socket
import ssl
import threading
import time

WORDS = "one two three four five six seven eight".split()


class Plan:
    """How requests are answered; a test changes what it is about."""

    def __init__(self):
        self.delay = 0.0              # seconds before the first chunk
        self.gap = 0.0                # seconds between chunks
        self.tokens = None            # chunks per answer; None = max_tokens
        self.usage = True
        self.line_end = b"\n"
        self.split = False            # every byte a write of its own
        self.close = False            # after each answer, without saying so before
        self.http10 = False           # no chunked encoding: the end of the connection ends the body
        self.role_chunk = True
        self.finish_chunk = True      # a last chunk without text
        self.done = True              # "[DONE]"
        self.fail = lambda number: None       # status and body instead of an answer
        self.cut = lambda number: None        # chunks after which the connection breaks
        self.error_event = lambda number: None
        self.tokenize = True
        self.texts = None             # the chunks' texts
        self.echo = False             # chats: the answer is what was asked


class Stub:
    def __init__(self, certificate=None):
        self.plan, self.requests, self.lock = Plan(), [], threading.Lock()
        self.active = self.most_active = self.connections = self.gone = 0
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                super().setup()
                self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with stub.lock:
                    stub.connections += 1

            def log_message(self, *_):
                pass

            def do_GET(self):
                stub.get(self)

            def do_POST(self):
                stub.post(self)

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 512
            daemon_threads = True

            def handle_error(self, *_):
                pass  # clients leave; that is what some tests are about

        self.server = Server(("127.0.0.1", 0), Handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    # ---- answers --------------------------------------------------------------------------------

    def reply(self, h, status, body):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        h.send_response(status)
        h.send_header("Content-Type", "application/json")
        h.send_header("Content-Length", str(len(data)))
        h.end_headers()
        h.wfile.write(data)

    def get(self, h):
        if h.path == "/v1/models":
            self.reply(h, 200, {"object": "list", "data": [{"id": "org/stub-model"}]})
        else:
            self.reply(h, 404, {"error": {"message": "no such path"}})

    def post(self, h):
        body = json.loads(h.rfile.read(int(h.headers["Content-Length"])))
        if h.path == "/tokenize":
            words = re.findall(r"\S+", body["prompt"])
            ids = {w: 100 + i for i, w in enumerate(dict.fromkeys(words))}
            self.reply(h, 200 if self.plan.tokenize else 404, {"tokens": [ids[w] for w in words]})
        elif h.path == "/detokenize":
            self.reply(h, 200, {"prompt": "".join(f" t{i}" for i in body["tokens"])})
        else:
            with self.lock:
                number = len(self.requests)
                self.requests.append({"path": h.path, "body": body, "headers": dict(h.headers),
                                      "time": time.monotonic()})
                self.active += 1
                self.most_active = max(self.most_active, self.active)
            try:
                self.generate(h, body, number)
            except OSError:
                with self.lock:
                    self.gone += 1
                h.close_connection = True
            finally:
                with self.lock:
                    self.active -= 1

    def generate(self, h, body, number):
        plan, chat = self.plan, "messages" in body
        if plan.fail(number):
            return self.reply(h, *plan.fail(number))
        h.protocol_version = "HTTP/1.0" if plan.http10 else "HTTP/1.1"
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        if not plan.http10:
            h.send_header("Transfer-Encoding", "chunked")
        h.end_headers()
        if chat and plan.role_chunk:
            self.event(h, {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]})
        time.sleep(plan.delay)
        texts = self.texts(body)
        for i, text in enumerate(texts):
            if i:
                time.sleep(plan.gap)
            if plan.cut(number) == i:
                h.wfile.flush()
                h.connection.shutdown(socket.SHUT_RDWR)
                raise OSError
            if plan.error_event(number) == i:
                self.event(h, {"error": {"message": "out of luck", "code": 500}})
                break
            choice = {"delta": {"content": text}} if chat else {"text": text}
            self.event(h, {"choices": [{"index": 0, "finish_reason": None, **choice}]})
        if plan.finish_chunk:
            choice = {"delta": {}} if chat else {"text": ""}
            self.event(h, {"choices": [{"index": 0, "finish_reason": "length", **choice}]})
        if plan.usage and body.get("stream_options", {}).get("include_usage"):
            self.event(h, {"choices": [], "usage": {"prompt_tokens": self.prompt_tokens(body),
                                                    "completion_tokens": len(texts)}})
        if plan.done:
            self.write(h, b"data: [DONE]" + 2 * plan.line_end)
        if not plan.http10:
            h.wfile.write(b"0\r\n\r\n")
        h.wfile.flush()
        if plan.close or plan.http10:
            h.close_connection = True

    def texts(self, body):
        if self.plan.texts:
            return self.plan.texts
        if self.plan.echo:
            return [json.dumps(body.get("messages", body.get("prompt")))]
        n = self.plan.tokens or body.get("max_tokens") or body.get("max_completion_tokens") or 8
        return [f" {WORDS[i % len(WORDS)]}" for i in range(n)]

    @staticmethod
    def prompt_tokens(body):
        prompt = body.get("prompt") or body["messages"][-1]["content"]
        return len(prompt) if isinstance(prompt, list) else len(prompt.split())

    def event(self, h, what):
        end = self.plan.line_end
        self.write(h, b"data: " + json.dumps(what).encode() + end + end)

    def write(self, h, data):
        for part in ([data[i:i + 1] for i in range(len(data))] if self.plan.split else [data]):
            h.wfile.write(part if self.plan.http10 else b"%x\r\n%s\r\n" % (len(part), part))
            h.wfile.flush()
