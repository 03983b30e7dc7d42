"""headrace bench: its requests, its figures against NumPy, its table against Python's formatting, and
what it makes of servers that misbehave."""
import hashlib
import json
import re
import socket
import struct
import subprocess
import threading

import numpy as np
import pytest

from conftest import headrace
from stub_server import Stub

METRICS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2EL"}


@pytest.fixture
def stub():
    s = Stub()
    yield s
    s.close()


def bench(stub, *flags, env=None, ok=True):
    """The result's JSON, with every request's figures."""
    r = headrace("bench", "serve", "--base-url", stub.url, "--json", "--save-detailed",
                 "--no-progress", *flags, env=env, timeout=60)
    assert (r.returncode == 0) == ok, r.stderr
    result = json.loads(r.stdout)
    result["stderr"] = r.stderr
    return result


SMALL = ["--num-prompts", 6, "--random-input-len", 5, "--random-output-len", 4]


# ---- the table and the keys ---------------------------------------------------------------------

RESULT = {
    "duration": 12.345678, "completed": 100, "failed": 2, "total_input_tokens": 12800,
    "total_output_tokens": 12672, "request_throughput": 8.1, "output_throughput": 1026.4399,
    "total_token_throughput": 2063.2391,
    "mean_ttft_ms": 84.0216, "median_ttft_ms": 83.8965, "p99_ttft_ms": 166.7271,
    "mean_tpot_ms": 44.745, "median_tpot_ms": 45.225, "p99_tpot_ms": 45.901,
    "mean_itl_ms": 44.735, "median_itl_ms": 45.175, "p99_itl_ms": 47.785,
}
TABLE = """\
============ Serving Benchmark Result ============
Successful requests:                     100       
Failed requests:                         2         
Benchmark duration (s):                  12.35     
Total input tokens:                      12800     
Total generated tokens:                  12672     
Request throughput (req/s):              8.10      
Output token throughput (tok/s):         1026.44   
Total Token throughput (tok/s):          2063.24   
---------------Time to First Token----------------
Mean TTFT (ms):                          84.02     
Median TTFT (ms):                        83.90     
P99 TTFT (ms):                           166.73    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          44.74     
Median TPOT (ms):                        45.23     
P99 TPOT (ms):                           45.90     
---------------Inter-token Latency----------------
Mean ITL (ms):                           44.73     
Median ITL (ms):                         45.17     
P99 ITL (ms):                            47.78     
==================================================
"""


def python_table(r, metrics=("ttft", "tpot", "itl"), percentiles=(99,)):
    """The same by the format strings that vLLM's benchmark prints with."""
    titles = {"ttft": "Time to First Token", "tpot": "Time per Output Token (excl. 1st token)",
              "itl": "Inter-token Latency", "e2el": "End-to-end Latency"}
    lines = ["{s:{c}^{n}}".format(s=" Serving Benchmark Result ", n=50, c="="),
             "{:<40} {:<10}".format("Successful requests:", r["completed"]),
             "{:<40} {:<10}".format("Failed requests:", r["failed"])]
    if r.get("max_concurrency"):
        lines.append("{:<40} {:<10}".format("Maximum request concurrency:", r["max_concurrency"]))
    if r.get("request_rate", "inf") != "inf":
        lines.append("{:<40} {:<10.2f}".format("Request rate configured (RPS):",
                                               r["request_rate"]))
    lines += ["{:<40} {:<10.2f}".format("Benchmark duration (s):", r["duration"]),
              "{:<40} {:<10}".format("Total input tokens:", r["total_input_tokens"]),
              "{:<40} {:<10}".format("Total generated tokens:", r["total_output_tokens"]),
              "{:<40} {:<10.2f}".format("Request throughput (req/s):", r["request_throughput"])]
    if r.get("request_goodput") is not None:
        lines.append("{:<40} {:<10.2f}".format("Request goodput (req/s):", r["request_goodput"]))
    lines += ["{:<40} {:<10.2f}".format("Output token throughput (tok/s):",
                                        r["output_throughput"]),
              "{:<40} {:<10.2f}".format("Total Token throughput (tok/s):",
                                        r["total_token_throughput"])]
    for m in metrics:
        lines.append("{s:{c}^{n}}".format(s=titles[m], n=50, c="-"))
        lines.append("{:<40} {:<10.2f}".format(f"Mean {METRICS[m]} (ms):", r[f"mean_{m}_ms"]))
        lines.append("{:<40} {:<10.2f}".format(f"Median {METRICS[m]} (ms):", r[f"median_{m}_ms"]))
        for p in percentiles:
            lines.append("{:<40} {:<10.2f}".format(f"P{p} {METRICS[m]} (ms):", r[f"p{p}_{m}_ms"]))
    return "\n".join([*lines, "=" * 50, ""])


@pytest.mark.sanitize
def test_table_of_a_fixed_result(tmp_path):
    file = tmp_path / "result.json"
    file.write_text(json.dumps(RESULT))
    r = headrace("bench", "serve", "--from-result", file)
    assert r.returncode == 0, r.stderr
    assert r.stdout == TABLE == python_table(RESULT)


@pytest.mark.sanitize
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"completed": "x"}',
                                  json.dumps({**RESULT, "p99_itl_ms": None})])
def test_a_file_that_is_no_result_is_refused(tmp_path, text):
    file = tmp_path / "result.json"
    file.write_text(text)
    r = headrace("bench", "serve", "--from-result", file)
    assert r.returncode == 1 and not r.stdout and str(file) in r.stderr


@pytest.mark.sanitize
def test_saved_file_and_printed_table_agree(stub, tmp_path):
    r = headrace("bench", "serve", "--base-url", stub.url, *SMALL, "--max-concurrency", 3,
                 "--request-rate", 500, "--goodput", "ttft:1000", "e2el:1000",
                 "--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "25,50,99.9",
                 "--save-result", "--result-dir", tmp_path)
    assert r.returncode == 0, r.stderr
    [file] = tmp_path.iterdir()
    assert re.fullmatch(r"openai-500qps-concurrency3-stub-model-\d{8}-\d{6}\.json", file.name)
    saved = json.loads(file.read_text())
    assert r.stdout == python_table(saved, METRICS, (25, 50, 99.9))
    again = headrace("bench", "serve", "--from-result", file, "--percentile-metrics",
                     "ttft,tpot,itl,e2el", "--metric-percentiles", "25,50,99.9")
    assert again.stdout == r.stdout
    for key in ["duration", "completed", "failed", "total_input_tokens", "total_output_tokens",
                "request_throughput", "output_throughput", "total_token_throughput",
                *(f"{s}_{m}_ms" for s in ("mean", "median", "std", "p99") for m in METRICS)]:
        assert isinstance(saved[key], (int, float)), key


