"""`minillm-serve serve`: the engine over HTTP."""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NoReturn, TextIO

from minillm_serve.cli_options import add_engine_options, engine_arguments, parse_bytes
from minillm_serve.restart import EXIT_ILL, end, restart
from minillm_serve.server.settings import ServerSettings

if TYPE_CHECKING:
    from minillm_serve.server.tracing import Tracing

    MakeTracing = Callable[[str, Callable[[], float]], Tracing]

#: Where the key may stand instead of the command line, which every user of the machine can read.
KEY_VARIABLE = "MINILLM_SERVE_API_KEY"
LOOPBACK = ("127.", "::1", "localhost")


def main(argv: Sequence[str]) -> int:
    """Serves until a signal comes, or the engine is past help.

    What then happens says `--when-ill`: whatever it is, the process never hangs.

    Raises:
        ValueError: an option cannot be used, the port is taken, or the extra is not installed.
    """
    options = parser().parse_args(argv)
    options.model = options.served or options.model
    settings = _settings(options)
    try:
        from minillm_serve.server.app import create_app
        from minillm_serve.server.run import address_of, bind, serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("minillm_serve"):
            raise
        raise ValueError(
            f"{error.name} is missing, which the server needs: pip install 'minillm-serve[server]'"
        ) from None
    make_tracing = _tracing(options.otlp_traces_endpoint)
    with bind(options.host, options.port) as bound:
        # Only now what takes long: torch, the model.
        from minillm_serve.async_llm import AsyncLLM
        from minillm_serve.llm import LLM
        from minillm_serve.models.resolve import resolve_model

        options.model = resolve_model(options.model, quantization=options.quantization)
        llm = LLM(
            **engine_arguments(options),
            max_num_waiting=options.max_num_waiting,
            max_waiting_tokens=options.max_waiting_tokens,
            refuse_late=options.refuse_late,
        )
        _say("preparing: a minute on a new machine, seconds after that", sys.stderr)
        llm.warm_up()
        url, name = address_of(bound), settings.served_model_name
        if settings.api_key is None and not options.host.startswith(LOOPBACK):
            _say(f"warning: {url} is open to whoever can reach it: set --api-key", sys.stderr)
        tracing = make_tracing(name, llm.engine.clock) if make_tracing is not None else None
        app = create_app(AsyncLLM(llm, stuck_after=options.stuck_after), settings, tracing)
        hello = _hello(url, name, settings.api_key is not None)
        ends = options.when_ill != "stay"
        problem = serve(app, bound, lambda: _say(hello, sys.stdout), ends_if_ill=ends)
    return 0 if problem is None else _leave(problem, options.when_ill, argv, url)


def _leave(problem: str, when_ill: str, argv: Sequence[str], url: str) -> NoReturn:
    """Ends a process whose engine is past help, or begins anew on the same port."""
    _say(
        f"minillm-serve serve: the engine is past help: {problem} (--stuck-after and --when-ill "
        "decide on that)",
        sys.stderr,
    )
    if when_ill == "restart":
        restart([*argv, "--port", url.rsplit(":", 1)[1]])  # even if any would have done
    end()


def _say(text: str, stream: TextIO) -> None:
    """Prints, if that is possible: a disk that is full, or a reader who has gone, stops nobody."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # What could not be written must not be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _tracing(endpoint: str | None) -> "MakeTracing | None":
    """Makes what sends spans there, once it gets a model's name and the engine's clock."""
    if endpoint is None:
        return None
    try:
        from minillm_serve.server.tracing import Tracing, export_to
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("minillm_serve"):
            raise
        raise ValueError(
            f"{error.name} is missing, which --otlp-traces-endpoint needs: "
            "pip install 'minillm-serve[tracing]'"
        ) from None
    return partial(Tracing, export_to(endpoint))


def _hello(url: str, model: str, has_key: bool) -> str:
    hello = {"role": "user", "content": "Hello!"}
    body = {"model": model, "messages": [hello], "max_tokens": 32}
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if has_key else ""
    return (
        f"{model} is served at {url}/v1 (Ctrl-C stops it). Try: curl {url}/v1/chat/completions"
        f"{key} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def parser() -> argparse.ArgumentParser:
    """The command's options, the engine's among them."""
    made = argparse.ArgumentParser(
        prog="minillm-serve serve",
        description="Serves a model over HTTP, in OpenAI's API with vLLM's extras.",
    )
    made.add_argument("served", nargs="?", metavar="MODEL", help="the same as --model")
    group = made.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="to listen on (%(default)s)")
    group.add_argument("--port", type=int, default=8000, help="0 takes any (%(default)s)")
    group.add_argument(
        "--api-key", default=os.environ.get(KEY_VARIABLE), help=f"or in ${KEY_VARIABLE}"
    )
    group.add_argument(
        "--served-model-name", nargs="+", help="what requests call it; more names are aliases"
    )
    group.add_argument(
        "--max-num-waiting", type=int, default=256, help="refuse more than wait (%(default)s)"
    )
    group.add_argument(
        "--max-waiting-tokens", type=int, help="or while what waits may come to so many tokens"
    )
    group.add_argument("--max-queue-seconds", type=float, help="give up what has not begun by then")
    group.add_argument(
        "--refuse-late", action="store_true", help="refuse at once what would not have begun"
    )
    group.add_argument(
        "--max-body-size", type=parse_bytes, default=4 * 2**20, help="of a request, as in 4MiB"
    )
    group.add_argument("--max-n", type=int, default=16, help="answers a prompt (%(default)s)")
    group.add_argument(
        "--cors-origin", action="append", default=[], help="lets a web page call; may come again"
    )
    group.add_argument(
        "--keep-alive-seconds",
        type=float,
        default=10.0,
        help="after which a stream in which nothing comes gets a comment (%(default)s)",
    )
    group.add_argument(
        "--read-seconds",
        type=float,
        default=60.0,
        help="after which a client that reads nothing is cut off (%(default)s)",
    )
    group.add_argument(
        "--drain-seconds", type=float, default=30.0, help="for answers under way (%(default)s)"
    )
    group.add_argument(
        "--stuck-after",
        type=float,
        default=60.0,
        help="seconds without a step's end after which the engine is ill (%(default)s)",
    )
    group.add_argument(
        "--when-ill",
        choices=["restart", "exit", "stay"],
        default="restart",
        help=f"what an engine that is stuck or dead comes to: a new one, exit status {EXIT_ILL} "
        "for a supervisor, or nothing but a 503 of /health (default: %(default)s)",
    )
    group.add_argument(
        "--otlp-traces-endpoint",
        metavar="URL",
        help="send OpenTelemetry spans there, such as http://localhost:4318/v1/traces",
    )
    add_engine_options(made)
    return made


def _settings(options: argparse.Namespace) -> ServerSettings:
    by_default = [str(options.model).rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]]
    names = options.served_model_name or by_default
    if not 0 < options.stuck_after < math.inf:
        raise ValueError(f"--stuck-after {options.stuck_after}: expected a number above 0")
    if options.max_num_waiting < 1:
        raise ValueError(f"--max-num-waiting {options.max_num_waiting}: expected at least 1")
    return ServerSettings(
        served_model_name=names[0],
        aliases=tuple(names[1:]),
        api_key=options.api_key,
        max_body_bytes=options.max_body_size,
        max_n=options.max_n,
        max_queue_seconds=options.max_queue_seconds,
        cors_origins=tuple(options.cors_origin),
        drain_seconds=options.drain_seconds,
        keep_alive_seconds=options.keep_alive_seconds,
        read_seconds=options.read_seconds,
    )
