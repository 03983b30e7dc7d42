#!/usr/bin/env python3
"""Drives a server as the public would: many connections, all kinds of requests, a third of them
given up at a random moment, a tenth of them broken.

    python tests/e2e/soak.py --url http://127.0.0.1:8000 --requests 5000 [--pid PID]

Every answer is checked: whole and well-formed where the request was good, a refusal with an error
body where it was not. In the end all gauges must come back to zero and nothing may have been
compiled. With the server's --pid its descriptors and its memory are watched, too:

Memory is VmRSS, read when the server is idle. What a server touches for the first time (KV blocks,
table rows, stacks, allocator arenas) is no leak, so a warm-up of rounds of the same mix from as many
connections comes first, until four rounds in a row have needed no new peak (a leak does not hide
there: the rounds are few, and it goes on afterwards). After it the same work must find room in the
memory there is. A reading depends on which bursts met by chance, so the lowest of the last three
rounds stands against the peak of the warm-up: a leak lifts all of them.
"""
import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import time
import urllib.parse

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from wire import Connection, Gone, head_of  # noqa: E402

TEXT = "It was a bright cold day in April, and the clocks were striking thirteen. "

# (bytes or a body to POST, statuses that are right); after framing errors the server closes
COMPLETION = "/v1/completions"
BROKEN = [
    (COMPLETION, b"", {400}), (COMPLETION, b"{", {400}), (COMPLETION, b"{:", {400}),
    (COMPLETION, b"[]", {400}), (COMPLETION, b"null", {400}), (COMPLETION, b'"x"', {400}),
    (COMPLETION, b'{"prompt":"a"}x', {400}), (COMPLETION, b'{"prompt":"\xff"}', {400}),
    (COMPLETION, b'{"prompt":"\\ud800"}', {400}), (COMPLETION, b'{"prompt":"a","prompt":"b"}', {400}),
    (COMPLETION, b"[" * 500, {400}), (COMPLETION, b'{"prompt":' + b"[" * 70 + b"]" * 70 + b"}", {400}),
    (COMPLETION, {"prompt": {}}, {400}), (COMPLETION, {"prompt": 7}, {400}),
    (COMPLETION, {"prompt": []}, {400}), (COMPLETION, {"prompt": [-1]}, {400}),
    (COMPLETION, {"prompt": [10**9]}, {400}), (COMPLETION, {"prompt": [["a"]]}, {400}),
    (COMPLETION, {"prompt": "a", "stream": "false"}, {400}),
    (COMPLETION, {"prompt": "a", "temperature": -1}, {400}),
    (COMPLETION, {"prompt": "a", "temperature": "hot"}, {400}),
    (COMPLETION, b'{"prompt":"a","temperature":1e400}', {400}),
    (COMPLETION, {"prompt": "a", "max_tokens": 0}, {400}),
    (COMPLETION, {"prompt": "a", "max_tokens": 2**31}, {400}),
    (COMPLETION, {"prompt": "a", "max_tokens": 1.5}, {400}),
    (COMPLETION, {"prompt": "a", "seed": 2**64}, {400}), (COMPLETION, {"prompt": "a", "n": 0}, {400}),
    (COMPLETION, {"prompt": "a", "n": 5000}, {400}), (COMPLETION, {"prompt": "a", "top_p": 0}, {400}),
    (COMPLETION, {"prompt": "a", "stop": [""]}, {400}),
    (COMPLETION, {"prompt": "a", "stop": ["x"] * 65}, {400}),
    (COMPLETION, {"prompt": "a", "logit_bias": {"-1": 5}}, {400}),
    (COMPLETION, {"prompt": "a", "allowed_token_ids": []}, {400}),
    (COMPLETION, {"prompt": "a", "best_of": 3}, {400}), (COMPLETION, {"prompt": "a", "suffix": "x"}, {400}),
    (COMPLETION, {"prompt": TEXT * 2000}, {400}), (COMPLETION, {"prompt": ["a", "b" * 100000]}, {400}),
    (COMPLETION, {"prompt": "a", "model": "no-such-model"}, {404}),
    ("/v1/chat/completions", {"messages": []}, {400}), ("/v1/chat/completions", {}, {400}),
    ("/v1/chat/completions", {"messages": [{"role": "king", "content": "x"}]}, {400}),
    ("/v1/chat/completions", {"messages": "hello"}, {400}),
    ("/tokenize", {"prompt": 1}, {400}), ("/detokenize", {"tokens": [-5]}, {400}),
    ("/detokenize", {"tokens": "x"}, {400}), ("/v1/nothing", {"a": 1}, {404}),
]
FRAMING = [
    (b"GET\r\n\r\n", {400}), (b"GET / HTTP/3.7\r\n\r\n", {400, 505}), (b"\0\1\2\3\r\n\r\n", {400}),
    (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", {400}), (b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", {400}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
     {400}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
     b"Transfer-Encoding: chunked\r\n\r\n", {400}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", {400}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
     {400, 413}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
     b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", {400}),
    (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
     b"Content-Length: 999999999\r\nExpect: 100-continue\r\n\r\n", {413}),
    (b"GET /" + b"a" * 70000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", {414, 431}),
    (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70000 + b"\r\n\r\n", {431}),
    (b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n", {400, 405, 501}),
]


def good(rng, chat):
    """A request that must be answered: path and body."""
    if rng.random() < 0.05:
        return "/tokenize", {"prompt": TEXT[:rng.randrange(1, 70)]}
    if rng.random() < 0.05:
        return "/detokenize", {"tokens": [rng.randrange(200) for _ in range(rng.randrange(1, 40))]}
    body = {"max_tokens": rng.randrange(1, 12), "temperature": rng.choice([0, 0.7, 1.3])}
    for name, values in {"n": [2, 3], "seed": [5, -1], "top_p": [0.5], "top_k": [3], "min_p": [0.1],
                         "stop": ["e", ["qu", "zz"]], "frequency_penalty": [1.5], "user": ["x"],
                         "ignore_eos": [True], "logit_bias": [{"7": -100, "8": 3}],
                         "bad_words": [["the"]], "repetition_penalty": [1.2],
                         "allowed_token_ids": [list(range(40))]}.items():
        if rng.random() < 0.15:
            body[name] = rng.choice(values)
    if rng.random() < 0.4:
        body.update(stream=True, stream_options={"include_usage": rng.random() < 0.5})
    text = TEXT[:rng.randrange(1, 74)] * rng.choice([1, 1, 1, 2, 3])
    if chat and rng.random() < 0.3:
        body["messages"] = [{"role": "user", "content": text}]
        if rng.random() < 0.3:
            body.update(logprobs=True, top_logprobs=3)
        return "/v1/chat/completions", body
    body["prompt"] = text if rng.random() < 0.8 else [text, "and", text[3:] + "b"]
    if rng.random() < 0.3:
        body["logprobs"] = rng.randrange(5)
    if rng.random() < 0.1:
        body["echo"] = True
    return COMPLETION, body


def check_good(path, body, answer):
    """Words when something is wrong with a whole answer."""
    if answer.status != 200:
        return f"status {answer.status}: {answer.body[:300]!r}"
    value = answer.json()
    if path == "/tokenize":
        return None if value["count"] == len(value["tokens"]) else "wrong count"
    if path == "/detokenize":
        return None if isinstance(value["prompt"], str) else "no text"
    many = body.get("n", 1) * (len(body["prompt"]) if isinstance(body.get("prompt"), list) else 1)
    if [c["index"] for c in value["choices"]] != list(range(many)):
        return f"{len(value['choices'])} choices, not {many}"
    wrong = [c for c in value["choices"] if c["finish_reason"] not in ("stop", "length")]
    return f"a choice that did not end well: {wrong}" if wrong else None


def check_refusal(answer, right):
    if answer.status not in right:
        return f"status {answer.status}, not {sorted(right)}: {answer.body[:300]!r}"
    error = answer.json()["error"]
    if error["code"] != answer.status or not error["message"] or "type" not in error:
        return f"error body {error}"
    return None


class Soak:
    def __init__(self, port, connections=64, seed=1, chat=True, pid=None):
        self.port, self.connections, self.chat, self.pid = port, connections, chat, pid
        self.rng = random.Random(seed)
        self.counts = collections.Counter()
        self.failures = []
        self.todo = []  # of the round at hand; cleared to end it early

    def fail(self, what, request):
        self.failures.append(f"{what}\n    {str(request)[:400]}")

    # one request of each kind; the connection is the worker's, open or not

    async def whole(self, c, rng):
        path, body = good(rng, self.chat)
        if body.get("stream"):
            await c.send(head_of("POST", path, body))
            status, headers = await c.head()
            if status != 200:
                return self.fail(f"status {status}: {await c.body(headers)!r}", body)
            events = [e async for e in c.events()]
            ends = [x["finish_reason"] for e in events[:-1] for x in json.loads(e)["choices"]
                    if x["finish_reason"]]
            many = body.get("n", 1) * (len(body["prompt"])
                                       if isinstance(body.get("prompt"), list) else 1)
            if events[-1] != b"[DONE]" or len(ends) != many or set(ends) - {"stop", "length"}:
                self.fail(f"stream ended with {ends}, {events[-1]!r}", body)
        elif wrong := check_good(path, body, await c.post(path, body)):
            self.fail(wrong, body)

    async def look(self, c, rng):
        path = rng.choice(["/health", "/metrics", "/v1/models", "/load", "/programs", "/version"])
        answer = await c.get(path)
        if answer.status != 200:
            self.fail(f"status {answer.status}", path)

    async def broken(self, c, rng):
        if rng.random() < 0.3:
            data, right = rng.choice(FRAMING)
            c.close()  # these end the connection, so they have one of their own
            await c.send(data)
            answer = await c.answer()
            c.close()
        else:
            path, body, right = rng.choice(BROKEN)
            data = (path, body)
            answer = await c.post(path, body)
        if wrong := check_refusal(answer, right):
            self.fail(wrong, data)

    async def given_up(self, c, rng):
        """The client leaves: at any byte of the request, before, within or after the answer."""
        path, body = good(rng, self.chat)
        if "max_tokens" in body and rng.random() < 0.7:
            body["max_tokens"], body["ignore_eos"] = 100, True
            body.pop("stop", None)
        data = head_of("POST", path, body)
        how = rng.randrange(5)
        await c.open()
        if how == 0:
            await c.send(data[:rng.randrange(len(data))])
        elif how == 1:  # several in the pipe; none of them is waited for
            await c.send(data * rng.randrange(1, 4))
        else:
            await c.send(data)
            if how == 2:
                await asyncio.sleep(rng.random() * 0.05)
            elif how == 3:
                try:
                    await asyncio.wait_for(c.reader.read(rng.randrange(1, 4000)), rng.random())
                except (asyncio.TimeoutError, ConnectionError):
                    pass
            else:
                c.half_close()
                await asyncio.sleep(rng.random() * 0.02)
        if rng.random() < 0.5:
            c.reset()
        else:
            c.close()

    async def worker(self):
        c = Connection(self.port)
        while self.todo:
            kind, seed = self.todo.pop()
            try:
                await asyncio.wait_for(getattr(self, kind)(c, random.Random(seed)), 120)
            except (Gone, OSError, asyncio.TimeoutError, AssertionError, ValueError,
                    KeyError) as e:
                if kind != "given_up":
                    self.fail(f"{type(e).__name__}: {e}", (kind, seed))
                c.close()
            self.counts[kind] += 1
            if self.rng.random() < 0.1:
                c.close()
        c.close()

    async def round(self, requests):
        """Exact shares: a third given up, a tenth broken."""
        kinds = ["given_up"] * (requests // 3) + ["broken"] * (requests // 10)
        kinds += ["look"] * (requests // 20)
        kinds += ["whole"] * (requests - len(kinds))
        self.rng.shuffle(kinds)
        self.todo = [(k, self.rng.random()) for k in kinds]
        await asyncio.gather(*(self.worker() for _ in range(self.connections)))

    # what is left when all is quiet

    async def metrics(self):
        async with Connection(self.port) as c:
            page = (await c.get("/metrics")).body.decode()
        out = collections.Counter()
        for line in page.splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                out[name.partition("{")[0]] += float(value)
        return out

    async def quiet(self, seconds=20):
        """Gauges that are not zero once the server had time to notice who left; none is right."""
        end = time.monotonic() + seconds
        while True:
            m = await self.metrics()
            left = {k: m[k] for k in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                                      "vllm:kv_cache_usage_perc") if m[k]}
            if not left or time.monotonic() > end:
                return left, m
            await asyncio.sleep(0.05)

    def resident(self):
        """KiB."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    def descriptors(self):
        return len(list(pathlib.Path(f"/proc/{self.pid}/fd").iterdir()))

    async def state(self):
        """Of an idle server: descriptors and resident KiB."""
        left, _ = await self.quiet()
        if left:
            self.fail("not back at zero", left)
        if not self.pid:
            return None, None
        for _ in range(100):  # the last closes are on their way
            n = self.descriptors()
            await asyncio.sleep(0.05)
            if self.descriptors() == n:
                break
        return n, self.resident()

    async def read(self, requests, log):
        """A round; resident KiB after it."""
        begin = time.monotonic()
        await self.round(requests)
        descriptors, kib = await self.state()
        log(f"{requests} requests in {time.monotonic() - begin:.1f} s, resident {kib} KiB, "
            f"{descriptors} descriptors")
        return kib or 0

    async def warm_up(self, requests, most, log):
        """Rounds until memory has come to rest; resident KiB after each."""
        readings, rest = [], 0
        while len(readings) < most and rest < 4:
            readings.append(await self.read(requests, log))
            rest = rest + 1 if readings[-1] <= max(readings[:-1], default=0) * 1.005 else 0
        return readings

    async def run(self, requests, warm_rounds=0, rounds=5, log=print):
        """All of it; by how much memory grew after the warm-up, as a fraction."""
        descriptors, cold = await self.state()
        warm = await self.warm_up(requests // rounds, warm_rounds, log)
        self.counts.clear()
        begin = time.monotonic()
        then = [await self.read(requests * (i + 1) // rounds - requests * i // rounds, log)
                for i in range(rounds)]
        took = time.monotonic() - begin
        _, m = await self.quiet()
        if m["headrace:late_compilations_total"]:
            self.fail("late compiles", m["headrace:late_compilations_total"])
        log(f"figure: {dict(self.counts)} in {took:.1f} s from {self.connections} connections, "
            f"{len(self.failures)} failures")
        if not self.pid:
            return None
        left = (await self.state())[0]
        if left > descriptors:
            self.fail(f"{left} descriptors are open, {descriptors} were", "")
        growth = min(then[-3:]) / max(warm or [cold]) - 1
        log(f"figure: resident KiB: {cold} cold, {warm} warm, then {then}: {growth:+.2%}")
        return growth


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--url", default="http://127.0.0.1:8000")
    p.add_argument("--requests", type=int, default=5000)
    p.add_argument("--connections", type=int, default=64)
    p.add_argument("--warm-rounds", type=int, default=20, help="at most")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--no-chat", action="store_true", help="the model has no chat template")
    p.add_argument("--pid", type=int, help="the server's process, to watch its memory")
    a = p.parse_args()
    soak = Soak(urllib.parse.urlparse(a.url).port, a.connections, a.seed, not a.no_chat, a.pid)
    growth = asyncio.run(soak.run(a.requests, a.warm_rounds, a.rounds))
    for f in soak.failures[:20]:
        print(f"FAILED {f}")
    return 1 if soak.failures or (growth or 0) > 0.02 else 0


if __name__ == "__main__":
    sys.exit(main())
