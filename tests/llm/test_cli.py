"""The shell face, in this process where that is enough and in a child where it is not."""

import io
import json
import subprocess
import sys

import pytest

from minillm_serve.cli import COMMANDS, main
from minillm_serve.cli_options import parse_bytes


@pytest.fixture
def shell(tiny_dir, capsys):
    """Runs a command on the tiny model: (status, stdout, stderr)."""

    def run(command, *arguments):
        options = ["--model", str(tiny_dir), "--num-blocks", "32", "--max-tokens", "8"]
        status = main([command, *options, *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_help_lists_every_command(capsys):
    assert main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in COMMANDS)


def test_help_does_not_import_torch():
    code = (
        "import sys; from minillm_serve.cli import main; main([]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


def test_an_unknown_command_is_wrong_usage():
    with pytest.raises(SystemExit) as raised:
        main(["sing"])
    assert raised.value.code == 2


def test_version_is_printed(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip()


def test_one_prompt_is_streamed(shell):
    status, out, _ = shell("generate", "Hello", "--ignore-eos")
    assert status == 0
    assert out.endswith("\n")
    assert len(out) > 1
    again = shell("generate", "Hello", "--ignore-eos")
    assert again[1] == out


def test_several_prompts_are_batched_and_told_apart(shell):
    status, out, _ = shell("generate", "ab", "cd", "--raw")
    assert status == 0
    assert out.count("> ") >= 2
    assert out.index("> ab") < out.index("> cd")


def test_json_gives_one_object_a_prompt(shell, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("ab\n\ncd\n"))
    status, out, _ = shell("generate", "-", "--json", "--ignore-eos")
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [record["prompt"] for record in records] == ["ab", "cd"]
    assert all(record["completion_tokens"] == 8 for record in records)
    assert all(record["ttft_s"] > 0 for record in records)


@pytest.mark.parametrize(
    "options",
    [
        ("--scheduler", "static"),
        ("--scheduler", "dynamic", "--policy", "priority"),
        ("--policy", "sjf", "--swap-space", "1MiB", "--preemption", "swap"),
        ("--prefix-cache", "none"),
        ("--prefix-cache", "radix"),
        ("--speculative-config", "ngram"),
        ("--speculative-config", '{"method": "early_exit", "adaptive": false}'),
        ("--speculative-config", "none"),
    ],
)
def test_a_scheduler_a_cache_or_a_drafter_is_chosen_and_changes_no_answer(shell, options):
    def texts(*chosen):
        status, out, _ = shell("generate", "hello there", "and you", "--json", *chosen)
        assert status == 0
        return [json.loads(line)["text"] for line in out.splitlines()]

    assert texts(*options) == texts()


def test_a_scheduler_that_is_none_is_refused(shell, capsys):
    with pytest.raises(SystemExit):
        shell("generate", "hello", "--scheduler", "magic")
    assert "continuous" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fast", "the method 'fast': choose from"),
        ('{"method": "ngram"', "is no JSON"),
        (
            '{"method": "ngram", "num_speculative_tokens": 99}',
            "num_speculative_tokens=99: expected",
        ),
    ],
)
def test_a_speculative_config_that_is_none_is_wrong_usage(shell, capsys, text, message):
    with pytest.raises(SystemExit) as raised:
        shell("generate", "hello", "--speculative-config", text)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_raw_leaves_the_chat_template_out(shell):
    _, out, _ = shell("generate", "ab", "--json", "--raw")
    assert json.loads(out)["prompt_tokens"] == 2
    _, out, _ = shell("generate", "ab", "--json")
    assert json.loads(out)["prompt_tokens"] > 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "a", "--temperature", "-1"), "temperature=-1.0"),
        (("generate", "a", "--block-size", "0"), "block_size=0"),
        (("generate", "a", "--speculative-config", "eagle"), "no draft head comes with"),
        (("generate", "a" * 600), "max_model_len is 512"),
        (("generate", "", "--raw"), "empty prompt"),
    ],
)
def test_bad_input_is_one_line_and_no_traceback(shell, tiny_dir, arguments, message):
    command, *rest = arguments
    num_blocks = ["--num-blocks", "64"]
    status, _, err = shell(command, *rest, *num_blocks)
    assert status == 1
    assert message in err
    assert "Traceback" not in err


def test_a_model_that_is_nowhere_is_one_line(capsys, tmp_path):
    assert main(["generate", "a", "--model", str(tmp_path / "nowhere")]) == 1
    err = capsys.readouterr().err
    assert "nowhere" in err
    assert "Traceback" not in err


def test_a_chat_remembers_and_starts_anew(shell, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Hi\nMore\n/new\n\nHi\n/bye\nnever\n"))
    status, out, _ = shell("chat", "--ignore-eos", "--system", "Be brief.")
    assert status == 0
    answers = out.splitlines()
    assert len(answers) >= 3


def test_a_chat_that_outgrows_the_context_says_so_and_goes_on(shell, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("x" * 600 + "\nHi\n"))
    status, out, err = shell("chat", "--ignore-eos")
    assert status == 1  # for the script behind the pipe, which reads no messages
    assert "/new starts a new conversation" in err
    assert out.strip()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 2**30), ("512 MiB", 2**29), ("4GB", 4 * 10**9), ("1.5k", 1500), ("77", 77)],
)
def test_sizes_are_read_with_their_units(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "-1GiB", "1TiBx"])
def test_what_is_no_size_is_refused(text):
    from argparse import ArgumentTypeError

    with pytest.raises(ArgumentTypeError, match="is no size"):
        parse_bytes(text)


@pytest.mark.model
def test_the_command_of_the_readme_answers():
    command = [sys.executable, "-m", "minillm_serve.cli", "generate", "What is a KV cache?"]
    done = subprocess.run(
        [*command, "--max-tokens", "24"], capture_output=True, text=True, check=True
    )
    assert len(done.stdout.split()) > 8
