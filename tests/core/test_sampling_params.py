"""Parameters are checked when they are made; the message names the value."""

import pytest

from minillm_serve import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("temperature", 1e39),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_k", -2),
        ("top_k", 1.5),
        ("top_p", -0.01),
        ("top_p", 1.01),
        ("min_p", 2),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("seed", 1.5),
        ("stop_token_ids", [-1]),
        ("stop_token_ids", "eos"),
        ("stop_token_ids", 5),
    ],
)
def test_a_bad_value_is_refused_by_name_b83_b102(name, value):
    with pytest.raises(ValueError, match=f"^{name}"):
        SamplingParams(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", 10**9),
        ("top_p", 0),
        ("top_p", 1),
        ("max_tokens", None),
        ("seed", 0),
        ("stop_token_ids", [0]),
    ],
)
def test_edges_and_zeros_are_values_b83_b84_b105(name, value):
    params = SamplingParams(**{name: value})
    expected = tuple(value) if isinstance(value, list) else value
    assert getattr(params, name) == expected


def test_an_unknown_parameter_is_refused():
    with pytest.raises(TypeError, match="temprature"):
        SamplingParams(temprature=1)


@pytest.mark.parametrize(("temperature", "greedy"), [(0, True), (1e-12, True), (1e-6, False)])
def test_tiny_temperatures_are_greedy_b81(temperature, greedy):
    assert SamplingParams(temperature=temperature).greedy is greedy


def test_a_thousand_answers_are_enough():
    assert SamplingParams(n=1024).n == 1024
    with pytest.raises(ValueError, match="n=1025: at most 1024"):
        SamplingParams(n=1025)
