"""The engine's shell face: `minillm-serve <command>`."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

Command = Callable[[Sequence[str]], int]

#: command -> (module, one line of help). Modules are imported when they are called: `--help`
#: answers at once, and `doctor` runs where torch is broken.
COMMANDS = {
    "generate": ("minillm_serve.cli_text:generate", "complete prompts"),
    "chat": ("minillm_serve.cli_text:chat", "talk to the model"),
    "serve": ("minillm_serve.cli_serve:main", "serve the model over HTTP, in OpenAI's API"),
    "bench": ("minillm_serve.cli_bench:main", "measure the engine beside others"),
    "quality": ("minillm_serve.quality.command:main", "measure what fewer bits cost"),
    "models": ("minillm_serve.models.cli:main", "list, fetch and verify models"),
    "train-drafter": (
        "minillm_serve.distill.command:main",
        "train a draft head for speculative decoding",
    ),
    "doctor": ("minillm_serve.doctor:main", "check this machine and say what to do"),
    "exercises": (
        "minillm_serve.course.exercises.commands:main",
        "check, reset and grade the course's exercises",
    ),
    "lab": ("minillm_serve.course.lab:main", "open the course in JupyterLab"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit status: 0 well, 1 failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="minillm-serve",
        description="A complete LLM serving engine, and the course that builds it.",
        epilog="`minillm-serve COMMAND --help` tells more.",
    )
    parser.add_argument("--version", action="store_true", help="print the version and leave")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (_, line) in COMMANDS.items():
        commands.add_parser(name, help=line, add_help=False)
    known, rest = parser.parse_known_args(arguments[:1])
    if known.version:
        from minillm_serve import __version__

        print(__version__)
        return 0
    if known.command is None:
        parser.print_help()
        return 2 if rest else 0
    return _run(known.command, arguments[1:])


def _run(name: str, arguments: Sequence[str]) -> int:
    module, function = COMMANDS[name][0].split(":")
    try:
        command: Command = getattr(import_module(module), function)
        return command(arguments)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader (`| head`) has gone
        sys.stderr.close()
        return 0
    except ValueError as error:  # bad input: the message says which value and what to do
        print(f"minillm-serve {name}: {error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        what = str(error).splitlines()[0] if str(error) else "MemoryError"
        print(
            f"minillm-serve {name}: out of memory ({what}): lower --num-blocks, --kv-cache-memory "
            "or --max-num-batched-tokens, choose a smaller model, or end what else takes memory",
            file=sys.stderr,
        )
        return 1


def _is_out_of_memory(error: Exception) -> bool:
    """Python's, torch's on a GPU, or torch's on a CPU. (torch is not imported for that.)"""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or "DefaultCPUAllocator" in str(error)


if __name__ == "__main__":
    sys.exit(main())
