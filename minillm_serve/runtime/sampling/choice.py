"""What the choice of a token hangs on, besides the logits."""

from dataclasses import dataclass

from minillm_serve.core.batch import ScheduledSequence
from minillm_serve.core.request import Sequence
from minillm_serve.core.sampling_params import SamplingParams


@dataclass(frozen=True, slots=True)
class Choice:
    """A token to be chosen, as it stands when its step is submitted.

    When the step runs, its sequence may have gone on already (it may even have ended), so
    everything is read from it before.

    Attributes:
        params: of the request.
        seed: of the sequence.
        position: where the token will stand in the sequence.
        num_output_tokens: how many were generated before it.
        stop_ids: ids that would end the sequence.
        prompt_ids: the prompt, if seen tokens change the logits; else empty.
        output_ids: ids generated before and known by now, if they change the logits.
        has_pending: the token just before is not known yet and belongs to `output_ids`: only the
            device has it.
        must_end: by its grammar nothing but an end may come, so that it is never too short.
    """

    params: SamplingParams
    seed: int
    position: int
    num_output_tokens: int
    stop_ids: frozenset[int]
    prompt_ids: tuple[int, ...] = ()
    output_ids: tuple[int, ...] = ()
    has_pending: bool = False
    must_end: bool = False

    @classmethod
    def of(cls, sequence: Sequence, drafts: tuple[int, ...] = ()) -> "Choice":
        """The next token of a sequence, or the one after so many drafts, should they be right."""
        penalized = sequence.params.penalizes
        return cls(
            params=sequence.params,
            seed=sequence.seed,
            position=len(sequence) + len(drafts),
            num_output_tokens=sequence.num_output_tokens + len(drafts),
            stop_ids=sequence.stop_ids,
            prompt_ids=sequence.request.prompt_token_ids if penalized else (),
            output_ids=(*sequence.output_token_ids, *drafts) if penalized else (),
            has_pending=penalized and sequence.num_pending > 0,
        )

    @classmethod
    def all_of(cls, item: ScheduledSequence) -> "list[Choice]":
        """The choices after a slice that samples: one, and one more after each of its drafts."""
        drafts = item.draft_token_ids
        return [cls.of(item.sequence, drafts[:count]) for count in range(len(drafts) + 1)]

    @property
    def is_too_short(self) -> bool:
        """Whether the sequence may not end yet."""
        missing = self.num_output_tokens < self.params.min_tokens
        return missing and bool(self.stop_ids) and not self.must_end

    @property
    def adjusts(self) -> bool:
        """Whether the logits are changed before the choice."""
        return bool(self.params.logit_bias) or self.params.penalizes or self.is_too_short