# ---- figures ------------------------------------------------------------------------------------

@pytest.mark.sanitize
def test_statistics_are_numpys(stub):
    stub.plan.delay, stub.plan.gap = 0.01, 0.003
    r = bench(stub, "--num-prompts", 15, "--random-input-len", 20, "--random-output-len", 6,
              "--random-range-ratio", 0.8, "--max-concurrency", 4, "--metric-percentiles",
              "10,50,90,99.5", "--goodput", "tpot:4.5")
    ttft, e2el, n = (np.array(r[k]) for k in ("ttfts", "e2els", "output_lens"))
    tpot = ((e2el - ttft) / np.maximum(n - 1, 1))[n > 1]
    itl = np.concatenate([np.array(x) for x in r["itls"]])
    for name, v in {"ttft": ttft, "tpot": tpot, "itl": itl, "e2el": e2el}.items():
        ms = v * 1000
        want = {"mean": np.mean(ms), "median": np.median(ms), "std": np.std(ms),
                "p99": np.percentile(ms, 99), **{f"p{p:g}": np.percentile(ms, p)
                                                for p in (10, 50, 90, 99.5)}}
        for key, value in want.items():
            assert r[f"{key}_{name}_ms"] == pytest.approx(value, rel=1e-12), (key, name)
    assert r["completed"] == 15 and r["failed"] == 0
    assert r["total_input_tokens"] == sum(r["input_lens"])
    assert r["total_output_tokens"] == n.sum()
    assert r["request_throughput"] == pytest.approx(15 / r["duration"])
    assert r["output_throughput"] == pytest.approx(n.sum() / r["duration"])
    assert r["total_token_throughput"] == pytest.approx(
        (n.sum() + sum(r["input_lens"])) / r["duration"])
    good = sum(1 for t, e, k in zip(ttft, e2el, n) if k < 2 or (e - t) / (k - 1) * 1000 <= 4.5)
    assert r["request_goodput"] == pytest.approx(good / r["duration"])
    # what the stub waited is what was measured, at least
    assert ttft.min() >= 0.01 and np.all(e2el >= 0.01 + 0.003 * (n - 1) - 1e-4)
    assert len(itl) == (n - 1).sum()
    assert e2el.max() <= r["duration"]


def test_a_role_chunk_is_no_token(stub):
    stub.plan.delay = 0.05
    r = bench(stub, "--backend", "openai-chat", "--num-prompts", 2, "--random-input-len", 3,
              "--random-output-len", 4)
    assert min(r["ttfts"]) >= 0.05 and [len(x) for x in r["itls"]] == [3, 3]
    assert {q["path"] for q in stub.requests} == {"/v1/chat/completions"}
    body = stub.requests[0]["body"]
    assert body["max_completion_tokens"] == 4 and "prompt" not in body
    [message] = body["messages"]
    assert message["role"] == "user" and re.fullmatch(r"( t\d+){3}", message["content"])


@pytest.mark.parametrize("change", [
    {"usage": False}, {"line_end": b"\r\n"}, {"split": True}, {"http10": True}, {"close": True},
    {"finish_chunk": False}, {"done": False}, {"role_chunk": False},
])
@pytest.mark.parametrize("backend", ["openai", "openai-chat"])
def test_every_dialect_gives_the_same_counts(stub, change, backend):
    vars(stub.plan).update(change)
    r = bench(stub, *SMALL, "--backend", backend, "--max-concurrency", 2)
    assert r["completed"] == 6 and r["output_lens"] == [4] * 6 and r["input_lens"] == [5] * 6
    assert [len(x) for x in r["itls"]] == [3] * 6


# ---- requests -----------------------------------------------------------------------------------

@pytest.mark.sanitize
def test_bodies_and_headers(stub):
    bench(stub, *SMALL, "--ignore-eos", "--top-k", 5, "--top-p", 0.9, "--min-p", 0.05,
          "--temperature", 0.7, "--presence-penalty", -0.5, "--frequency-penalty", 0.25,
          "--repetition-penalty", 1.1, "--logprobs", 3, "--extra-body",
          '{"temperature": 1.5, "user": "me", "nested": {"a": [1, null]}}', "--header",
          "X-Team: blue", "--header", "X-Other=red", env={"HEADRACE_API_KEY": "secret"})
    for q in stub.requests:
        prompt = q["body"].pop("prompt")
        assert len(prompt) == 5 and all(isinstance(i, int) for i in prompt)
        assert q["body"] == {
            "model": "org/stub-model", "max_tokens": 4, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True}, "top_k": 5, "top_p": 0.9, "min_p": 0.05,
            "temperature": 1.5, "presence_penalty": -0.5, "frequency_penalty": 0.25,
            "repetition_penalty": 1.1, "logprobs": 3, "user": "me", "nested": {"a": [1, None]}}
        assert q["headers"]["Authorization"] == "Bearer secret"
        assert q["headers"]["X-Team"] == "blue" and q["headers"]["X-Other"] == "red"
        assert q["headers"]["Content-Type"] == "application/json"


def test_defaults_are_greedy_and_the_flag_wins_over_the_environment(stub):
    bench(stub, *SMALL, "--api-key", "flag", "--model", "mine", "--backend", "openai-chat",
          "--logprobs", 2, env={"HEADRACE_API_KEY": "secret"})
    body = stub.requests[0]["body"]
    assert body["temperature"] == 0.0 and body["model"] == "mine"
    assert body["logprobs"] is True and body["top_logprobs"] == 2
    assert stub.requests[0]["headers"]["Authorization"] == "Bearer flag"


def prompts(stub):
    return sorted(q["body"]["prompt"] for q in stub.requests)


