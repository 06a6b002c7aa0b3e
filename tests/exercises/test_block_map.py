"""The drawing of what an answer read in the KV pool."""

from xml.etree import ElementTree

from minillm_serve.course.exercises.block_map import BlockMap

MAP = BlockMap(4, 3, {0: 3, 2: 1}, [(0, 0), (0, 1), (2, 1), (3, 2), (9, 0), (0, 5), (9, 0)])


def test_a_block_map_tells_its_own_slots_from_foreign_and_empty_ones() -> None:
    assert MAP.text().splitlines()[:4] == [
        "block   0  rru",
        "block   1  ...",
        "block   2  ue.",
        "block   3  ..X",
    ]


def test_a_block_map_names_reads_out_of_bounds_once_each() -> None:
    assert MAP.out_of_bounds() == [(9, 0), (0, 5)]
    assert "block 9 slot 0 (there are blocks 0..3, slots 0..2)" in MAP.text()


def test_a_block_map_that_is_right_says_so() -> None:
    assert not MAP.is_right()
    assert BlockMap(2, 2, {1: 2}, [(1, 1), (1, 0), (1, 1)]).is_right()


def test_a_block_map_is_drawn_as_well_formed_svg_with_a_square_a_slot() -> None:
    drawn = ElementTree.fromstring(MAP.svg())
    squares = [one for one in drawn.iter() if one.tag.endswith("rect")]
    assert len(squares) == 4 * 3
    titles = [one.text for one in drawn.iter() if one.tag.endswith("title")]
    assert "block 3, slot 2: read, but in no block of its own" in titles
    assert drawn.attrib["aria-label"].split() == MAP.text().split()
