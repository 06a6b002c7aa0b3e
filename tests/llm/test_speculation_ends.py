"""Where answers end among drafts, and what drafts may not do to anybody: on a tiny model."""

import math

import pytest

from minillm_serve import SamplingParams
from minillm_serve.core import SpecStats
from minillm_serve.core.invariants import check_idle
from tests.llm.scripted import Always, Draws, Scripted, ask, check_same
from tests.models.tiny import VOCAB, prompt

RIGHT, WRONG, OFTEN_RIGHT = [True], [False], 0.7
PROMPT = prompt(21, seed=1)


def params(**options):
    return SamplingParams(**{"temperature": 0, "max_tokens": 24, "ignore_eos": True, **options})


def drawn(**options):
    return params(temperature=1, seed=3, **options)


def check_usage(output):
    """What is counted is what is returned."""
    metrics, ids = output.metrics, output.outputs[0].token_ids
    assert metrics.num_output_tokens == len(ids)
    assert 0 <= metrics.num_accepted_tokens <= metrics.num_draft_tokens
    assert metrics.num_accepted_tokens < len(ids)  # the first one was not guessed


def num_guessed(count, most):
    """How many of so many tokens were drafts, if all are right: the first one is not, and of each
    step the last one is not.
    """
    return sum(place % (most + 1) != most for place in range(count - 1))


@pytest.mark.parametrize("kind", ["stop token", "EOS"])
@pytest.mark.parametrize("most", [2, 8])
def test_an_end_inside_a_run_of_right_drafts_is_the_end_b50_b52(make_exact, speculate, kind, most):
    """B50, B52: nothing later is in text, ids, log probabilities or usage, streamed or not."""
    free = ask(make_exact(), [PROMPT], [drawn(logprobs=1)])
    tokens = free[0].outputs[0].token_ids
    place = next(i for i in range(3, 9) if tokens[i] not in tokens[:i])
    own = {"stop_token_ids": [tokens[place]]} if kind == "stop token" else {"ignore_eos": False}
    llms = make_exact(), speculate(Scripted(free, RIGHT), most)
    for llm in llms:
        if kind == "EOS":
            llm.engine.eos_token_ids = frozenset([tokens[place]])
    asked = drawn(logprobs=1, **own)
    wanted, got = (ask(llm, [PROMPT], [asked]) for llm in llms)
    check_same(got, wanted)
    answer = got[0].outputs[0]
    assert answer.token_ids == tokens[: place + 1]
    assert answer.finish_reason == "stop"
    assert len(answer.logprobs) == len(answer.text_offsets) == place + 1
    check_usage(got[0])
    assert got[0].metrics.num_accepted_tokens == num_guessed(place + 1, most)
    assert "".join(llms[1].stream(PROMPT, asked)) == answer.text
    check_idle(llms[1].engine.scheduler)


@pytest.mark.parametrize("rights", [RIGHT, OFTEN_RIGHT], ids=str)
@pytest.mark.parametrize("length", [1, 3])
def test_a_stop_string_among_drafts_cuts_text_ids_and_numbers_alike_b52_b53(
    make_exact, speculate, rights, length
):
    """B52, B53: also a stop string that begins with one step and ends with the next."""
    free = ask(make_exact(), [PROMPT], [drawn(max_tokens=40)])
    text = free[0].outputs[0].text
    for begin in range(4, 12, 2):
        asked = drawn(max_tokens=40, logprobs=2, stop=text[begin : begin + length])
        wanted = ask(make_exact(), [PROMPT], [asked])
        llm = speculate(Scripted(free, rights), 3)
        got = ask(llm, [PROMPT], [asked])
        check_same(got, wanted)
        assert got[0].outputs[0].finish_reason == "stop"
        check_usage(got[0])
        if rights is RIGHT:
            count = len(got[0].outputs[0].token_ids)
            assert got[0].metrics.num_accepted_tokens == num_guessed(count, 3)
        assert "".join(llm.stream(PROMPT, asked)) == wanted[0].outputs[0].text
        check_idle(llm.engine.scheduler)


