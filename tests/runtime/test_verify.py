"""Which drafts of a step are right: against choosing token by token, and against exact chances."""

import math
from copy import copy

import numpy as np
import pytest
import torch

from minillm_serve.core import Batch, Request, SamplingParams, ScheduledSequence, Sequence
from minillm_serve.runtime.inputs import build_inputs
from minillm_serve.runtime.sampling.chi_square import p_value
from minillm_serve.runtime.sampling.choice import Choice
from minillm_serve.runtime.sampling.outputs import read_logits
from minillm_serve.runtime.sampling.sampler import choose, distributions
from minillm_serve.runtime.spec.accept import accept
from minillm_serve.runtime.spec.verify import PAPERS_RULE, Rule

CPU = torch.device("cpu")
VOCAB = 12
BY_RULE = Rule(accept, always=True)


def make_item(drafts=(), *, engine_seed=0, output=(4,), stop=(), **params):
    """A sequence that decodes, with these drafts behind it."""
    params = SamplingParams(max_tokens=None, stop_token_ids=stop, **params)
    asked = Request(request_id="r", prompt_token_ids=(1, 2, 3), params=params)
    sequence = Sequence(asked, seed=engine_seed)
    sequence.token_ids += output
    sequence.num_computed = len(sequence) - 1
    sequence.block_table = [0]
    return ScheduledSequence.of(sequence, 1).with_drafts(tuple(drafts))


def verified(items, logits, drawn=None, rule=PAPERS_RULE):
    """One output for each item; of the logits it has as many rows as it has drafts, and one."""
    inputs = build_inputs(Batch(tuple(items)), block_size=32, device=CPU)
    last = inputs.token_ids[inputs.logit_rows]
    return read_logits(logits, inputs, last, drawn or {}, rule).outputs()


def one_by_one(item, logits):
    """The tokens, and their log probabilities, that there would be without drafts."""
    plain, tokens, entries = copy(item.sequence), [], []
    for row, draft in enumerate((*item.draft_token_ids, None)):
        plain.token_ids = [*item.sequence.token_ids, *tokens]
        plain.num_computed = len(plain) - 1
        (output,) = verified([ScheduledSequence.of(plain, 1)], logits[row : row + 1])
        tokens += output.token_ids
        entries += output.logprobs
        if tokens[-1] != draft:
            break
    return tuple(tokens), tuple(entries)


def random_logits(rows, seed):
    return 3 * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def with_drafts(item, logits, wrong_at=None):
    """As many drafts as there are rows for: right ones up to one that is wrong."""
    drafts = ()
    for place in range(len(logits) - 1):
        (*_, token), _ = one_by_one(item.with_drafts(drafts), logits)
        drafts += ((token + 1) % VOCAB if place == wrong_at else token,)
    return item.with_drafts(drafts)


KINDS = {
    "greedy": {"temperature": 0},
    "with a seed": {"seed": 3},
    "drawn": {},
    "filtered": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.01},
    "penalised": {"frequency_penalty": 1.5, "presence_penalty": 0.5, "repetition_penalty": 1.4},
    "penalised and greedy": {"temperature": 0, "frequency_penalty": 2.0},
    "biased": {"logit_bias": {3: 4.0, 5: -100.0}},
    "not to end yet": {"temperature": 0, "stop": tuple(range(0, VOCAB, 2)), "min_tokens": 4},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong_at", [None, 0, 1, 3])
def test_certain_drafts_change_no_token_and_no_number_b56(kind, wrong_at):
    """B56: the token after the last right draft is chosen by the row of that very position."""
    for seed in range(5):
        logits = random_logits(5, seed)
        item = with_drafts(make_item(engine_seed=seed, logprobs=2, **KINDS[kind]), logits, wrong_at)
        (output,) = verified([item], logits)
        assert (output.token_ids, output.logprobs) == one_by_one(item, logits)
        assert output.num_accepted == (4 if wrong_at is None else wrong_at)
        assert output.draft_token_ids == item.draft_token_ids


@pytest.mark.parametrize("rule", [PAPERS_RULE, BY_RULE])
def test_rows_of_a_mixed_batch_are_verified_each_for_itself_b63_b64(rule):
    """B63, B64: greedy and drawn ones, with four drafts, with one and with none, in any order."""
    items, tables = [], []
    for number, (seed, kind) in enumerate(zip(range(100, 116), list(KINDS) * 2, strict=True)):
        logits = random_logits((4, 1, 0)[number % 3] + 1, seed)
        item = make_item(engine_seed=seed, logprobs=1, **KINDS[kind])
        items.append(with_drafts(item, logits, None if number % 2 else 2))
        tables.append(logits)
    alone = [
        verified([item], table, rule=rule)[0] for item, table in zip(items, tables, strict=True)
    ]
    for order in (range(16), range(15, -1, -1), (5, 0, 11, 3)):
        together = verified(
            [items[i] for i in order], torch.cat([tables[i] for i in order]), rule=rule
        )
        for i, output in zip(order, together, strict=True):
            assert output.token_ids == alone[i].token_ids
            assert output.draft_token_ids == items[i].draft_token_ids
            assert 1 <= len(output.token_ids) <= 1 + len(items[i].draft_token_ids)


