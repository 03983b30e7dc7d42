"""How tokens are chosen: vLLM's names and defaults. An option that headrace does not honour is
refused when the object is made; values are checked by the engine, which names the field."""
import ctypes
import dataclasses
import enum

from ._library import HEADER, array, text

SAMPLING = dict(HEADER.structs["headrace_sampling"]._fields_)


class RequestOutputKind(enum.Enum):
    """What LLM.stream yields: all of an answer so far, what is new, or nothing before its end."""
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclasses.dataclass
class StructuredOutputsParams:
    """The text is one of `choice`."""
    choice: list[str]


@dataclasses.dataclass
class SamplingParams:
    """temperature 0 is greedy, top_k 0 (or -1) and min_p 0 are off, max_tokens None is what the
    context leaves, seed None draws one. docs/SAMPLING.md says what each does to the bit."""
    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None

    def __post_init__(self):
        if isinstance(self.stop, str):
            self.stop = [self.stop]
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ValueError(f"max_tokens: {self.max_tokens} is not at least 1, or None")
        if not isinstance(self.output_kind, RequestOutputKind):
            raise TypeError(f"output_kind: {self.output_kind!r} is no RequestOutputKind")


UNSET = {"seed": -1, "max_tokens": -1, "logprobs": -1, "prompt_logprobs": -1}  # what None is in C
LISTS = ["stop", "stop_token_ids", "allowed_token_ids", "bad_words", "logprob_token_ids"]
OWN = {"output_kind", "structured_outputs", "logit_bias", *LISTS}


def set_list(to, name, values):
    """An array of the struct's and its length; what it points to must be kept until submit."""
    kind = SAMPLING[name]._type_
    if kind is ctypes.c_char_p:
        values = [text(v, name) for v in values]
    setattr(to, name, array(kind, values, name))
    setattr(to, f"n_{name}", len(values))


def fill(params, to):
    """SamplingParams over a headrace_sampling, every field of it."""
    for field in dataclasses.fields(params):
        if field.name in OWN:
            continue
        value = getattr(params, field.name)
        try:
            setattr(to, field.name, UNSET[field.name] if value is None and field.name in UNSET else value)
        except TypeError:
            raise TypeError(f"{field.name}: {value!r}") from None
    for name in LISTS:
        values = getattr(params, name)
        if values is not None:
            set_list(to, name, values)
    if params.structured_outputs is not None:
        set_list(to, "choice", params.structured_outputs.choice)
    if params.logit_bias:
        ids, values = zip(*params.logit_bias.items())
        to.logit_bias_ids = array(ctypes.c_int64, ids, "logit_bias")
        to.logit_bias_values = array(ctypes.c_double, values, "logit_bias")
        to.n_logit_bias = len(ids)


def from_defaults(of):
    """SamplingParams with what the model's generation_config.json gave a headrace_sampling."""
    names = ["temperature", "top_p", "top_k", "min_p", "repetition_penalty"]
    return SamplingParams(**{name: getattr(of, name) for name in names})
