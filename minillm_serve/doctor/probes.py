"""The functions that run in a child process, each importing what it looks at and reporting on it.

    python -m minillm_serve.doctor.probes torch

Each returns a dictionary that is printed as one line of JSON. What an import raises becomes
``{"error": ..., "missing": ...}``; what it prints on the way is read by nobody.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Callable
from typing import Any


def torch() -> dict[str, Any]:
    """Import torch, multiply on the CPU and on each GPU, and describe both."""
    import torch

    small = torch.ones(8, 8)
    if float((small @ small).sum()) != 512.0:
        raise RuntimeError("a product of two 8 x 8 matrices of ones is wrong on the CPU")
    gpus = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        gpu = {
            "name": properties.name,
            "memory": properties.total_memory,
            "capability": f"{properties.major}.{properties.minor}",
            "error": None,
        }
        try:
            on_gpu = small.to(f"cuda:{index}")
            if float((on_gpu @ on_gpu).sum()) != 512.0:
                gpu["error"] = "a product of two 8 x 8 matrices of ones is wrong"
        except RuntimeError as error:
            gpu["error"] = str(error).splitlines()[0]
        gpus.append(gpu)
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
        "gpus": gpus,
    }


def numpy() -> dict[str, Any]:
    """Import numpy."""
    import numpy

    return {"version": numpy.__version__}


def numba() -> dict[str, Any]:
    """Compile and run one function, since Numba imports on machines where it cannot compile."""
    import numba
    import numpy

    @numba.njit
    def total(values: Any) -> Any:
        result = 0.0
        for value in values:
            result += value
        return result

    if total(numpy.arange(5.0)) != 10.0:
        raise RuntimeError("a compiled sum of 0 + 1 + 2 + 3 + 4 is not 10")
    return {"version": numba.__version__, "threads": numba.get_num_threads()}


def transformers() -> dict[str, Any]:
    """Import a tokenizer class and a model class: the second is what a stray `kernels/` breaks."""
    import transformers
    from transformers import AutoTokenizer, LlamaForCausalLM

    return {
        "version": transformers.__version__,
        "classes": [AutoTokenizer.__name__, LlamaForCausalLM.__name__],
    }


def canary() -> dict[str, Any]:
    """Run the Triton kernel whose result is known."""
    from dataclasses import asdict

    from minillm_serve.kernels.canary import check_canary

    return asdict(check_canary())


def gguf() -> dict[str, Any]:
    """Import the GGUF reader; accelerate (slow to import) is only looked up."""
    import gguf

    if importlib.util.find_spec("accelerate") is None:
        raise ModuleNotFoundError("No module named 'accelerate'", name="accelerate")
    return {
        "reader": gguf.GGUFReader.__name__,
        "version": importlib.metadata.version("gguf"),
        "accelerate": importlib.metadata.version("accelerate"),
    }


def model() -> dict[str, Any]:
    """Look the embedded model up in the cache; every file's size is compared, none is read."""
    from minillm_serve.models.cache import cache_root, problem
    from minillm_serve.models.embedded import SMOLLM2, embedded_source

    path = cache_root() / SMOLLM2.name
    source = embedded_source(SMOLLM2, progress=False)
    return {
        "root": str(cache_root()),
        "path": str(path),
        "present": path.exists(),
        "problem": problem(path, source.fingerprint, full=False),
    }


def course() -> dict[str, Any]:
    """Import what a notebook's first cell imports, and look the rest up."""
    import anywidget
    import ipywidgets
    import matplotlib

    needed = ["jupyterlab", "nbformat", "nbclient", "ipykernel", "latex2mathml"]
    absent = [name for name in needed if importlib.util.find_spec(name) is None]
    if absent:
        raise ModuleNotFoundError(f"No module named {absent[0]!r}", name=absent[0])
    return {
        "jupyterlab": importlib.metadata.version("jupyterlab"),
        "ipywidgets": ipywidgets.__version__,
        "anywidget": anywidget.__version__,
        "matplotlib": matplotlib.__version__,
    }


def browser() -> dict[str, Any]:
    """Look for a browser that starts, with the course's own search."""
    from minillm_serve.course.browser import find

    found = find()
    return {"path": str(found) if found else None}


PROBES: dict[str, Callable[[], dict[str, Any]]] = {
    function.__name__: function
    for function in (torch, numpy, numba, transformers, canary, gguf, model, course, browser)
}


def main(argv: list[str]) -> int:
    """Run the probe that is named, and print what it found."""
    try:
        answer = PROBES[argv[0]]()
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        answer = {"error": _one_line(error), "missing": missing}
    except Exception as error:  # whatever a broken package raises is the finding
        answer = {"error": _one_line(error)}
    print(json.dumps(answer))
    return 0


def _one_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[0]}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
