"""`minillm-serve serve`: the engine over HTTP."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from minillm_serve.cli_options import add_engine_options, engine_arguments, parse_bytes
from minillm_serve.server.settings import ServerSettings

#: Where the key may stand instead of the command line, which every user of the machine can read.
KEY_VARIABLE = "MINILLM_SERVE_API_KEY"
LOOPBACK = ("127.", "::1", "localhost")


def main(argv: Sequence[str]) -> int:
    """Serves until a signal comes.

    Raises:
        ValueError: an option cannot be used, the port is taken, or the extra is not installed.
    """
    options = _parser().parse_args(argv)
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
    bound = bind(options.host, options.port)
    # Only now what takes long: torch, the model.
    from minillm_serve.async_llm import AsyncLLM
    from minillm_serve.llm import LLM
    from minillm_serve.models.resolve import resolve_model

    options.model = resolve_model(options.model, quantization=options.quantization)
    llm = LLM(**engine_arguments(options), max_num_waiting=options.max_num_waiting)
    url, name = address_of(bound), settings.served_model_name
    if settings.api_key is None and not options.host.startswith(LOOPBACK):
        print(f"warning: {url} is open to whoever can reach it: set --api-key", file=sys.stderr)
    app = create_app(AsyncLLM(llm), settings)
    serve(app, bound, lambda: print(_hello(url, name, settings.api_key is not None), flush=True))
    return 0


def _hello(url: str, model: str, has_key: bool) -> str:
    hello = {"role": "user", "content": "Hello!"}
    body = {"model": model, "messages": [hello], "max_tokens": 32}
    key = f' -H "Authorization: Bearer ${KEY_VARIABLE}"' if has_key else ""
    return (
        f"{model} is served at {url}/v1 (Ctrl-C stops it). Try: curl {url}/v1/chat/completions"
        f"{key} -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="minillm-serve serve",
        description="Serves a model over HTTP, in OpenAI's API with vLLM's extras.",
    )
    parser.add_argument("served", nargs="?", metavar="MODEL", help="the same as --model")
    group = parser.add_argument_group("server")
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
    group.add_argument("--max-queue-seconds", type=float, help="give up what has not begun by then")
    group.add_argument(
        "--max-body-size", type=parse_bytes, default=4 * 2**20, help="of a request, as in 4MiB"
    )
    group.add_argument("--max-n", type=int, default=16, help="answers a prompt (%(default)s)")
    group.add_argument(
        "--cors-origin", action="append", default=[], help="lets a web page call; may come again"
    )
    group.add_argument(
        "--drain-seconds", type=float, default=30.0, help="for answers under way (%(default)s)"
    )
    add_engine_options(parser)
    return parser


def _settings(options: argparse.Namespace) -> ServerSettings:
    by_default = [str(options.model).rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1]]
    names = options.served_model_name or by_default
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
    )