@pytest.mark.sanitize
def test_random_prompts(stub):
    flags = ["--num-prompts", 40, "--random-input-len", 10, "--random-output-len", 4,
             "--random-range-ratio", 0.5, "--random-prefix-len", 3]
    bench(stub, *flags, "--seed", 7)
    first = prompts(stub)
    lengths = [len(p) for p in first]
    assert min(lengths) == 8 and max(lengths) == 18, lengths  # 3 + 5 … 15, all of 40 draws
    assert {q["body"]["max_tokens"] for q in stub.requests} <= set(range(2, 7))
    assert len({q["body"]["max_tokens"] for q in stub.requests}) == 5
    assert len({tuple(p[:3]) for p in first}) == 1 and len({tuple(p[3:]) for p in first}) == 40
    # ids are what the server's /tokenize made of a sample text
    assert all(100 <= i < 100 + 1445 for p in first for i in p)
    stub.requests.clear()
    bench(stub, *flags, "--seed", 7)
    assert prompts(stub) == first
    stub.requests.clear()
    bench(stub, *flags, "--seed", 8)
    assert prompts(stub) != first


def test_where_ids_come_from(stub, smollm2):
    stub.plan.tokenize = False
    bench(stub, *SMALL)
    assert all(1000 <= i < 10000 for p in prompts(stub) for i in p)
    stub.requests.clear()
    bench(stub, "--num-prompts", 20, "--random-input-len", 50, "--vocab-size", 64,
          "--random-output-len", 1)
    ids = {i for p in prompts(stub) for i in p}
    assert ids == set(range(16, 64))
    stub.requests.clear()
    bench(stub, "--num-prompts", 20, "--random-input-len", 500, "--tokenizer", smollm2,
          "--random-output-len", 1)
    ids = {i for p in prompts(stub) for i in p}
    assert min(ids) >= 17 and 40000 < max(ids) < 49152 and len(ids) > 8000  # 17 special ones
    stub.requests.clear()
    bench(stub, "--num-prompts", 20, "--random-input-len", 50, "--tokenizer", smollm2,
          "--vocab-size", 40, "--random-output-len", 1)
    assert {i for p in prompts(stub) for i in p} == set(range(17, 40))


def test_chat_prompts_from_a_tokenizer(stub, smollm2):
    bench(stub, *SMALL, "--backend", "openai-chat", "--tokenizer", smollm2)
    texts = [q["body"]["messages"][0]["content"] for q in stub.requests]
    assert len(set(texts)) == 6 and all(texts) and "<|" not in "".join(texts)


def test_sharegpt(stub, smollm2, tmp_path):
    answer = "word " * 20
    long = "many words " * 1000
    talks = [{"id": str(i), "conversations": [{"from": "human", "value": f"Question {i} is this"},
                                              {"from": "gpt", "value": answer}]} for i in range(8)]
    talks += [{"conversations": [{"from": "human", "value": "No answer follows here"}]},
              {"conversations": [{"from": "human", "value": long},
                                 {"from": "gpt", "value": answer}]},
              {"conversations": [{"from": "human", "value": "A short answer follows here"},
                                 {"from": "gpt", "value": "Yes"}]},
              {"conversations": []}, {}]
    file = tmp_path / "talks.json"
    file.write_text(json.dumps(talks))
    flags = ["--dataset-name", "sharegpt", "--dataset-path", file, "--tokenizer", smollm2]
    r = bench(stub, *flags, "--num-prompts", 8)
    assert sorted(q["body"]["prompt"] for q in stub.requests) == [f"Question {i} is this"
                                                                  for i in range(8)]
    def tokens(text):
        return len(json.loads(headrace("tokenize", smollm2, "--prompt", text).stdout))
    assert {q["body"]["max_tokens"] for q in stub.requests} == {tokens(answer)}
    assert r["input_lens"] == [4] * 8  # the stub's usage wins: words
    stub.requests.clear()
    stub.plan.usage = False
    r = bench(stub, *flags, "--num-prompts", 20, "--sharegpt-output-len", 3)
    assert {q["body"]["max_tokens"] for q in stub.requests} == {3} and r["completed"] == 20
    assert set(r["input_lens"]) == {tokens("Question 1 is this")}
    # the short answer counts now, and every prompt came twice or thrice
    assert len({q["body"]["prompt"] for q in stub.requests}) == 9
    r = headrace("bench", "serve", "--base-url", stub.url, *flags[:4])
    assert r.returncode == 1 and "--tokenizer" in r.stderr


def test_sharegpt_files_that_are_not_whole(stub, smollm2, tmp_path):
    file = tmp_path / "talks.json"
    flags = ["--dataset-name", "sharegpt", "--dataset-path", file, "--tokenizer", smollm2,
             "--num-prompts", 2]
    talk = {"conversations": [{"value": 'A question with "]}" and \\ in it'},
                              {"value": "An answer of a few words"}]}
    text = json.dumps([talk, talk], indent=2)
    for cut in (-1, -2, -40):  # the list, and then its last entry, breaks off
        file.write_text(text[:cut])
        stub.requests.clear()
        r = bench(stub, *flags)
        assert f"breaks off; {1 if cut < -2 else 2} are whole" in r["stderr"]
        assert [q["body"]["prompt"] for q in stub.requests] == [talk["conversations"][0]["value"]] * 2
    file.write_text(text)
    assert not bench(stub, *flags)["stderr"]
    for bad in ("", "{}", "nonsense", "[1]", "[{} {}]", "[]", "[{},]", '[{"conversations": 1 1}]'):
        file.write_text(bad)
        r = headrace("bench", "serve", "--base-url", stub.url, *flags, timeout=20)
        assert r.returncode == 1 and str(file) in r.stderr, bad


@pytest.mark.sanitize
def test_custom(stub, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a b c", "output_tokens": 2}\n\n{"prompt": [5, 6]}\r\n'
                    '{"prompt": "ü\\u0000z"}')
    bench(stub, "--dataset-name", "custom", "--dataset-path", file, "--num-prompts", 3,
          "--custom-output-len", 5)
    got = {json.dumps(q["body"]["prompt"]): q["body"]["max_tokens"] for q in stub.requests}
    assert got == {json.dumps("a b c"): 2, "[5, 6]": 5, json.dumps("ü\0z"): 5}
    stub.plan.usage = False
    r = bench(stub, "--dataset-name", "custom", "--dataset-path", file, "--num-prompts", 3)
    assert sorted(r["input_lens"]) == [0, 0, 2]  # not known without a tokenizer
    for bad, word in [("{}", "prompt"), ('{"prompt": ""}', "empty"), ('{"prompt": [1.5]}', "line 2"),
                      ("nonsense", "line 2"), ('{"prompt": [-1]}', "token id"),
                      ('{"prompt": "x", "output_tokens": 0}', "output_tokens")]:
        file.write_text('{"prompt": "fine"}\n' + bad)
        r = headrace("bench", "serve", "--base-url", stub.url, "--dataset-name", "custom",
                     "--dataset-path", file)
        assert r.returncode == 1 and "line 2" in r.stderr and word in r.stderr, r.stderr