def test_text_that_goes_round_in_circles_is_drafted_and_stopped_in_time_b53(make_exact):
    """B53: n-gram drafts of 8, a stop string in the middle of what they have right."""
    loves_repeating = params(max_tokens=40, frequency_penalty=-2.0, logprobs=2)
    (free,) = ask(make_exact(), [PROMPT], [loves_repeating])
    text = free.outputs[0].text
    stop = text[-4:]
    assert text.count(stop[-1]) > 10
    config = {"method": "ngram", "num_speculative_tokens": 8, "adaptive": False}
    for stops in ((), (stop,), (stop[-1] * 7,)):
        asked = params(max_tokens=40, frequency_penalty=-2.0, logprobs=2, stop=stops)
        wanted = ask(make_exact(), [PROMPT], [asked])
        llm = make_exact(speculative_config=config)
        got = ask(llm, [PROMPT], [asked])
        check_same(got, wanted)
        check_usage(got[0])
        assert got[0].outputs[0].finish_reason == ("stop" if stops else "length")
        assert "".join(llm.stream(PROMPT, asked)) == wanted[0].outputs[0].text
    assert llm.spec_stats.num_accepted_tokens > 3


@pytest.mark.parametrize("rights", [RIGHT, WRONG, OFTEN_RIGHT], ids=str)
def test_pieces_of_a_stream_join_to_the_text_that_there_is_without_drafts(
    make_exact, speculate, rights
):
    asked = [params(), drawn(), drawn(stop=["e"]), params(max_tokens=1), params(max_tokens=2)]
    prompts = [PROMPT, PROMPT, PROMPT[:9], PROMPT[:7], PROMPT[:5]]
    free = ask(make_exact(), prompts, asked)
    llm = speculate(Scripted(free, rights), 5)
    streams = [llm.stream(*pair) for pair in zip(prompts, asked, strict=True)]
    texts = [""] * len(streams)
    for _ in range(60):
        for index, stream in enumerate(streams):
            texts[index] += next(stream, "")
    assert texts == [output.outputs[0].text for output in free]
    check_idle(llm.engine.scheduler)


@pytest.mark.parametrize("reads", [0, 1, 3])
def test_a_stream_left_among_drafts_leaves_nothing_behind(make_exact, speculate, reads):
    free = ask(make_exact(), [PROMPT], [params()])
    llm = speculate(Scripted(free, OFTEN_RIGHT), 5)
    stays = llm.stream(PROMPT[:9], drawn())
    begun = next(stays)
    with llm.stream(PROMPT, params()) as stream:
        for _ in range(reads):
            next(stream)
    (wanted,) = ask(make_exact(), [PROMPT[:9]], [drawn()])
    assert begun + "".join(stays) == wanted.outputs[0].text
    check_idle(llm.engine.scheduler)


def test_drafts_end_with_the_context_b65(make_exact, speculate):
    """B65: of 5 there is room for 1: the third token is the one that comes in any case."""
    ids = prompt(29, seed=2)
    free = ask(make_exact(max_model_len=32), [ids], [params(max_tokens=10)])
    llm = speculate(Scripted(free, RIGHT), 5, max_model_len=32)
    (got,) = ask(llm, [ids], [params(max_tokens=10)])
    assert got.outputs[0].token_ids == free[0].outputs[0].token_ids
    assert (len(got.outputs[0].token_ids), got.outputs[0].finish_reason) == (3, "length")
    assert llm.spec_stats == SpecStats(1, 1, 1, (1,))


@pytest.mark.parametrize("max_tokens", range(1, 7))
def test_nobody_gets_more_than_max_tokens_b64(make_exact, speculate, max_tokens):
    free = ask(make_exact(), [PROMPT], [params()])
    llm = speculate(Scripted(free, RIGHT), 4)
    (got,) = ask(llm, [PROMPT], [params(max_tokens=max_tokens)])
    assert got.outputs[0].token_ids == free[0].outputs[0].token_ids[:max_tokens]
    assert llm.spec_stats.num_draft_tokens == max(0, max_tokens - 2)


