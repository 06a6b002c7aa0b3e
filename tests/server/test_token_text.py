"""What single tokens read like, in vocabularies whose tokens are bytes."""

from dataclasses import replace

import pytest
from tokenizers import pre_tokenizers

from minillm_serve.core.logprobs import Logprob
from minillm_serve.outputs import CompletionDelta
from minillm_serve.server.logprobs import chat_logprobs, completion_logprobs
from minillm_serve.server.token_text import TokensOfAnswer, own_text, tokens_of_prompt
from minillm_serve.text.output import OutputText
from minillm_serve.text.vocabulary import Vocabulary
from tests.text import built


def delta_of(vocabulary, ids, *, stop=(), at_once=True):
    """An answer of these ids, as deltas; each id's likeliest rivals are its neighbours."""
    text = OutputText(vocabulary, skip_special_tokens=True, stop=stop)
    deltas = []
    for number, token_id in enumerate(ids):
        told = text.take([token_id])
        last = number == len(ids) - 1 or told.stopped is not None
        piece = told.text + (text.finish().text if last else "")
        entry = {token_id: Logprob(-1.0, 2)} | {
            token_id + step: Logprob(-0.5 * step, 1 if step == 1 else 3) for step in (1, 2)
        }
        deltas.append(
            CompletionDelta(
                index=0,
                text=piece,
                token_ids=[token_id],
                logprobs=[entry],
                text_offsets=text.offsets[number : number + 1],
                text_end=text.end,
                finish_reason="stop" if last else None,
                stop_reason=None,
                error=None,
            )
        )
        if last:
            break
    return deltas


def tokens_of(deltas):
    """All tokens, in the order in which they are given out; checks that each waits for its text."""
    tokens, told = TokensOfAnswer(), ""
    given = []
    for delta in deltas:
        told += delta.text
        given += tokens.take(delta)
        assert told.startswith("".join(token.text for token in given))
    assert "".join(token.text for token in given) == told
    return given


KINDS = {"byte level": built.byte_level, "llama": built.llama, "gemma": built.gemma}


@pytest.mark.parametrize("kind", KINDS)
def test_halves_of_characters_have_bytes_of_their_own_b94(kind):
    """An emoji of four bytes, each a token of its own: none of them prints as anything."""
    tokenizer = KINDS[kind]()
    vocabulary = Vocabulary(tokenizer)
    names = [f"<0x{byte:02X}>" for byte in "👋".encode()]
    if kind == "byte level":
        names = list(_spelled("👋"))
    ids = tokenizer.convert_tokens_to_ids(names)
    assert [own_text(vocabulary, i).raw for i in ids] == [bytes([b]) for b in "👋".encode()]
    texts = [own_text(vocabulary, i).text for i in ids]
    assert texts == [f"bytes:\\x{byte:02x}" for byte in "👋".encode()]
    tokens = tokens_of(delta_of(vocabulary, ids))
    assert "".join(token.text for token in tokens) == "👋"
    entries = chat_logprobs(tokens, 3, vocabulary).content
    assert bytes(b for entry in entries for b in entry.bytes) == "👋".encode()
    rivals = [bytes(top.bytes) for entry in entries for top in entry.top_logprobs]
    assert len(set(rivals)) > len(ids)
    lists = completion_logprobs(tokens, 3, vocabulary)
    assert all(len(top) == 3 for top in lists.top_logprobs)
    assert {len(values) for _, values in lists} == {4}


def _spelled(text):
    """GPT-2's characters for the bytes of a text."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return level.pre_tokenize_str(text)[0][0]


@pytest.mark.parametrize("kind", KINDS)
def test_of_tokens_that_read_alike_the_likeliest_counts_b94(kind):
    tokenizer = KINDS[kind]()
    vocabulary = Vocabulary(tokenizer)
    (token,) = tokens_of(delta_of(vocabulary, tokenizer.convert_tokens_to_ids(["a"])))
    alike = {
        token.token_id: Logprob(-3.0, 9),
        **{len(tokenizer) + i: Logprob(-i - 1.0, i + 1) for i in range(3)},
    }
    lists = completion_logprobs([replace(token, logprobs=alike)], 3, vocabulary)
    assert lists.top_logprobs == [{"a": -3.0, "": -1.0}]


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_wait_for_their_text_and_a_stop_string_leaves_them_none_b97(kind):
    tokenizer = KINDS[kind]()
    vocabulary = Vocabulary(tokenizer)
    ids = tokenizer.convert_tokens_to_ids(["the", "house", "red", "green", "a", "b"])
    tokens = tokens_of(delta_of(vocabulary, ids, stop=["redgreen"]))
    assert [token.text for token in tokens] == ["the", "house", "", ""]
    assert [token.offset for token in tokens] == [0, 3, 8, 8]
    ends_otherwise = tokens_of(delta_of(vocabulary, ids, stop=["redgreenb"]))
    assert [token.text for token in ends_otherwise] == ["the", "house", "red", "green", "a", "b"]


def test_a_token_that_is_not_in_the_text_adds_nothing_to_it():
    """A BOS that the tokenizer put before; a name of a special token that stands in the text."""
    tokenizer = built.byte_level()
    vocabulary = Vocabulary(tokenizer)
    special = tokenizer.convert_tokens_to_ids(["<s>"])
    ids = tokenizer.convert_tokens_to_ids(["the", "house"])
    text, tokens = tokens_of_prompt(vocabulary, special + ids, "thehouse", [])
    assert (text, [token.text for token in tokens]) == ("thehouse", ["", "the", "house"])
    text, tokens = tokens_of_prompt(vocabulary, special + ids, "<s>thehouse", [])
    assert (text, [token.text for token in tokens]) == ("<s>thehouse", ["<s>", "the", "house"])
    text, tokens = tokens_of_prompt(vocabulary, ids, "TheHouse", [])  # a tokenizer that lowers
    assert (text, [token.text for token in tokens]) == ("thehouse", ["the", "house"])
    text, tokens = tokens_of_prompt(vocabulary, special, "", [])
    assert (text, [token.text for token in tokens]) == ("", [""])