# ---- load ---------------------------------------------------------------------------------------

@pytest.mark.sanitize
def test_concurrency_and_kept_connections(stub):
    stub.plan.gap = 0.002
    bench(stub, "--num-prompts", 30, "--random-input-len", 2, "--random-output-len", 4,
          "--max-concurrency", 3)
    assert stub.most_active == 3 and stub.connections == 3, (stub.most_active, stub.connections)
    stub.most_active = 0
    stub.plan.gap = 0.1
    bench(stub, "--num-prompts", 30, "--random-input-len", 2, "--random-output-len", 4)
    assert 15 < stub.most_active <= 30  # all, unless the stub itself is kept waiting


def test_a_kept_connection_that_closes_is_no_failure(stub):
    """The server ends it after the answer: the next request must not be lost on it."""
    stub.plan.close = True
    r = bench(stub, "--num-prompts", 40, "--random-input-len", 2, "--random-output-len", 2,
              "--max-concurrency", 2)
    assert r["completed"] == 40 and len(stub.requests) == 40


def test_a_server_that_hangs_up_while_it_is_spoken_to():
    """Requests of a megabyte, of which it reads nothing: failures, and not our end by a signal."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
    threading.Thread(target=serve, daemon=True).start()
    with listener:
        r = headrace("bench", "serve", "--port", listener.getsockname()[1], "--model", "m",
                     "--vocab-size", 50000, "--num-prompts", 20, "--max-concurrency", 2,
                     "--random-input-len", 200000, "--no-progress", timeout=30)
        listener.shutdown(socket.SHUT_RDWR)
    assert r.returncode == 1 and "20 of 20 requests failed" in r.stderr


def test_warm_ups_are_outside(stub):
    r = bench(stub, *SMALL, "--num-warmups", 3, "--max-concurrency", 1)
    assert r["completed"] == 6 and len(stub.requests) == 9
    assert len({tuple(q["body"]["prompt"]) for q in stub.requests}) == 9


def test_arrivals_follow_the_rate(stub):
    r = bench(stub, "--num-prompts", 100, "--random-input-len", 2, "--random-output-len", 1,
              "--request-rate", 200)
    sent = np.array(r["sent"])
    assert np.all(np.diff(sent) >= 0) and sent[-1] >= 0.5
    # scaled so that the last one is due at n / rate; never early, and the stub is quick enough
    assert sent[-1] < 2
    gaps = np.diff(sent)
    assert gaps.std() > 0.3 * gaps.mean()  # random, not even
    arrived = np.array(sorted(q["time"] for q in stub.requests))
    assert arrived[-1] - arrived[0] >= 0.9 * (sent[-1] - sent[0])


# ---- servers that misbehave ---------------------------------------------------------------------

@pytest.mark.sanitize
def test_failed_requests_are_counted_and_the_first_is_told(stub):
    stub.plan.fail = lambda n: (503, {"error": {"message": "queue is full"}}) if n % 3 == 1 else None
    r = bench(stub, "--num-prompts", 9, "--random-input-len", 5, "--random-output-len", 4,
              "--max-concurrency", 1)
    assert r["completed"] == 6 and r["failed"] == 3
    assert r["total_output_tokens"] == 24 and r["total_input_tokens"] == 30
    assert "3 of 9 requests failed; the first: HTTP 503: queue is full" in r["stderr"]
    assert [bool(e) for e in r["errors"]] == [i % 3 == 1 for i in range(9)]


@pytest.mark.sanitize
@pytest.mark.parametrize("change, word", [
    ({"fail": lambda n: (404, b"plain words")}, "HTTP 404: plain words"),
    ({"fail": lambda n: (400, {"error": "a text"})}, "HTTP 400: a text"),
    ({"fail": lambda n: (500, b"")}, "HTTP 500"),
    ({"cut": lambda n: 2}, "closed the connection"),
    ({"cut": lambda n: 2, "http10": True}, "broke off"),
    ({"error_event": lambda n: 2}, "out of luck"),
    ({"error_event": lambda n: 0, "finish_chunk": False}, "out of luck"),
])
def test_ways_to_fail(stub, change, word):
    vars(stub.plan).update(change)
    r = bench(stub, *SMALL, ok=False)
    assert r["completed"] == 0 and r["failed"] == 6 and r["output_throughput"] == 0
    assert all(word in e for e in r["errors"]), r["errors"]


def test_a_base_that_ends_in_v1(stub):
    r = headrace("bench", "serve", "--base-url", stub.url + "/v1/", *SMALL)
    assert r.returncode == 0 and {q["path"] for q in stub.requests} == {"/v1/completions"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_names_of_several_addresses(stub, host):
    """localhost is ::1 first on many machines, and the stub listens on 127.0.0.1 alone."""
    r = headrace("bench", "serve", "--host", host, "--port", stub.port, *SMALL)
    assert r.returncode == 0, r.stderr
    assert {q["headers"]["Host"] for q in stub.requests} == {f"{host}:{stub.port}"}


def test_no_server():
    s = Stub()
    s.close()
    r = headrace("bench", "serve", "--base-url", s.url)
    assert r.returncode == 1 and "no connection" in r.stderr and not r.stdout
    r = headrace("bench", "serve", "--base-url", s.url, "--model", "m", *SMALL)
    assert r.returncode == 1 and "6 of 6 requests failed" in r.stderr
    assert "Failed requests:                         6" in r.stdout
    r = headrace("bench", "serve", "--base-url", "http://no.such.host.invalid:1")
    assert r.returncode == 1 and "no.such.host.invalid" in r.stderr


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


@pytest.mark.sanitize
@pytest.mark.parametrize("answer", [
    b"", b"\0" * 100, b"SSH-2.0-OpenSSH\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 abc OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50000,
    b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200000, HEAD + b"no colon\r\n\r\n",
    HEAD + b"Content-Length: -5\r\n\r\nabc", HEAD + b"Content-Length: 99999999999999999999\r\n\r\nab",
    HEAD + b"Content-Length: 100\r\n\r\ndata: {}", HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1\r\nabc",
    HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
    HEAD + b"\r\n" + b"data: " + b"x" * (20 << 20),
    b"HTTP/1.1 100 Continue\r\n\r\n" * 100, b"HTTP/1.1 302 Found\r\nLocation: http://x/\r\n\r\n",
    b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n" + b"e" * 300000,
])
def test_what_is_no_answer_is_a_failed_request(answer):
    """Two requests to a server that answers with these bytes and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                c, _ = listener.accept()
            except OSError:
                return
            with c:
                try:
                    c.recv(65536)
                    c.sendall(answer)
                    c.shutdown(socket.SHUT_WR)
                    c.settimeout(5)
                    c.recv(1)
                except OSError:
                    pass
    threading.Thread(target=serve, daemon=True).start()
    with listener:
        r = headrace("bench", "serve", "--port", listener.getsockname()[1], "--model", "m",
                     "--vocab-size", 64, "--num-prompts", 2, "--max-concurrency", 1,
                     "--random-input-len", 2, "--no-progress", timeout=30)
        listener.shutdown(socket.SHUT_RDWR)
    assert r.returncode == 1 and "2 of 2 requests failed; the first: " in r.stderr
    assert len(r.stderr) < 1000 and "Failed requests:                         2" in r.stdout


