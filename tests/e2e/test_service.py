"""An answer is its own, served: 64 requests at once, of all kinds, give each the bytes they give
alone: text, ids, log-probabilities to the last digit, finish reasons. Again when blocks run out,
when prompts share a prefix, under an odd token budget, under the priority policy, and while other
clients come and go."""
import asyncio
import json
import os
import random

import pytest
from conftest import headrace
from wire import Connection, choices_of, exact, head_of, stream

import make_tiny

SANITIZED = bool(os.environ.get("HEADRACE_SANITIZED"))
COMPANY = 24 if SANITIZED else 64  # what races shows with fewer, too
SHARED = "The same beginning, long enough for several blocks of the cache. "


def sampling(rng, vocab):
    """Options at random; a seed always, so that the answer is determined."""
    o = {"seed": rng.randrange(-2**63, 2**63), "temperature": rng.choice([0, 0.5, 0.9, 1, 1.6])}
    for name, values in {
            "top_p": [0.2, 0.9, 0.99], "top_k": [1, 5, 40, -1], "min_p": [0.02, 0.2],
            "presence_penalty": [-1, 0.7], "frequency_penalty": [-0.3, 1.2],
            "repetition_penalty": [0.9, 1.3], "logit_bias": [{str(rng.randrange(vocab)): 9.5}],
            "allowed_token_ids": [rng.sample(range(vocab), 30)], "bad_words": [["e", "th"]],
            "stop": ["a", ["zz", "q"]], "stop_token_ids": [rng.sample(range(vocab), 3)],
            "ignore_eos": [True], "include_stop_str_in_output": [True],
            "skip_special_tokens": [False], "return_token_ids": [True]}.items():
        if rng.random() < 0.25:
            o[name] = rng.choice(values)
    return o


