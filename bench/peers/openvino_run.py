"""OpenVINO GenAI in process, for native.py, run by its environment's python: a line of JSON a figure.

    python openvino_run.py MODEL.gguf THREADS offline
    python openvino_run.py MODEL.gguf THREADS serving 1,4,16,32

Continuous batching as its server has it, without HTTP. Prompts are random ids, greedy answers of
fixed length; the prefix cache is off.
"""
import json
import statistics
import sys
import time

import numpy as np
import openvino_genai
from openvino import Tensor


def pipeline(model, threads):
    s = openvino_genai.SchedulerConfig()
    s.cache_size, s.max_num_seqs, s.max_num_batched_tokens = 2, 32, 2048
    s.enable_prefix_caching = False
    return openvino_genai.ContinuousBatchingPipeline(
        model, scheduler_config=s, device="CPU",
        properties={"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})


def closed_loop(pipe, requests, concurrency, inputs, outputs, seed):
    """Seconds in all, and of each request its first token's wait and its time per token after it."""
    g = openvino_genai.GenerationConfig()
    g.max_new_tokens, g.ignore_eos, g.do_sample = outputs, True, False
    rng = np.random.default_rng(seed)
    running, sent, firsts, per_token, tokens = {}, 0, [], [], 0
    begin = time.perf_counter()
    while sent < requests or running:
        while sent < requests and len(running) < concurrency:
            ids = Tensor(rng.integers(1000, 9999, (1, inputs)).astype(np.int64))
            running[sent] = [pipe.add_request(seed * 10000 + sent, ids, g), time.perf_counter(), None]
            sent += 1
        pipe.step()
        now = time.perf_counter()
        for i, state in list(running.items()):
            handle, start, first = state
            while handle.can_read():
                tokens += sum(len(x.generated_ids) for x in handle.read().values())
                if state[2] is None:
                    state[2] = first = now
                    firsts.append(now - start)
            if handle.get_status() != openvino_genai.GenerationStatus.RUNNING:
                per_token.append((now - first) / max(1, outputs - 1))
                del running[i]
    if tokens != requests * outputs:
        sys.exit(f"{tokens} tokens of {requests * outputs}")
    return time.perf_counter() - begin, firsts, per_token


def main(model, threads, what, levels=""):
    pipe = pipeline(model, int(threads))
    closed_loop(pipe, 1, 1, 128, 8, 1)  # warm
    if what == "offline":
        seconds, _, _ = closed_loop(pipe, 2, 1, 512, 1, 2)
        print(json.dumps({"work": "prefill", "tok_s": 2 * 512 / seconds}))
        seconds, _, _ = closed_loop(pipe, 2, 1, 1, 128, 3)
        print(json.dumps({"work": "decode", "tok_s": 2 * 128 / seconds}))
        return
    for level in map(int, levels.split(",")):
        requests = max(2, level)
        seconds, firsts, per_token = closed_loop(pipe, requests, level, 128, 128, 10 + level)
        print(json.dumps({"work": f"serve {level}", "tok_s": requests * 128 / seconds,
                          "ttft_s": statistics.median(firsts),
                          "tpot_ms": 1000 * statistics.median(per_token)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