# ---- TLS ----------------------------------------------------------------------------------------

@pytest.fixture
def certificate(tmp_path):
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "2", "-subj", "/CN=stub", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    return str(cert), str(key)


def test_https(certificate):
    stub = Stub(certificate)
    try:
        r = bench(stub, *SMALL, "--max-concurrency", 2, env={"SSL_CERT_FILE": certificate[0]})
        assert r["completed"] == 6 and stub.connections <= 4  # kept, over TLS too
        assert bench(stub, *SMALL, "--insecure")["completed"] == 6
        bad = headrace("bench", "serve", "--base-url", stub.url, *SMALL)
        assert bad.returncode == 1 and "/v1/models" in bad.stderr
        named = stub.url.replace("127.0.0.1", "localhost")  # not in the certificate
        bad = headrace("bench", "serve", "--base-url", named, *SMALL,
                       env={"SSL_CERT_FILE": certificate[0]})
        assert bad.returncode == 1
    finally:
        stub.close()


# ---- command lines ------------------------------------------------------------------------------

@pytest.mark.sanitize
@pytest.mark.parametrize("flags, word", [
    (["--metric-percentiles", "50,x"], "--metric-percentiles"),
    (["--metric-percentiles", "101"], "0 to 100"),
    (["--percentile-metrics", "ttfx"], "ttft, tpot, itl and e2el"),
    (["--goodput", "itl:5"], "--goodput"), (["--goodput", "ttft"], "--goodput"),
    (["--goodput", "ttft:-1"], "--goodput"),
    (["--request-rate", "0"], "--request-rate"), (["--request-rate", "-1"], "--request-rate"),
    (["--burstiness", "0"], "--burstiness"), (["--max-concurrency", "-1"], "--max-concurrency"),
    (["--num-prompts", "0"], "--num-prompts"), (["--random-input-len", "0"], "--random-input-len"),
    (["--random-range-ratio", "1"], "--random-range-ratio"),
    (["--num-prompts", "1e18"], "--num-prompts"),
    (["--random-output-len", "-5"], "--random-output-len"), (["--vocab-size", "-1"], "--vocab-size"),
    (["--burstiness", "2"], "--request-rate"), (["--insecure"], "https"),
    (["--sharegpt-output-len", "5"], "--dataset-name sharegpt"),
    (["--custom-output-len", "5"], "--dataset-name custom"),
    (["--dataset-name", "custom", "--dataset-path", "x", "--random-input-len", "5"],
     "--dataset-name random"),
    (["--dataset-name", "custom", "--dataset-path", "x", "--vocab-size", "5"],
     "--dataset-name random"),
    (["--from-result", "x", "--save-result"], "--from-result"),
    (["--dataset-name", "sonnet"], "random, sharegpt or custom"),
    (["--dataset-name", "custom"], "--dataset-path"), (["--dataset-path", "x"], "--dataset-name"),
    (["--backend", "tgi"], "--backend"), (["--endpoint", "/v1/embeddings"], "--endpoint"),
    (["--backend", "openai", "--endpoint", "/v1/chat/completions"], "does not speak"),
    (["--extra-body", "[1]"], "--extra-body"), (["--extra-body", "{"], "--extra-body"),
    (["--header", "nonsense"], "--header"), (["--header", "a b: c"], "--header"),
    (["--api-key", "a\nb"], "API key"),
    (["--result-dir", "x"], "--save-result"), (["--save-detailed"], "--save-result"),
    (["smollm2-135m"], "loads no model"), (["--port", "0"], "--port"),
    (["--num-warmup", "3"], "--num-warmups"),
    (["--base-url", "ftp://x"], "http"), (["--base-url", "nonsense"], "http"),
])
def test_what_makes_no_sense_is_refused(stub, flags, word):
    server = [] if flags[0] in ("--base-url", "--port") else ["--base-url", stub.url]
    r = headrace("bench", "serve", *server, *flags, timeout=20)
    assert r.returncode in (1, 2) and word in r.stderr, r.stderr
    assert not r.stdout and not stub.requests


def test_progress_goes_to_standard_error(stub):
    flags = ["bench", "serve", "--base-url", stub.url, *SMALL]
    r = headrace(*flags)
    assert "6 of 6 requests done" in r.stderr and "requests done" not in r.stdout
    assert not headrace(*flags, "--disable-tqdm").stderr


# ---- headrace itself ----------------------------------------------------------------------------

def counter(server, name):
    text = server.get("/metrics")[2].decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines()
               if line.startswith(f"vllm:{name}{{"))


