"""Command-line options that several commands share."""

import argparse
import re
from typing import Any

from minillm_serve.core import POLICIES, PREFIX_CACHES, SamplingParams
from minillm_serve.models.schemes import SCHEMES
from minillm_serve.runtime.kv_quantizer import KV_CACHE_DTYPES
from minillm_serve.scheduling import PREEMPTIONS, SCHEDULERS
from minillm_serve.speculation import SpeculativeConfig

UNITS = {"": 1} | {
    name: base**power
    for power, letter in enumerate("kmgt", start=1)
    for name, base in ((letter, 1000), (f"{letter}i", 1024))
}


def parse_bytes(text: str) -> int:
    """Reads a size: 1GiB, 512MiB, 4GB or plain bytes.

    Raises:
        argparse.ArgumentTypeError: it is none.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 1GiB, 512MiB or 4GB")
    return int(float(match[1]) * UNITS[match[2] or ""])


def parse_speculation(text: str) -> SpeculativeConfig | None:
    """Reads a method's name or JSON.

    Raises:
        argparse.ArgumentTypeError: it is neither, or has a wrong value.
    """
    try:
        return SpeculativeConfig.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Options that become arguments of `LLM`."""
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--model",
        default="smollm2-135m",
        help="embedded name, local directory, .gguf file or hub id (default: %(default)s)",
    )
    group.add_argument("--dtype", default="auto", help="auto, float32, bfloat16 or float16")
    group.add_argument("--device", default="auto", help="auto, cpu or cuda")
    group.add_argument("--quantization", choices=SCHEMES, help="keep the weights in 8 or 4 bits")
    group.add_argument("--block-size", type=int, default=16, help="tokens a KV block")
    group.add_argument("--num-blocks", type=int, help="KV blocks in the pool")
    group.add_argument("--kv-cache-memory", type=parse_bytes, help="size of the pool, as in 1GiB")
    group.add_argument(
        "--kv-cache-dtype",
        default="auto",
        choices=list(KV_CACHE_DTYPES),
        help="int8 and fp8 keep about twice as many tokens as 16 bits (default: %(default)s)",
    )
    group.add_argument("--max-num-seqs", type=int, default=64, help="sequences run at once")
    group.add_argument("--max-num-batched-tokens", type=int, default=512, help="tokens a step")
    group.add_argument("--max-model-len", type=int, help="tokens of prompt and output together")
    group.add_argument("--attention-backend", default="auto", help="auto or a backend's name")
    group.add_argument(
        "--prefix-cache",
        default="hash",
        choices=[*PREFIX_CACHES, "none"],
        help="keeps the KV of prompts for others that begin alike (default: %(default)s)",
    )
    group.add_argument(
        "--speculative-config",
        type=parse_speculation,
        help="guess tokens and verify them: auto, ngram, eagle, early_exit, or JSON as in "
        '{"method": "ngram", "num_speculative_tokens": 8}',
    )
    group = parser.add_argument_group("scheduling")
    group.add_argument(
        "--scheduler", default="continuous", choices=SCHEDULERS, help="(default: %(default)s)"
    )
    group.add_argument(
        "--policy",
        default="fcfs",
        choices=list(POLICIES),
        help="who goes first (%(default)s); priorities: see LLM.generate",
    )
    group.add_argument(
        "--swap-space", type=parse_bytes, default=0, help="host memory for preempted KV, as in 1GiB"
    )
    group.add_argument(
        "--preemption", default="auto", choices=PREEMPTIONS, help="(default: %(default)s)"
    )


def engine_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """What `add_engine_options` read, as keyword arguments of `LLM`."""
    names = (
        "model dtype device quantization block_size num_blocks kv_cache_memory kv_cache_dtype "
        "max_num_seqs max_num_batched_tokens max_model_len attention_backend seed "
        "scheduler policy swap_space preemption prefix_cache speculative_config"
    )
    read = {name: getattr(options, name) for name in names.split() if hasattr(options, name)}
    return {name: None if value == "none" else value for name, value in read.items()}


def add_sampling_options(parser: argparse.ArgumentParser) -> None:
    """Options that become `SamplingParams`."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", type=int, default=256, help="most tokens (%(default)s)")
    group.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (%(default)s)")
    group.add_argument("--top-p", type=float, default=1.0, help="nucleus (%(default)s)")
    group.add_argument("--top-k", type=int, default=0, help="0 keeps all (%(default)s)")
    group.add_argument("--min-p", type=float, default=0.0, help="relative floor (%(default)s)")
    group.add_argument("--seed", type=int, default=0, help="of the draws (%(default)s)")
    group.add_argument("--ignore-eos", action="store_true", help="go on past the end token")


def sampling_params(options: argparse.Namespace) -> SamplingParams:
    """What `add_sampling_options` read."""
    return SamplingParams(
        max_tokens=options.max_tokens,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        min_p=options.min_p,
        seed=options.seed,
        ignore_eos=options.ignore_eos,
    )