def mixed(seed, n, vocab, longest, chat=False):
    """Requests at random: (path, body, whether to stream it in company)."""
    rng = random.Random(seed)
    out = []
    for i in range(n):
        body = {**sampling(rng, vocab), "max_tokens": rng.randrange(1, longest + 1)}
        if rng.random() < 0.2:
            body["n"] = rng.randrange(2, 4)
        if rng.random() < 0.2:
            body["min_tokens"] = rng.randrange(body["max_tokens"] + 1)
        words = "".join(rng.choice("abcdefgh ijklmnop\n") for _ in range(rng.randrange(1, 120)))
        text = (SHARED if i % 3 == 0 else "") + words
        if chat and i % 2:
            body["messages"] = [{"role": "user", "content": text}]
            if rng.random() < 0.5:
                body.update(logprobs=True, top_logprobs=rng.randrange(5))
            out.append(("/v1/chat/completions", body, i % 4 == 1))
            continue
        body["prompt"] = text if i % 5 else [rng.randrange(1, 250) for _ in words]
        if rng.random() < 0.5:
            body["logprobs"] = rng.randrange(5)
        if rng.random() < 0.1:
            body["echo"] = True
        streamed = bool(i // 2 % 2)
        if not streamed and rng.random() < 0.2:
            body["prompt_logprobs"] = 2
        out.append(("/v1/completions", body, streamed))
    return out


def essence(bodies):
    """What must not change: of each choice all there is."""
    choices = choices_of(bodies)
    for c in list(choices.values()):
        assert c["finish_reason"] in ("stop", "length"), c
        c["message"] = (c.get("message") or {}).get("content")
        c["logprobs"] = {k: v for k, v in (c.get("logprobs") or {}).items() if v is not None}
        c["prompt_token_ids"] = None  # a stream tells them once; compared by usage
        choices[c["index"]] = {k: v for k, v in c.items() if v is not None}  # absent is null
    usage = [b["usage"] for b in bodies if b.get("usage")][-1]
    return json.dumps([choices, usage["prompt_tokens"], usage["completion_tokens"]],
                      sort_keys=True)


async def ask(connection, path, body, streamed):
    return await asyncio.wait_for(answer(connection, path, body, streamed), 120)


async def answer(connection, path, body, streamed):
    if streamed:
        body = {**body, "stream_options": {"include_usage": True}}
        return essence(await stream(connection, path, body))
    a = await connection.post(path, body)
    assert a.status == 200, (a.status, a.body, body)
    return essence([exact(a.body)])


async def one_by_one(port, questions):
    async with Connection(port) as c:
        return [await ask(c, path, body, False) for path, body, _ in questions]


async def at_once(port, questions, order=7, priorities=False):
    """Everything in one moment, each on its own connection, in some order."""
    rng = random.Random(order)
    connections = [await Connection(port).open() for _ in questions]

    async def one(c, path, body, streamed):
        more = {"priority": rng.randrange(-3, 4)} if priorities else {}
        try:
            return await ask(c, path, {**body, **more}, streamed)
        finally:
            c.close()
    tasks = {}
    for i in rng.sample(range(len(questions)), len(questions)):
        tasks[i] = asyncio.ensure_future(one(connections[i], *questions[i]))
    return [await tasks[i] for i in range(len(questions))]


def metric(server, name, **labels):
    """Sum of a metric's samples whose labels fit."""
    total = 0.0
    status, _, page = server.get("/metrics")
    assert status == 200
    for line in page.decode().splitlines():
        if line.startswith((name + "{", name + " ")):
            if all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
    return total


def differences(got, want, at=""):
    """Where two JSON values differ, as lines."""
    if isinstance(got, (dict, list)) and type(got) is type(want) and len(got) == len(want):
        keys = got if isinstance(got, dict) else range(len(got))
        return [d for k in keys for d in
                (differences(got[k], want[k], f"{at}/{k}") if isinstance(got, list) or k in want
                 else [f"{at}/{k} is not wanted"])]
    return [] if got == want else [f"{at}: {got!r} and not {want!r}"]


def same(got, want, questions):
    """Equal, or what differs."""
    wrong = [[q, *differences(json.loads(g), json.loads(w))]
             for g, w, q in zip(got, want, questions, strict=True) if g != w]
    assert not wrong, f"{len(wrong)} answers differ, first: " + "\n".join(map(str, wrong[0]))


# ---- a tiny model, in volume ---------------------------------------------------------------------

FLAGS = ["--load-format", "dummy", "--max-num-seqs", 64, "--max-model-len", 512]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("service") / "model"
    make_tiny.hf(path, "llama3")
    (path / "model.safetensors").unlink()
    config = json.loads((path / "config.json").read_text())
    config.update(hidden_size=128, intermediate_size=192, num_attention_heads=4)
    (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def questions():
    return mixed(11, COMPANY, make_tiny.V, 20 if SANITIZED else 60)


@pytest.fixture(scope="module")
def alone(serve, tiny, questions):
    """The answers of an idle server, without any cache between them."""
    s = serve(tiny, *FLAGS, "--no-enable-prefix-caching").ready()
    answers = asyncio.run(one_by_one(s.port, questions))
    steps = metric(s, "headrace:steps_total")
    assert s.stop() == 0, s.log
    assert len(set(answers)) > COMPANY * 3 // 4  # they do differ
    return answers, steps


@pytest.fixture
def company(serve, tiny, questions, alone):
    """company(*flags): a server whose answers to everything at once are those of an idle one."""
    def start(*flags, rounds=1, **more):
        s = serve(tiny, *FLAGS, *flags).ready()
        for i in range(rounds):
            same(asyncio.run(at_once(s.port, questions, order=i, **more)), alone[0], questions)
        assert metric(s, "headrace:late_compilations_total") == 0
        return s
    return start


def settled(server):
    """Nothing runs, waits or holds a block."""
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting",
                 "vllm:kv_cache_usage_perc"):
        assert metric(server, name) == 0, name
    assert server.get("/load")[2] == b'{"server_load":0}'


@pytest.mark.sanitize
@pytest.mark.threads
def test_in_company_and_with_prefixes_found(company, alone):
    s = company(rounds=2)
    assert metric(s, "headrace:steps_total") < alone[1]  # two rounds: steps were shared
    assert metric(s, "vllm:prefix_cache_hits_total") > 0
    settled(s)


@pytest.mark.parametrize("caching", [[], ["--no-enable-prefix-caching"]], ids=["cache", "no cache"])
def test_when_blocks_run_out(company, caching):
    s = company("--kv-cache-memory-bytes", 16 * 1024 * 40, *caching)
    assert metric(s, "vllm:num_preemptions_total") > 0
    assert bool(metric(s, "vllm:prefix_cache_hits_total")) == (not caching)
    settled(s)


@pytest.mark.parametrize("budget", [317, 17])
def test_budget_that_is_no_power_of_two(company, budget):
    settled(company("--max-num-batched-tokens", budget))


def test_priorities(company):
    s = company("--scheduling-policy", "priority", "--kv-cache-memory-bytes", 16 * 1024 * 40,
                rounds=2, priorities=True)
    assert metric(s, "vllm:num_preemptions_total") > 0
    settled(s)


def test_few_rows_and_one_thread(company):
    settled(company("--max-num-seqs", 5, "--threads", 1, "--block-size", 7))


async def leave(port, path, body, when):
    """A client that goes away: before its answer, or in the middle of it."""
    c = await Connection(port).open()
    await c.send(head_of("POST", path, {**body, "max_tokens": 100 if SANITIZED else 300, "ignore_eos": True,
                                        "stream": when > 0}))
    if when > 0:
        _, headers = await c.head()
        assert headers["transfer-encoding"] == "chunked"
        seen = 0
        async for _ in c.events():
            seen += 1
            if seen >= when:
                break
    else:
        await asyncio.sleep(-when / 1000)
    c.reset() if when % 2 else c.close()


async def with_deserters(port, questions):
    rng = random.Random(5)
    stay = asyncio.ensure_future(at_once(port, questions))
    gone = [leave(port, "/v1/completions", {"prompt": SHARED[:rng.randrange(3, 60)], "n": 2},
                  rng.randrange(-40, 40)) for _ in range(COMPANY)]
    await asyncio.gather(*gone)
    return await stay


async def gauges_at_zero(port):
    """Waits for what a server does when clients leave; 0 = done."""
    async with Connection(port) as c:
        for _ in range(200):
            page = (await c.get("/metrics")).body.decode()
            left = [line for line in page.splitlines() if line.startswith(
                ("vllm:num_requests_running{", "vllm:num_requests_waiting{",
                 "vllm:kv_cache_usage_perc{")) and float(line.rsplit(" ", 1)[1])]
            if not left:
                return []
            await asyncio.sleep(0.02)
        return left


@pytest.mark.sanitize
@pytest.mark.threads
@pytest.mark.parametrize("memory", [16 * 1024 * 48, 0], ids=["few blocks", "blocks for all"])
def test_while_others_leave(serve, tiny, questions, alone, memory):
    s = serve(tiny, *FLAGS, "--kv-cache-memory-bytes", memory).ready()
    same(asyncio.run(with_deserters(s.port, questions)), alone[0], questions)
    assert asyncio.run(gauges_at_zero(s.port)) == []
    assert metric(s, "vllm:request_success_total", finished_reason="abort") > COMPANY / 2
    same(asyncio.run(at_once(s.port, questions)), alone[0], questions)  # nothing was left behind
    settled(s)


# ---- the packaged model ------------------------------------------------------------------------

REAL = ["--max-num-seqs", 64, "--max-model-len", 1024, "--max-num-batched-tokens", 512]


@pytest.fixture(scope="module")
def real_questions():
    return mixed(23, COMPANY, 49152, 12, chat=True)


@pytest.fixture(scope="module")
def real_alone(serve, smollm2, real_questions):
    s = serve(smollm2, *REAL, "--no-enable-prefix-caching").ready()
    answers = asyncio.run(one_by_one(s.port, real_questions))
    assert s.stop() == 0, s.log
    return answers


@pytest.mark.parametrize("flags", [
    [], ["--kv-cache-memory-bytes", 45 * 1024 * 16 * 70, "--max-num-batched-tokens", 317]],
    ids=["company", "few blocks, budget 317"])
def test_real_model(serve, smollm2, real_questions, real_alone, flags):
    s = serve(smollm2, *REAL, *flags).ready()
    for _ in range(5):  # on a busy machine questions may come too slowly to fill the cache at once
        same(asyncio.run(at_once(s.port, real_questions)), real_alone, real_questions)
        if metric(s, "vllm:num_preemptions_total") or not flags:
            break
    assert metric(s, "vllm:prefix_cache_hits_total") > 0
    assert bool(metric(s, "vllm:num_preemptions_total")) == bool(flags)
    settled(s)


def test_the_command_agrees(smollm2, serve, tiny, questions, alone):
    """The server's answer is the one `headrace generate` gives."""
    path, body, _ = next(q for q in questions if isinstance(q[1]["prompt"], str)
                         and not set(q[1]) - {"seed", "temperature", "max_tokens", "prompt", "top_p",
                                              "top_k", "min_p", "return_token_ids"})
    flags = [f for k, v in body.items() if k not in ("prompt", "return_token_ids")
             for f in ("--" + k.replace("_", "-"), v)]
    r = headrace("generate", tiny, "--json", "-p", body["prompt"], "--load-format", "dummy",
                 "--max-model-len", 512, *flags)
    assert r.returncode == 0, r.stderr
    said = json.loads(r.stdout)["choices"][0]
    served = json.loads(alone[0][questions.index((path, body, _))])[0]["0"]
    assert served["text"] == said["text"] and served["finish_reason"] == said["finish_reason"]
