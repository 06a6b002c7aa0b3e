"""`minillm-serve quality`: a table, a record, and refusals with a remedy."""

import json
from typing import NoReturn

import pytest

from minillm_serve.cli import main
from minillm_serve.quality import command, measure
from minillm_serve.quality.command import USUAL, _parser, settings
from minillm_serve.quality.measure import Agreement, Setting, agreed
from minillm_serve.quality.table import shown_kl
from minillm_serve.quality.tasks import paragraphs, questions, read_text
from tests.llm.tiny import save_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    # Characters are its tokens; a question is some hundred of them.
    return save_tiny(folder, max_position_embeddings=2048, hidden_size=64, intermediate_size=128)


@pytest.fixture
def prose(tmp_path):
    file = tmp_path / "prose.txt"
    file.write_text("A ferry goes to and fro. " * 20)
    return str(file)


QUICK = ("--quick", "--text-tokens", "96", "--answer-tokens", "4", "--context", "64")


def test_b125_one_table_tells_what_each_way_of_keeping_numbers_costs(
    tiny, prose, tmp_path, capsys
) -> None:
    out = tmp_path / "made" / "quality.json"
    asked = ["--kv-cache-dtype", "auto", "int8", "--quantization", "none", "int4"]
    options = [*QUICK, "--model", str(tiny), "--text", prose, "--memory", "1MiB"]
    assert main(["quality", *options, *asked, "--output", str(out)]) == 0
    shown = capsys.readouterr().out
    record = json.loads(out.read_text())
    rows = {row["name"]: row for row in record["rows"]}
    assert [*rows] == ["reference", "KV int8", "weights int4", "weights int4, KV int8"]
    for name, row in rows.items():
        assert f"\n{name} " in shown
        assert set(row["kinds"]) == {"code", "summary", "open"}
    none, kv, weights, both = rows.values()
    assert none["text"]["kl"] == 0
    assert all(kind["agreed_share"] == 1 for kind in none["kinds"].values())
    assert kv["kv_bytes"] == both["kv_bytes"] < 0.35 * none["kv_bytes"]  # float32, D = 16
    assert weights["weight_bytes"] == both["weight_bytes"] < 0.5 * none["weight_bytes"]
    assert none["users"] < min(kv["users"], weights["users"]) < both["users"]
    assert all(row["text"]["kl"] > 0 for row in (kv, weights, both))
    assert {"hardware", "versions", "commit", "date", "model"} <= set(record["stamp"])


def test_studies_write_what_they_have_after_each(tiny, prose, tmp_path, capsys) -> None:
    out = tmp_path / "studies.json"
    options = ["--quick", "--model", str(tiny), "--text", prose, "--studies"]
    assert main(["quality", *options, "--output", str(out)]) == 0
    record = json.loads(out.read_text())
    assert {"kv_ways", "bits", "layers", "algorithms", "heads"} <= set(record)
    assert "algorithms: 12 readings" in capsys.readouterr().out
    by = {(r["bits"], r["group"], r["way"]): r["kl"] for r in record["algorithms"]}
    assert by[4, 32, "nearest"] > 0


def test_without_options_the_usual_ways_are_measured_and_else_what_was_asked() -> None:
    assert settings(_parser().parse_args([])) == list(USUAL)
    asked = _parser().parse_args(["--kv-cache-dtype", "auto", "fp8"])
    assert settings(asked) == [Setting("fp8")]
    asked = _parser().parse_args(["--kv-cache-dtype", "int8", "--quantization", "int8", "none"])
    assert settings(asked) == [Setting("int8", "int8"), Setting("int8")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--text", "no/such/file"], "text='no/such/file' cannot be read"),
        (["--model", "no-such-model"], "no-such-model"),
    ],
)
def test_bad_input_is_answered_and_not_thrown(arguments, said, capsys) -> None:
    assert main(["quality", "--quick", *arguments]) == 1
    assert said in capsys.readouterr().err


def test_a_text_that_is_too_short_is_refused(tiny, tmp_path, capsys) -> None:
    file = tmp_path / "short.txt"
    file.write_text("A ferry.")
    assert main(["quality", "--quick", "--model", str(tiny), "--text", str(file)]) == 1
    assert "give one of 64 at least" in capsys.readouterr().err
    file.write_text(" \n")
    assert main(["quality", "--quick", "--model", str(tiny), "--text", str(file)]) == 1
    assert "is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--dtype", "float64"], "quantization='int8' with dtype='float64': on a cpu"),
        (["--quantization", "none", "int4", "--dtype", "bfloat16"], "computed with in 'float32'"),
    ],
)
def test_b125_a_setting_that_is_not_possible_is_refused_before_the_first_is_measured(
    tiny, options, said, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(measure, "engine", never)
    assert main(["quality", "--quick", "--device", "cpu", "--model", str(tiny), *options]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("studies", [[], ["--studies"]])
def test_a_model_that_is_quantized_already_is_no_reference(
    tiny, tmp_path, studies, capsys, monkeypatch
) -> None:
    assert main(["models", "quantize", str(tiny), str(tmp_path / "few")]) == 0
    monkeypatch.setattr(measure, "engine", never)
    monkeypatch.setattr(command, "engine", never)
    assert main(["quality", "--quick", "--model", str(tmp_path / "few"), *studies]) == 1
    assert "was saved in int8, and it is to be compared" in capsys.readouterr().err


def never(*arguments: object, **options: object) -> NoReturn:
    raise AssertionError("an engine is built")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--kv-cache-dtype", "int8"], "--kv-cache-dtype with --studies"),
        (["--quantization", "int4", "--prompts", "2"], "--quantization, --prompts with --studies"),
        (["--memory", "2GiB", "--context", "9"], "--memory, --context with --studies"),
        (["--text-tokens", "99", "--answer-tokens", "9"], "--text-tokens, --answer-tokens with"),
        (["--dtype", "bfloat16"], "--dtype bfloat16 with --studies, which compute in float32"),
    ],
)
def test_studies_ignore_no_option(options, said, capsys) -> None:
    with pytest.raises(SystemExit):
        main(["quality", "--studies", *options])
    assert said in capsys.readouterr().err


def test_agreement_counts_tokens_up_to_the_first_difference() -> None:
    assert agreed([1, 2, 3], [1, 2, 3]) == 3
    assert agreed([1, 2, 3], [1, 5, 3]) == 1
    assert agreed([1, 2, 3], [1, 2]) == 2
    seen = Agreement((3, 1), (3, 3))
    assert seen.share == 4 / 6
    assert seen.identical == 1


def test_questions_are_the_same_each_time_and_of_three_kinds() -> None:
    text = read_text()
    asked = questions(3, text)
    assert asked == questions(3, text)
    assert {kind: len(each) for kind, each in asked.items()} == {"code": 3, "summary": 3, "open": 3}
    assert all(any(p in one for p in paragraphs(text)) for one in asked["summary"])
    assert len(text.split()) > 1400


def test_rounding_errors_of_floats_are_shown_as_none() -> None:
    assert shown_kl(3e-10) == "0"
    assert shown_kl(5e-4) == "5.0e-04"
    assert shown_kl(0.0123) == "0.012"
