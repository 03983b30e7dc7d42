"""headrace eval: figures against NumPy models and Python's own regular expressions."""
import http.server
import json
import math
import random
import re
import threading

import numpy as np
import pytest
from conftest import Server, headrace

import make_tiny
import reference

TEXT = "".join(random.Random(5).choices("abc def\nghij klm", k=700))


def evaluate(*arguments):
    r = headrace("eval", *arguments, "--json", "--no-progress")
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def refused(*arguments):
    r = headrace("eval", *arguments)
    assert r.returncode in (1, 2) and not r.stdout
    return r.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A checkpoint in float32 and the same one rounded to bfloat16, each with its numbers."""
    root = tmp_path_factory.mktemp("eval")
    (root / "text.txt").write_text(TEXT)
    return {"text": root / "text.txt", "f32": (root / "f32", *make_tiny.hf(root / "f32", "llama")),
            "bf16": (root / "bf16", *make_tiny.hf(root / "bf16", "llama", "bf16"))}


@pytest.fixture(scope="module")
def server(made):
    s = Server(made["f32"][0], "--max-logprobs", 300)
    yield s.ready()
    s.stop()


IDS = make_tiny.tokenizer().encode(TEXT).ids


def places(made, kind, context, stride, ids=IDS):
    """Log-probabilities [T,V] before each token but the first, as windows give them, in float64."""
    _, config, tensors = made[kind]
    model, out = reference.Model(config, tensors), []
    for start in range(0, len(ids), stride):
        rows = model.logprobs(ids[start:start + context])[:-1]
        out += list(rows if start == 0 else rows[context - stride - 1:])
        if start + context >= len(ids):
            break
    assert len(out) == len(ids) - 1
    return np.array(out)


@pytest.mark.parametrize("context,stride", [(1024, 512), (200, 100), (128, 127), (100, 1)])
def test_perplexity(made, context, stride):
    """Against float64; a stride of 1 on the text's beginning alone, being quadratic."""
    limit = 130 if stride == 1 else len(IDS)
    got = evaluate("perplexity", made["f32"][0], "--file", made["text"], "--context", context,
                   "--stride", stride, "--limit", limit)
    rows = places(made, "f32", context, stride, IDS[:limit])
    nll = -rows[np.arange(len(rows)), IDS[1:limit]]
    assert got["tokens_scored"] == len(nll)
    assert got["nll"] == pytest.approx(nll.mean(), abs=1e-5)
    assert got["perplexity"] == pytest.approx(math.exp(nll.mean()), rel=1e-5)
    assert got["nll_stderr"] == pytest.approx(nll.std(ddof=1) / math.sqrt(len(nll)), rel=1e-4)
    assert got["perplexity_stderr"] == pytest.approx(got["perplexity"] * got["nll_stderr"])


def test_a_server_gives_the_same_figures(made, server):
    """Log-probabilities cross HTTP with every digit."""
    flags = ["--file", made["text"], "--context", 200]
    here = evaluate("perplexity", made["f32"][0], *flags)
    there = evaluate("perplexity", "--base-url", server.address, *flags)
    assert there["nll"] == here["nll"] and there["nll_stderr"] == here["nll_stderr"]
    kl = evaluate("kl", made["bf16"][0], "--reference-url", server.address, *flags)
    local = evaluate("kl", made["bf16"][0], "--reference", made["f32"][0], *flags)
    assert kl["mean_kl"] == local["mean_kl"] > 0


def test_kl(made):
    """All 260 tokens told: the divergence itself. With fewer told, a bound from below."""
    flags = ["--reference", made["f32"][0], "--file", made["text"], "--context", 300,
             "--stride", 200]
    p, q = (places(made, kind, 300, 200) for kind in ("f32", "bf16"))
    each = (np.exp(p) * (p - q)).sum(axis=1)
    less = (p - q)[np.arange(len(p)), IDS[1:]]
    got = evaluate("kl", made["bf16"][0], *flags, "--top", make_tiny.V)
    assert got["tokens_scored"] == len(each)
    assert got["mean_kl"] == pytest.approx(each.mean(), rel=0.02)
    assert got["max_kl"] == pytest.approx(each.max(), rel=0.05)
    assert got["top1_agreement"] == pytest.approx((p.argmax(1) == q.argmax(1)).mean(), abs=0.005)
    assert got["max_logprob_difference"] == pytest.approx(np.abs(less).max(), rel=0.01)
    assert got["perplexity_change"] == pytest.approx(math.expm1(less.mean()), abs=1e-5)
    few = evaluate("kl", made["bf16"][0], *flags, "--top", 8)
    assert 0 < few["mean_kl"] < got["mean_kl"]


