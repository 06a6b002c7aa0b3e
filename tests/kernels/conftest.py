"""Kernels in bf16 round as on a GPU, also where they are interpreted."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _rounding_interpreter() -> Iterator[None]:
    from tests.kernels.interpret import rounding_interpreter

    with rounding_interpreter():
        yield


@pytest.fixture(autouse=True, scope="session")
def _direct_calls() -> Iterator[None]:
    from tests.kernels.direct_calls import direct_calls

    with direct_calls():
        yield
