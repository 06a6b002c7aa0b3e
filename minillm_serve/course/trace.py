"""The scoreboard's trace: the same users, at the same moments, for every technique."""

import random
from dataclasses import dataclass

from minillm_serve.core import Request, SamplingParams

SEED = 0
#: What every row may spend on KV, in tokens, and the longest conversation that is promised.
KV_TOKENS, MAX_MODEL_LEN = 2048, 512


@dataclass(frozen=True, slots=True)
class User:
    """Arrives, brings a prompt, reads an answer of a known length."""

    arrival: float  # seconds after the trace begins
    prompt: tuple[int, ...]
    output_len: int

    def request(self, name: str, began: float) -> Request:
        """What such a user asks of an engine: greedy, and exactly `output_len` tokens.

        Args:
            name: of the request.
            began: when the trace did, on the engine's clock.
        """
        return Request(
            request_id=name,
            prompt_token_ids=self.prompt,
            params=SamplingParams(temperature=0, max_tokens=self.output_len, ignore_eos=True),
            arrival_time=began + self.arrival,
        )


def make_trace(*, short: bool = False) -> list[User]:
    """Users in order of arrival: most say little, some a lot; they come faster than one by one.

    Prompts of 16 to 160 random ids, answers of 8 to 128 tokens, the long ones rarer, and gaps
    that are exponential with a mean of 0.25 s (a Poisson process of 4 users/s).
    """
    draw = random.Random(SEED)
    users, clock = [], 0.0
    for _ in range(8 if short else 40):
        prompt_len = int(16 * 10 ** draw.random())
        output_len = int(8 * 16 ** draw.random())
        prompt = tuple(draw.randint(1_000, 40_000) for _ in range(prompt_len))
        users.append(User(clock, prompt, min(output_len, 32) if short else output_len))
        clock += draw.expovariate(4.0)
    return users


def describe_trace(users: list[User]) -> str:
    """One line that says what the trace is."""
    prompts, outputs = (
        sum(len(user.prompt) for user in users),
        sum(user.output_len for user in users),
    )
    return (
        f"{len(users)} users within {users[-1].arrival:.0f} s, {prompts} prompt tokens, "
        f"{outputs} output tokens, {KV_TOKENS} tokens of KV, seed {SEED}"
    )
