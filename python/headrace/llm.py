"""An engine in this process. `LLM` has vLLM's names for what both can do.

Any thread may call an LLM. Whoever waits for an answer polls the engine for all: one thread at a time,
which hands every event to the request that it belongs to.
"""
import ctypes
import json
import threading
import weakref

from . import _library
from ._library import HEADER, LIBRARY, check, made
from .outputs import Job
from .sampling import RequestOutputKind, SamplingParams, fill, from_defaults

NOTHING_CAME = HEADER.constants["HEADRACE_DEADLINE_EXCEEDED"]
OPTIONS = {name: kind for name, kind in HEADER.structs["headrace_options"]._fields_
           if name not in ("size", "log", "log_context") and not name.startswith("n_")}
PROMPT_KEYS = {"prompt", "prompt_token_ids", "cache_salt"}
POLL_MS = 100  # so that Ctrl-C is heard


def set_option(options, name, value):
    """One field of headrace_options: vLLM's name, or the header's. Objects become JSON."""
    field = name
    if name not in OPTIONS and f"{name}_json" in OPTIONS:
        field = f"{name}_json"
        value = value if isinstance(value, str) else json.dumps(value)
    if name == "generation_config":
        if value not in ("auto", "vllm"):
            raise ValueError(f"generation_config: {value!r} is not 'auto' or 'vllm'")
        field, value = "use_generation_config", int(value == "auto")
    if field not in OPTIONS:
        raise TypeError(f"LLM() has no option '{name}'; there are: {', '.join(sorted(OPTIONS))}")
    kind = OPTIONS[field]
    if kind is ctypes.POINTER(ctypes.c_char_p):
        values = [_library.text(v, name) for v in value]
        setattr(options, f"n_{field}", len(values))
        value = (ctypes.c_char_p * len(values))(*values)
    elif kind is ctypes.c_char_p and value is not None:
        value = _library.text(str(value), name)
    try:
        setattr(options, field, value)
    except TypeError:
        raise TypeError(f"{name}: {value!r}") from None


class Tokenizer:
    """The model's, as LLM.get_tokenizer() gives it."""

    def __init__(self, llm):
        self._llm = llm

    def encode(self, text, add_special_tokens=True):
        data, ids, n = text.encode(), ctypes.POINTER(ctypes.c_int64)(), ctypes.c_size_t()
        check(LIBRARY.headrace_tokenize(self._llm._open, data, len(data), int(add_special_tokens),
                                        ctypes.byref(ids), ctypes.byref(n)))
        out = ids[:n.value]
        LIBRARY.headrace_free(ids)
        return out

    def decode(self, token_ids, skip_special_tokens=False):
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        text, n = ctypes.c_void_p(), ctypes.c_size_t()
        check(LIBRARY.headrace_detokenize(
            self._llm._open, _library.array(ctypes.c_int64, ids, "token_ids"), len(ids),
            int(skip_special_tokens), ctypes.cast(ctypes.byref(text), DETOKENIZED), ctypes.byref(n)))
        out = ctypes.string_at(text, n.value).decode(errors="replace") if n.value else ""
        LIBRARY.headrace_free(text)
        return out


DETOKENIZED = LIBRARY.headrace_detokenize.argtypes[4]


