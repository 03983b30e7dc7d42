"""Every sampling option, alone at an extreme value, visibly changes the answer: pre-compiled and on
demand. Each case names its own baseline, so that the option alone makes the difference."""
import pytest
from conftest import DEVICE, generate

import make_tiny

pytestmark = pytest.mark.device
EOS = make_tiny.V - 1
SPECIAL = make_tiny.V - 4
SAMPLE = ["--temperature", 1, "--seed", 1]
GREEDY = ["--temperature", 0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("options") / "model"
    make_tiny.hf(path, "llama")
    return path


@pytest.fixture(scope="module", params=["pre-compiled"] + ([] if DEVICE else ["on demand"]))
def ask(request, model):
    mode = ["--enforce-eager"] if request.param == "on demand" else []
    cache = {}

    def run(*flags):
        flags = tuple(map(str, flags))
        if flags not in cache:
            count = [] if "--max-tokens" in flags else ["--max-tokens", 24]
            cache[flags], = generate(model, "-p", "abcabcabc", "--max-num-seqs", 4,
                                     "--max-num-batched-tokens", 32, "--max-model-len", 128, *mode,
                                     *count, *flags, env={"HEADRACE_CHECK_RECOMPILATION": "0"}
                                     if mode else None)
        return cache[flags]
    return run


def ids(answer, choice=0):
    return answer["choices"][choice]["token_ids"]


def text(answer):
    return answer["choices"][0]["text"]


@pytest.mark.parametrize("base,flags", [
    (SAMPLE, ["--temperature", 0]),
    (SAMPLE, ["--top-k", 1]),
    (SAMPLE, ["--top-p", 0.01]),
    (SAMPLE, ["--min-p", 1]),
    (SAMPLE, ["--seed", 2]),
    (GREEDY, ["--repetition-penalty", 50]),
    (GREEDY, ["--logit-bias", "66:100"]),
    (GREEDY, ["--allowed-token-ids", "70,71"]),
    ([*GREEDY, "--logit-bias", "65:40,66:39,67:38"], ["--presence-penalty", 2]),
    ([*GREEDY, "--logit-bias", "65:40,66:39,67:38"], ["--frequency-penalty", 2]),
], ids=lambda v: v[0] if isinstance(v, list) else None)
def test_changes_the_tokens(ask, base, flags):
    assert ids(ask(*base, *flags)) != ids(ask(*base))


def test_extremes_mean_greedy(ask):
    want = ids(ask(*GREEDY))
    for flags in (["--top-k", 1], ["--top-p", 1e-6], ["--min-p", 1], ["--temperature", 1e-6]):
        assert ids(ask(*SAMPLE, *flags)) == want, flags


def test_identities_change_nothing(ask):
    want = ids(ask(*SAMPLE))
    for flags in (["--top-k", 0], ["--top-k", -1], ["--top-k", 100000], ["--top-p", 1],
                  ["--min-p", 0], ["--presence-penalty", 0], ["--frequency-penalty", 0],
                  ["--repetition-penalty", 1], ["--min-tokens", 0]):
        assert ids(ask(*SAMPLE, *flags)) == want, flags


def test_allowed_and_bias(ask):
    assert set(ids(ask(*SAMPLE, "--allowed-token-ids", "70,71"))) <= {70, 71}
    assert set(ids(ask(*SAMPLE, "--logit-bias", "66:100"))) == {66}
    assert 66 not in ids(ask(*SAMPLE, "--logit-bias", "66:-100"))


def test_bad_words(ask):
    word = text(ask(*GREEDY, "--logit-bias", "65:100"))[0]
    answer = ask(*GREEDY, "--logit-bias", "65:100", "--bad-words", word)
    assert 65 not in ids(answer)


def test_max_and_min_tokens(ask):
    answer = ask(*GREEDY, "--max-tokens", 3)
    assert len(ids(answer)) == 3 and answer["choices"][0]["finish_reason"] == "length"
    ends = ["--logit-bias", f"{EOS}:100"]
    short, longer = ask(*GREEDY, *ends), ask(*GREEDY, *ends, "--min-tokens", 7)
    assert len(ids(short)) == 1 and short["choices"][0]["finish_reason"] == "stop"
    assert short["choices"][0]["stop_reason"] is None
    assert len(ids(longer)) == 8 and EOS not in ids(longer)[:7]


def test_ignore_eos(ask):
    answer = ask(*GREEDY, "--logit-bias", f"{EOS}:100", "--ignore-eos")
    assert ids(answer) == [EOS] * 24


def test_stop_string(ask):
    whole = text(ask(*GREEDY, "--logit-bias", "65:100,66:99.9", "--frequency-penalty", 1))
    stop = whole[4:7]
    answer = ask(*GREEDY, "--logit-bias", "65:100,66:99.9", "--frequency-penalty", 1, "--stop", stop)
    assert text(answer) == whole[:whole.index(stop)]
    assert answer["choices"][0]["stop_reason"] == stop
    kept = ask(*GREEDY, "--logit-bias", "65:100,66:99.9", "--frequency-penalty", 1, "--stop", stop,
               "--include-stop-str-in-output")
    assert text(kept) == whole[:whole.index(stop)] + stop


def test_stop_token_ids(ask):
    answer = ask(*GREEDY, "--logit-bias", "66:100", "--stop-token-ids", "66,67")
    assert ids(answer) == [66] and answer["choices"][0]["stop_reason"] == 66
    assert text(answer) == ""
    both = ask(*GREEDY, "--logit-bias", "66:100", "--stop-token-ids", "66", "--ignore-eos")
    assert ids(both) == [66]


def test_skip_special_tokens(ask):
    flags = [*GREEDY, "--logit-bias", f"{SPECIAL}:100"]
    assert text(ask(*flags)) == ""
    assert text(ask(*flags, "--no-skip-special-tokens")) == "<|0|>" * 24


def test_logprobs(ask):
    assert ask(*GREEDY)["choices"][0]["logprobs"] is None
    entries = ask(*GREEDY, "--logprobs", 3)["choices"][0]["logprobs"]
    assert len(entries) == 24
    for e in entries:
        assert e["rank"] == 1 and len(e["top"]) == 3
        assert e["top"][0]["token_id"] == e["token_id"]
        assert [t["logprob"] for t in e["top"]] == sorted((t["logprob"] for t in e["top"]),
                                                         reverse=True)
    extra = ask(*GREEDY, "--logprobs", 0, "--logprob-token-ids", "9,5")
    assert [t["token_id"] for t in extra["choices"][0]["logprobs"][0]["top"]] == [9, 5]


def test_prompt_logprobs(ask):
    assert ask(*GREEDY)["prompt_logprobs"] is None
    answer = ask(*GREEDY, "--prompt-logprobs", 2)
    entries = answer["prompt_logprobs"]
    assert entries[0] is None and len(entries) == len(answer["prompt_token_ids"])
    assert all(len(e["top"]) == 2 for e in entries[1:])


def test_n(ask):
    answer = ask(*SAMPLE, "--n", 3)
    assert len(answer["choices"]) == 3 and len({tuple(c["token_ids"])
                                                for c in answer["choices"]}) == 3
    alone = [ids(ask("--temperature", 1, "--seed", 1 + i)) for i in range(3)]
    assert [c["token_ids"] for c in answer["choices"]] == alone
    same = ask(*GREEDY, "--n", 3)
    assert len({tuple(c["token_ids"]) for c in same["choices"]}) == 1


def test_masked_logprobs_are_numbers(ask):
    answer = ask(*GREEDY, "--allowed-token-ids", "70", "--logprobs", 5, "--max-tokens", 4)
    for e in answer["choices"][0]["logprobs"]:
        assert all(isinstance(t["logprob"], float) for t in e["top"])


def test_a_drawn_seed_replays(ask):
    first = ask("--temperature", 1)
    assert ids(ask("--temperature", 1, "--seed", first["seed"])) == ids(first)