def test_greedy_requests_get_their_tokens_also_where_drafts_were_drawn_b61_b63(
    make_exact, speculate
):
    """B61, B63: whatever they were drawn from, and though a neighbour's tokens are drawn, too."""
    prompts = [PROMPT, PROMPT[:9], PROMPT[:14]]
    asked = [params(logprobs=2), params(temperature=1), params(min_tokens=9)]
    wanted = ask(make_exact(), prompts, asked)
    likely = wanted[0].outputs[0].token_ids
    llm = speculate(Draws([likely.count(token) / len(likely) for token in range(VOCAB)]), 4)
    got = ask(llm, prompts, asked)
    check_same(got[::2], wanted[::2])
    assert len(got[1].outputs[0].token_ids) == 24
    assert 0 < llm.spec_stats.acceptance_rate < 0.5


def tie(llm):
    """Every odd token is exactly as likely as the even one before it."""
    model = llm.engine.executor.model
    logits = model.logits

    def tied(hidden):
        table = logits(hidden)
        table[:, 1::2] = table[:, 0:-1:2]
        return table

    model.logits = tied
    return llm


class Twins(Scripted):
    """Drafts the other one of two that are equally likely."""

    def _guess(self, item):
        return [token + 1 for token in super()._guess(item)]


@pytest.mark.parametrize("kind", ["greedy", "drawn"])
def test_of_equally_likely_tokens_the_same_one_is_taken_with_drafts_and_without_b55(
    make_exact, speculate, kind
):
    """B55: the lowest id, and the same ranks; its twin is refused."""
    asked = [params(logprobs=3) if kind == "greedy" else drawn(logprobs=3, top_k=5)]
    wanted = ask(tie(make_exact()), [PROMPT], asked)
    assert kind == "drawn" or all(token % 2 == 0 for token in wanted[0].outputs[0].token_ids)
    for drafter in (Scripted(wanted, RIGHT), Twins(wanted, RIGHT), Scripted(wanted, OFTEN_RIGHT)):
        llm = tie(speculate(drafter, 4))
        check_same(ask(llm, [PROMPT], asked), wanted)
        assert (llm.spec_stats.num_accepted_tokens == 0) == isinstance(drafter, Twins)


@pytest.mark.parametrize("cache", ["hash", "radix"])
@pytest.mark.parametrize("most", [1, 2, 5])
def test_what_was_guessed_wrongly_is_nobodys_prefix_b58(make_exact, speculate, cache, most):
    """B58: whoever asks for the tokens that were refused is answered as from nothing."""
    plain, ids = make_exact(prefix_cache=None), PROMPT[:6]
    (right,) = ask(plain, [ids], [params(max_tokens=9)])
    answer = right.outputs[0].token_ids
    wrong = next(token for token in range(VOCAB) if token not in answer)
    llm = speculate(Always(wrong), most, prefix_cache=cache)
    ask(llm, [ids], [params(max_tokens=9)])
    assert llm.spec_stats.num_accepted_tokens == 0 < llm.spec_stats.num_drafts
    # Behind every beginning of the answer, drafts that filled a block, and one token more.
    others = [ids + answer[:count] + [wrong] * 6 for count in range(1, 9)]
    check_same(ask(llm, others, [params()] * 8), ask(plain, others, [params()] * 8))
    check_same(ask(llm, [ids + answer], [params()]), ask(plain, [ids + answer], [params()]))


def spoil(llm, token):
    """Whatever the model reads this token in is no number from there on."""
    llm.engine.executor.model.embedding.weight[token] = math.nan
    return llm


class Poisons(Scripted):
    """Drafts a token that is no number for one of the prompts, and the right ones for all others.

    Args:
        token: that one.
        outputs: see `Scripted`; the first of them is poisoned.
    """

    def __init__(self, token, outputs):
        super().__init__(outputs, RIGHT)
        self.token, self.victim = token, tuple(outputs[0].prompt_token_ids)

    def _guess(self, item):
        if item.sequence.request.prompt_token_ids == self.victim:
            return [self.token] * item.num_drafts
        return super()._guess(item)


