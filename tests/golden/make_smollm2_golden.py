#!/usr/bin/env python3
"""Makes smollm2.npz: what SmolLM2 gives 2,000 tokens of real text, computed in NumPy float32.

The text is GSM8K (MIT), in four sequences of 501 tokens. Per position: the log-probability of the
token that follows, and the 64 likeliest tokens with theirs. Takes about a minute.

usage: make_smollm2_golden.py MODEL.gguf
"""
import json
import pathlib
import sys

import numpy as np

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import reference  # noqa: E402
import smollm2  # noqa: E402

SEQUENCES, LENGTH, TOP = 4, 501, 64


def text():
    lines = (HERE.parent / "data/gsm8k/test.jsonl").read_text().splitlines()[:60]
    return "\n\n".join(f"{q['question']}\n{q['answer']}" for q in map(json.loads, lines))


def main(path):
    ids = np.array(smollm2.tokenizer(path).encode(text(), add_special_tokens=False).ids)
    ids = ids[:SEQUENCES * LENGTH].reshape(SEQUENCES, LENGTH).astype(np.int32)
    config, tensors = smollm2.load(path)
    model = reference.Model(config, tensors, np.float32)
    chosen, top_ids, top = [], [], []
    for i, row in enumerate(ids):
        lp = model.logprobs(row)[:-1]
        chosen.append(lp[np.arange(LENGTH - 1), row[1:]])
        order = np.argsort(-lp, axis=-1, kind="stable")[:, :TOP]
        top_ids.append(order.astype(np.uint16))
        top.append(np.take_along_axis(lp, order, -1).astype(np.float32))
        print(f"sequence {i + 1}/{SEQUENCES}: perplexity {np.exp(-chosen[-1].mean()):.4f}")
    np.savez_compressed(HERE / "smollm2.npz", ids=ids, logprob=np.array(chosen, np.float32),
                        top_ids=np.array(top_ids), top_logprob=np.array(top).astype(np.float16))
    print(f"perplexity {np.exp(-np.mean(chosen)):.5f}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