def test_against_headrace(server):
    before = [counter(server, f"{n}_tokens_total") for n in ("prompt", "generation")]
    flags = ["bench", "serve", "--base-url", server.address, "--json", "--save-detailed",
             "--num-prompts", 8, "--random-input-len", 24, "--random-output-len", 6,
             "--ignore-eos", "--max-concurrency", 4]
    r = json.loads(headrace(*flags).stdout)
    assert r["completed"] == 8 and r["input_lens"] == [24] * 8 and r["output_lens"] == [6] * 8
    assert all(len(x) == 5 for x in r["itls"])
    after = [counter(server, f"{n}_tokens_total") for n in ("prompt", "generation")]
    assert [a - b for a, b in zip(after, before)] == [8 * 24, 8 * 6]
    r = json.loads(headrace(*flags, "--backend", "openai-chat", "--temperature", 0.7).stdout)
    assert r["completed"] == 8 and r["output_lens"] == [6] * 8 and min(r["input_lens"]) >= 24


ENGINE = ["--max-model-len", 256, "--max-num-seqs", 8, "--max-num-batched-tokens", 64]


def test_throughput(smollm2, tmp_path):
    file = tmp_path / "r.json"
    r = headrace("bench", "throughput", smollm2, *ENGINE, "--num-prompts", 6, "--input-len", 20,
                 "--output-len", 5, "--output-json", file)
    assert r.returncode == 0, r.stderr
    saved = json.loads(file.read_text())
    assert saved["num_requests"] == 6 and saved["late_compilations"] == 0
    assert saved["prompt_tokens"] == 120 and saved["output_tokens"] == 30
    assert saved["total_num_tokens"] == 150
    t = saved["elapsed_time"]
    assert saved["requests_per_second"] == pytest.approx(6 / t)
    assert saved["tokens_per_second"] == pytest.approx(150 / t)
    assert saved["output_tokens_per_second"] == pytest.approx(30 / t)
    assert r.stdout.startswith(
        f"Throughput: {6 / t:.2f} requests/s, {150 / t:.2f} total tokens/s, "
        f"{30 / t:.2f} output tokens/s\n")
    assert "6 of 6 requests done" in r.stderr


def test_latency(smollm2):
    r = headrace("bench", "latency", smollm2, *ENGINE, "--input-len", 8, "--output-len", 4,
                 "--batch-size", 3, "--num-iters", 5, "--num-iters-warmup", 1, "--json")
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    v = np.array(got["latencies"])
    assert len(v) == 5 and v.min() > 0
    assert got["avg_latency"] == pytest.approx(v.mean())
    assert got["percentiles"] == {str(p): pytest.approx(np.percentile(v, p))
                                  for p in (10, 25, 50, 75, 90, 99)}


def test_startup(smollm2):
    r = headrace("bench", "startup", smollm2, *ENGINE, "--num-iters", 2, "--json")
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["runs"] == 2 and got["programs"] > 0 and 0 <= got["cold_resident_share"] <= 1
    for kind in ("cold", "warm"):
        parts = got[kind]
        assert parts.pop("programs_cached") == 0  # natively none is kept
        for part, v in parts.items():
            assert 0 <= v["min"] <= v["median"] <= v["max"], (kind, part)
        whole = sum(parts[p]["mean"] for p in ("launch_s", "load_s", "compile_s", "first_token_s"))
        assert parts["total_s"]["mean"] == pytest.approx(whole, rel=1e-9)
        assert parts["load_s"]["min"] > 0 and parts["first_token_s"]["min"] > 0
    assert headrace("bench", "startup", "/no/such/model").returncode == 1


SAMPLER = ("--hidden-sizes", "64", "--vocab-sizes", 2048, "--batch-sizes", "1,3", "--num-runs", 5)
CASES = ["greedy", "draw", "temperature .8", "top_k 40", "top_p .9", "min_p .05",
         "three penalties", "50 biases", "bitmask", "logprobs 5", "temperature, top_k, top_p",
         "everything"]


def test_sampler(tmp_path):
    file = tmp_path / "sampler.json"
    r = headrace("bench", "sampler", *SAMPLER, "--head", "float32,bfloat16,w8a8",
                 "--output-json", file)
    assert r.returncode == 0, r.stderr
    got = json.loads(file.read_text())
    assert [(g["head"], g["batch_size"]) for g in got] == [
        (head, batch) for head in ("float32", "bfloat16", "w8a8") for batch in (1, 3)]
    for g, size in zip(got, (4, 4, 2, 2, 1, 1)):
        assert size * 64 * 2048 <= g["weight_bytes"] < 1.3 * size * 64 * 2048 + 8192, g["head"]
        assert (g["device"], g["hidden_size"], g["vocab_size"]) == ("cpu", 64, 2048)
        for kind in "head_and_sampler_s", "sampler_s":
            assert list(g[kind]) == CASES and min(g[kind].values()) > 0
        assert g["warm_up_s"] > 0 and g["head_s"] > 0 and len(g["everything_runs_s"]) == 4
    assert r.stdout.count("everything / greedy") == 3 and "medians of 8" in r.stdout
    table = r.stdout.split("\n\n")[0]
    for case in CASES:  # the table shows what was measured
        line = re.search(rf"^  {re.escape(case)} +(\S+) +(\S+)$", table, re.M)
        want = [1e3 * g["head_and_sampler_s"][case] for g in got[:2]]
        assert [float(x) for x in line.groups()] == pytest.approx(want, abs=6e-4)
    assert "published" not in r.stdout  # those figures are for another vocabulary


SWEEP = ["top_k 1", "top_k 40", "top_k 1000", "top_k V/2", "top_p .1", "top_p .5", "top_p .9",
         "top_p .99", "top_k 1000, top_p .9", "top_k V/2, top_p .9"]


def test_sampler_sweeps_cuts_when_asked():
    r = headrace("bench", "sampler", *SAMPLER, "--sweep", "--json")
    assert r.returncode == 0, r.stderr
    for g in json.loads(r.stdout):
        assert list(g["sampler_s"]) == CASES
        assert list(g["sweep_s"]) == SWEEP and min(g["sweep_s"].values()) > 0
    r = headrace("bench", "sampler", *SAMPLER, "--sweep")
    lines = r.stdout.split("sampler alone, temperature .8\n")[1].split("\n")[:len(SWEEP)]
    assert [x[:28].strip() for x in lines] == SWEEP
    assert all(float(t) > 0 for x in lines for t in x[28:].split())
    assert "sweep_s" not in headrace("bench", "sampler", *SAMPLER, "--json").stdout


