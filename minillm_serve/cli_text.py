"""`minillm-serve generate` and `minillm-serve chat`."""

import argparse
import json
import sys
from collections.abc import Sequence

from minillm_serve.cli_options import (
    add_engine_options,
    add_sampling_options,
    engine_arguments,
    sampling_params,
)
from minillm_serve.core.sampling_params import SamplingParams
from minillm_serve.llm import LLM
from minillm_serve.models.resolve import resolve_model
from minillm_serve.outputs import RequestOutput

FAREWELLS = {"/bye", "/exit", "/quit"}


def generate(argv: Sequence[str]) -> int:
    """Answers prompts: one is streamed, several are batched together."""
    parser = argparse.ArgumentParser(
        prog="minillm-serve generate",
        description="Answers one prompt as it comes, or several batched together.",
    )
    parser.add_argument("prompt", nargs="+", help="'-' reads prompts from stdin, one a line")
    parser.add_argument(
        "--raw", action="store_true", help="complete the text as it is, without the chat template"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a prompt")
    add_engine_options(parser)
    add_sampling_options(parser)
    options = parser.parse_args(argv)
    texts = [line for prompt in options.prompt for line in _lines(prompt)]
    params = sampling_params(options)
    llm = _load(options)
    templated = not options.raw and bool(getattr(llm.tokenizer, "chat_template", None))
    prompts = [
        llm.chat_prompt([{"role": "user", "content": text}]) if templated else text
        for text in texts
    ]
    if len(prompts) == 1 and not options.json:
        _print_stream(llm, prompts[0], params)
        return 0
    outputs = llm.generate(prompts, params, use_tqdm=sys.stderr.isatty())
    for text, output in zip(texts, outputs, strict=True):
        print(_as_json(text, output) if options.json else f"> {text}\n{output.outputs[0].text}\n")
    return int(any(output.outputs[0].error for output in outputs))


def chat(argv: Sequence[str]) -> int:
    """A conversation, until an empty line at the end of input or one of the farewells.

    Returns:
        1 if a line of a pipe could not be answered: a person reads why and goes on, a script reads
        this number.
    """
    parser = argparse.ArgumentParser(
        prog="minillm-serve chat", description="Talks to the model; /bye ends it, /new starts anew."
    )
    parser.add_argument("--system", help="a system message")
    add_engine_options(parser)
    add_sampling_options(parser)
    options = parser.parse_args(argv)
    params = sampling_params(options)
    llm = _load(options)
    opening = [{"role": "system", "content": options.system}] if options.system else []
    messages, status = list(opening), 0
    print(f"{llm.model_path.name}: ask away (/new starts anew, /bye ends)", file=sys.stderr)
    while (line := _ask()) is not None:
        if line == "/new":
            messages = list(opening)
        elif line:
            messages.append({"role": "user", "content": line})
            try:
                answer = _print_stream(llm, llm.chat_prompt(messages), params)
            except KeyboardInterrupt:
                print(" [interrupted]")
                messages.pop()
                continue
            except ValueError as error:  # the conversation has outgrown the context, say
                print(f"{error}\n(/new starts a new conversation)", file=sys.stderr)
                messages.pop()
                status = 0 if sys.stdin.isatty() else 1
                continue
            messages.append({"role": "assistant", "content": answer})
    return status


def _load(options: argparse.Namespace) -> LLM:
    # Fetching the embedded model takes a minute, once; the progress bar goes to stderr.
    options.model = resolve_model(options.model, quantization=options.quantization)
    return LLM(**engine_arguments(options))


def _print_stream(llm: LLM, prompt: str | list[int], params: SamplingParams) -> str:
    pieces = []
    with llm.stream(prompt, params) as stream:
        for piece in stream:
            print(piece, end="", flush=True)
            pieces.append(piece)
    print()
    return "".join(pieces)


def _ask() -> str | None:
    try:
        line = input("> " if sys.stdin.isatty() else "").strip()
    except EOFError:
        return None
    return None if line in FAREWELLS else line


def _lines(prompt: str) -> list[str]:
    if prompt != "-":
        return [prompt]
    return [line.rstrip("\n") for line in sys.stdin if line.strip()]


def _as_json(text: str, output: RequestOutput) -> str:
    answer = output.outputs[0]
    return json.dumps(
        {
            "prompt": text,
            "text": answer.text,
            "finish_reason": answer.finish_reason,
            "prompt_tokens": len(output.prompt_token_ids),
            "completion_tokens": len(answer.token_ids),
            "ttft_s": output.metrics.ttft,
            "tpot_s": output.metrics.tpot,
        },
        ensure_ascii=False,
    )
