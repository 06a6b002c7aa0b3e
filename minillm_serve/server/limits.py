"""What this engine would never serve, however idle it is, or would not heed: a 400 says so."""

from collections.abc import Sequence

from minillm_serve.core import POLICIES, Admission, Priority, Request, SamplingParams, asked_tokens
from minillm_serve.llm import LLM
from minillm_serve.server.errors import invalid


def check_priority(llm: LLM, priority: int) -> None:
    """Whether a priority changes anything here.

    (Under a policy, or a scheduler, of somebody's own it may.)

    Raises:
        ApiError: 400, naming the remedy.
    """
    if not priority or llm.parts.get("scheduler") is not None:
        return
    heedless = {kind: name for name, kind in POLICIES.items() if kind is not Priority}
    name = heedless.get(type(llm.engine.scheduler.policy))
    if name is not None:
        raise invalid(
            f"priority={priority}: this server's policy is {name!r}, which has none: leave it out, "
            "or start the server with --policy priority",
            "priority",
        )


def check_fits_queue(llm: LLM, requests: Sequence[Request]) -> None:
    """A list that the queue does not hold would be refused for ever: let its sender know.

    Args:
        llm: whose queue.
        requests: one a prompt, at least one, all with the same parameters.

    Raises:
        ApiError: 400, naming the limit.
    """
    num, n = len(requests), requests[0].params.n
    wait_before_last = (num - 1) * n
    limit = llm.max_num_waiting
    if limit is not None and wait_before_last >= limit:
        raise invalid(
            f"{num} prompts with n={n}: only {limit} may wait here; send fewer at a time",
            "prompt",
        )
    door, seats = llm.engine.admission, llm.engine.scheduler.max_num_seqs
    most = door.max_waiting_tokens if isinstance(door, Admission) else None
    if most is None or wait_before_last < seats:
        return  # tokens do not count as long as there are seats
    tokens = sum(asked_tokens(request, door.max_len) for request in requests)
    if tokens > most:
        raise invalid(
            f"{num} prompts with n={n} may come to {tokens} tokens: only {most} may wait here; "
            "send fewer at a time, or lower max_tokens",
            "prompt",
        )


def check_logprobs_total(
    params: SamplingParams, lengths: Sequence[int], *, max_len: int, most: int, times: int = 1
) -> None:
    """Whether all the log probabilities that are asked for can be kept and written down.

    Args:
        params: of all prompts.
        lengths: of the prompts, in tokens.
        max_len: length at which a sequence ends, in tokens.
        most: log probabilities.
        times: how often those of a prompt are told.

    Raises:
        ApiError: 400, naming their number and the limit.
    """
    before = 0 if params.prompt_logprobs is None else times * (params.prompt_logprobs + 1)
    behind = 0 if params.logprobs is None else params.n * (params.logprobs + 1)
    longest = max_len if params.max_tokens is None else params.max_tokens
    total = sum(before * length + behind * min(longest, max_len - length) for length in lengths)
    if total > most:
        raise invalid(
            f"the answer may come to {total} log probabilities: at most {most} in one request; ask "
            "for fewer alternatives, prompts or tokens",
            "logprobs" if params.logprobs is not None else "prompt_logprobs",
        )
