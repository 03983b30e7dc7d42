"""oneDNN's int8 products by way of torch, for native.py, run by the python of vLLM's environment.

    python onednn_linear.py THREADS         a line of JSON a figure: Gop/s of each shape and row count

torch._int_mm multiplies int8 by int8 to int32 with oneDNN; scales are not applied, so that what is
compared with headrace's whole linear flatters oneDNN a little. Weights take turns with copies of
themselves, which no cache holds all of, as a model's layers do.
"""
import itertools
import json
import statistics
import sys
import time

import torch

SHAPES = ((896, 9728), (4864, 896), (2048, 11008), (896, 151936))
ROWS = (1, 8, 64, 512)


def gops(x, copies):
    turn = itertools.cycle(copies)

    def run():
        torch._int_mm(x, next(turn))
    w = copies[0]
    begin = time.perf_counter()
    run()
    run()
    one = (time.perf_counter() - begin) / 2
    times = []
    for _ in range(max(3, min(30, int(0.3 / one)))):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return 2 * x.shape[0] * w.shape[0] * w.shape[1] / statistics.median(times) / 1e9


def main(threads):
    torch.set_num_threads(int(threads))
    for k, n in SHAPES:
        count = max(1, 160_000_000 // (n * k))
        copies = [torch.randint(-127, 128, (n, k), dtype=torch.int8).t() for _ in range(count)]
        for rows in ROWS:
            if rows * n > 64 * 151936:
                continue  # no step asks for so many rows of logits
            x = torch.randint(-127, 128, (rows, k), dtype=torch.int8)
            print(json.dumps({"work": f"linear {k}x{n} {rows}", "gop_s": gops(x, copies)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
