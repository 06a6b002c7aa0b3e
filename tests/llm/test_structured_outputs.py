"""Answers of a given shape, whatever else the engine does: on a tiny model in float64."""

import json
import math
import re
import sys
import threading

import pytest

from minillm_serve import LLM, SamplingParams, StructuredOutputsParams
from minillm_serve.core import RequestRefused
from minillm_serve.core.invariants import check_idle
from minillm_serve.runtime.structured import grammar as grammars
from minillm_serve.runtime.structured.grammar import GrammarCompiler
from tests.llm.tiny import tokenizer
from tests.models.tiny import VOCAB, prompt

PROMPT = prompt(13, seed=5)
#: How many ways there are to read so many letters grows with their number, and so does the time.
AMBIGUOUS = "((a{1,100}){1,100}){1,100}"


def regex(pattern, **options):
    shape = StructuredOutputsParams(regex=pattern)
    return SamplingParams(**{"max_tokens": 40, "seed": 3, "structured_outputs": shape, **options})


def answers(llm, params, prompts=(PROMPT,)):
    outputs = llm.generate(list(prompts), params, use_tqdm=False)
    check_idle(llm.engine.scheduler)
    return [answer for output in outputs for answer in output.outputs]


SHAPES = {
    "[A-F]{3,5}(-[0-9]{2}){2}": {"regex": "[A-F]{3,5}(-[0-9]{2}){2}"},
    "yes|no, thanks": {"choice": ["yes", "no, thanks"]},
    "[ab]+!": {"grammar": 'root ::= [ab] root | [ab] "!"'},
}


@pytest.mark.parametrize("temperature", [0, 1, 5])
@pytest.mark.parametrize("pattern", SHAPES)
def test_an_answer_has_its_shape_and_ends_where_that_does(make_exact, pattern, temperature):
    shape = StructuredOutputsParams(**SHAPES[pattern])
    params = SamplingParams(
        structured_outputs=shape, temperature=temperature, max_tokens=50, n=3, seed=1
    )
    found = answers(make_exact(), params)
    assert all(answer.finish_reason in ("stop", "length") for answer in found)
    ended = [answer for answer in found if answer.finish_reason == "stop"]
    assert ended
    assert all(re.fullmatch(pattern, answer.text) for answer in ended)


def test_json_satisfies_its_schema(make_exact):
    schema = {
        "type": "object",
        "properties": {
            "kind": {"enum": ["a", "b"]},
            "size": {"type": "integer", "minimum": 0, "maximum": 99},
            "ok": {"type": "boolean"},
        },
        "required": ["kind", "size", "ok"],
    }
    shape = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
    for answer in answers(
        make_exact(), SamplingParams(structured_outputs=shape, max_tokens=60, n=4)
    ):
        value = json.loads(answer.text)
        assert list(value) == ["kind", "size", "ok"]
        assert value["kind"] in ("a", "b")
        assert 0 <= value["size"] <= 99
        assert answer.finish_reason == "stop"


#: What must not change a token, be it that sequences are computed again, in pieces or overlapped.
WAYS = {
    "chunked": {"max_num_batched_tokens": 3, "max_num_seqs": 2},
    "preempted": {"num_blocks": 16, "block_size": 2, "max_model_len": 32},
    "overlapped": {"async_scheduling": True},
    "overlapped and preempted": {
        "async_scheduling": True,
        "num_blocks": 16,
        "block_size": 2,
        "max_model_len": 32,
    },
    "no prefix cache": {"prefix_cache": None},
    "swapped": {
        "num_blocks": 16,
        "block_size": 2,
        "max_model_len": 32,
        "swap_space": 2**20,
        "preemption": "swap",
    },
    "static": {"scheduler": "static"},
}