def test_nothing_differs_from_itself(made):
    got = evaluate("kl", made["f32"][0], "--reference", made["f32"][0], "--file", made["text"])
    assert got["mean_kl"] == got["max_logprob_difference"] == got["perplexity_change"] == 0
    assert got["top1_agreement"] == 1


# ---- gsm8k -------------------------------------------------------------------------------------

STRICT, FLEXIBLE = re.compile(r"#### (\-?[0-9\.\,]+)"), re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def clean(text):
    """lm-evaluation-harness's regexes_to_ignore of exact_match."""
    for pattern in (",", r"\$", r"(?s).*#### ", r"\.$"):
        text = re.sub(pattern, "", text)
    return text


def verdicts(answer, published):
    strict, flexible = STRICT.findall(answer), FLEXIBLE.findall(answer)
    strict = strict[0] if strict else "[invalid]"
    flexible = next((g for g in flexible[-1] if g), "") if flexible else "[invalid]"
    return [clean(x) == clean(published) for x in (strict, flexible)]


def nasty_answers(right, n=60):
    rng = random.Random(9)
    parts = [right, f"#### {right}", "####", "#### ", "#### -", "-", "$", ",", ".", " 7", "$1,000", "1,0",
             f"#### {right}.", f"${right}", f"{right}.00", "so\n", "--5", "#### 3", "é", "..", "1-2"]
    return [f"#### {right}", "", right, f"the answer is {right}."] + [
        "".join(rng.choices(parts, k=rng.randint(1, 5))) for _ in range(n)]


class Canned:
    """A server of completions that knows the answers by heart, in the order of the questions."""

    def __init__(self, answers):
        self.answers, self.prompts = answers, []
        canned = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def reply(self, body):
                data = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.reply({"data": [{"id": "canned"}]})

            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                canned.prompts.append(asked)
                number = int(re.findall(r"Question: number (\d+)\n", asked["prompt"])[-1])
                self.reply({"choices": [{"text": canned.answers[number]}],
                            "usage": {"completion_tokens": 3}})

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self.http.server_port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


def questions(path, answers):
    path.write_text("".join(json.dumps({"question": f"number {i}", "answer": a}) + "\n"
                            for i, a in enumerate(answers)))
    return path


@pytest.mark.parametrize("right", ["18", "1,250", "-3"])
def test_gsm8k_verdicts(tmp_path, right):
    published = f"Step by step <<1+1=2>>.\n#### {right}"
    answers = nasty_answers(right)
    data = questions(tmp_path / "test.jsonl", [published] * len(answers))
    kept = tmp_path / "answers.jsonl"
    with Canned(answers) as canned:
        got = evaluate("gsm8k", "--base-url", canned.address, "--data", data, "--num-fewshot", 0,
                       "--answers", kept)
    want = np.array([verdicts(a, published) for a in answers])
    lines = [json.loads(line) for line in kept.read_text().splitlines()[1:]]
    for line in lines:
        i = line["question"]
        assert line["answer"] == answers[i]
        assert [line["strict_match"], line["flexible_match"]] == list(want[i]), answers[i]
    for name, column in (("strict_match", want[:, 0]), ("flexible_match", want[:, 1])):
        assert got[name] == pytest.approx(column.mean())
        assert got[name + "_stderr"] == pytest.approx(column.std(ddof=1) / math.sqrt(len(column)))
    assert 0 < got["strict_match"] < 1 and 0 < got["flexible_match"] < 1


