"""What a card could do at best, by its datasheet or, for one that is not listed, as measured."""

from dataclasses import dataclass

import torch

from benchmarks.gpu.timing import milliseconds
from minillm_serve.sim import presets
from minillm_serve.sim.shapes import Hardware

#: Words of the name that torch gives a card, and the card. (There are other H100s, and an L40.)
CARDS: tuple[tuple[set[str], Hardware], ...] = (
    ({"H200"}, presets.H200_SXM),
    ({"H100", "HBM3"}, presets.H100_SXM),
    ({"A100", "SXM4", "40GB"}, presets.A100_40GB),
    ({"A100", "SXM4", "80GB"}, presets.A100_80GB),
    ({"RTX", "4090"}, presets.RTX_4090),
    ({"L4"}, presets.L4),
)


@dataclass(frozen=True, slots=True)
class Roof:
    """The limits that a kernel's time is compared with.

    Attributes:
        source: where they come from.
        bytes_per_s: of the memory.
        flops_per_s: of bf16 matrix products.
    """

    source: str
    bytes_per_s: float
    flops_per_s: float

    def floor_ms(self, num_bytes: float, flops: float) -> float:
        """The least time that moving and computing so much takes, in ms."""
        return 1e3 * max(num_bytes / self.bytes_per_s, flops / self.flops_per_s)


def find_roof(device: torch.device) -> Roof:
    """The roof of a device."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    card = find_card(name)
    if card is None:
        return _measured(name, device)
    return Roof(f"datasheet of {card.name}", card.bandwidth_bytes_s, card.flops_fp16_dense)


def find_card(name: str) -> Hardware | None:
    """The datasheet of a card by the name that torch gives it."""
    words = set(name.replace("-", " ").split())
    return next((card for wanted, card in CARDS if wanted <= words), None)


def _measured(name: str, device: torch.device) -> Roof:
    on_gpu = device.type == "cuda"
    numbers, side = (2**29, 8192) if on_gpu else (2**18, 128)
    source = torch.zeros(numbers, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    copy = milliseconds(lambda: target.copy_(source), device)
    a = torch.ones(side, side, dtype=torch.bfloat16 if on_gpu else torch.float32, device=device)
    multiply = milliseconds(lambda: a @ a, device)
    return Roof(f"measured on {name}", 2e3 * numbers / copy, 2e3 * side**3 / multiply)
