"""/metrics, /load and /programs: read by Prometheus' own parser, against what was asked of the server.

Oracles: prometheus_client's parser and its own histograms (for how a bound is spelt); the usage that
the answers themselves tell."""
import concurrent.futures
import http.client
import json
import re
import time

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from conftest import ROOT

SERVER_FLAGS = ["--max-num-seqs", 2, "--max-num-batched-tokens", 128, "--max-model-len", 512,
                "--block-size", 16]
MODEL = "smollm2-135m"

LATENCY = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680]
TOKENS = [1, 2, 5, 10, 20, 50, 100, 200, 500]  # up to max_model_len
HISTOGRAMS = {  # spec/serving.md
    "vllm:time_to_first_token_seconds": [
        .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160,
        640, 2560],
    "vllm:inter_token_latency_seconds": [
        .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80],
    "vllm:e2e_request_latency_seconds": LATENCY,
    "vllm:request_queue_time_seconds": LATENCY,
    "vllm:request_prefill_time_seconds": LATENCY,
    "vllm:request_decode_time_seconds": LATENCY,
    "vllm:request_prompt_tokens": TOKENS,
    "vllm:request_generation_tokens": TOKENS,
    "vllm:request_params_n": [1, 2, 5, 10, 20],
    "vllm:request_params_max_tokens": TOKENS,
    "vllm:iteration_tokens_total": [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
}
GAUGES = ["vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
          "vllm:cache_config_info"]
COUNTERS = ["vllm:prompt_tokens", "vllm:generation_tokens", "vllm:prefix_cache_queries",
            "vllm:prefix_cache_hits", "vllm:num_preemptions", "vllm:request_success",
            "headrace:programs_compiled", "headrace:late_compilations", "headrace:padding_tokens"]


def parse(text):
    return {f.name: f for f in text_string_to_metric_families(text)}


def scrape(server):
    status, headers, body = server.get("/metrics")
    assert status == 200 and headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(body.decode())


def value(families, name, **labels):
    """The sum of the samples of that name whose labels agree."""
    family = families.get(name) or families.get(re.sub("_(total|count|sum)$", "", name))
    return sum(s.value for s in family.samples if s.name == name
               and all(s.labels[k] == v for k, v in labels.items()))


def wait_for(server, name, want, timeout=10):
    end = time.monotonic() + timeout
    while (got := value(scrape(server), name)) != want:
        assert time.monotonic() < end, f"{name} is {got}, not {want}"
        time.sleep(0.02)


def ask(server, **more):
    status, answer = server.post("/v1/completions", {"model": MODEL, **more})
    assert status == 200, answer
    return answer


class Stream:
    """A streamed completion that runs until it is closed."""

    def __init__(self, server, prompt):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self.connection.request("POST", "/v1/completions", json.dumps(
            {"model": MODEL, "prompt": prompt, "max_tokens": 400, "ignore_eos": True,
             "stream": True}), {"Content-Type": "application/json"})

    def read(self):
        answer = self.connection.getresponse()
        assert answer.status == 200
        return answer.readline()

    def close(self):
        self.connection.close()


def test_every_family(server):
    """Names, types, labels of the spec; the bounds as a Prometheus client would print them."""
    families = scrape(server)
    types = {**{n: "gauge" for n in GAUGES}, **{n: "counter" for n in COUNTERS},
             **{n: "histogram" for n in HISTOGRAMS}, "headrace:step_seconds": "histogram"}
    assert {n: families[n].type for n in types} == types
    for name, family in families.items():
        assert family.documentation
        for s in family.samples:
            if not name.startswith("process_"):
                assert (s.labels["model_name"], s.labels["engine"]) == (MODEL, "0")
    for name, bounds in HISTOGRAMS.items():
        registry = CollectorRegistry()
        Histogram("oracle", "x", buckets=bounds, registry=registry).observe(1)
        oracle = parse(generate_latest(registry).decode())["oracle"]
        spelt = [[s.labels["le"] for s in f.samples if s.name.endswith("_bucket")]
                 for f in (oracle, families[name])]
        assert spelt[0] == spelt[1], name
    reasons = [s.labels["finished_reason"] for s in families["vllm:request_success"].samples]
    assert reasons == ["stop", "length", "abort", "error"]
    config = families["vllm:cache_config_info"].samples[0]
    assert config.value == 1 and config.labels["block_size"] == "16"
    assert int(config.labels["num_gpu_blocks"]) >= 2 * 512 // 16
    assert config.labels["enable_prefix_caching"] == "True"
    assert value(families, "process_resident_memory_bytes") > 1e6


def test_requests_are_counted(server):
    """Each number moves by what the answers say."""
    before = scrape(server)
    answers = [ask(server, prompt=list(range(100, 107 + i)), max_tokens=4 + i, ignore_eos=True)
               for i in range(3)]
    answers.append(ask(server, prompt="Two of them", n=2, max_tokens=3, ignore_eos=True))
    words = ask(server, prompt="a b c d", max_tokens=30, temperature=0, stop=["e"])
    assert words["choices"][0]["finish_reason"] == "stop"
    answers.append(words)
    after = scrape(server)

    def grew(name, **labels):
        return value(after, name, **labels) - value(before, name, **labels)

    prompts = [a["usage"]["prompt_tokens"] for a in answers]
    outputs = [a["usage"]["completion_tokens"] for a in answers]
    choices = sum(len(a["choices"]) for a in answers)
    # vLLM counts a prompt for each of its choices
    assert grew("vllm:prompt_tokens_total") == sum(
        p * len(a["choices"]) for p, a in zip(prompts, answers))
    assert grew("vllm:generation_tokens_total") == sum(outputs)
    assert grew("vllm:request_success_total", finished_reason="length") == 5
    assert grew("vllm:request_success_total", finished_reason="stop") == 1
    for name in ("e2e_request_latency_seconds", "request_queue_time_seconds",
                 "request_prefill_time_seconds", "request_decode_time_seconds",
                 "request_prompt_tokens", "request_generation_tokens", "request_params_n"):
        assert grew(f"vllm:{name}_count") == len(answers), name
    assert grew("vllm:request_prompt_tokens_sum") == sum(prompts)
    assert grew("vllm:request_generation_tokens_sum") == sum(outputs)
    assert grew("vllm:request_params_n_sum") == 1 + 1 + 1 + 2 + 1
    assert grew("vllm:request_params_max_tokens_sum") == 4 + 5 + 6 + 3 + 30
    assert grew("vllm:time_to_first_token_seconds_count") == choices
    # a stop string may hold text back, and tokens that come after it are dropped
    assert sum(outputs) - choices - outputs[-1] <= grew("vllm:inter_token_latency_seconds_count") \
        <= sum(outputs) - choices
    assert grew("vllm:iteration_tokens_total_count") == grew("headrace:steps_total") > 0
    assert grew("headrace:late_compilations_total") == 0
    parts = sum(grew(f"vllm:request_{p}_time_seconds_sum") for p in ("queue", "prefill", "decode"))
    assert 0 < parts <= grew("vllm:e2e_request_latency_seconds_sum") * 1.01


def test_histograms_are_cumulative(server):
    ask(server, prompt="x", max_tokens=2)
    for family in scrape(server).values():
        if family.type != "histogram":
            continue
        series = {}
        for s in family.samples:
            key = tuple(sorted((k, v) for k, v in s.labels.items() if k != "le"))
            series.setdefault(key, []).append(s)
        for samples in series.values():
            counts = [s.value for s in samples if s.name.endswith("_bucket")]
            assert counts == sorted(counts) and samples[-3].labels["le"] == "+Inf"
            assert samples[-2].name.endswith("_count") and samples[-2].value == counts[-1]
            assert samples[-1].name.endswith("_sum")


def test_gauges_follow_the_queue(server):
    """Two run, two wait; when their clients have gone, everything is zero again."""
    aborted = value(scrape(server), "vllm:request_success_total", finished_reason="abort")
    streams = [Stream(server, f"Stream number {i} says") for i in range(4)]
    try:
        assert streams[0].read().startswith(b"data: {")
        wait_for(server, "vllm:num_requests_running", 2)
        wait_for(server, "vllm:num_requests_waiting", 2)
        assert 0 < value(scrape(server), "vllm:kv_cache_usage_perc") <= 1
        assert server.get("/load")[2] == b'{"server_load":4}'
    finally:
        for s in streams:
            s.close()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        wait_for(server, f"vllm:{name}", 0)
    assert server.get("/load")[2] == b'{"server_load":0}'
    assert value(scrape(server), "vllm:request_success_total", finished_reason="abort") == aborted + 4


def test_prefix_cache(server):
    """The same 70 tokens twice: four whole blocks of 16 come from the cache the second time."""
    prompt = list(range(2000, 2070))
    counts = []
    for _ in range(3):
        families = scrape(server)
        counts.append([value(families, f"vllm:prefix_cache_{n}_total") for n in ("queries", "hits")])
        ask(server, prompt=prompt, max_tokens=1)
    (q0, h0), (q1, h1), (q2, h2) = counts
    assert (q1 - q0, h1 - h0) == (70, 0) and (q2 - q1, h2 - h1) == (70, 64)


def test_programs(server):
    """The ledger as JSON says what the metrics say, and compiles stay where they were."""
    ask(server, prompt=[5] * 30, max_tokens=3, ignore_eos=True)
    status, headers, body = server.get("/programs")
    assert status == 200 and headers["Content-Type"] == "application/json"
    ledger, families = json.loads(body), scrape(server)
    assert ledger["late_compilations"] == 0 == value(families, "headrace:late_compilations_total")
    assert ledger["numerics"]["backend"] == "cpu"
    answer = ask(server, prompt="x", max_tokens=1)
    assert ledger["system_fingerprint"] == answer["system_fingerprint"]
    stages = [s.labels["stage"] for s in families["headrace:programs_compiled"].samples]
    for stage in stages:
        programs = [p for p in ledger["programs"] if p["program"] == stage]
        assert value(families, "headrace:programs_compiled_total", stage=stage) == len(programs)
    assert {p["program"] for p in ledger["programs"]} == set(stages)
    assert (ledger["programs_compiled"], ledger["programs_cached"]) == (len(ledger["programs"]), 0)
    memory = ledger["memory"]
    assert [k for k, v in memory.items() if v is None] == [  # a plugin's device may tell
        "code_bytes", "device_bytes_in_use", "device_bytes_limit"]
    assert memory["peak_bytes"] == max(p["peak_bytes"] for p in ledger["programs"])
    assert min(v for v in memory.values() if v is not None) > 0
    called = 0
    for p in ledger["programs"]:
        bucket = " ".join(f"{k}={p[k]}" for k in ("tokens", "requests") if p[k])
        labels = {"program": p["program"], "bucket": bucket}
        seconds = p["step_seconds"]
        assert len(seconds["counts"]) == len(ledger["step_seconds_bounds"]) + 1
        assert sum(seconds["counts"]) == seconds["count"] == p["calls"]
        assert value(families, "headrace:padding_tokens_total", **labels) == p["padding"]
        assert value(families, "headrace:step_seconds_count", **labels) == p["calls"]
        called += p["calls"] > 0
    assert called >= 3  # backbone, select, sampler


def test_scrapes_under_load(server):
    """Scraping from four sides while answers are made: each page is whole."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(ask, server, prompt="go", max_tokens=20, ignore_eos=True)
                   for _ in range(2)]
        for page in [pool.submit(scrape, server) for _ in range(24)]:
            assert set(HISTOGRAMS) <= set(page.result())
        assert all(a.result()["usage"]["completion_tokens"] == 20 for a in answers)


NAME = 'we"ird \\ name, {b}='


def test_while_loading_and_any_name(serve, smollm2):
    """Before the model is there the gauges are there, at zero; a name may hold anything."""
    server = serve(smollm2, *SERVER_FLAGS, "--served-model-name", NAME)
    assert server.bound.wait(30) and server.address, server.log
    loading = 0
    while server.get("/health")[0] == 503:
        families = scrape(server)
        if "num_gpu_blocks" in str(families["vllm:cache_config_info"].samples):
            break  # it became ready in between
        loading += 1
        for name in GAUGES[:3] + [f"{c}_total" for c in COUNTERS]:
            assert value(families, name) == 0
        status, body = server.request("/programs")[::2]
        assert status in (200, 503)
    assert loading, "the model was there at once"
    server.ready()
    assert families.keys() == scrape(server).keys()
    for family in scrape(server).values():
        for s in family.samples:
            assert s.labels.get("model_name", NAME) == NAME


def test_docs_list_them_all(server):
    """docs/METRICS.md: each family with its type and help, and nothing else."""
    text = (ROOT / "docs" / "METRICS.md").read_text()
    rows = re.findall(r"^\| `([\w:]+)` \| (\w+) \| [^|]* \| ([^|]+) \|$", text, re.M)
    page = server.get("/metrics")[2].decode()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", page, re.M))
    helps = dict(re.findall(r"^# HELP (\S+) (.+)$", page, re.M))
    assert rows == [(name, kinds[name], helps[name]) for name in kinds]


@pytest.mark.parametrize("path", ["/metrics", "/load", "/programs"])
def test_methods(server, path):
    assert server.request(path, b"{}", method="POST")[0] == 405
    status, headers, body = server.request(path, method="HEAD")
    assert status == 200 and body == b"" and int(headers["Content-Length"]) > 10
    assert headers["Cache-Control"] == "no-store"
