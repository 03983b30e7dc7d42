"""--speculative-config: several tokens a step, and the answers to the bit those of one a step."""
import json

import pytest
from conftest import STEPS, Bits, headrace
from prometheus_client.parser import text_string_to_metric_families

import make_tiny

TOKENS = 4
CONFIG = {"method": "ngram", "num_speculative_tokens": TOKENS, "prompt_lookup_max": 3,
          "prompt_lookup_min": 1, "enable_adaptive_verification": False}
GUESS = ["--speculative-config", json.dumps(CONFIG), "--check-recompilation"]
SMALL = ["--max-num-seqs", 8, "--max-model-len", 256, "--seed", 7, "--max-tokens", 48,
         "--logprobs", 3, *STEPS]
TEXTS = ["abcab" * (2 + i) + chr(97 + i) * 3 for i in range(12)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("speculative") / "model"
    make_tiny.hf(path, "llama3")
    return path


def answers(model, texts, *flags):
    """Ids, texts and log-probabilities as they are printed, then how the steps went."""
    r = headrace("generate", model, "--json", "--stats", *[f for t in texts for f in ("-p", t)],
                 *SMALL, *flags)
    assert r.returncode == 0, r.stderr
    steps = next(line for line in r.stderr.splitlines() if line.startswith("steps "))
    lines = [json.loads(line) for line in r.stdout.splitlines()]
    return Bits([[a["prompt_logprobs"], a["choices"]] for a in lines]), steps


def accepted(steps):
    return int(steps.split(" drafts accepted")[0].split()[-3]) if "drafts" in steps else 0


@pytest.mark.parametrize("flags", [
    ["--temperature", 0],
    ["--temperature", 0.3, "--top-p", 0.9],
    ["--temperature", 0.4, "--top-k", 8, "--min-p", 0.02, "--min-tokens", 30],
    ["--temperature", 0, "--n", 3, "--prompt-logprobs", 2],
    ["--temperature", 0, "--stop", "ab", "--stop", "e"],
    ["--temperature", 0.2, "--logit-bias", "70:4,71:4", "--bad-words", "ab"],
    ["--temperature", 0.5, "--allowed-token-ids", "66,67,68,69"],
    ["--temperature", 0.3, "--frequency-penalty", 0.3],
    ["--temperature", 0.3, "--repetition-penalty", 1.2, "--presence-penalty", -0.5],
], ids=lambda flags: " ".join(map(str, flags)))
def test_options(model, flags):
    want, _ = answers(model, TEXTS, *flags)
    got, steps = answers(model, TEXTS, *flags, *GUESS)
    assert got == want
    assert accepted(steps) > 0


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 6, 7])
def test_the_last_token(model, most):
    """No draft stands where no token may: of one token left, none; of two, one."""
    flags = ["--temperature", 0, "--max-tokens", most]
    got, steps = answers(model, TEXTS[:4], *flags, *GUESS)
    assert got == answers(model, TEXTS[:4], *flags)[0]
    assert most > 2 or "drafts" not in steps


@pytest.mark.parametrize("flags", [
    ["--max-num-batched-tokens", 9], ["--max-num-batched-tokens", 33], ["--block-size", 3],
    ["--kv-cache-memory-bytes", 2 * 2 * 2 * 32 * 4 * 16 * 17], ["--threads", 1],
    ["--no-enable-prefix-caching"], ["--max-num-seqs", 1], ["--long-prefill-token-threshold", 5],
], ids=lambda flags: " ".join(map(str, flags)))
def test_circumstances(model, flags):
    """Budgets that hold no draft for all, blocks of three, sequences that push each other out."""
    want, _ = answers(model, TEXTS, "--temperature", 0.1)
    got, steps = answers(model, TEXTS, "--temperature", 0.1, *GUESS, *flags)
    assert got == want
    assert accepted(steps) > 0
    assert ("(0 preemptions" in steps) == ("--kv-cache-memory-bytes" not in flags)


def test_adaptive(model):
    """As many drafts as pay, which is as the machine has it; the answers are the same."""
    more = ["--speculative-config", json.dumps({**CONFIG, "enable_adaptive_verification": True})]
    for heat in (0, 0.4):
        flags = ["--temperature", heat, "--max-tokens", 100]
        assert answers(model, TEXTS, *flags, *more)[0] == answers(model, TEXTS, *flags)[0]


