"""Log probabilities that come back with tokens."""

from typing import NamedTuple


class Logprob(NamedTuple):
    """How likely the model found one token at one place.

    Attributes:
        logprob: natural logarithm of its probability under the model itself: before penalties,
            bias, temperature and filters.
        rank: 1 for the most likely token; tokens of equal logits rank in the order of their ids.
    """

    logprob: float
    rank: int


#: One place in a text: the token that stands there, and the most likely ones.
TokenLogprobs = dict[int, Logprob]
