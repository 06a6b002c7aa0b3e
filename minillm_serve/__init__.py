"""minillm-serve: a complete LLM serving engine, built chapter by chapter in its own course.

>>> from minillm_serve import LLM, SamplingParams
>>> LLM().generate("What is a KV cache?", SamplingParams(max_tokens=64))
"""

from typing import TYPE_CHECKING, Any

from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.core.structured_outputs import StructuredOutputsParams

if TYPE_CHECKING:
    from minillm_serve.llm import LLM

__version__ = "0.1.0"
__all__ = ["LLM", "SamplingParams", "StructuredOutputsParams", "__version__"]


def __getattr__(name: str) -> Any:
    # torch takes a second to import; `minillm-serve --help` and the scheduler do without it.
    if name == "LLM":
        from minillm_serve.llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