class LLM:
    """LLM("smollm2-135m", max_model_len=2048): loads, compiles and warms up. Options are the fields of
    headrace_options in headrace.h, which are the command's flags; objects (speculative_config,
    override_generation_config, buckets) may be dicts. close() or a with block ends the engine."""

    def __init__(self, model, **options):
        self._engine, self._jobs = None, {}
        self._end = lambda: None
        self._turn, self._polling = threading.Condition(), False
        o = made("options")
        o.log = ctypes.cast(_library.log, ctypes.c_void_p)
        for name, value in {"model": model, **options}.items():
            set_option(o, name, value)
        engine = ctypes.POINTER(HEADER.structs["headrace_engine"])()
        check(LIBRARY.headrace_engine_create(ctypes.byref(o), ctypes.byref(engine)))
        self._engine = engine
        self._end = weakref.finalize(self, LIBRARY.headrace_engine_destroy, engine)

    # ---- life ------------------------------------------------------------------------------------

    def close(self):
        """Ends running requests and the engine; a second time does nothing. Whoever waits for an
        answer on another thread gets a ValueError."""
        with self._turn:
            self._engine = None
            while self._polling:
                self._turn.wait()
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @property
    def _open(self):
        if not self._engine:
            raise ValueError("this LLM is closed")
        return self._engine

    # ---- answers ---------------------------------------------------------------------------------

    def generate(self, prompts, sampling_params=None, *, use_tqdm=False, priority=None,
                 tokenization_kwargs=None):
        """A RequestOutput for each prompt, in their order. A prompt is a text, a list of token ids, or
        a dict with "prompt" or "prompt_token_ids", and perhaps "cache_salt". sampling_params: one for
        all, or a list; None is get_default_sampling_params()."""
        no_progress_bar(use_tqdm)
        jobs = self._submit_all(prompts_of(prompts), sampling_params, priority,
                                special_tokens(tokenization_kwargs))
        return self._answers(jobs)

    def chat(self, messages, sampling_params=None, use_tqdm=False, *, add_generation_prompt=True,
             continue_final_message=False, tools=None, documents=None, chat_template_kwargs=None,
             priority=None):
        """The same for a conversation (a list of messages) or several. Special-token text in a
        message stays text."""
        no_progress_bar(use_tqdm)
        chats = [messages] if messages and isinstance(messages[0], dict) else messages
        shared = {"add_generation_prompt": int(add_generation_prompt),
                  "continue_final_message": int(continue_final_message)}
        for name, value in (("tools_json", tools), ("documents_json", documents),
                            ("chat_template_kwargs_json", chat_template_kwargs)):
            if value is not None:
                shared[name] = json.dumps(value).encode()
        requests = [(None, {**shared, "messages_json": json.dumps(m).encode()}) for m in chats]
        return self._answers(self._submit_all(requests, sampling_params, priority, {}))

    def stream(self, prompts, sampling_params=None, *, priority=None, tokenization_kwargs=None):
        """Yields a RequestOutput whenever one of the answers has grown, as output_kind says. Leaving
        the loop cancels what still runs."""
        jobs = self._submit_all(prompts_of(prompts), sampling_params, priority,
                                special_tokens(tokenization_kwargs))
        yield from self._grow(jobs)

    def get_default_sampling_params(self):
        """SamplingParams(), with the model's generation_config.json over them."""
        return from_defaults(made("sampling", self._open))

    def get_tokenizer(self):
        return Tokenizer(self)

    # ---- what it is ------------------------------------------------------------------------------

    @property
    def info(self):
        """headrace_info as a dict."""
        info = HEADER.structs["headrace_info"]()
        LIBRARY.headrace_info_get(self._open, ctypes.byref(info))
        out = {name: getattr(info, name) for name, _ in info._fields_ if name != "size"}
        out["eos_token_ids"] = info.eos_token_ids[:out.pop("n_eos_token_ids")]
        out = {k: v.decode() if isinstance(v, bytes) else v for k, v in out.items()}
        return {**out, "numerics": json.loads(out["numerics"])}

    def manifest(self):
        """Every program, its bucket and numerics."""
        text = LIBRARY.headrace_manifest(self._open, 1)
        if not text:
            raise MemoryError("manifest")
        try:
            return json.loads(ctypes.string_at(text))
        finally:
            LIBRARY.headrace_free(text)

    # ---- inside ----------------------------------------------------------------------------------

    def _submit_all(self, requests, params, priority, shared):
        params = self.get_default_sampling_params() if params is None else params
        params = list(params) if isinstance(params, (list, tuple)) else [params] * len(requests)
        priority = [0] * len(requests) if priority is None else priority
        if not len(requests) == len(params) == len(priority):
            raise ValueError(f"{len(requests)} prompts, {len(params)} sampling_params and "
                             f"{len(priority)} priorities")
        jobs = []
        try:
            for (prompt, fields), p, first in zip(requests, params, priority):
                jobs.append(self._submit(prompt, {**shared, **fields, "priority": first}, p))
        except BaseException:
            self._cancel(jobs)
            raise
        return jobs

    def _submit(self, prompt, fields, params):
        if not isinstance(params, SamplingParams):
            raise TypeError(f"sampling_params: {params!r} is no SamplingParams")
        sampling, request = made("sampling", self._open), made("request")
        fill(params, sampling)
        request.sampling = ctypes.pointer(sampling)
        for name, value in fields.items():
            setattr(request, name, ctypes.cast(value, ctypes.c_void_p) if name == "prompt" else value)
        job, number = Job(prompt, params, self._decoded), ctypes.c_uint64()
        with self._turn:  # no event may come before it is known whose it is
            check(LIBRARY.headrace_submit(self._open, ctypes.byref(request), ctypes.byref(number)))
            job.id, job.whole.request_id = number.value, str(number.value)
            self._jobs[job.id] = job
        return job

    def _decoded(self, token_id):
        return Tokenizer(self).decode(token_id)

    def _cancel(self, jobs):
        """Asks for their end and forgets them; a failure there is the engine's own end."""
        with self._turn:
            for job in jobs:
                if not job.done and self._engine:
                    LIBRARY.headrace_cancel(self._engine, job.id)
                self._jobs.pop(job.id, None)

    def _wait(self, ready):
        """Polls, or waits for the thread that does, until ready() is true."""
        with self._turn:
            while not ready():
                self._open  # closed meanwhile?
                if self._polling:
                    self._turn.wait()
                    continue
                self._polling = True
                try:
                    self._poll()
                finally:
                    self._polling = False
                    self._turn.notify_all()

    def _poll(self):
        """One event to its request. The lock is open while this thread waits."""
        event, engine = HEADER.structs["headrace_event"](), self._open
        self._turn.release()
        try:
            status = LIBRARY.headrace_poll(engine, ctypes.byref(event), POLL_MS)
            message = LIBRARY.headrace_message() if status else b""
        finally:
            self._turn.acquire()
        if status and status != NOTHING_CAME:
            raise _library.error(status, message)
        job = None if status else self._jobs.get(event.id)
        if job:
            job.take(event)
            if job.done:
                del self._jobs[event.id]

    def _answers(self, jobs):
        try:
            self._wait(lambda: all(j.done or j.failure for j in jobs))
            failures = [j.failure for j in jobs if j.failure]
            if failures:
                raise failures[0]
        finally:
            self._cancel(jobs)
        return [j.whole for j in jobs]

    def _grow(self, jobs):
        left = list(jobs)
        try:
            while left:
                self._wait(lambda: any(j.fresh or j.failure for j in left))
                for job in [j for j in left if j.fresh or j.failure]:
                    if job.failure:
                        raise job.failure
                    if job.done:
                        left.remove(job)
                    if job.done or job.params.output_kind is not RequestOutputKind.FINAL_ONLY:
                        yield job.output()
                    else:
                        job.fresh = False
        finally:
            self._cancel(jobs)


