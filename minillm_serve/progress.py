"""How far a call of `LLM.generate` has come."""

from tqdm.auto import tqdm


class Progress:
    """A tqdm bar over requests, with output tokens/s behind it."""

    def __init__(self, total: int, *, shown: bool) -> None:
        self._bar = tqdm(total=total, desc="requests", disable=not shown, unit="req")
        self._tokens = 0

    def advance(self, step: tuple[int, int]) -> None:
        """Takes in a step: how many tokens came, and how many requests ended."""
        tokens, finished = step
        self._tokens += tokens
        elapsed = self._bar.format_dict["elapsed"]
        if elapsed:
            self._bar.set_postfix_str(f"{self._tokens / elapsed:.1f} tokens/s", refresh=False)
        self._bar.update(finished)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self._bar.close()
