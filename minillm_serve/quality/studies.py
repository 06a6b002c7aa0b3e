"""Where it hurts: bit by bit, layer by layer, head by head, and algorithm beside algorithm.

All of it by rounding what an unquantized engine stores and multiplies with (`rounding`, `weights`),
all of it as KL against the same text unrounded.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from minillm_serve.llm import LLM
from minillm_serve.models.transformer import Transformer
from minillm_serve.quality.better import activation_aware, compensated
from minillm_serve.quality.losses import Losses, compare
from minillm_serve.quality.reading import Reader, Reading
from minillm_serve.quality.rounding import by_quantizer, by_row, by_tensor, storing
from minillm_serve.quality.weights import Change, Grid, Inputs, changed, linears, watching
from minillm_serve.runtime.kv_quantizer import Fp8Quantizer

Algorithm = Callable[[Tensor, Inputs, Grid], Tensor]

#: Bits of the grid of studies; 0 leaves the numbers as they are.
KV_BITS = (0, 8, 6, 5, 4, 3)
WEIGHT_BITS = (0, 8, 6, 5, 4)
#: Neighbours that share a step, in studies of weights.
GROUP = 64
#: Bits of one layer or head alone: few enough that every one can be told from the next.
ALONE_BITS = 4
#: How far a twin's channels are stretched and shrunk: exp(+-DISGUISE).
DISGUISE = 0.1


class Studies:
    """Studies of one model on one text.

    Args:
        llm: without any quantization.
        text: token ids; the last `tokens` of them are judged by, what is before them is what
            AWQ and GPTQ learn from.
        tokens: see `text`.
    """

    def __init__(self, llm: LLM, text: Sequence[int], tokens: int) -> None:
        if len(text) < 2 * tokens:
            raise ValueError(
                f"the text has {len(text)} tokens: studies need {2 * tokens}, half of it to learn "
                "from and the other half to judge by"
            )
        self.reader = Reader.of(llm)
        self.judged, self.learned = list(text[-tokens:]), list(text[: len(text) - tokens])
        self.reference: Reading = self.reader.read(self.judged).with_logits()
        self._stretch = stretches(self.reader.model)

    def loss(
        self, reader: Reader | None = None, change: Change | None = None, **where: Any
    ) -> Losses:
        """What is lost by another way of storing KV, or by other weights, or by both."""
        model = self.reader.model
        with changed(model, change, **where) if change is not None else nullcontext():
            reading = (reader or self.reader).read(self.judged)
        return compare(self.reference, reading)

    def twin(self, grid: Grid) -> Change:
        """Rounds the weights of a twin, see `stretches`, to the nearest.

        (What is put into the model are the twin's rounded weights, shrunk back: the same products.)
        """
        return lambda name, weight: grid.round(weight * self._stretch[name]) / self._stretch[name]

    def twin_by(self, algorithm: Algorithm, inputs: Mapping[str, Inputs], grid: Grid) -> Change:
        """The same by an algorithm that looks at what the twin's matrices are multiplied by."""

        def change(name: str, weight: Tensor) -> Tensor:
            stretch, seen = self._stretch[name], inputs[name]
            met = Inputs(seen.products / (stretch[:, None] * stretch), seen.size / stretch)
            return algorithm(weight * stretch, met, grid) / stretch

        return change

    def kv_ways(self) -> Iterator[dict[str, Any]]:
        """Ways of rounding keys and values in all layers."""
        fp8 = by_quantizer(Fp8Quantizer())
        ways = {
            "int8, a scale a token and head": storing(by_row(8)),
            "fp8 e4m3, a scale a token and head": storing(fp8),
            "int8, one scale a step": storing(by_tensor(8)),
            "4 bits, keys alone": storing(by_row(4), values=False),
            "4 bits, values alone": storing(by_row(4), keys=False),
            "4 bits, keys and values": storing(by_row(4)),
        }
        for name, store in ways.items():
            yield {"way": name, **_told(self.loss(replace(self.reader, store=store)))}

    def bits(self) -> Iterator[dict[str, Any]]:
        """Every number of bits for KV with every number of bits for weights (of the twin)."""
        model = self.reader.model
        for weight_bits in WEIGHT_BITS:
            change = self.twin(Grid(weight_bits, GROUP)) if weight_bits else None
            with changed(model, change) if change is not None else nullcontext():
                for kv_bits in KV_BITS:
                    store = storing(by_row(kv_bits)) if kv_bits else None
                    losses = self.loss(replace(self.reader, store=store))
                    yield {"kv_bits": kv_bits, "weight_bits": weight_bits, **_told(losses)}

    def layers(self) -> Iterator[dict[str, Any]]:
        """One layer at a time: its keys and values, then its weights."""
        change = self.twin(Grid(ALONE_BITS, GROUP))
        for layer in range(len(self.reader.model.layers)):
            store = storing(by_row(ALONE_BITS), layers=[layer])
            kv = self.loss(replace(self.reader, store=store))
            weights = self.loss(change=change, layers=[layer])
            yield {"layer": layer, "kv": kv.kl, "weights": weights.kl}

    def heads(self) -> Iterator[dict[str, Any]]:
        """One KV head of one layer at a time."""
        config = self.reader.model.config
        for layer in range(config.num_layers):
            for head in range(config.num_kv_heads):
                store = storing(by_row(ALONE_BITS), layers=[layer], head=head)
                losses = self.loss(replace(self.reader, store=store))
                yield {"layer": layer, "head": head, "kv": losses.kl}

    def algorithms(self, grids: Sequence[Grid]) -> Iterator[dict[str, Any]]:
        """Round to nearest, AWQ and GPTQ on the same grids; AWQ and GPTQ have read other text."""
        with watching(self.reader.model) as inputs:
            self.reader.read(self.learned)
        for grid in grids:
            ways = {
                "nearest, as loaded": as_loaded(grid),
                "nearest": self.twin(grid),
                "AWQ": self.twin_by(activation_aware, inputs, grid),
                "GPTQ": self.twin_by(compensated, inputs, grid),
            }
            for way, change in ways.items():
                losses = self.loss(change=change)
                yield {"bits": grid.bits, "group": grid.group, "way": way, **_told(losses)}


def as_loaded(grid: Grid) -> Change:
    """Rounds the weights that there are."""
    return lambda _, weight: grid.round(weight)


def stretches(model: Transformer) -> dict[str, Tensor]:
    """Factors of each matrix's columns [I], which make a twin of the model.

    The twin computes the same by other weights: a column is stretched, and what comes into it
    shrinks by as much, in the norm before or in another matrix's rows. Its weights lie on no grid
    that anybody has rounded them to before, and so it can tell what a first rounding costs.
    """
    draw = torch.Generator().manual_seed(0)
    config, found = model.config, {}
    for name, linear in linears(model).items():
        columns = linear.weight.shape[1]
        heads = name.endswith("o_proj")  # what query heads of one group attend to are the same rows
        drawn = config.num_kv_heads * config.head_dim if heads else columns
        stretch = torch.exp(DISGUISE * (2 * torch.rand(drawn, generator=draw) - 1))
        if heads:
            shared = config.num_heads // config.num_kv_heads
            stretch = stretch.view(config.num_kv_heads, 1, -1).expand(-1, shared, -1).flatten()
        found[name] = stretch
    return found


def _told(losses: Losses) -> dict[str, Any]:
    return {"kl": losses.kl, "perplexity": losses.perplexity, "same_top": losses.same_top}
