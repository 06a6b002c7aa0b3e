"""`speculative_config`: what it takes, and what it says of what it does not take."""

import pytest

from minillm_serve import SamplingParams
from minillm_serve.core import AdaptiveLengths, FixedLengths, SpecStats
from minillm_serve.models.cli import main
from minillm_serve.runtime.attention.torch_backend import TorchAttention
from minillm_serve.runtime.sizing import _free_host_memory as free_memory
from minillm_serve.runtime.spec.accept import accept
from minillm_serve.runtime.spec.ngram import NgramDrafter
from minillm_serve.speculation import SpeculativeConfig
from tests.llm.tiny import save_tiny


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("magic", r"the method 'magic': choose from \['auto', 'ngram', 'eagle', 'early_exit', 'd"),
        ("", r"the method '': choose from"),
        ({}, r"names no method: choose from"),
        ({"num_speculative_tokens": 3}, r"names no method: choose from"),
        (["ngram"], r"speculative_config=\['ngram'\]: give a method \(auto, .*\), a mapping"),
        (5, r"speculative_config=5: give a method"),
        (True, r"speculative_config=True: give a method"),
        ({"method": "ngram", "k": 3}, r"has no 'k': choose from \['method', 'num_speculative"),
        ({"method": None}, r"the method None: choose from"),
    ],
)
def test_what_is_no_config_is_refused_with_what_would_be_one(make_llm, given, message):
    with pytest.raises(ValueError, match=message):
        make_llm(speculative_config=given)


@pytest.mark.parametrize(
    ("method", "name", "value", "message"),
    [
        ("ngram", "num_speculative_tokens", 0, "expected a whole number from 1 to 16"),
        ("ngram", "num_speculative_tokens", 17, "from 1 to 16"),
        ("ngram", "num_speculative_tokens", -1, "from 1 to 16"),
        ("ngram", "num_speculative_tokens", 2.5, "from 1 to 16"),
        ("ngram", "num_speculative_tokens", "5", "from 1 to 16"),
        ("ngram", "num_speculative_tokens", True, "from 1 to 16"),
        ("ngram", "num_speculative_tokens", None, "from 1 to 16"),
        ("ngram", "prompt_lookup_min", 0, "from 1 to 64"),
        ("ngram", "prompt_lookup_min", 99, "from 1 to 64"),
        ("ngram", "prompt_lookup_max", 1, "from 2 to 64"),
        ("ngram", "adaptive", "yes", "give true or false"),
        ("ngram", "adaptive", 1, "give true or false"),
        ("ngram", "draft_layers", 2, "is for the method early_exit, not ngram: leave it out"),
        ("early_exit", "draft_layers", 0, "expected a whole number from 1 on"),
        ("early_exit", "draft_layers", 4, "this model has 3 layers"),
        ("early_exit", "model", "x", "is for the method draft_model or eagle, not early_exit"),
        ("eagle", "prompt_lookup_max", 4, "is for the method ngram or auto, not eagle: leave"),
        ("early_exit", "prompt_lookup_min", 2, "is for the method ngram or auto, not early_exit"),
    ],
)
def test_a_wrong_value_is_named_with_the_right_ones(make_llm, method, name, value, message):
    with pytest.raises(ValueError, match=message) as raised:
        make_llm(speculative_config={"method": method, name: value})
    assert f"{name}={value!r}" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speculative_config": "draft_model"}, "and no model: name a smaller one of the same vo"),
        ({"speculative_config": "eagle"}, "no draft head comes with .*: train one .* or choose"),
        (
            {"speculative_config": {"method": "eagle", "model": "/nowhere/head"}},
            "there is no draft head /nowhere/head",
        ),
        (
            {"speculative_config": {"method": "draft_model", "model": "/nowhere/at/all"}},
            "/nowhere/at/all",
        ),
        (
            {"speculative_config": "ngram", "async_scheduling": True},
            "async_scheduling=True: with speculative_config.*drop one of the two",
        ),
        ({"parts": {"accept": accept}}, "your accept part.*give speculative_config, 'ngram' say"),
    ],
    ids=["no model", "no head", "wrong file", "wrong model", "overlapped", "no drafts"],
)
def test_what_does_not_go_together_is_refused_with_the_remedy(make_llm, options, message):
    with pytest.raises(ValueError, match=message):
        make_llm(**options)


def test_a_draft_model_of_another_vocabulary_is_refused(make_llm, tmp_path):
    other = save_tiny(tmp_path, vocab_size=99)
    with pytest.raises(ValueError, match=r"vocabulary of 99 tokens, this model one of 97: choose"):
        make_llm(speculative_config={"method": "draft_model", "model": other})