def test_gsm8k_prompt_and_going_on(tmp_path):
    """Solved examples before the question; a run that was broken off asks only what is missing; a
    file of another run is refused."""
    data = questions(tmp_path / "test.jsonl", ["#### 1"] * 10)
    shots = questions(tmp_path / "train.jsonl", ["one\n#### 1", "two\n#### 2", "three\n#### 3"])
    kept = tmp_path / "answers.jsonl"
    with Canned(["#### 1"] * 10) as canned:
        flags = ["--base-url", canned.address, "--data", data, "--fewshot", shots,
                 "--num-fewshot", 2, "--answers", kept, "--max-concurrency", 2]
        first = evaluate("gsm8k", *flags)
        asked = canned.prompts[0]
        assert asked["prompt"].startswith("Question: number 0\nAnswer: one\n#### 1\n\n"
                                          "Question: number 1\nAnswer: two\n#### 2\n\nQuestion: ")
        assert asked["prompt"].endswith("\nAnswer:") and asked["temperature"] == 0
        assert asked["stop"] == ["Question:", "</s>", "<|im_end|>"]
        lines = kept.read_bytes().splitlines(keepends=True)
        kept.write_bytes(b"".join(lines[:6]) + lines[6][:9])  # a kill in the middle of a line
        canned.prompts.clear()
        again = evaluate("gsm8k", *flags)
        assert len(canned.prompts) == 5 and again["asked_now"] == 5 and first["asked_now"] == 10
        assert again["strict_match"] == first["strict_match"] == 1
        assert len(kept.read_text().splitlines()) == 11
        message = refused("gsm8k", *flags, "--max-tokens", 9)
        assert "answers of another run" in message and str(kept) in message


def test_gsm8k_loglikelihood(made, tmp_path):
    """The published answer's own tokens, against float64."""
    data = questions(tmp_path / "test.jsonl", ["one\n#### 1", "twenty-two\n#### 22"])
    got = evaluate("gsm8k", made["f32"][0], "--data", data, "--num-fewshot", 0, "--loglikelihood")
    _, config, tensors = made["f32"]
    model, each, tokens = reference.Model(config, tensors), [], 0
    for line in map(json.loads, data.read_text().splitlines()):
        encode = make_tiny.tokenizer().encode
        prompt = f"Question: {line['question']}\nAnswer:"
        ids, first = encode(f"{prompt} {line['answer']}").ids, len(encode(prompt).ids)
        rows = model.logprobs(ids)
        each.append(sum(rows[i - 1][ids[i]] for i in range(first, len(ids))))
        tokens += len(ids) - first
    assert got["tokens"] == tokens
    assert got["loglikelihood"] == pytest.approx(np.mean(each), rel=1e-5)
    assert got["loglikelihood_per_token"] == pytest.approx(np.sum(each) / tokens, rel=1e-5)


def test_gsm8k_answers_are_reproducible(made, tmp_path):
    """The same bits from one thread or two, alone or together."""
    data = questions(tmp_path / "test.jsonl", [f"#### {i}" for i in range(6)])

    def answers(name, *flags):
        kept = tmp_path / name
        evaluate("gsm8k", made["f32"][0], "--data", data, "--num-fewshot", 0, "--max-tokens", 20,
                 "--answers", kept, "--check-recompilation", *flags)
        return sorted(kept.read_text().splitlines())
    assert answers("a", "--threads", 1) == answers("b", "--threads", 2, "--max-num-seqs", 2)


# ---- what is refused ---------------------------------------------------------------------------

def test_refusals(made, tmp_path):
    model, text = made["f32"][0], made["text"]
    assert "which evaluation?" in refused()
    assert "did you mean" in refused("perplexitty")
    assert "which model?" in refused("perplexity", "--file", text)
    assert "which text?" in refused("perplexity", model)
    assert "MODEL or --base-url" in refused("perplexity", model, "--base-url", "http://127.0.0.1:1",
                                            "--file", text)
    assert "--stride must be 1 to 99" in refused("perplexity", model, "--file", text, "--context",
                                                 100, "--stride", 100)
    assert "--context must be" in refused("perplexity", model, "--file", text, "--context", 5000)
    (tmp_path / "short").write_text("a")
    assert "too few" in refused("perplexity", model, "--file", tmp_path / "short")
    assert "what to compare with?" in refused("kl", model, "--file", text)
    assert "--top must be" in refused("kl", model, "--reference", model, "--file", text, "--top", 0)
    assert "no questions" in refused("gsm8k", model)
    assert "no examples" in refused("gsm8k", model, "--data", text)
    assert "text.txt: line 1" in refused("gsm8k", model, "--data", text, "--num-fewshot", 0)
    few = questions(tmp_path / "few.jsonl", ["#### 1"])
    assert "holds 1 examples" in refused("gsm8k", model, "--data", few, "--fewshot", few)