def no_progress_bar(asked):
    if asked:
        raise ValueError("use_tqdm: there is no progress bar here")


def special_tokens(tokenization_kwargs):
    kwargs = dict(tokenization_kwargs or {})
    out = {}
    if "add_special_tokens" in kwargs:
        out["add_special_tokens"] = int(kwargs.pop("add_special_tokens"))
    if kwargs:
        raise TypeError(f"tokenization_kwargs: {', '.join(kwargs)} is not to be had here")
    return out


def prompts_of(prompts):
    """(text or None, fields of headrace_request) for each."""
    one = isinstance(prompts, (str, dict)) or (prompts and isinstance(prompts[0], int))
    return [prompt_of(p) for p in ([prompts] if one else prompts)]


def prompt_of(prompt):
    if isinstance(prompt, str):
        prompt = {"prompt": prompt}
    elif not isinstance(prompt, dict):
        prompt = {"prompt_token_ids": list(prompt)}
    unknown = set(prompt) - PROMPT_KEYS
    if unknown or not {"prompt", "prompt_token_ids"} & set(prompt):
        raise TypeError(f"a prompt is a text, token ids, or a dict of {', '.join(sorted(PROMPT_KEYS))}, "
                        f"not one of {', '.join(map(str, prompt))}")
    fields = {}
    if "prompt_token_ids" in prompt:
        ids = prompt["prompt_token_ids"]
        fields = {"prompt_ids": _library.array(ctypes.c_int64, ids, "prompt_token_ids"),
                  "n_prompt_ids": len(ids)}
    else:
        data = prompt["prompt"].encode()
        fields = {"prompt": data, "prompt_bytes": len(data)}
    if prompt.get("cache_salt") is not None:
        fields["cache_salt"] = _library.text(prompt["cache_salt"], "cache_salt")
    return prompt.get("prompt"), fields