@pytest.mark.parametrize("way", WAYS)
def test_tokens_are_the_same_however_they_are_computed(make_exact, way):
    """Of neighbours with and without a grammar, each with its own, and of several answers."""
    prompts = [prompt(9, seed=seed) for seed in range(5)]
    params = [
        regex("[A-C]{5,12}[0-9]{3}", n=2, max_tokens=18),
        SamplingParams(seed=1, max_tokens=18, ignore_eos=True),
        regex("(ab|ba)*c", max_tokens=16, logprobs=2),
        regex("[0-9]{1,16}", temperature=0, repetition_penalty=1.5, frequency_penalty=0.5),
        regex("[x-z ]{2,14}", top_k=5, logit_bias={88: 3.0}, min_tokens=6),
    ]
    params[3] = regex("[0-9]{1,16}", temperature=0, repetition_penalty=1.5, max_tokens=17)
    wanted = answers(make_exact(max_model_len=32), params, prompts)
    llm = make_exact(**{"max_model_len": 32, **WAYS[way]})
    found = answers(llm, params, prompts)
    assert [a.token_ids for a in found] == [a.token_ids for a in wanted]
    assert [a.finish_reason for a in found] == [a.finish_reason for a in wanted]
    if "num_blocks" in WAYS[way]:
        assert llm.engine.scheduler.num_preemptions > 0


def test_log_probabilities_are_of_the_tokens_that_may_come(make_exact):
    """As in vLLM: nothing else has any probability. Bias and penalties do not count."""
    (answer,) = answers(make_exact(), regex("[ab]{4}", logprobs=20, logit_bias={68: 5.0}))
    letters = set(tokenizer().convert_tokens_to_ids(["a", "b"]))
    for entry in answer.logprobs[:4]:
        likely = {i: told for i, told in entry.items() if told.logprob > -math.inf}
        assert set(likely) == letters
        assert sum(math.exp(told.logprob) for told in likely.values()) == pytest.approx(1)
    end = answer.logprobs[4]
    assert end[answer.token_ids[4]].logprob == 0


def test_a_minimum_gives_way_where_only_an_end_may_come_b88(make_exact):
    """B88: the grammar goes before min_tokens, which counts where there is a choice."""
    llm = make_exact()
    (short,) = answers(llm, regex("[ab]{3}", min_tokens=10))
    assert (len(short.token_ids), short.finish_reason) == (4, "stop")
    for seed in range(5):
        (long,) = answers(llm, regex("[ab]*", min_tokens=10, max_tokens=200, seed=seed))
        assert len(long.token_ids) >= 10


def test_a_dead_end_is_an_error_of_that_request_alone_b88(make_exact):
    """B88: the tiny vocabulary cannot spell what comes after the x."""
    asked = [regex("xé"), regex("[ab]{3}")]
    dead, other = answers(make_exact(), asked, [PROMPT, PROMPT])
    assert (dead.text, dead.finish_reason) == ("x", "error")
    assert "no token is left to choose" in dead.error
    assert (len(other.text), other.finish_reason) == (3, "stop")


def test_a_stop_string_or_token_ends_an_answer_before_its_shape(make_exact):
    llm = make_exact()
    (cut,) = answers(llm, regex("a{3}b{3}", stop="ab"))
    assert (cut.text, cut.finish_reason, cut.stop_reason) == ("aa", "stop", "ab")
    token = tokenizer().convert_tokens_to_ids("b")
    (cut,) = answers(llm, regex("a{3}b{3}", stop_token_ids=[token]))
    assert (cut.text, cut.stop_reason) == ("aaa", token)


def test_special_tokens_are_no_text(make_exact):
    """Their text would be left out of the answer, which then lacked it."""
    bias = {0: 100.0, 1: 100.0}
    (answer,) = answers(make_exact(), regex("[<>spad]{9}", logit_bias=bias, temperature=0))
    assert len(answer.text) == 9
    assert not set(answer.token_ids) & {0, 1}


def test_whoever_follows_a_grammar_gets_no_drafts_and_others_do(speculate):
    class Always:
        kv_cache = None

        def propose(self, items):
            raise AssertionError([item.sequence for item in items])

        def observe(self, batch, inputs, hidden):
            pass

    llm = speculate(Always())
    (answer,) = answers(llm, regex("[ab]{6}"))
    assert len(answer.text) == 6
    with pytest.raises(AssertionError, match="llm-"):
        llm.generate([PROMPT], SamplingParams(ignore_eos=True), use_tqdm=False)


