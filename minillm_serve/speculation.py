"""How tokens are guessed: `speculative_config` of `LLM`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

METHODS = ("auto", "ngram", "eagle", "early_exit", "draft_model")
#: Verifying more drafts than this at once has never paid anywhere.
MOST_DRAFTS = 16
#: The most and the fewest tokens that are looked up, unless it is said how many.
LOOKUP_MAX, LOOKUP_MIN = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Who makes drafts, and how many. The names are vLLM's where it has the same thing.

    | method | drafts come from | costs |
    | --- | --- | --- |
    | auto | copying, and the head where there is nothing to copy (and a head) | as these two |
    | ngram | what followed the same tokens before, in the prompt or the answer | nothing |
    | eagle | a small head, trained on what this model gives | a layer a draft |
    | early_exit | the model's own first layers | those layers a draft |
    | draft_model | another model of the same vocabulary | that model, and its KV cache |

    Attributes:
        method: one of these.
        num_speculative_tokens: most drafts of a sequence in a step.
        model: for "draft_model", which one (as in `LLM(model)`); for "eagle", the file of the head,
            by default the one that comes with the embedded model.
        adaptive: draft fewer, or none, where more would cost more than they bring, by the drafts
            that were right so far and by what steps take on this machine, which is measured when
            the engine starts. False drafts `num_speculative_tokens` always.
        prompt_lookup_max: for "ngram" and "auto", the most tokens to look for, tried first; by
            default 4.
        prompt_lookup_min: the fewest; by default 2.
        draft_layers: for "early_exit", how many layers; by default a share of all.

    Raises:
        ValueError: naming the value and the remedy.
    """

    method: str
    num_speculative_tokens: int = 5
    model: str | Path | None = None
    adaptive: bool = True
    prompt_lookup_max: int | None = None
    prompt_lookup_min: int | None = None
    draft_layers: int | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise ValueError(
                f"speculative_config has the method {self.method!r}: choose from {list(METHODS)}"
            )
        self._check("num_speculative_tokens", 1, MOST_DRAFTS)
        if self.prompt_lookup_min is not None:
            self._check("prompt_lookup_min", 1, 64)
        if self.prompt_lookup_max is not None:
            self._check("prompt_lookup_max", self.lookup[1], 64)
        if self.draft_layers is not None:
            self._check("draft_layers", 1, None)
        if not isinstance(self.adaptive, bool):
            raise ValueError(f"adaptive={self.adaptive!r}: give true or false")
        if self.method == "draft_model" and self.model is None:
            raise ValueError(
                "speculative_config has the method 'draft_model' and no model: name a smaller one "
                "of the same vocabulary"
            )
        for name, method in (
            ("draft_layers", "early_exit"),
            ("model", "draft_model or eagle"),
            ("prompt_lookup_max", "ngram or auto"),
            ("prompt_lookup_min", "ngram or auto"),
        ):
            if getattr(self, name) is not None and self.method not in method:
                raise ValueError(
                    f"{name}={getattr(self, name)!r} is for the method {method}, not "
                    f"{self.method}: leave it out"
                )

    @property
    def lookup(self) -> tuple[int, int]:
        """The most and the fewest tokens to look for."""
        fewest = self.prompt_lookup_min or LOOKUP_MIN
        return self.prompt_lookup_max or max(LOOKUP_MAX, fewest), fewest

    @classmethod
    def of(
        cls, given: "str | Mapping[str, Any] | SpeculativeConfig | None"
    ) -> "SpeculativeConfig | None":
        """Takes in the argument of `LLM`: a method's name, a mapping, or a config.

        Raises:
            ValueError: it is none of these, or has a wrong value.
        """
        if given is None or isinstance(given, SpeculativeConfig):
            return given
        if isinstance(given, str):
            given = {"method": given}
        if not isinstance(given, Mapping):
            raise ValueError(
                f"speculative_config={given!r}: give a method ({', '.join(METHODS)}), a mapping "
                "with one, or None"
            )
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise ValueError(f"speculative_config has no {name!r}: choose from {known}")
        if "method" not in given:
            raise ValueError(f"speculative_config names no method: choose from {list(METHODS)}")
        return cls(**given)

    @classmethod
    def parse(cls, text: str) -> "SpeculativeConfig | None":
        """Reads it from a command line: a method's name, JSON, or none.

        Raises:
            ValueError: it is no JSON, or has a wrong value.
        """
        if not text.lstrip().startswith("{"):
            return None if text == "none" else cls.of(text)
        try:
            return cls.of(json.loads(text))
        except json.JSONDecodeError as error:
            raise ValueError(f"speculative_config={text!r} is no JSON: {error}") from None

    def _check(self, name: str, least: int, most: int | None) -> None:
        value = getattr(self, name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            range_ = f"from {least} on" if most is None else f"from {least} to {most}"
            raise ValueError(f"{name}={value!r}: expected a whole number {range_}")
