"""The text of one output: ids in, text out, and one place where ids and text end."""

from collections.abc import Sequence
from typing import NamedTuple

from minillm_serve.text.chain import Piece
from minillm_serve.text.detokenizer import IncrementalDetokenizer
from minillm_serve.text.stop import StopMatcher
from minillm_serve.text.vocabulary import Vocabulary
from minillm_serve.text.windowed import Decoder


class TextUpdate(NamedTuple):
    """What some tokens led to.

    Attributes:
        text: to be appended to the output; nothing of it is ever taken back.
        stopped: the stop string that ended the output, for `stop_reason`; None if none did.
        num_tokens_kept: how many of the tokens belong to the output. Ids, logprobs and usage are
            cut here, as the text is: fewer than were given only if a stop string ended the output.
    """

    text: str
    stopped: str | None
    num_tokens_kept: int


class OutputText:
    """Puts the text of one output together and looks for its stop strings.

    Tokens are taken one at a time even if several come at once (speculation): the token with which
    a stop string is whole is the last one kept, as in vLLM, so the result does not depend on how
    tokens were grouped.

    A stop string is looked for in the text that the output would have if it ended here. That is
    more than may be told: with Llama 2's tokenizer a line feed is the byte token `<0x0A>`, which is
    only certain when the next token has come, but the output has to stop at it.

    Args:
        tokenizer: decodes; or its `Vocabulary`, which spares reading the decoder for each request.
        skip_special_tokens: leave special tokens out of the text.
        stop: stop strings.
        include_stop_str_in_output: leave the stop string, or the stop token's text, in the text.
        min_tokens: as in vLLM, text of the first so many tokens ends no stop string, though one may
            begin in it.

    Attributes:
        offsets: for each token kept, where in the text what it adds begins, in code points; never
            falls. A token that leaves a character unfinished adds nothing of it, the token that
            finishes it adds all of it.
        stopped: the stop string that ended the output; None if none did.

    Raises:
        ValueError: a stop string is empty.
    """

    def __init__(
        self,
        tokenizer: Decoder | Vocabulary,
        *,
        skip_special_tokens: bool = True,
        stop: Sequence[str] = (),
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self.offsets: list[int] = []
        self.stopped: str | None = None
        self._detokenizer = IncrementalDetokenizer(
            tokenizer, skip_special_tokens=skip_special_tokens
        )
        self._matcher = StopMatcher(stop, include_in_output=include_stop_str_in_output)
        self._include_stop = include_stop_str_in_output
        self._min_tokens = min_tokens
        self._ended = False
        self._num_told = 0
        self._num_certain = 0
        self._num_tentative = 0
        self._num_unarmed = 0  # of the tentative characters: those of the first min_tokens tokens

    @property
    def end(self) -> int:
        """Where the text ends, in code points, text that is held back included."""
        return self._num_told if self._ended else self._num_certain + self._num_tentative

    def take(self, token_ids: Sequence[int], *, ends_with_stop_token: bool = False) -> TextUpdate:
        """Takes in the next tokens.

        Args:
            token_ids: new ids.
            ends_with_stop_token: the last one is the EOS or stop token that ends the output. It is
                kept, but its text is left out unless the stop is to be included.

        Returns:
            What they led to; once the output has ended, nothing is kept.
        """
        pieces: list[str] = []
        for count, token_id in enumerate(token_ids, start=1):
            if self._ended:
                return TextUpdate("".join(pieces), self.stopped, count - 1)
            self.offsets.append(self._num_certain + self._num_tentative)
            if ends_with_stop_token and count == len(token_ids) and not self._include_stop:
                continue
            pieces.append(self._match(self._detokenizer.step(token_id)))
        return TextUpdate("".join(pieces), self.stopped, len(token_ids))

    def finish(self) -> TextUpdate:
        """Ends the output, whatever the reason, and returns the text that was held back.

        Returns:
            The text; `num_tokens_kept` is 0, as no tokens were given. `stopped` is set if a stop
            string is in text that nobody could know before: one with U+FFFD in it, or a tokenizer
            that is not understood. It is cut out like any other.
        """
        text = ""
        if not self._ended:
            text = self._flush()
            if not self._ended:
                text += self._release()
        return TextUpdate(text, self.stopped, 0)

    def token_texts(self, text: str) -> list[str]:
        """Cuts the text of the whole output into what each token added; joined, it is `text`."""
        ends = [*self.offsets[1:], len(text)]
        return [text[start:end] for start, end in zip(self.offsets, ends, strict=True)]

    def _match(self, piece: Piece) -> str:
        armed = len(self.offsets) > self._min_tokens
        text = self._tell(piece.certain, armed) if piece.certain else ""
        if piece.tentative and not self._ended:
            self._num_tentative += len(piece.tentative)
            if not armed:
                self._num_unarmed += len(piece.tentative)
            if self._matcher.peek(piece.tentative, armed=armed):
                text += self._flush()
        return text

    def _flush(self) -> str:
        return self._tell(self._detokenizer.flush(), len(self.offsets) > self._min_tokens)

    def _tell(self, certain: str, armed: bool) -> str:
        armed_from = self._num_unarmed if armed else len(certain)
        self._num_certain += len(certain)
        self._num_tentative = self._num_unarmed = 0
        text, stopped = self._matcher.feed(certain, armed_from=armed_from)
        self._num_told += len(text)
        if stopped is not None:
            self.stopped = stopped
            self._end()
        return text

    def _release(self) -> str:
        text = self._matcher.flush()
        self._num_told += len(text)
        self._end()
        return text

    def _end(self) -> None:
        self._ended = True
        # Tokens whose text was cut off add nothing, at the end of the text.
        for index in range(len(self.offsets) - 1, -1, -1):
            if self.offsets[index] <= self._num_told:
                break
            self.offsets[index] = self._num_told
