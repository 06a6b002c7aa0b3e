"""`minillm-serve bench latency`: one user alone, beside transformers, in one run."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.llama_cpp import add_llama_cpp, llama_cpp
from benchmarks.report import Comparison, add_quantization, parser, positive
from benchmarks.systems import (
    System,
    load_transformers,
    ours,
    ours_quantized,
    ours_without_codes,
    transformers_static,
    warm_up,
)
from benchmarks.workloads import Job, single
from minillm_serve import LLM


def main(argv: Sequence[str]) -> int:
    """Measures decoding (128 tokens after a prompt of 128) and prefill (1,024 tokens)."""
    options = parser("latency", __doc__)
    options.add_argument("--model", default="smollm2-135m")
    options.add_argument(
        "--output-len", type=positive, default=128, help="tokens decoded (%(default)s)"
    )
    options.add_argument("--prompt-len", type=positive, default=1024, help="prefill (%(default)s)")
    add_quantization(options)
    add_llama_cpp(options)
    chosen = options.parse_args(argv)
    others: dict[str, System] = {}
    if chosen.llama_cpp:
        others["llama.cpp, " + chosen.llama_cpp.name] = llama_cpp(
            chosen.llama_cpp, torch.get_num_threads()
        )
    llm = LLM(chosen.model, dtype="float32")
    model = load_transformers(llm.model_path)
    systems = {
        **ours_quantized(chosen.model, chosen.quantization),
        "ours": ours(llm),
        "ours, weights as float32": ours_without_codes(llm),
        "transformers": transformers_static(model, 1),
        **others,
    }
    prompt = single()[0].prompt
    warm_up(list(systems.values()), single())
    kind = "" if chosen.quantization or others else ", fp32"
    decode = Comparison(
        f"One user: decoding{kind}",
        "output tok/s",
        _alternate(systems, chosen.repeat, lambda run: _decode(run, prompt, chosen.output_len)),
        context={"seed": 0, "prompt": len(prompt), "output": chosen.output_len},
    )
    long = (prompt * 64)[: chosen.prompt_len]
    prefill = Comparison(
        f"One user: reading a prompt{kind}",
        "prompt tok/s",
        _alternate(systems, chosen.repeat, lambda run: len(long) / run([Job(long, 1)])),
        context={"seed": 0, "prompt": len(long)},
    )
    for name, result in (("decode", decode), ("prefill", prefill)):
        print(result.table())
        if chosen.output:
            result.save(chosen.output.with_stem(f"{chosen.output.stem}_{name}"))
    return 0


def _decode(run: System, prompt: list[int], output_len: int) -> float:
    # The prompt costs both the same work; its time is taken off by a run of one token.
    first = run([Job(prompt, 1)])
    return (output_len - 1) / (run([Job(prompt, output_len)]) - first)


def _alternate(
    systems: dict[str, System], repeat: int, measure: Callable[[System], float]
) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repeat):
        for name, system in systems.items():
            values[name].append(measure(system))
    return values
