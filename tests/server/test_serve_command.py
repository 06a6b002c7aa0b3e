"""`minillm-serve serve`: from the shell to the last signal."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from minillm_serve import cli_serve
from minillm_serve.cli import COMMANDS, main
from minillm_serve.server.settings import ServerSettings
from tests.server.running import PATIENCE


def first_line(process):
    """The first line that a child prints."""
    end = time.monotonic() + 4 * PATIENCE
    while process.poll() is None and time.monotonic() < end:
        if select.select([process.stdout], [], [], 0.1)[0]:
            return process.stdout.readline()
    process.kill()
    raise AssertionError(f"it has said nothing: {process.stderr.read()}")


def test_it_serves_says_where_and_ends_well_on_a_signal(tiny_dir):
    command = [sys.executable, "-m", "minillm_serve.cli", "serve", str(tiny_dir), "--port", "0"]
    command += ["--num-blocks", "32", "--served-model-name", "tiny", "small"]
    environment = {**os.environ, "MINILLM_SERVE_API_KEY": "sesame"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            line = first_line(process)
            url = re.search(r"http://[\d.:]+", line)[0]
            assert f"curl {url}/v1/chat/completions" in line
            key = {"Authorization": "Bearer sesame"}
            with httpx.Client(base_url=url, headers=key, timeout=PATIENCE) as client:
                assert client.get("/health").status_code == 200
                names = [card["id"] for card in client.get("/v1/models").json()["data"]]
                assert names == ["tiny", "small"]
                for name in names:
                    reply = client.post("/v1/completions", json={"model": name, "prompt": "hello"})
                    assert (reply.status_code, reply.json()["model"]) == (200, "tiny")
                assert client.get("/v1/models", headers={"Authorization": "x"}).status_code == 401
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=2 * PATIENCE)
        finally:
            process.kill()
    assert (process.returncode, out) == (0, "")
    assert "Traceback" not in err
    assert "sesame" not in line + err


def test_a_port_that_is_taken_is_said_to_be_before_a_model_is_loaded(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "no/such/model", "--port", str(port)]) == 1
    assert f"port {port} of 127.0.0.1 cannot be had" in capsys.readouterr().err
    assert main(["serve", "--port", "70000"]) == 1
    assert main(["serve", "--host", "no.such.host.invalid"]) == 1


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "minillm_serve.server.app", None)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith("minillm_serve.server.routes")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "minillm_serve.server.app")
    assert main(["serve"]) == 1
    assert "pip install 'minillm-serve[server]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--max-n", "0"], "max_n=0"),
        (["--max-body-size", "0"], "max_body_bytes=0"),
        (["--max-queue-seconds", "0"], "max_queue_seconds=0.0"),
        (["--drain-seconds", "-1"], "drain_seconds=-1.0"),
        (["--api-key", " "], "api_key is blank"),
        (["--max-num-waiting", "0"], "--max-num-waiting 0"),
        (["--served-model-name", ""], "served_model_name=''"),
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(options, message, capsys):
    assert main(["serve", *options]) == 1
    assert message in capsys.readouterr().err


def test_the_name_is_the_models_unless_it_is_given(monkeypatch):
    monkeypatch.delenv(cli_serve.KEY_VARIABLE, raising=False)

    def settings(*argv):
        options = cli_serve.parser().parse_args(argv)
        options.model = options.served or options.model
        return cli_serve._settings(options)

    assert settings().served_model_name == "smollm2-135m"
    assert settings("some/folder/").served_model_name == "folder"
    assert settings("--model", "hub/name").served_model_name == "name"
    assert settings("--served-model-name", "a", "b").model_names == ("a", "b")
    assert settings() == ServerSettings(served_model_name="smollm2-135m")


def test_settings_need_no_web_framework():
    code = (
        "import sys, minillm_serve.server.settings\n"
        "print({'fastapi', 'uvicorn', 'starlette', 'pydantic', 'torch'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
    assert "serve" in COMMANDS