def test_sampler_repeats_its_published_rows():
    r = headrace("bench", "sampler", "--hidden-sizes", 32, "--batch-sizes", "4,2", "--num-runs", 1)
    assert r.returncode == 0, r.stderr
    assert re.search(r"torch-xla, TPU v6 +0\.0785 +- ", r.stdout)


@pytest.mark.parametrize("flags, word", [
    (["--head", "int3"], "int3"), (["--device", "tpv"], "tpv"), (["--batch-sizes", "0"], "--batch-sizes"),
    (["--vocab-sizes", "12"], "--vocab-sizes"), (["--hidden-sizes", "1"], "--hidden-sizes"),
    (["--num-runs", "0"], "--num-runs"), (["smollm2-135m"], "takes no model"),
])
def test_sampler_refuses(flags, word):
    r = headrace("bench", "sampler", *flags)
    assert r.returncode in (1, 2) and word in r.stderr


KERNELS = ("--rows", "1,3", "--shapes", "128x80,256x33", "--contexts", "20", "--peak-mib", 2,
           "--run-ms", 1, "--threads", 2)
INT8 = {"Q8_0", "Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K"}
# bits of a weight as packed, its scales over 16 columns at a time included
BITS = {"I8C": 8, "Q8_0": 8.5, "Q4_0": 4.5, "Q4_1": 5, "Q4_K": 4.625, "Q5_K": 5.625, "Q6_K": 6.5625,
        "BF16": 16, "F32": 32}


def kernel_work(f):
    """Bytes that must move and multiplications and additions, from the shapes alone."""
    rows, op = f["rows"], f["op"]
    if op == "linear":
        scale = {"I8C": 4}.get(f["format"], f["k"] / 8 if f["format"] in INT8 else 0)
        row = f["k"] * (1 if scale else 2 if f["format"] == "BF16" else 4) + scale
        return f["weight_bytes"] + rows * (row + 4 * f["n"]), 2 * rows * f["k"] * f["n"]
    if op.startswith("attention"):
        first = f["context"] if op.endswith("decode") else f["context"] - rows + 1
        met = sum(f["context"] if op.endswith("decode") else first + i for i in range(rows))
        keys = f["context"] * (rows if op.endswith("decode") else 1)
        size = {"f32": 4, "bf16": 2, "f16": 2}[f["kv"]]
        return (2 * keys * f["kv_heads"] * f["head_dim"] * size
                + 8 * rows * f["query_heads"] * f["head_dim"],
                4 * met * f["query_heads"] * f["head_dim"])
    if op == "rope":
        return rows * ((f["query_heads"] + f["kv_heads"]) * f["head_dim"] * 8 + 12), 0
    out = f["columns"] * (1 + 4 / f["group"])
    return {"rms_norm_q8": rows * (4 * f["columns"] + out) + 4 * f["columns"],
            "gated_q8": rows * (8 * f["columns"] + out),
            "quantise_rows": rows * (4 * f["columns"] + out)}[op], 0


def check_peaks(peaks, isas):
    for f in peaks["read"]:
        assert f["plain_gb_s"] > 0 and f["streams_gb_s"] > 0
    assert [(f["isa"], f["bytes"], f["threads"]) for f in peaks["read"]] == [
        (isa, mib << 20, threads) for isa in isas for mib in (2, 1) for threads in (1, 2)]
    largest = [f for f in peaks["read"] if f["bytes"] == 2 << 20]
    assert peaks["barrier_us"] > 0
    assert peaks["memory_gb_s"] == max(f[k] for f in largest for k in ("plain_gb_s", "streams_gb_s"))
    ops = {(f["isa"], f["what"], f["threads"]): f["gop_s"] for f in peaks["arithmetic"]}
    assert min(ops.values()) > 0 and len(ops) == len(peaks["arithmetic"])
    for isa in isas:
        assert {(isa, what, t) for what in ("f32", "int8") for t in (1, 2)} <= set(ops)
    return ops


def check_figure(f, ops, isa):
    work, count = kernel_work(f)
    assert 0 < f["best_ms"] <= f["ms"] and f["runs"] >= 4
    assert f["bytes"] == pytest.approx(work) and f.get("ops", 0) == pytest.approx(count), f
    assert f["gb_s"] == pytest.approx(work / f["ms"] / 1e6)
    assert f["percent_of_peak"] == pytest.approx(100 * f["limit_ms"] / f["ms"])
    if count:
        assert f["gop_s"] == pytest.approx(count / f["ms"] / 1e6)
    if f["bound"] == "arithmetic":
        what = "int8" if f.get("format") in INT8 | {"I8C"} else "f32"
        peaks = [v for (i, w, _), v in ops.items() if i == isa and (
            w == what or (f.get("format") == "BF16" and w == "bf16"))]
        assert f["limit_ms"] == pytest.approx(count / max(peaks) / 1e6)
    if f["op"] == "linear":
        panels = (f["n"] + 15) // 16
        assert f["weight_bytes"] == pytest.approx(panels * 16 * f["k"] * BITS[f["format"]] / 8,
                                                  abs=panels * 128 + 4 * f["n"])
        assert f["copies"] > 1


def test_kernels(tmp_path):
    machine = [isa for isa in ("scalar", "avx2", "avx512", "avx512_bf16", "amx") if headrace(
        "bench", "kernels", "--isa", isa, "--ops", "rope", *KERNELS).returncode == 0]
    assert "scalar" in machine
    for isa in machine:
        file = tmp_path / f"{isa}.json"
        r = headrace("bench", "kernels", *KERNELS, "--isa", isa, "--output-json", file)
        assert r.returncode == 0, r.stderr
        got = json.loads(file.read_text())
        assert got["threads"] == 2 and got["isa"] == isa and got["cpu"] and got["date"]
        ops = check_peaks(got["peaks"], machine)
        figures = got["figures"]
        linear = [f for f in figures if f["op"] == "linear"]
        assert [(f["k"], f["format"], f["rows"]) for f in linear] == [
            (k, form, rows) for k in (128, 256) for form in BITS for rows in (1, 3)]
        assert [f["op"] for f in figures if f["op"] != "linear"] == [
            op for op in ("attention decode", "attention prefill", "rms_norm_q8", "gated_q8", "rope",
                          "quantise_rows", "quantise_rows") for _ in range(2)]
        for f in figures:
            if f["op"] == "linear" and f["k"] == 128 and f["format"].endswith("_K"):
                assert "block" in f["left_out"] and "ms" not in f
            else:
                check_figure(f, ops, isa)


