"""Chapter 09's measured levers: the best of several turns counts, each beside the reference."""

import pytest

from minillm_serve.course.chapter08.record import Record
from minillm_serve.course.chapter09 import fewer_bits
from minillm_serve.course.chapter09.fewer_bits import BATCH, REFERENCE, VARIANTS, Speed
from minillm_serve.sim.cost import Work

SLOW, QUICK = VARIANTS[0], VARIANTS[2]


def test_variants_take_turns_and_the_best_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {
        (SLOW, 1): iter([0.03, 0.02]),
        (SLOW, BATCH): iter([0.16, 0.32]),
        (QUICK, 1): iter([0.01, 0.05]),
        (QUICK, BATCH): iter([0.32, 0.08]),
    }
    asked = []

    def step(llm, batch, count=10, *, seed=0, prompt_tokens=8):
        if prompt_tokens == 8:
            return Work.decode(batch, 30), 9.0  # the first, which are not counted
        asked.append((llm, batch, seed))
        return Work.decode(batch, 30), next(taken[llm, batch])

    monkeypatch.setattr(fewer_bits, "decode_steps", step)
    found = fewer_bits.measure(lambda variant: variant, (SLOW, QUICK))
    assert found == {SLOW: Speed(0.02, BATCH / 0.16), QUICK: Speed(0.01, BATCH / 0.08)}
    assert asked[:4] == [(SLOW, 1, 0), (SLOW, BATCH, 0), (QUICK, 1, 0), (QUICK, BATCH, 0)]


def test_a_row_says_what_is_bought_and_what_it_costs() -> None:
    """Quality is the committed record's, which has a row of each variant's name."""
    record = Record.load()
    speeds = {variant: Speed(0.02 / place, 100.0 * place) for place, variant in
              enumerate(VARIANTS, start=1)}  # fmt: skip
    lines = fewer_bits.rows(speeds, record)
    assert [line[0] for line in lines] == [variant.name for variant in VARIANTS]
    assert lines[0][2:] == ["20.0", "1.00", "100", "1.00", ""]
    assert lines[3][2:6] == ["5.0", "4.00", "400", "4.00"]
    people = [int(line[1].split()[0]) for line in lines]
    assert min(people[1:]) > people[0]
    assert all(line[6].endswith("%") for line in lines[1:])
    assert REFERENCE is VARIANTS[0]