def test_a_quantized_draft_model_that_cannot_be_computed_so_is_refused_by_name(make_llm, tmp_path):
    floats, few = save_tiny(tmp_path / "floats", hidden_size=64), str(tmp_path / "few")
    assert main(["quantize", str(floats), few]) == 0
    with pytest.raises(ValueError, match=r"draft model '.*few': quantization='int8' with dtype"):
        make_llm(dtype="float64", speculative_config={"method": "draft_model", "model": few})


def test_a_draft_model_made_for_short_texts_has_angles_for_all_positions(
    make_llm, tmp_path, monkeypatch
):
    """On a GPU they stand in a table, beyond whose end there is anything."""
    lengths = []
    monkeypatch.setattr(
        TorchAttention, "rotating_writer", lambda _, frequencies, length: lengths.append(length)
    )
    short = save_tiny(tmp_path, max_position_embeddings=32)
    config = {"method": "draft_model", "model": short, "adaptive": False}
    make_llm(speculative_config=config, attention_backend="torch", max_model_len=128)
    assert len(lengths) >= 2
    assert set(lengths) == {128}


def test_a_draft_model_s_blocks_count_among_those_that_must_fit(make_llm, tiny_dir):
    config = {"method": "draft_model", "model": tiny_dir, "adaptive": False}
    block = make_llm(num_blocks=1, block_size=512).kv_cache.nbytes
    # The pool alone would fit; and as much again for the draft model does not.
    most = int(0.7 * free_memory()) // block
    with pytest.raises(ValueError, match=f"num_blocks={most} blocks of 512 tokens take"):
        make_llm(num_blocks=most, block_size=512, speculative_config=config)


def test_swap_space_holds_the_draft_model_s_blocks_as_well(make_llm, tiny_dir):
    config = {"method": "draft_model", "model": tiny_dir, "adaptive": False}
    llm = make_llm(num_blocks=20, swap_space=100_000, preemption="swap", speculative_config=config)
    block = llm.kv_cache.nbytes // llm.kv_cache.num_blocks
    hosts = llm.engine.executor.host_blocks
    assert [host.nbytes for host in hosts] == [100_000 // (2 * block) * block] * 2


@pytest.mark.parametrize(
    "given", ["ngram", {"method": "ngram"}, SpeculativeConfig(method="ngram"), '{"method":"ngram"}']
)
def test_a_name_a_mapping_a_config_and_json_say_the_same(given):
    read = SpeculativeConfig.parse if given == '{"method":"ngram"}' else SpeculativeConfig.of
    assert read(given) == SpeculativeConfig(method="ngram")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"method": "ngram"', "is no JSON"),
        ('{"method": "ngram", "num_speculative_tokens": 99}', "num_speculative_tokens=99"),
        ('["ngram"]', "the method '.*ngram.*': choose from"),
        ("fast", "the method 'fast': choose from"),
    ],
)
def test_nonsense_on_a_command_line_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        SpeculativeConfig.parse(text)


def test_looking_for_many_tokens_at_least_looks_for_no_fewer_at_most():
    assert SpeculativeConfig(method="ngram", prompt_lookup_min=5).lookup == (5, 5)
    assert SpeculativeConfig(method="auto").lookup == (4, 2)


def test_none_is_none():
    assert SpeculativeConfig.parse("none") is None
    assert SpeculativeConfig.of(None) is None


def test_auto_copies_alone_where_no_head_comes_with_the_model(make_llm):
    assert isinstance(make_llm(speculative_config="auto").engine.executor.drafter, NgramDrafter)


def test_the_engine_is_made_as_the_config_says(make_llm):
    config = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 6}
    llm = make_llm(speculative_config={**config, "adaptive": False})
    drafter, lengths = llm.engine.executor.drafter, llm.engine.scheduler.speculation.lengths
    assert isinstance(drafter, NgramDrafter)
    assert (drafter.max_n, drafter.min_n) == (6, 2)
    assert isinstance(lengths, FixedLengths)
    assert lengths.num_drafts == 3
    adaptive = make_llm(speculative_config=config).engine
    assert isinstance(adaptive.scheduler.speculation.lengths, AdaptiveLengths)
    assert not adaptive.async_scheduling


def test_without_a_config_nothing_is_drafted(make_llm):
    llm = make_llm()
    (output,) = llm.generate([[1, 2, 3]], SamplingParams(max_tokens=9), use_tqdm=False)
    assert llm.spec_stats == SpecStats()
    assert (llm.spec_stats.acceptance_rate, llm.spec_stats.mean_acceptance_length) == (0.0, 1.0)
    assert output.metrics.num_draft_tokens == output.metrics.num_accepted_tokens == 0
    assert llm.engine.executor.drafter is None
