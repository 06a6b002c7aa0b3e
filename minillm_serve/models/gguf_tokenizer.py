"""The tokenizer inside a GGUF.

A GGUF has the vocabulary and the merges, but for the rule that cuts text into words before merging
it has only a name (``tokenizer.ggml.pre``). transformers knows some of the names and falls back to
GPT-2's rule for all others, which is wrong in ways that are easy to miss: SmolLM2's vocabulary was
made with every digit on its own, so that the text before a number, such as the blank lines before
"1.", comes out in other tokens than those that the model was trained on.
"""

from pathlib import Path
from typing import Any

from minillm_serve.models.errors import ModelError

# The names, as llama.cpp's table of pre-tokenizers has them.
_GPT2 = {"gpt-2", "gpt2", "mpt", "olmo", "jais", "trillion"}
_DIGIT_BY_DIGIT = {
    "smollm",
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
    "minerva-7b",
}
_WHOLE_WORDS_FIRST = {
    "llama-bpe",
    "llama3",
    "llama-v3",
    "tekken",
}  # a word in the vocabulary is one token
_COMPOSED = {"qwen2", "deepseek-r1-qwen"}  # accents are composed (NFC) before anything else


def save_tokenizer(file: Path, directory: Path, pre: str | None, config: Any) -> None:
    """Writes the tokenizer of a GGUF, corrected, to ``directory``.

    Args:
        file: the GGUF.
        directory: where ``tokenizer.json`` and its companions go.
        pre: the GGUF's ``tokenizer.ggml.pre``.
        config: the model's ``PretrainedConfig``, for its context length.

    Raises:
        ModelError: the file has no tokenizer, or one whose rule is not known.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            str(file.parent), gguf_file=file.name, local_files_only=True
        )
    except Exception as error:  # whatever a damaged vocabulary leads to
        raise ModelError(
            f"the tokenizer in {file} cannot be read ({type(error).__name__}: {error}). Choose the "
            "safetensors checkpoint of the same model."
        ) from error
    correct(tokenizer.backend_tokenizer, pre)
    tokenizer.model_max_length = config.max_position_embeddings
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(directory)


def correct(backend: Any, pre: str | None) -> None:
    """Gives a converted byte-level tokenizer the word rule that its name stands for.

    Args:
        backend: a ``tokenizers.Tokenizer``, changed in place.
        pre: the name of the rule.

    Raises:
        ModelError: transformers fell back to GPT-2's rule, and the name stands for another.
    """
    from tokenizers import normalizers, pre_tokenizers

    if pre in _DIGIT_BY_DIGIT:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    elif isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel) and pre not in _GPT2:
        raise ModelError(
            f"the GGUF's text is split by the rule {pre!r}, which is not known here. Choose the "
            "safetensors checkpoint of the same model."
        )
    if pre in _WHOLE_WORDS_FIRST:
        backend.model.ignore_merges = True
    if pre in _COMPOSED:
        backend.normalizer = normalizers.NFC()