@pytest.mark.device
@pytest.mark.sanitize
@pytest.mark.parametrize("more", [[], ["--presence-penalty", 0.1, "--repetition-penalty", 1.02]],
                         ids=["", "penalties"])
def test_on_every_device(model, more):
    flags = ["--temperature", 0, "--max-num-seqs", 4, "--max-tokens", 24, *more]
    got, steps = answers(model, TEXTS[:4], *flags, *GUESS)
    assert got == answers(model, TEXTS[:4], *flags)[0]
    assert accepted(steps) > 0


def test_fewer_steps(smollm2):
    """A list that is said again: most of the drafts are right, and a step gives several tokens."""
    names = "apple, banana, cherry, date, elderberry, fig, grape, hazelnut"
    ask = f"Fruits: {names}. Again: {names}. Again: {names}. Again:"
    flags = ["-p", ask, "--temperature", 0, "--max-tokens", 24, "--max-model-len", 512,
             "--max-num-seqs", 2, "--ignore-eos", "--stats", "--json", "--logprobs", 1]
    runs = [headrace("generate", smollm2, *flags, *more) for more in ([], GUESS)]
    plain, fast = [json.loads(r.stdout)["choices"] for r in runs]
    assert plain == fast
    steps = [int(r.stderr.split("steps ")[1].split()[0]) for r in runs]
    assert steps[0] >= 24 and steps[1] * 2 < steps[0], steps


@pytest.mark.parametrize("config, named", [
    ({"method": "eagle", "num_speculative_tokens": 3}, 'method "eagle"'),
    ({"method": "ngram"}, "num_speculative_tokens"),
    ({**CONFIG, "num_speculative_tokens": 33}, "num_speculative_tokens"),
    ({**CONFIG, "prompt_lookup_min": 4}, "prompt_lookup_min"),
    ({**CONFIG, "draft_tensor_parallel_size": 1}, "draft_tensor_parallel_size"),
    ([], "JSON object"),
])
def test_refused(model, config, named):
    r = headrace("generate", model, "-p", "a", *SMALL, "--speculative-config", json.dumps(config))
    assert r.returncode != 0 and "--speculative-config" in r.stderr and named in r.stderr


def test_refused_beside_a_processor(model):
    r = headrace("generate", model, "-p", "a", *SMALL, *GUESS, "--logits-processor", "own.so")
    assert r.returncode != 0 and "--speculative-config" in r.stderr
    assert "--logits-processor" in r.stderr


def test_structured_output(model):
    """A grammar cannot take a token back: its request is answered without drafts."""
    flags = ["--choice", "abcabcabcabc", "--temperature", 0]
    got, steps = answers(model, TEXTS[:3], *flags, *GUESS)
    assert got == answers(model, TEXTS[:3], *flags)[0] and "drafts" not in steps


def test_metrics(serve, model):
    """vLLM's counters, and the answer's usage beside them."""
    server = serve(model, "--max-num-seqs", 4, "--max-model-len", 256, *GUESS).ready()
    status, answer = server.post("/v1/completions", {
        "prompt": "abcab" * 8, "max_tokens": 60, "temperature": 0, "ignore_eos": True})
    assert status == 200, answer
    families = {f.name: f for f in text_string_to_metric_families(server.get("/metrics")[2].decode())}

    def samples(name):
        return {s.labels.get("position"): s.value for s in families[f"vllm:spec_decode_{name}"].samples
                if s.name.endswith("_total")}
    drafts, guessed = samples("num_drafts")[None], samples("num_draft_tokens")[None]
    right = samples("num_accepted_tokens")[None]
    places = samples("num_accepted_tokens_per_pos")
    assert list(places) == [str(i) for i in range(TOKENS)]
    assert 0 < right < 60 and sum(places.values()) == right
    assert max(places.values()) == places["0"] <= drafts and guessed <= drafts * TOKENS
    assert answer["usage"]["completion_tokens"] == 60
    steps = families["headrace:steps"].samples[0].value
    assert steps == 60 - right  # the prompt's gives the first token
