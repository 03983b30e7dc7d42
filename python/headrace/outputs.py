"""Answers, with vLLM's names, and how they grow from the engine's events."""
import ctypes
import dataclasses

from ._library import HEADER, error
from .sampling import RequestOutputKind

KIND = HEADER.constants


@dataclasses.dataclass
class Logprob:
    """-inf where a mask left nothing; rank 1 is the likeliest."""
    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


@dataclasses.dataclass
class CompletionOutput:
    """One choice of a request."""
    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None
    logprobs: list[dict[int, Logprob]] | None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self):
        return self.finish_reason is not None


@dataclasses.dataclass
class RequestMetrics:
    """Seconds: waiting, until the first token, and after; of the choice that ended last."""
    queue_s: float
    prefill_s: float
    decode_s: float


@dataclasses.dataclass
class RequestOutput:
    request_id: str
    prompt: str | None
    prompt_token_ids: list[int] | None
    prompt_logprobs: list[dict[int, Logprob] | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    metrics: RequestMetrics | None = None
    num_cached_tokens: int | None = None


def counted(pointer, n):
    return ctypes.string_at(pointer, n).decode(errors="replace") if n else ""


def logprobs_of(token, decode):
    """The chosen token first, then the top entries; an id that is both is there once."""
    out = {}
    for entry in [token.chosen, *token.top[:token.n_top]]:
        if entry.token_id not in out:
            out[entry.token_id] = Logprob(entry.logprob, entry.rank or None, decode(entry.token_id))
    return out


class Job:
    """A request under way. Events come in by take(), on whichever thread polls; what is to be shown
    goes out by output()."""

    def __init__(self, prompt, params, decode):
        self.params, self.decode, self.failure = params, decode, None
        self.done = self.fresh = False
        self.shown = [(0, 0)] * params.n  # characters and tokens that were told
        self.whole = RequestOutput("", prompt, None, None, [
            CompletionOutput(i, "", [], *((None, None) if params.logprobs is None else (0.0, [])))
            for i in range(params.n)], False)

    def take(self, event):
        kind, whole = event.kind, self.whole
        if kind == KIND["HEADRACE_EVENT_STARTED"]:
            whole.prompt_token_ids = event.prompt_ids[:event.n_prompt_ids]
        elif kind == KIND["HEADRACE_EVENT_PROMPT"]:
            whole.prompt_logprobs = whole.prompt_logprobs or []
            for token in event.tokens[:event.n_tokens]:
                first = not whole.prompt_logprobs
                whole.prompt_logprobs.append(None if first else logprobs_of(token, self.decode))
        elif kind == KIND["HEADRACE_EVENT_TOKENS"]:
            self._tokens(event, whole.outputs[event.choice])
        elif kind == KIND["HEADRACE_EVENT_FINISHED"]:
            self._finished(event, whole.outputs[event.choice])
        elif kind == KIND["HEADRACE_EVENT_FAILED"]:
            self.failure = error(event.status, event.message or b"")
        elif kind == KIND["HEADRACE_EVENT_DONE"]:
            self.done = self.fresh = whole.finished = True

    def _tokens(self, event, choice):
        self.fresh = True
        choice.text += counted(event.text, event.text_bytes)
        for token in event.tokens[:event.n_tokens]:
            choice.token_ids.append(token.chosen.token_id)
            if choice.logprobs is not None:
                choice.logprobs.append(logprobs_of(token, self.decode))
                choice.cumulative_logprob += token.chosen.logprob

    def _finished(self, event, choice):
        choice.finish_reason = event.finish_reason.decode()
        if event.stop_string is not None:
            choice.stop_reason = event.stop_string.decode(errors="replace")
        elif event.stop_token_id >= 0:
            choice.stop_reason = event.stop_token_id
        self.whole.num_cached_tokens = event.cached_tokens
        self.whole.metrics = RequestMetrics(event.queue_s, event.prefill_s, event.decode_s)

    def output(self):
        """A copy of what is there, or with DELTA of what was not shown yet."""
        self.fresh = False
        delta = self.params.output_kind is RequestOutputKind.DELTA
        return dataclasses.replace(self.whole, outputs=[self._part(c, delta)
                                                        for c in self.whole.outputs])

    def _part(self, choice, delta):
        characters, tokens = self.shown[choice.index] if delta else (0, 0)
        self.shown[choice.index] = (len(choice.text), len(choice.token_ids))
        return dataclasses.replace(
            choice, text=choice.text[characters:], token_ids=choice.token_ids[tokens:],
            logprobs=None if choice.logprobs is None else choice.logprobs[tokens:])
