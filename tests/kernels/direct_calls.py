"""Makes the interpreter call device functions directly: tests take a third of the time."""

import contextlib
from collections.abc import Iterator

from minillm_serve.kernels.canary import canary_kernel
from minillm_serve.kernels.launch import is_interpreted


@contextlib.contextmanager
def direct_calls() -> Iterator[None]:
    """Prepares each device function once a process instead of at every call.

    When a kernel calls a device function (tl.sum and tl.zeros are such), the interpreter goes
    through all of triton.language to replace what a GPU would compile. The launch has done so for
    the kernel's own module, and what is done for other modules lasts: once is enough.
    """
    if not is_interpreted(canary_kernel):
        yield
        return
    from triton.runtime.interpreter import InterpretedFunction

    original, prepared = InterpretedFunction.__call__, set()

    def call(self, *args, **kwargs):
        if self.fn in prepared:
            return self.rewrite()(*args, **kwargs)
        prepared.add(self.fn)
        return original(self, *args, **kwargs)

    InterpretedFunction.__call__ = call
    try:
        yield
    finally:
        InterpretedFunction.__call__ = original