@pytest.mark.parametrize("rule", [PAPERS_RULE, BY_RULE])
@pytest.mark.parametrize("q", ["certain", "flat", "elsewhere"])
def test_a_greedy_request_gets_the_likeliest_tokens_whatever_was_proposed_b61(rule, q):
    """B61: at temperature 0 both are certain, also where a drafter says that it has drawn."""
    for seed, wrong_at in enumerate((None, 0, 2)):
        logits = random_logits(4, seed)
        item = with_drafts(make_item(temperature=0), logits, wrong_at)
        probs = torch.full((3, VOCAB), 1 / VOCAB)
        if q == "elsewhere":  # all but the draft
            probs = torch.full((3, VOCAB), 1 / (VOCAB - 1))
            probs.scatter_(1, torch.tensor(item.draft_token_ids)[:, None], 0)
        (output,) = verified([item], logits, None if q == "certain" else {0: probs}, rule)
        assert output.token_ids == one_by_one(item, logits)[0]


@pytest.mark.parametrize("rule", [PAPERS_RULE, BY_RULE])
@pytest.mark.parametrize("twin", [False, True])
def test_of_equal_maxima_the_lowest_id_is_right_and_the_other_is_not_b55(rule, twin):
    """B55: the draft may be the one or the other; token and rank are those without drafts."""
    logits = torch.zeros(2, VOCAB)
    logits[:, [3, 7]] = 5.0
    item = make_item([7 if twin else 3], temperature=0, logprobs=3)
    (output,) = verified([item], logits, rule=rule)
    assert output.token_ids == ((3,) if twin else (3, 3))
    assert (output.token_ids, output.logprobs) == one_by_one(item, logits)
    assert [(t, e.rank) for t, e in output.logprobs[0].items()] == [(3, 1), (7, 2), (0, 3)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("kind", ["greedy", "drawn"])
@pytest.mark.parametrize("rule", [PAPERS_RULE, BY_RULE])
@pytest.mark.parametrize("row", range(4))
def test_a_row_that_is_not_finite_ends_its_sequence_if_it_counts_b68(bad, kind, rule, row):
    """B68: the row of a draft that was refused does not count, nor does any behind it."""
    others = [
        with_drafts(make_item(engine_seed=s, **KINDS[kind]), random_logits(4, s)) for s in (1, 2)
    ]
    tables = [random_logits(4, s) for s in range(3)]
    sick = with_drafts(make_item(**KINDS["greedy"]), tables[0], wrong_at=1)
    tables[0][row, 5] = bad
    batch = [others[0], sick, others[1]]
    outputs = verified(batch, torch.cat([tables[1], tables[0], tables[2]]), rule=rule)
    for item, table, output in zip(others, tables[1:], outputs[::2], strict=True):
        assert output.error is None
        assert output.token_ids == verified([item], table, rule=rule)[0].token_ids
    if row <= 1:
        assert "not finite" in outputs[1].error
        assert outputs[1].token_ids == ()
    else:
        assert outputs[1].error is None
        assert len(outputs[1].token_ids) == 2


def test_no_numbers_under_a_drawn_draft_end_the_sequence_alone_b68():
    logits = random_logits(4, 0)
    logits[0] = math.nan
    probs = torch.full((1, VOCAB), 1 / VOCAB)
    outputs = verified([make_item([5]), make_item([6])], logits, {0: probs, 1: probs})
    assert "not finite" in outputs[0].error
    assert outputs[1].error is None


def test_a_row_in_which_nothing_may_be_chosen_says_so_b88():
    """B88: every token is a stop token, and it is too early for one."""
    item = make_item([3], temperature=0, stop=tuple(range(VOCAB)), min_tokens=9)
    (output,) = verified([item], random_logits(2, 0))
    assert "exclude every one" in output.error


# ---- Draws ---------------------------------------------------------------------------------------

SEQUENCES = 10_000
#: What the model says after no drafts, one and two; whatever those were.
MODEL = torch.tensor([[0.3, 2.0, -1.0, 1.1], [1.5, 0.2, 0.9, -0.3], [-0.5, 0.7, 0.1, 1.2]])
FILTERED = {"temperature": 0.5, "top_k": 2, "top_p": 0.8}


def processed(logits, **params):
    """What tokens are drawn from, by definition."""
    item = make_item(**params)
    return distributions(logits, [Choice.of(item.sequence)] * len(logits))


def draws(q, seed):
    """[SEQUENCES, 2] drafts, by numbers that have nothing to do with the engine's."""
    draw = np.random.default_rng(seed)
    table = q.double().numpy()
    columns = [draw.choice(4, SEQUENCES, p=row / row.sum()) for row in table]
    return np.stack(columns, axis=1).tolist()


def check_draws(q, told, params, rule=PAPERS_RULE):
    """Chances of the first token, and of the second and third where the drafts before were kept."""
    p = processed(MODEL, **params)
    items = [make_item(d, engine_seed=s, **params) for s, d in enumerate(draws(q, 1))]
    drawn = dict.fromkeys(range(SEQUENCES), told) if told is not None else {}
    outputs = verified(items, MODEL.repeat(SEQUENCES, 1), drawn, rule)
    chances = []
    for place in range(3):
        tokens = [o.token_ids[place] for o in outputs if len(o.token_ids) > place]
        chances.append(p_value(torch.bincount(torch.tensor(tokens), minlength=4), p[place]))
    kept = sum(len(o.token_ids) > 1 for o in outputs) / SEQUENCES
    return chances, kept, torch.minimum(p[0], q[0]).sum().item()


@pytest.mark.parametrize("params", [{}, FILTERED], ids=["plain", "filtered"])
@pytest.mark.parametrize("q", ["its own", "flat", "another"])
@pytest.mark.parametrize("rule", [PAPERS_RULE, BY_RULE], ids=["drawn", "always"])
def test_tokens_are_distributed_as_without_drafts_b62(params, q, rule):
    """B62: chi-square of 10,000 sequences, for drafts from p itself and from very different q.

    And as many drafts stay as can: the sum of min(p, q).
    """
    table = {
        "its own": processed(MODEL[:2], **params),
        "flat": torch.full((2, 4), 0.25),
        "another": processed(-MODEL[:2]),
    }[q]
    chances, kept, most = check_draws(table, table, params, rule)
    assert min(chances) > 1e-4
    assert kept == pytest.approx(most, abs=0.015)


@pytest.mark.parametrize("params", [{}, FILTERED], ids=["plain", "filtered"])
def test_certain_drafts_by_the_rule_are_distributed_as_without_drafts_b62(params):
    """B62: with an accept part of one's own; q is then 1 at the draft, whoever guessed it."""
    chances, kept, _ = check_draws(torch.full((2, 4), 0.25), None, params, BY_RULE)
    assert min(chances) > 1e-4
    assert kept == pytest.approx(0.25, abs=0.015)


def test_a_drafter_that_lies_about_its_q_is_noticed_b62():
    """B62: the tests above can fail."""
    chances, *_ = check_draws(torch.full((2, 4), 0.25), processed(-MODEL[:2]), {})
    assert chances[0] < 1e-9


@pytest.mark.parametrize("params", [{}, {"seed": 5}, {"temperature": 0}], ids=str)
def test_a_rule_of_ones_own_sees_whole_distributions_and_decides(params):
    seen = []

    def refuse(p, q, drafts, lengths, numbers):
        seen.append((p, q, drafts, lengths, numbers))
        return accept(p, q, drafts, torch.zeros_like(lengths), numbers)

    items = [
        make_item([3, 1], **params),
        make_item([5], engine_seed=1, **params),
        make_item(**params),
    ]
    logits = random_logits(6, 0)
    outputs = verified(items, logits, rule=Rule(refuse, always=True))
    assert [len(output.token_ids) for output in outputs] == [1, 1, 1]
    ((p, q, drafts, lengths, numbers),) = seen
    assert lengths.tolist() == [2, 1]  # whoever has no drafts has nothing to be decided
    assert drafts.tolist() == [[3, 1], [5, 0]]
    assert (p.dtype, q.dtype, numbers.dtype) == (torch.float32, torch.float32, torch.float64)
    rows = [p[0, 0], p[0, 1], p[0, 2], p[1, 0], p[1, 1]]
    assert torch.allclose(torch.stack(rows), processed(logits[:5], **params))
    assert [q[0, 0].argmax(), q[0, 1].argmax(), q[1, 0].argmax()] == [3, 1, 5]
    assert q[:, 0].sum(dim=-1).tolist() == [1.0, 1.0]
    assert 0 <= numbers.min() <= numbers.max() < 1


def test_choose_is_untouched_by_drafts_of_others():
    """A row without drafts goes the plain way, also when others are put to the rule."""
    items = [make_item([3], engine_seed=1), make_item(engine_seed=2)]
    logits = random_logits(3, 0)
    drawn = {0: torch.full((1, VOCAB), 1 / VOCAB)}
    (_, output) = verified(items, logits, drawn)
    choice = Choice.of(items[1].sequence)
    (token,) = choose(logits[2:], [choice], torch.tensor([4])).tokens.tolist()
    assert output.token_ids == (token,)
