"""One way of keeping weights and KV beside the reference: what it loses, and who then fits."""

import gc
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from minillm_serve.core import SamplingParams
from minillm_serve.llm import LLM
from minillm_serve.models.loader import load_config
from minillm_serve.models.quantize import choose_quantization
from minillm_serve.models.resolve import resolve_model
from minillm_serve.quality.losses import Losses, compare
from minillm_serve.quality.reading import Reader, Reading
from minillm_serve.quality.tasks import as_prompts, questions
from minillm_serve.runtime.device import choose_device, choose_dtype
from minillm_serve.runtime.torch_executor import TorchExecutor

#: Least tokens of a text: with fewer, single words decide.
LEAST_TEXT = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """How weights and KV are kept.

    Attributes:
        kv_cache_dtype: see `LLM`.
        quantization: see `LLM`.
    """

    kv_cache_dtype: str = "auto"
    quantization: str | None = None

    @property
    def name(self) -> str:
        """As in tables."""
        told = []
        if self.quantization:
            told.append(f"weights {self.quantization}")
        if self.kv_cache_dtype != "auto":
            told.append(f"KV {self.kv_cache_dtype}")
        return ", ".join(told) or "reference"


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a setting takes.

    Attributes:
        weight_bytes: of all weights that are kept.
        kv_bytes: of a token, scales included.
        users: conversations of `context` tokens that fit beside the weights.
    """

    weight_bytes: int
    kv_bytes: float
    users: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How long greedy answers stay the reference's.

    Attributes:
        agreed: tokens up to the first that differs, of each answer.
        lengths: tokens of the reference's answers.
    """

    agreed: tuple[int, ...]
    lengths: tuple[int, ...]

    @property
    def share(self) -> float:
        """Of the reference's tokens, those before the first difference of their answer."""
        return sum(self.agreed) / sum(self.lengths)

    @property
    def identical(self) -> int:
        """Answers that are the same from the first token to the last."""
        return sum(a == n for a, n in zip(self.agreed, self.lengths, strict=True))


@dataclass(frozen=True, slots=True)
class Row:
    """All that was measured of one setting.

    Attributes:
        setting: which.
        sizes: what it takes.
        text: losses on the text.
        kinds: kind of task -> losses on the reference's own answers.
        answers: kind of task -> how long its own answers agree.
    """

    setting: Setting
    sizes: Sizes
    text: Losses
    kinds: dict[str, Losses]
    answers: dict[str, Agreement]

    def record(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "name": self.setting.name,
            **asdict(self.setting),
            **asdict(self.sizes),
            "text": _told(self.text),
            "kinds": {
                kind: {
                    **_told(losses),
                    "agreed": list(self.answers[kind].agreed),
                    "lengths": list(self.answers[kind].lengths),
                    "agreed_share": self.answers[kind].share,
                    "identical": self.answers[kind].identical,
                }
                for kind, losses in self.kinds.items()
            },
        }