@pytest.mark.parametrize("backend", ["naive", "torch"])
@pytest.mark.parametrize("engine", [{}, {"num_blocks": 16, "swap_space": 2**20}], ids=str)
def test_a_refused_draft_that_is_no_number_harms_no_neighbour_b68(
    make_exact, speculate, backend, engine
):
    """B68: its KV is in the blocks until the right token's is written, or somebody else's.

    A backend that computes a whole row of products at once (0 * NaN is NaN) loses the sequence
    itself; one that looks at what is visible only, does not.
    """
    prompts = [PROMPT, prompt(9, seed=5), prompt(4, seed=6), PROMPT[:14]]
    asked = [params(logprobs=1), drawn(logprobs=2), params(), params(logprobs=0)]
    wanted = ask(make_exact(), prompts, asked)
    seen = {t for o in wanted for t in (*o.prompt_token_ids, *o.outputs[0].token_ids)}
    bad = next(token for token in range(VOCAB) if token not in seen)
    drafter = Poisons(bad, wanted)
    llm = spoil(speculate(drafter, 5, attention_backend=backend, **engine), bad)
    first, *others = ask(llm, prompts, asked)
    check_same(others, wanted[1:])
    if backend == "naive":
        check_same([first], wanted[:1])
    else:
        assert "not finite" in first.outputs[0].error


@pytest.mark.parametrize("rights", [RIGHT, WRONG], ids=str)
def test_a_right_draft_that_is_no_number_ends_its_request_alone_b68(make_exact, speculate, rights):
    prompts, asked = [PROMPT, PROMPT[:4]], [params(), params(temperature=1, seed=8)]
    free = ask(make_exact(), prompts, asked)
    answers = [output.outputs[0].token_ids for output in free]
    place = next(i for i in range(4, 20) if answers[0][i] not in {*PROMPT, *answers[1]})
    place = answers[0].index(answers[0][place])
    llm = spoil(speculate(Scripted(free, rights), 5), answers[0][place])
    sick, well = (output.outputs[0] for output in ask(llm, prompts, asked))
    assert sick.finish_reason == "error"
    assert "not finite" in sick.error
    assert sick.token_ids == answers[0][: len(sick.token_ids)]
    assert len(sick.token_ids) <= place + 1
    assert well.token_ids == answers[1]


class Fails(Scripted):
    """Has no idea, the second time that it is asked."""

    asked = 0

    def propose(self, items):
        self.asked += 1
        if self.asked == 2:
            raise RuntimeError("no idea")
        return super().propose(items)


def test_a_drafter_that_fails_ends_the_requests_of_its_step_and_no_others(make_exact, speculate):
    asked = [drawn(), params()]
    free = ask(make_exact(), [PROMPT, PROMPT[:9]], asked)
    llm = speculate(Fails(free, OFTEN_RIGHT), 4, max_num_seqs=1)
    hit, waits = llm.stream(PROMPT, asked[0]), llm.stream(PROMPT[:9], asked[1])
    assert free[0].outputs[0].text.startswith(next(hit))
    with pytest.raises(RuntimeError, match="no idea"):
        list(hit)
    with pytest.raises(RuntimeError, match="no idea"):
        next(hit)
    assert "".join(waits) == free[1].outputs[0].text
    check_idle(llm.engine.scheduler)
    check_same(ask(llm, [PROMPT, PROMPT[:9]], asked), free)


def test_certain_drafts_change_no_token_of_requests_without_a_seed_either(make_exact, speculate):
    """Their seeds are the engine's, one a request in the order in which they come."""
    prompts, asked = [PROMPT[:n] for n in (3, 9, 20)], [params(temperature=1, n=2)] * 3
    wanted = ask(make_exact(seed=7), prompts, asked)
    for drafter in (Scripted(wanted, RIGHT), Scripted(wanted, OFTEN_RIGHT), Always(3)):
        check_same(ask(speculate(drafter, 4, seed=7), prompts, asked), wanted)
    other = ask(make_exact(seed=8), prompts, asked)
    assert other[0].outputs[0].token_ids != wanted[0].outputs[0].token_ids
