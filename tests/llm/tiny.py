"""A tiny random model with a tokenizer, as a directory that `LLM` loads."""

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.models.tiny import VOCAB, random_model

SPECIAL = ["<pad>", "<s>", "</s>"]
TEMPLATE = (
    "{% for m in messages %}<s>{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant: {% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a printable character, from the tiny model's vocabulary: all but "|" and "~"."""
    letters = [chr(c) for c in range(32, 127) if chr(c) != "|"][: VOCAB - len(SPECIAL) - 1]
    vocabulary = {token: i for i, token in enumerate([*SPECIAL, "Ġ", *letters[1:], "Ċ"])}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def save_tiny(directory: Path, model_type: str = "llama", **options: Any) -> Path:
    """Writes model and tokenizer."""
    random_model(model_type, **options).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory
