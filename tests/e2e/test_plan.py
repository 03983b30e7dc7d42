"""headrace plan against real starts: what it says before any weight is read must come true."""
import json

import pytest

from conftest import Server, headrace


def plan(model, *flags):
    r = headrace("plan", model, "--json", *flags)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def start(model, tmp_path, *flags):
    """The manifest of a real start, and what it logs of its cache."""
    manifest = tmp_path / "manifest.json"
    r = headrace("generate", model, "--prompt-ids", "1,2,3", "--max-tokens", 1, "--json",
                 "--manifest", manifest, "--stats", *flags)
    assert r.returncode == 0, r.stderr
    return json.loads(manifest.read_text()), r.stderr


SMALL = ("--max-model-len", 512, "--max-num-seqs", 16, "--max-num-batched-tokens", 256)


@pytest.mark.parametrize("flags", [SMALL, SMALL + ("--dtype", "float32"),
                                   SMALL + ("--kv-cache-dtype", "bfloat16"),
                                   SMALL + ("--kv-cache-dtype", "int8")],
                         ids=["auto", "float32", "kv-bfloat16", "kv-int8"])
def test_plan_comes_true(smollm2, tmp_path, flags):
    p = plan(smollm2, *flags)
    manifest, stats = start(smollm2, tmp_path, *flags)
    planned = {(r["program"], r.get("tokens"), r.get("requests")): r["peak_bytes"]
               for r in p["programs"]}
    started = {(r["program"], r.get("tokens") or None, r.get("requests") or None): r["peak_bytes"]
               for r in manifest["programs"]}
    assert planned == started
    assert p["peak_bytes"] == max(started.values())
    assert f"{p['weight_bytes'] / 2**20:.1f} MiB of weights" in stats
    # sixteen requests of 512 tokens fit a test machine, so the limits decide, not the memory
    assert p["kv_blocks"] * p["block_size"] == 16 * 512
    assert f"{p['kv_blocks']} KV blocks" in stats


def test_last_buckets_need_most(smollm2):
    """A start measures the last buckets only."""
    rows = plan(smollm2)["programs"]
    for stage in {r["program"] for r in rows}:
        mine = [r for r in rows if r["program"] == stage]
        last = max(mine, key=lambda r: (r.get("tokens", 0), r.get("requests", 0)))
        assert last["peak_bytes"] == max(r["peak_bytes"] for r in mine)


def test_too_large_names_the_flag(smollm2):
    r = headrace("plan", smollm2, "--kv-cache-memory-bytes", "1M")
    assert r.returncode == 1
    assert "--kv-cache-memory-bytes" in r.stderr and "--max-model-len" in r.stderr
    assert r.stdout == ""


def test_auto_length_is_what_fits(smollm2):
    p = plan(smollm2, "--kv-cache-memory-bytes", "10M", "--max-model-len", "auto")
    assert p["max_model_len"] == p["kv_blocks"] * p["block_size"]
    assert p["max_model_len"] < 8192
    assert p["kv_blocks"] == 10 * 2**20 // p["block_bytes"]
    assert plan(smollm2, "--max-model-len", "auto")["max_model_len"] == 8192


def test_the_cache_is_counted_in_its_dtype(smollm2):
    """SmolLM2: 30 layers of 3 heads of 64, keys and values, blocks of 16 tokens. Of int8, a head of a
    token has a float32 scale as well."""
    for dtype, name, head in ("float32", "f32", 4 * 64), ("bfloat16", "bf16", 2 * 64), ("int8", "i8", 68):
        p = plan(smollm2, "--kv-cache-dtype", dtype, "--kv-cache-memory-bytes", "100M",
                 "--max-model-len", 512)
        assert p["kv_cache_dtype"] == name and p["block_bytes"] == 30 * 2 * 3 * 16 * head
        assert p["kv_blocks"] == 100 * 2**20 // p["block_bytes"]


def test_text_lists_every_stage(smollm2):
    r = headrace("plan", smollm2, *SMALL)
    assert r.returncode == 0, r.stderr
    for word in ("backbone", "select", "sampler", "prompt_logprobs", "tables", "KV cache", "weights"):
        assert word in r.stdout


def test_buckets_fitted_to_recorded_steps(smollm2, tmp_path):
    """A server's own record of its steps, through --fit-buckets, back into a start."""
    server = Server(smollm2, *SMALL, "--no-enable-prefix-caching")
    try:
        server.ready()
        for n in (5, 40, 100):
            status, _ = server.post("/v1/completions", {"prompt": list(range(1000, 1000 + n)),
                                                        "max_tokens": 4, "ignore_eos": True})
            assert status == 200
        recorded = server.get("/programs")[2]
    finally:
        server.stop()
    steps = json.loads(recorded)["steps"]
    assert steps["tokens"] == {"1": 9, "5": 1, "40": 1, "100": 1}
    assert steps["requests"] == {"1": 12}
    record = tmp_path / "programs.json"
    record.write_bytes(recorded)
    r = headrace("plan", smollm2, *SMALL, "--fit-buckets", record, "--token-buckets", 4)
    assert r.returncode == 0, r.stderr
    # one size more than buckets: 5 shares 40's at a cost of 35, less than 40 in 100's (60)
    assert json.loads(r.stdout) == {"tokens": [1, 40, 100, 256], "requests": [1, 16]}
    assert "4 fitted ones 35" in r.stderr
    buckets = tmp_path / "buckets.json"
    buckets.write_text(r.stdout)
    again = plan(smollm2, *SMALL, "--buckets", buckets)
    assert sorted({p["tokens"] for p in again["programs"] if "tokens" in p}) == [1, 40, 100, 256]
    r = headrace("plan", smollm2, *SMALL, "--max-num-batched-tokens", 64, "--fit-buckets", record)
    assert r.returncode == 1 and "100 tokens" in r.stderr
