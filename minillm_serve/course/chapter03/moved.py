"""How many bytes torch's operations move: what attention costs that is made of them."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from minillm_serve.runtime.attention.torch_backend import TorchAttention


class BytesMoved(TorchDispatchMode):
    """Counts, for each operation, the bytes of what it reads and of what it writes.

    On a GPU each of them is a kernel of its own, which fetches its inputs from memory and puts its
    outputs back. Views move nothing and are not counted. An operation that picks rows reads as
    much as it returns.

    Attributes:
        by_name: name of the operation -> bytes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_name: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and adds up what it moves."""
        out = func(*args, **(kwargs or {}))
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        outputs = [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        is_in_place = func._schema.name.endswith("_")
        memories = {x.untyped_storage().data_ptr() for x in inputs}
        is_view = all(x.untyped_storage().data_ptr() in memories for x in outputs)
        if is_in_place or not is_view:
            name = func._schema.name.removeprefix("aten::").removeprefix("_")
            written = sum(x.nbytes for x in outputs)
            picks = name.startswith(("index", "gather", "embedding"))
            self.by_name[name] += written + (written if picks else sum(x.nbytes for x in inputs))
        return out


class TimedAttention(TorchAttention):
    """Chapter 02's attention, with a stopwatch.

    Attributes:
        seconds: spent in it since the beginning.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def run(self, *args: Any, **kwargs: Any) -> Tensor:
        """See `AttentionBackend.run`."""
        begin = time.perf_counter()
        out = super().run(*args, **kwargs)
        self.seconds += time.perf_counter() - begin
        return out