def test_nothing_is_queued_if_one_shape_is_bad(make_exact):
    llm = make_exact()
    with pytest.raises(ValueError, match=r"^structured_outputs.regex: .*not closed"):
        llm.generate([PROMPT] * 2, [regex("a"), regex("(a")], use_tqdm=False)
    assert not llm.engine.has_unfinished


def test_a_grammar_that_is_too_ambiguous_is_given_up_and_then_refused(make_exact):
    """It may not keep the others waiting: a tenth of a second a token soon, and then seconds."""
    llm = make_exact(max_model_len=200)
    llm.engine.executor._matchers._allowance = 0.3
    asked = [regex(AMBIGUOUS, min_tokens=150, max_tokens=150), regex("[ab]{30}")]
    slow, other = answers(llm, asked, [PROMPT, PROMPT])
    assert slow.finish_reason == "error"
    assert "too ambiguous" in slow.error
    assert set(slow.text) == {"a"}
    assert (len(other.text), other.finish_reason) == (30, "stop")
    with pytest.raises(RequestRefused, match="let no repetition stand within another"):
        answers(llm, regex(AMBIGUOUS))


def test_what_is_compiled_is_kept_for_the_next_and_only_so_much_of_it(monkeypatch):
    compiler = GrammarCompiler(tokenizer(), VOCAB, {2})
    shapes = [StructuredOutputsParams(regex=f"a{{{count}}}") for count in range(1, 5)]
    monkeypatch.setattr(grammars, "MOST_KEPT", 3)
    made = [compiler.compile(shape) for shape in shapes]
    assert compiler.find(shapes[0]) is None
    assert compiler.compile(StructuredOutputsParams(regex="a{4}")) is made[3]
    monkeypatch.setattr(grammars, "MOST_BYTES_KEPT", 1)
    last = compiler.compile(shapes[0])
    assert [compiler.find(shape) for shape in shapes] == [last, None, None, None]


def test_several_threads_compile_one_shape_once():
    compiler, shape = (
        GrammarCompiler(tokenizer(), VOCAB, {2}),
        StructuredOutputsParams(json_object=True),
    )
    made = []
    threads = [
        threading.Thread(target=lambda: made.append(compiler.compile(shape))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 4
    assert len(set(map(id, made))) == 1


def test_who_has_no_xgrammar_no_eos_or_no_known_vocabulary_is_told(monkeypatch):
    shape = StructuredOutputsParams(regex="a")
    with pytest.raises(RequestRefused, match="no EOS token"):
        GrammarCompiler(tokenizer(), VOCAB, ()).compile(shape)
    with pytest.raises(RequestRefused, match="what the tokens of NoneType stand for"):
        GrammarCompiler(None, VOCAB, {2}).compile(shape)
    plain = tokenizer()
    plain.backend_tokenizer.decoder = None
    with pytest.raises(RequestRefused, match="byte-level and byte-fallback"):
        GrammarCompiler(plain, VOCAB, {2}).compile(shape)
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(RequestRefused, match="pip install xgrammar"):
        GrammarCompiler(tokenizer(), VOCAB, {2}).compile(shape)


@pytest.mark.model
def test_the_embedded_model_fills_in_a_schema():
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 20},
            "country": {"type": "string", "maxLength": 20},
            "inhabitants": {"type": "integer", "minimum": 1, "maximum": 99_999_999},
        },
        "required": ["city", "country", "inhabitants"],
    }
    shape = StructuredOutputsParams(json=schema, disable_any_whitespace=True)
    params = SamplingParams(temperature=0, max_tokens=80, structured_outputs=shape)
    llm = LLM(num_blocks=64)
    messages = [{"role": "user", "content": "Describe Paris as JSON."}]
    (answer,) = llm.chat(messages, params, use_tqdm=False)[0].outputs
    value = json.loads(answer.text)
    assert list(value) == ["city", "country", "inhabitants"]
    assert value["city"] == "Paris"
    assert 1 <= value["inhabitants"] <= 99_999_999
    assert answer.finish_reason == "stop"
