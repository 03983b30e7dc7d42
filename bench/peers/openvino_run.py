"""OpenVINO GenAI in process, for native.py and serving.py, run by its environment's python: a line of
JSON a figure.

    python openvino_run.py MODEL.gguf THREADS int8 offline
    python openvino_run.py MODEL.gguf THREADS bf16 serving 1:3,16:16 SEED    level:requests

int8 and int4 leave the arithmetic to OpenVINO's own choice, bf16 asks for it. Continuous batching as its server has it, without HTTP. Prompts are random ids, greedy answers of
fixed length; the prefix cache is off.
"""
import json
import statistics
import sys
import time

import numpy as np
import openvino_genai
from openvino import Tensor


def pipeline(model, threads, precision):
    s = openvino_genai.SchedulerConfig()
    s.cache_size, s.max_num_seqs, s.max_num_batched_tokens = 2, 32, 2048
    s.enable_prefix_caching = False
    hint = {"INFERENCE_PRECISION_HINT": "bf16"} if precision == "bf16" else {}
    return openvino_genai.ContinuousBatchingPipeline(
        model, scheduler_config=s, device="CPU",
        properties={"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", **hint})


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


def offline(pipe):
    for work, inputs, outputs, tokens in (("prefill", 512, 1, 512), ("decode", 1, 128, 128)):
        times = [closed_loop(pipe, 1, 1, inputs, outputs, seed)[0] for seed in (2, 3, 4)]
        print(json.dumps({"work": work, "tok_s": tokens / statistics.median(times)}), flush=True)


def serving(pipe, plan, seed):
    for part in plan.split(","):
        level, requests = map(int, part.split(":"))
        seconds, firsts, per_token = closed_loop(pipe, requests, level, 128, 128, int(seed) + level)
        print(json.dumps({"work": f"serve {level}", "tok_s": requests * 128 / seconds,
                          "ttft_s": statistics.median(firsts),
                          "ttft_p99_s": float(np.percentile(firsts, 99)),
                          "tpot_ms": 1000 * statistics.median(per_token), "requests": requests}),
              flush=True)


def main(model, threads, precision, what, *more):
    pipe = pipeline(model, int(threads), precision)
    closed_loop(pipe, 1, 1, 128, 8, 1)  # warm
    return serving(pipe, *more) if what == "serving" else offline(pipe)


if __name__ == "__main__":
    main(*sys.argv[1:])
