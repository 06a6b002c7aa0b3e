"""What becomes of the process: an engine past help, kill -9, a full disk, no memory to load."""

import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import httpx
import pytest

from minillm_serve import cli_serve
from minillm_serve.cli import main
from minillm_serve.engine_loop import STUCK_AFTER
from minillm_serve.restart import EXIT_ILL
from tests.server.running import PATIENCE, eventually
from tests.server.test_serve_command import first_line

BODY = {"prompt": "hello", "max_tokens": 30, "ignore_eos": True}
#: The command, in a process where something goes wrong in the fifth step that the loop runs.
FAULTY = """
import gc, sys, threading
from minillm_serve import cli
from minillm_serve.core import PartError
from minillm_serve.engine_loop import EngineLoop
from minillm_serve.runtime.torch_executor import TorchExecutor

forward, steps = TorchExecutor.forward, []

def faulty(self, inputs):
    if threading.current_thread() is not threading.main_thread():  # which warms up
        steps.append(None)
    if len(steps) == 5:
        {fault}
    return forward(self, inputs)

TorchExecutor.forward = faulty
sys.exit(cli.main(sys.argv[1:]))
"""
#: (Only now is patience short: the first steps of a process may take a while.)
HANGS = """
        (loop,) = (each for each in gc.get_objects() if isinstance(each, EngineLoop))
        loop.stuck_after = 0.2
        threading.Event().wait()
"""
BREAKS = "raise PartError('scheduler', 'Mine', 'lost its books')"
#: The command, in a process that may have only so much more memory, in MiB, than it has now.
POOR = """
import resource, sys
import torch
from minillm_serve import LLM, cli
import minillm_serve.server.app, minillm_serve.server.run
LLM(sys.argv[2], num_blocks=8).generate(["a"], use_tqdm=False)
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + {more} * 2**20,) * 2)
sys.exit(cli.main(sys.argv[1:]))
"""


@contextmanager
def serving(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE):
    """A child that serves; it does not live longer than its test."""
    process = subprocess.Popen([sys.executable, *command], stdout=stdout, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def url_in(line):
    return re.search(r"http://[\d.:]+", line)[0]


def complete(url, **body):
    return httpx.post(f"{url}/v1/completions", json={**BODY, **body}, timeout=PATIENCE)


def answers(url):
    """Whether a server is there, and well."""
    try:
        return httpx.get(f"{url}/health", timeout=PATIENCE).status_code == 200
    except httpx.HTTPError:
        return False


def test_an_engine_that_hangs_is_said_to_be_ill_and_replaced_by_a_new_one_b112(tiny_dir):
    """The process keeps its id and its port; whoever was served is told, and can come again."""
    command = ["serve", str(tiny_dir), "--port", "0"]
    with serving("-c", FAULTY.format(fault=HANGS), *command) as process:
        url = url_in(first_line(process))
        assert complete(url, max_tokens=2).status_code == 200
        reply = complete(url)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        assert url_in(first_line(process)) == url
        assert complete(url).json()["usage"]["completion_tokens"] == BODY["max_tokens"]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == 0
    assert "the engine is past help: a step has not come to an end" in err


def test_an_engine_that_is_dead_ends_the_process_if_a_supervisor_is_to_hear_of_it(tiny_dir):
    command = ["serve", str(tiny_dir), "--port", "0", "--when-ill", "exit"]
    with serving("-c", FAULTY.format(fault=BREAKS), *command) as process:
        url = url_in(first_line(process))
        reply = complete(url)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "engine_dead")
        _, err = process.communicate(timeout=2 * PATIENCE)
        assert process.returncode == EXIT_ILL
    assert "the engine is past help: PartError" in err


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")
def test_with_no_room_for_its_log_it_serves_and_after_kill_9_another_one_does(tiny_dir):
    """The port is to be had again at once, although somebody was still connected."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url, command = f"http://127.0.0.1:{port}", ["-m", "minillm_serve.cli", "serve", str(tiny_dir)]
    command += ["--port", str(port)]
    with (
        open("/dev/full", "w") as full,
        serving(*command, stdout=full, stderr=full) as process,
        socket.socket() as connection,
    ):
        eventually(lambda: answers(url), "a server", patience=2 * PATIENCE)
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"no HTTP\r\n\r\n")  # which is worth a line in the log
        assert connection.recv(99).startswith(b"HTTP/1.1 400")
        reply = complete(url)
        assert reply.status_code == 200, reply.text
        with httpx.stream("POST", f"{url}/v1/completions", json={**BODY, "stream": True}) as reply:
            lines = reply.iter_lines()
            next(lines)
            process.kill()
            with pytest.raises(httpx.HTTPError):
                list(lines)
        assert process.wait() == -signal.SIGKILL
        with serving(*command) as again:
            assert url_in(first_line(again)) == url
            assert complete(url).json()["usage"]["completion_tokens"] == BODY["max_tokens"]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere memory cannot be limited so")
def test_memory_that_is_refused_while_it_loads_is_a_message_and_no_traceback(tiny_dir):
    command = ["serve", str(tiny_dir), "--port", "0", "--num-blocks", "60000"]
    done = subprocess.run(
        [sys.executable, "-c", POOR.format(more=256), *command],
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "minillm-serve serve: out of memory" in done.stderr
    assert "lower --num-blocks" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--num-blocks", "1000000000"], "lower num_blocks or kv_cache_memory"),
        (["--swap-space", "900000GiB"], "swap_space="),
    ],
)
def test_a_pool_that_no_machine_has_room_for_is_refused_by_name(tiny_dir, options, message, capsys):
    assert main(["serve", str(tiny_dir), "--port", "0", *options]) == 1
    assert message in capsys.readouterr().err


def test_a_model_that_is_too_big_is_refused_before_it_is_read(tiny_dir, monkeypatch, capsys):
    monkeypatch.setattr("minillm_serve.runtime.sizing._free_host_memory", lambda: 1000)
    assert main(["serve", str(tiny_dir), "--port", "0"]) == 1
    assert re.search(
        r"the model's weights take [\d.]+ GiB as float32, but 0.0 GiB are free",
        capsys.readouterr().err,
    )


def test_patience_with_a_step_is_the_engines_and_must_be_a_time(capsys):
    assert cli_serve.parser().parse_args([]).stuck_after == STUCK_AFTER
    for value in ("0", "-1", "nan", "inf"):
        assert main(["serve", "--stuck-after", value]) == 1
        assert "--stuck-after" in capsys.readouterr().err
