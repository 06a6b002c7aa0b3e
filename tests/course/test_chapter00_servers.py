"""The two servers of chapter 00: the same tokens, and stopwatches that tell the truth."""

import itertools

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from minillm_serve import LLM
from minillm_serve.course.chapter00 import servers
from minillm_serve.course.trace import User

USERS = [User(0.0, (5, 6, 7), 6), User(0.0, (9, 8), 1), User(0.0, (3, 4, 5, 6), 4)]


@pytest.fixture(scope="module")
def tiny() -> LlamaForCausalLM:
    """A random Llama, small enough to answer at once."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        max_position_embeddings=64,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    return LlamaForCausalLM(config).eval()


class Ticking:
    """A clock that moves one second each time it is read, and as far as it is slept on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_one_at_a_time_begins_with_the_next_only_when_the_last_has_ended(
    tiny: LlamaForCausalLM,
) -> None:
    clock = Ticking()
    answers = servers.one_at_a_time(tiny, USERS, clock=clock, sleep=clock.sleep)
    assert [len(a.token_ids) for a in answers] == [6, 1, 4]
    assert [len(a.log.times) for a in answers] == [6, 1, 4]
    for before, after in itertools.pairwise(answers):
        assert before.log.times[-1] < after.began < after.log.times[0]


def test_who_has_not_come_yet_is_waited_for(tiny: LlamaForCausalLM) -> None:
    clock = Ticking()
    late = [USERS[1], User(500.0, (5, 6), 2)]
    answers = servers.one_at_a_time(tiny, late, clock=clock, sleep=clock.sleep)
    assert answers[1].began >= 500.0
    assert answers[1].log.arrival == 500.0
    assert answers[1].log.ttft < 10


@pytest.mark.model
def test_both_servers_write_the_same_and_log_every_token() -> None:
    llm = LLM(max_model_len=128, device="cpu", dtype="float32")
    model = LlamaForCausalLM.from_pretrained(llm.model_path, dtype=torch.float32).eval()
    topics = ("salt", "rain", "the moon")
    users = [
        User(0.0, tuple(llm.chat_prompt([{"role": "user", "content": f"Define {topic}."}])), n)
        for topic, n in zip(topics, (6, 3, 1), strict=True)
    ]
    naive, ours = servers.one_at_a_time(model, users), servers.together(llm, users)
    assert [a.token_ids for a in naive] == [a.token_ids for a in ours]
    for answer in (*naive, *ours):
        assert len(answer.log.times) == len(answer.token_ids)
        assert 0 <= answer.began <= answer.log.times[0]
    # In one batch all begin before any has ended; one at a time they do not.
    assert max(a.began for a in ours) < min(a.log.times[-1] for a in ours)
    assert naive[1].began >= naive[0].log.times[-1]
    assert not llm.engine.has_unfinished


@pytest.mark.model
def test_our_engine_lets_late_ones_into_the_running_batch() -> None:
    llm = LLM(max_model_len=128, device="cpu", dtype="float32")
    users = [User(0.0, (5, 6, 7), 40), User(0.05, (9, 8, 7), 2)]
    first, second = servers.together(llm, users)
    assert second.log.arrival == 0.05
    assert second.began >= 0.05
    assert second.log.times[0] >= second.began
    assert len(first.token_ids) <= 40
