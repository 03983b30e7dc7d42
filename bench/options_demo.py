#!/usr/bin/env python3
"""Every sampling option, switched off and on against a running server, beside the server's ledger.

    python3 bench/options_demo.py                 starts a server of its own
    python3 bench/options_demo.py --url http://127.0.0.1:8000

Options are data: none of them may compile anything. For each the table shows what it did and that
the ledger (GET /programs) still has as many programs, and no late compile. Then all requests are
sent again, all at once, and must give what they gave alone. The exit status is the verdict: 1 when
an option had no effect, the ledger changed, or an answer differed in company.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROMPT = "Once upon a time there was a"
GREEDY = {"temperature": 0, "seed": 0}  # it draws nothing; the seed is told in the answer
HOT = {"temperature": 1.5, "seed": 1}
ENDS = ["<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>",
        "<|3|>"]


class Server:
    def __init__(self, url, key=None):
        self.url, self.key = url.rstrip("/"), key
        self.asked = []  # (body, choices): for the last act

    def call(self, path, body=None):
        """Status and parsed answer."""
        r = urllib.request.Request(self.url + path, headers={"Content-Type": "application/json"},
                                   data=None if body is None else json.dumps(body).encode())
        if self.key:
            r.add_header("Authorization", f"Bearer {self.key}")
        try:
            with urllib.request.urlopen(r, timeout=300) as a:
                return a.status, json.load(a)
        except urllib.error.HTTPError as e:
            with e:
                return e.code, json.load(e)

    def ledger(self):
        """Programs, and compiles after the start."""
        status, ledger = self.call("/programs")
        if status != 200:
            sys.exit(f"GET /programs: status {status}")
        return len(ledger["programs"]), ledger["late_compilations"]

    def complete(self, body):
        status, answer = self.call("/v1/completions", body)
        if status != 200:
            sys.exit(f"{body}: status {status}: {answer}")
        return answer["choices"]

    def ask(self, **options):
        body = {"prompt": PROMPT, "max_tokens": 16, "return_token_ids": True, **options}
        choices = self.complete(body)
        self.asked.append((body, choices))
        return choices

    def one(self, **options):
        return self.ask(**options)[0]

    def ids_of(self, text):
        return self.call("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]

    def text_of(self, ids):
        return self.call("/detokenize", {"tokens": ids})[1]["prompt"]


def end_id(server):
    """An id that ends an answer."""
    for text in ENDS:
        ids = server.ids_of(text)
        if len(ids) != 1:
            continue
        c = server.one(**GREEDY, logit_bias={str(ids[0]): 100})
        if c["finish_reason"] == "stop" and len(c["token_ids"]) == 1:
            return ids[0], text
    sys.exit("no end token found")


# Each option: a function that asks with and without it, and says what it did; "" = nothing.

def temperature(s):
    off, on = s.one(**GREEDY), s.one(temperature=1.5, seed=1)
    return off["text"] != on["text"] and f"0 → 1.5: {on['text']!r}, greedy was {off['text']!r}"


def like_greedy(name, value):
    def option(s):
        off, on, greedy = s.one(**HOT), s.one(**HOT, **{name: value}), s.one(**GREEDY)
        return (off["text"] != greedy["text"] == on["text"]
                and f"{value} at temperature 1.5: only the likeliest is left, as greedy")
    return option


def seed(s):
    first, again, other = (s.one(temperature=1.5, seed=n) for n in (7, 7, 8))
    return first["text"] == again["text"] != other["text"] and "7 twice: equal; 8: another text"


def penalty(name, value):
    def option(s):
        top = s.one(**GREEDY, max_tokens=1, logprobs=8, return_tokens_as_token_ids=True)
        level = {t.split(":")[1]: -v for t, v in top["logprobs"]["top_logprobs"][0].items()}
        base = {**GREEDY, "allowed_token_ids": list(map(int, level)), "logit_bias": level}
        off, on = s.one(**base), s.one(**base, **{name: value})
        n, m = len(set(off["token_ids"])), len(set(on["token_ids"]))
        return n < m and f"{value}: {m} different tokens of 16, {n} without"
    return option


def max_tokens(s):
    c = s.one(**GREEDY, max_tokens=5)
    return (len(c["token_ids"]) == 5 and c["finish_reason"] == "length"
            and "5: ended after 5 tokens, reason length")


def min_tokens(s):
    first = s.one(**GREEDY)["token_ids"][0]
    off, on = (s.one(**GREEDY, **more, stop_token_ids=[first]) for more in ({}, {"min_tokens": 6}))
    return (len(off["token_ids"]) == 1 and len(on["token_ids"]) >= 6
            and f"6: {len(on['token_ids'])} tokens, 1 without")


def stop(s):
    text = s.one(**GREEDY)["text"]
    word = text[len(text) // 2:][:3]
    on = s.one(**GREEDY, stop=[word])
    return (on["text"] == text[:text.index(word)] and on["stop_reason"] == word
            and f"{word!r}: cut to {on['text']!r}")


def include_stop_str_in_output(s):
    text = s.one(**GREEDY)["text"]
    word = text[len(text) // 2:][:3]
    on = s.one(**GREEDY, stop=[word], include_stop_str_in_output=True)
    return on["text"].endswith(word) and f"the text now ends with {word!r}"


def stop_token_ids(s):
    ids = s.one(**GREEDY)["token_ids"]
    on = s.one(**GREEDY, stop_token_ids=[ids[3]])
    return (on["token_ids"] == ids[:ids.index(ids[3]) + 1] and on["stop_reason"] == ids[3]
            and f"[{ids[3]}]: ended at token {len(on['token_ids'])}, reason {ids[3]}")


def ignore_eos(s):
    end, text = end_id(s)
    bias = {"logit_bias": {str(end): 100}}
    off, on = s.one(**GREEDY, **bias), s.one(**GREEDY, **bias, ignore_eos=True)
    return (len(off["token_ids"]) == 1 and len(on["token_ids"]) == 16
            and f"{text} forced: 16 tokens, 1 without")


def skip_special_tokens(s):
    end, text = end_id(s)
    bias = {"logit_bias": {str(end): 100}, "ignore_eos": True}
    off, on = s.one(**GREEDY, **bias), s.one(**GREEDY, **bias, skip_special_tokens=False)
    return off["text"] == "" and text in on["text"] and f"false: the text shows {text}"


def logit_bias(s):
    target = s.ids_of(" z")[-1]
    on = s.one(**GREEDY, logit_bias={str(target): 100})
    return set(on["token_ids"]) == {target} and f"+100 on {target}: {on['text']!r}"


def allowed_token_ids(s):
    ids = sorted(set(s.one(**HOT)["token_ids"]))[:3]
    on = s.one(**HOT, allowed_token_ids=ids)
    return set(on["token_ids"]) <= set(ids) and f"{ids}: {on['text']!r}"


def bad_words(s):
    off = s.one(**GREEDY)
    for i in off["token_ids"]:
        word = s.text_of([i]).strip()
        if word and len(s.ids_of(word)) == 1 and "\ufffd" not in word:
            on = s.one(**GREEDY, bad_words=[word])
            gone = i not in on["token_ids"] and on["token_ids"] != off["token_ids"]
            return gone and f"[{word!r}]: it is gone: {on['text']!r}"
    return ""


def logprobs(s):
    on = s.one(**GREEDY, logprobs=3, max_tokens=2)["logprobs"]
    top = on["top_logprobs"][0]
    return len(top) >= 3 and f"3: {', '.join(f'{k!r} {v:.2f}' for k, v in list(top.items())[:3])}"


def prompt_logprobs(s):
    on = s.one(**GREEDY, prompt_logprobs=1, max_tokens=1)["prompt_logprobs"]
    return on[0] is None and all(on[1:]) and f"1: {len(on)} positions, the first without"


def logprob_token_ids(s):
    ids = s.one(**HOT)["token_ids"][:2]
    on = s.one(**GREEDY, logprobs=0, logprob_token_ids=ids, max_tokens=1)["logprobs"]
    return len(on["top_logprobs"][0]) >= 2 and f"{ids}: {json.dumps(on['top_logprobs'][0])}"


def echo(s):
    off, on = s.one(**GREEDY), s.one(**GREEDY, echo=True)
    return on["text"] == PROMPT + off["text"] and f"the text begins with {PROMPT!r}"


def several(s):
    one, three = s.one(**HOT), s.ask(**HOT, n=3)
    return (len({c["text"] for c in three}) == 3 and three[0]["text"] == one["text"]
            and "3: three texts, the first the one of n = 1")


OPTIONS = {
    "temperature": temperature, "top_k": like_greedy("top_k", 1),
    "top_p": like_greedy("top_p", 1e-6), "min_p": like_greedy("min_p", 1), "seed": seed, "n": several,
    "presence_penalty": penalty("presence_penalty", 2),
    "frequency_penalty": penalty("frequency_penalty", 2),
    "repetition_penalty": penalty("repetition_penalty", 1.8), "logit_bias": logit_bias,
    "allowed_token_ids": allowed_token_ids, "bad_words": bad_words, "max_tokens": max_tokens,
    "min_tokens": min_tokens, "stop": stop,
    "include_stop_str_in_output": include_stop_str_in_output, "stop_token_ids": stop_token_ids,
    "ignore_eos": ignore_eos, "skip_special_tokens": skip_special_tokens, "logprobs": logprobs,
    "prompt_logprobs": prompt_logprobs, "logprob_token_ids": logprob_token_ids, "echo": echo,
}


def run(server):
    """Number of faults."""
    begin, faults = server.ledger(), 0
    print(f"{'option':28}{'programs':>9}{'late':>6}  what it did")
    for name, option in OPTIONS.items():
        said = option(server) or "NOTHING"
        ledger = server.ledger()
        faults += said == "NOTHING" or ledger != begin
        print(f"{name:28}{ledger[0]:>9}{ledger[1]:>6}  {said}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        together = list(pool.map(server.complete, [body for body, _ in server.asked]))
    differ = sum(a != b for (_, a), b in zip(server.asked, together))
    ledger = server.ledger()
    print(f"{len(together)} requests again, all at once: {differ} answers differ; "
          f"{ledger[0]} programs, {ledger[1]} late compiles, as at the start"
          if ledger == begin else f"the ledger changed: {begin} → {ledger}")
    return faults + differ + (ledger != begin) + begin[1]


def start_server(binary, model, *flags):
    """The process and its URL, once it is ready."""
    p = subprocess.Popen([binary, "serve", model, "--port", "0", "--disable-log-requests", *flags],
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, text=True)
    log = []
    for line in p.stderr:
        log.append(line)
        if "ready" in line and (found := re.search(r"http://[\d.]+:\d+", line)):
            return p, found[0]
    sys.exit(f"the server did not start:\n{''.join(log)}")


def main():
    a = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--url", help="a running server; without it one is started")
    a.add_argument("--api-key")
    a.add_argument("--model", default="smollm2-135m", help="for the own server")
    a.add_argument("--binary", default=os.environ.get(
        "HEADRACE_BIN", str(ROOT / "build/release/headrace")), help="for the own server")
    a = a.parse_args()
    process, url = (None, a.url) if a.url else start_server(
        a.binary, a.model, "--max-model-len", "1024", "--max-num-seqs", "32")
    try:
        return 1 if run(Server(url, a.api_key)) else 0
    finally:
        if process:
            process.terminate()
            process.communicate()  # its log is read to the end, so that it can write it


if __name__ == "__main__":
    sys.exit(main())
