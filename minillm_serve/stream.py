"""An answer as it comes, which may be left early."""

from collections.abc import Callable, Iterator

from minillm_serve.collector import Collector


class TextStream(Iterator[str]):
    """Pieces of text of one request; joined, they are the whole answer.

    Asking for the next piece runs the engine. Closing the stream, leaving its `with` block or
    dropping the last reference to it aborts the request, even if it was never read. (A generator
    would do so only after its first `next`.)

    Args:
        collector: where the engine's updates of this request arrive.
        step: runs one step of the engine.
        drop: takes the request out of the engine; harmless if it has ended.
    """

    def __init__(
        self,
        collector: Collector,
        step: Callable[[], object],
        drop: Callable[[Collector], None],
    ) -> None:
        self._collector = collector
        self._step = step
        self._drop = drop
        self._closed = False

    def __next__(self) -> str:
        while not self._closed:
            piece = self._collector.pop_text()
            if piece:
                return piece
            if self._collector.finished:
                self.close()
                if self._collector.error is not None:
                    raise RuntimeError(
                        f"{self._collector.request.request_id}: {self._collector.error}"
                    )
            else:
                self._step()
        raise StopIteration

    def close(self) -> None:
        """Ends the stream; nothing of its request stays in the engine."""
        if not self._closed:
            self._closed = True
            self._drop(self._collector)

    def __enter__(self) -> "TextStream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
