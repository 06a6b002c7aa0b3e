"""The engine without a model: whose tokens are read where they should not be, and who is named."""

from functools import partial

import pytest

from minillm_serve.core import PREFIX_CACHES, HashPrefixCache, InvariantViolation
from minillm_serve.parts.prefix import VISITS
from minillm_serve.parts.rehearsal import Visit, answer, rehearse, words
from tests.llm import parts_wrong
from tests.llm.parts_right import MyPrefixCache

share = partial(rehearse, VISITS, num_blocks=12)


@pytest.mark.parametrize("cache", [*PREFIX_CACHES.values(), MyPrefixCache])
def test_a_prefix_cache_saves_prompt_tokens_and_changes_no_answer_b13(cache):
    """B13: nobody holds a block in the end, though many were evicted."""
    plain, cached = share(), share(prefix_cache=cache)
    assert cached.lengths == plain.lengths == [visit.output_len for visit in VISITS]
    assert cached.leaked == 0
    assert cached.prefix.hits >= 24
    assert cached.prefix.num_evicted > 10
    assert cached.prompt_tokens <= plain.prompt_tokens - cached.prefix.hits
    assert cached == share(prefix_cache=HashPrefixCache)


def test_an_answer_depends_on_the_prompt_alone_and_on_all_of_it():
    prompt = words(1, 6)
    assert answer(prompt, 4) == answer(prompt, 9)[:4]
    assert answer(prompt, 4) != answer((0, *prompt[1:]), 4)
    follow_up = Visit(9, prompt + answer(prompt, 9) + words(2, 3), 4)
    told = rehearse((Visit(0, prompt, 9), follow_up), prefix_cache=HashPrefixCache)
    assert told.prefix.hits == 12  # the second turn finds prompt and answer, but for the last token


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("ForgetsNamespaces", r"request 4 reads its position 0 from .* position 0 of request 0"),
        ("HashesEachBlockAlone", r"request 5 reads its position 0 from block \d, row 0, which"),
    ],
)
def test_a_wrong_block_is_found_at_the_very_token_b08_b17_b19(wrong, message):
    """B08, B17, B19: every row is of exactly the tokens before it, in the same namespace."""
    with pytest.raises(InvariantViolation, match=message):
        share(prefix_cache=getattr(parts_wrong, wrong))
