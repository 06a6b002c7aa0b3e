"""Incremental detokenization: text that grows as ids arrive, and never takes anything back."""

from collections.abc import Iterable

from minillm_serve.text.chain import Piece
from minillm_serve.text.vocabulary import Vocabulary
from minillm_serve.text.windowed import Decoder


class IncrementalDetokenizer:
    """Turns ids into pieces of text whose concatenation is the text of all ids.

    That is `tokenizer.decode(ids, skip_special_tokens=..., clean_up_tokenization_spaces=False)`,
    for any ids. One token is not one piece of text: the bytes of a character may be spread over
    several tokens, some tokenizers drop the first space, others add spaces between tokens. So the
    steps of the tokenizer's decoder run one token at a time (`minillm_serve.text.stages`), and each
    keeps what a later token could still change:

    - byte-level (GPT-2, Llama 3, Qwen, SmolLM): up to 3 bytes of a character that is not whole;
    - byte fallback (Llama 2, Mistral, Gemma): a run of `<0x..>` tokens until another token comes;
    - SentencePiece's Metaspace, WordPiece: nothing;
    - the BPE of the first models (`</w>`): one token.

    The cost of a token does not grow with the output. Decoders not understood: `WindowedDecoding`.

    Args:
        tokenizer: decodes; or its `Vocabulary`, which spares reading the decoder for each request.
        skip_special_tokens: leave special tokens out of the text.
    """

    def __init__(
        self, tokenizer: Decoder | Vocabulary, *, skip_special_tokens: bool = True
    ) -> None:
        vocabulary = tokenizer if isinstance(tokenizer, Vocabulary) else Vocabulary(tokenizer)
        self._stream = vocabulary.stream(skip_special_tokens=skip_special_tokens)

    def step(self, token_id: int) -> Piece:
        """Takes in one id; returns what it did to the text."""
        return self._stream.step(token_id)

    def feed(self, token_ids: Iterable[int]) -> str:
        """Takes in new ids; returns the text that is certain by now, possibly empty."""
        return "".join([self._stream.step(token_id).certain for token_id in token_ids])

    def flush(self) -> str:
        """Returns what was held back, once, when no id follows; broken bytes come out as marks."""
        return self._stream.finish()