def test_kernels_table_shows_what_was_measured(tmp_path):
    file = tmp_path / "k.json"
    r = headrace("bench", "kernels", "--rows", ",".join(str(n) for n in range(1, 13)), "--shapes",
                 "64x48", "--formats", "w8a8,q4_0", "--ops", "linear,attention", "--kv", "f32,bf16",
                 "--contexts", "8", "--heads", "4/2x32", "--peak-mib", 1, "--run-ms", 1,
                 "--output-json", file)
    assert r.returncode == 0, r.stderr
    assert max(len(line) for line in r.stdout.splitlines()) <= 100
    assert "of 6 ops done" in r.stderr and "ops done" not in r.stdout
    figures = json.loads(file.read_text())["figures"]
    want = [f["ms"] for f in figures if f["op"] == "linear"]
    first = re.findall(r"(?:I8C|Q4_0) +ms(.*)", r.stdout)
    assert len(first) == 4  # twelve row counts are ten and two
    rows = [[float(x) for x in line.split()] for line in first]
    assert rows[0] + rows[2] == pytest.approx(want[:12], rel=0.01, abs=6e-6)
    assert rows[1] + rows[3] == pytest.approx(want[12:], rel=0.01, abs=6e-6)
    assert "Medians of" in r.stdout
    prefill = [f for f in figures if f["op"] == "attention prefill"]
    assert all(("left_out" in f) == (f["rows"] > 8) for f in prefill)
    assert "more queries than keys" in r.stdout


def test_kernels_tells_the_best_when_asked(tmp_path):
    file = tmp_path / "k.json"
    r = headrace("bench", "kernels", "--rows", "2", "--shapes", "2048x512", "--formats", "f32", "--ops",
                 "linear", "--peak-mib", 1, "--run-ms", 20, "--best", "--output-json", file)
    f, = json.loads(file.read_text())["figures"]
    assert f["best_ms"] < f["ms"] and "The best of" in r.stdout
    shown = {name: float(v) for name, v in re.findall(r"(ms|GB/s|Gop/s|% peak) +([\d.]+)", r.stdout)}
    assert shown["ms"] == pytest.approx(f["best_ms"], rel=0.01)
    assert shown["GB/s"] == pytest.approx(f["bytes"] / f["best_ms"] / 1e6, rel=0.01)
    assert shown["% peak"] == pytest.approx(100 * f["limit_ms"] / f["best_ms"], abs=0.51)


def test_kernels_leaves_out_what_takes_too_long():
    r = headrace("bench", "kernels", "--ops", "linear", "--formats", "f32", "--shapes", "64x64",
                 "--rows", "1,64", "--run-limit", 1e-9, "--peak-mib", 1, "--run-ms", 1, "--json")
    one, many = json.loads(r.stdout)["figures"]
    assert one["ms"] > 0 and "--run-limit" in many["left_out"]


@pytest.mark.parametrize("flags, word", [
    (["--ops", "linear,sort"], "sort"), (["--formats", "q9"], "Q8_0"), (["--rows", "0"], "--rows"),
    (["--rows", "9000"], "--rows"), (["--shapes", "90x7"], "multiple of 32"),
    (["--shapes", "896"], "KxN"), (["--heads", "14/3x64"], "--heads"), (["--kv", "i9"], "--kv"),
    (["--contexts", "0"], "--contexts"), (["--run-ms", "0"], "--run-ms"),
    (["--run-limit", "nan"], "--run-limit"), (["--peak-mib", "0"], "--peak-mib"),
    (["--threads", "-1"], "--threads"), (["--isa", "sse"], "sse"),
    (["smollm2-135m"], "takes no model"),
])
def test_kernels_refuses(flags, word):
    r = headrace("bench", "kernels", *flags)
    assert r.returncode in (1, 2) and word in r.stderr and not r.stdout


@pytest.mark.parametrize("command, flags, word", [
    ("throughput", [], "which model"), ("latency", [], "which model"), ("startup", [], "which model"),
    ("latency", ["--batch-size", "0"], "--batch-size"),
    ("latency", ["--num-iters", "0"], "--num-iters"),
    ("startup", ["--num-iters", "0"], "--num-iters"),
    ("startup", ["--input-len", "3"], "unknown flag"),
])
def test_engine_benchmarks_refuse(command, flags, word):
    model = [] if word == "which model" else ["smollm2-135m"]
    r = headrace("bench", command, *model, *flags)
    assert r.returncode in (1, 2) and word in r.stderr


def test_bench_alone_names_the_benchmarks():
    r = headrace("bench")
    assert r.returncode == 2 and "bench serve" in r.stderr
    r = headrace("bench", "serv")
    assert r.returncode == 2 and "bench serve?" in r.stderr


def test_tokenizer(smollm2, tmp_path):
    """Every run counts all texts; the digest is of the ids that `tokenize` gives."""
    texts = ["Hello, world", "def f(x):\n    return x", "", "你好，世界"]
    file, out = tmp_path / "texts.jsonl", tmp_path / "out.json"
    file.write_text("".join(json.dumps(t) + "\n" for t in texts))
    r = headrace("bench", "tokenizer", smollm2, "--texts", file, "--num-runs", 3, "--json",
                 "--output-json", out)
    assert r.returncode == 0, r.stderr
    result = json.loads(r.stdout)
    assert json.loads(out.read_text()) == result
    lines = headrace("tokenize", smollm2, "--json-lines", "--no-special", stdin=file.read_text())
    ids = [i for line in lines.stdout.splitlines() for i in json.loads(line)]
    assert result["tokens"] == len(ids) and result["texts"] == len(texts)
    assert result["bytes"] == sum(len(t.encode()) for t in texts)
    assert result["ids_sha256"] == hashlib.sha256(struct.pack(f"<{len(ids)}i", *ids)).hexdigest()
    assert len(result["seconds"]) == 3 and min(result["seconds"]) > 0
    for flags, word in (((), "--texts"), (("--texts", file, "--num-runs", 0), "--num-runs"),
                        (("--texts", tmp_path / "none"), "none")):
        r = headrace("bench", "tokenizer", smollm2, *flags)
        assert r.returncode and word in r.stderr, r.stderr
