"""headrace in Python: LLM(model).generate(prompts, SamplingParams(...)), with vLLM's names."""
from ._library import VERSION as __version__
from ._library import HeadraceError, InvalidRequest
from .llm import LLM
from .outputs import CompletionOutput, Logprob, RequestMetrics, RequestOutput
from .sampling import RequestOutputKind, SamplingParams, StructuredOutputsParams

__all__ = ["LLM", "SamplingParams", "StructuredOutputsParams", "RequestOutputKind", "RequestOutput",
           "CompletionOutput", "Logprob", "RequestMetrics", "HeadraceError", "InvalidRequest",
           "__version__"]