def _told(losses: Losses) -> dict[str, Any]:
    return {**asdict(losses), "perplexity": losses.perplexity}


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is read and asked.

    Attributes:
        text: what is read.
        text_tokens: of it, at most.
        prompts: of each kind of task.
        answer_tokens: of each answer, at most.
        memory: bytes for weights and KV together, in which users are counted.
        context: tokens of a user.
    """

    text: str
    text_tokens: int = 4096
    prompts: int = 4
    answer_tokens: int = 64
    memory: int = 2**30
    context: int = 1024


class Reference:
    """The model at its best: texts that it has read, answers that it has given.

    Args:
        llm: without any quantization.
        plan: what is read and asked.

    Attributes:
        readings: of the text, and of the answers by kind with the length of their prompts.
    """

    def __init__(self, llm: LLM, plan: Plan) -> None:
        ids = list(llm.tokenizer.encode(plan.text))[: plan.text_tokens]
        if len(ids) < LEAST_TEXT:
            raise ValueError(
                f"the text has {len(ids)} tokens: give one of {LEAST_TEXT} at least, better 1,000"
            )
        self.plan, self.llm = plan, llm
        asked = questions(plan.prompts, plan.text)
        self.prompts = {kind: as_prompts(llm, texts) for kind, texts in asked.items()}
        self.answers = answered(llm, self.prompts, plan.answer_tokens)
        reader = Reader.of(llm)
        self.text: Reading = reader.read(ids)
        self.readings = {
            kind: [
                (len(prompt), reader.read([*prompt, *answer]))
                for prompt, answer in zip(self.prompts[kind], self.answers[kind], strict=True)
            ]
            for kind in self.prompts
        }

    def measure(self, llm: LLM, setting: Setting) -> Row:
        """What another engine loses, on the same texts and questions."""
        reader = Reader.of(llm)
        text = compare(self.text, reader.read(self.text.token_ids))
        kinds = {
            kind: Losses.of_all(
                compare(reading, reader.read(reading.token_ids), start)
                for start, reading in readings
            )
            for kind, readings in self.readings.items()
        }
        answers = answered(llm, self.prompts, self.plan.answer_tokens)
        agreements = {
            kind: Agreement(
                tuple(agreed(*pair) for pair in zip(theirs, answers[kind], strict=True)),
                tuple(map(len, theirs)),
            )
            for kind, theirs in self.answers.items()
        }
        return Row(setting, sizes(llm, self.plan), text, kinds, agreements)


def answered(
    llm: LLM, prompts: dict[str, list[list[int]]], max_tokens: int
) -> dict[str, list[list[int]]]:
    """Greedy answers, all kinds batched together."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens)
    everything = [prompt for kind in prompts.values() for prompt in kind]
    outputs = iter(llm.generate(everything, params, use_tqdm=False))
    return {
        kind: [list(next(outputs).outputs[0].token_ids) for _ in each]
        for kind, each in prompts.items()
    }


def agreed(reference: Sequence[int], other: Sequence[int]) -> int:
    """Tokens until the first difference; all, if there is none."""
    for place, (one, two) in enumerate(zip(reference, other, strict=False)):
        if one != two:
            return place
    return min(len(reference), len(other))


def sizes(llm: LLM, plan: Plan) -> Sizes:
    """Bytes of what an engine really holds, and who would fit."""
    executor = llm.engine.executor
    assert isinstance(executor, TorchExecutor)
    weights = executor.model.nbytes
    slots = llm.kv_cache.num_blocks * llm.kv_cache.block_size
    per_token = llm.kv_cache.nbytes / slots
    room = max(0, plan.memory - weights)
    return Sizes(weights, per_token, int(room / (per_token * plan.context)))


def engine(model: str, setting: Setting, **options: Any) -> LLM:
    """An engine for a setting, with room for all questions at once and nothing remembered."""
    return LLM(
        model,
        kv_cache_dtype=setting.kv_cache_dtype,
        quantization=setting.quantization,
        **{"num_blocks": 1024, "prefix_cache": None, **options},
    )


def check_settings(model: str, settings: Sequence[Setting], *, dtype: str, device: str) -> None:
    """Refuses what could not be measured, before anything is.

    Args:
        model: see `LLM`.
        settings: to be measured beside the model as it is.
        dtype: see `LLM`.
        device: see `LLM`.

    Raises:
        ValueError: naming what does not go together, and the remedy.
    """
    where, config = choose_device(device), load_config(resolve_model(model))
    kind = choose_dtype(dtype, config.torch_dtype, where)
    if config.quantization is not None:
        raise ValueError(
            f"model={model!r} was saved in {config.quantization}, and it is to be compared with "
            "itself in floats: give the model that is not quantized"
        )
    for setting in settings:
        choose_quantization(setting.quantization, None, kind, where, compile=False)


def measure_all(
    model: str, settings: Sequence[Setting], plan: Plan, **options: Any
) -> tuple[Reference, list[Row]]:
    """The reference's row, and that of each setting; two engines at most are there at once.

    Raises:
        ValueError: the model cannot be loaded so, or the text is too short.
    """
    reference = Reference(engine(model, Setting(), **options), plan)
    rows = [reference.measure(reference.llm, Setting())]
    for setting in settings:
        llm = engine(model, setting, **options)
        rows.append(reference.measure(llm, setting))
        del llm
        gc.collect()  # an engine is full of circles: its weights would stay
    return reference, rows
