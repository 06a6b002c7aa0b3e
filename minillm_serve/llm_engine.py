"""The engine as its faces see it: requests in, text out, faults contained."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from minillm_serve.answer import Answer
from minillm_serve.collector import Collector
from minillm_serve.core import EngineCore, FinishReason, PartError, Request, SequenceUpdate
from minillm_serve.parts import SLOTS, Parts
from minillm_serve.text.vocabulary import Vocabulary


class Observer(Protocol):
    """Hears what is given to whom: metrics, say. It is called between steps and must be quick."""

    def on_tokens(self, collector: Collector, answer: Answer, count: int) -> None:
        """So many tokens have come for an answer, and are part of it."""
        ...

    def on_end(self, collector: Collector) -> None:
        """A request has left the engine; answers that are not finished were cut short."""
        ...


class LLMEngine:
    """Stands between `EngineCore`, which knows ids only, and whoever asks in text.

    Several threads may use it: they take turns, step by step, and are batched together.

    Args:
        core: the engine.
        tokenizer: transformers' tokenizer; None if there is none, and then there is no text.
        parts: which parts of the engine are whose.

    Attributes:
        changed: requests for which something has come in the last step, be it an error.
        observers: hear of every request that was let in.
        vocabulary: turns ids into text.
    """

    def __init__(self, core: EngineCore, tokenizer: Any, parts: Parts) -> None:
        self.core = core
        self.parts = parts
        self.vocabulary = Vocabulary(tokenizer)
        self._lock = threading.RLock()
        self._collectors: dict[str, Collector] = {}
        self._fatal: PartError | None = None
        self.changed: set[Collector] = set()
        self.observers: list[Observer] = []

    @property
    def fault(self) -> PartError | None:
        """What a part of yours did that has stopped this engine for good; None if none did."""
        return self._fatal

    def add(self, requests: Iterable[tuple[Request, str | None]]) -> list[Collector]:
        """Queues requests, all of them or none; each with its prompt's text, if it has one.

        Raises:
            RequestRefused: one can never be served.
            Overloaded: too many wait already.
            PartError: a part of yours failed, now or before.
        """
        asked = list(requests)
        # All are checked before any is queued, so that a refusal leaves nothing behind.
        for request, _ in asked:
            self.core.admission.check(request)
        collectors: list[Collector] = []
        with self._lock:
            if (fault := self._fatal) is not None:
                what = f"has stopped this engine, for it {fault.what}. Mend it and build a new LLM."
                raise PartError(fault.slot, fault.owner, what) from fault
            with self._contained(collectors):
                for request, text in asked:
                    metrics = self.core.add_request(request)
                    collector = Collector(request, text, self.vocabulary, metrics)
                    self._collectors[request.request_id] = collector
                    collectors.append(collector)
        return collectors

    def step(self) -> tuple[int, int]:
        """Runs a step and fills the collectors; tells the number of new tokens and of ends."""
        with self._lock, self._contained():
            self.changed.clear()
            if self._fatal is not None:
                return 0, 0
            self.core.flush()  # nobody else is coming: it is we who would let them in
            updates = self.core.step()
            collectors = {name: self._collectors[name] for name in (u.request_id for u in updates)}
            self.changed.update(collectors.values())
            for update in updates:
                self._take(collectors[update.request_id], update)
        ended = sum(collector.finished for collector in collectors.values())
        return sum(len(u.new_token_ids) for u in updates), ended

    def reset_prefix_cache(self) -> bool:
        """See `LLM.reset_prefix_cache`."""
        with self._lock, self._contained():
            return self._fatal is None and self.core.reset_prefix_cache()

    def drop(self, collector: Collector) -> None:
        """Takes a request out, wherever it stands; does nothing if it has ended."""
        with self._lock:
            known = self._collectors.get(collector.request.request_id) is collector
            self._remove(collector)
            for observer in self.observers if known else ():
                observer.on_end(collector)

    def _take(self, collector: Collector, update: SequenceUpdate) -> None:
        answer = collector.answers[update.index]
        before = len(answer.token_ids)
        if collector.take(update):
            # A stop string: only the text showed it.
            self.core.finish(update.request_id, FinishReason.STOP, update.index)
        if (count := len(answer.token_ids) - before) > 0:
            for observer in self.observers:
                observer.on_tokens(collector, answer, count)

    def _remove(self, collector: Collector) -> None:
        name = collector.request.request_id
        if self._collectors.get(name) is not collector:
            return  # it has ended, and its id may be somebody else's by now
        del self._collectors[name]
        if self._fatal is None:
            with self._contained():
                self.core.abort(name)

    @contextmanager
    def _contained(self, added: Sequence[Collector] = ()) -> Iterator[None]:
        """Tells everybody whom a fault of the engine has lost, so that nobody waits for ever.

        Args:
            added: requests that are taken out again after a fault.

        Raises:
            PartError: if a part of yours is at fault; anything else goes through.
        """
        try:
            yield
        except BaseException as error:
            fault = self.parts.fault(error)
            if fault is not None and SLOTS[fault.slot].keeps_books:
                self._fatal = fault
            why = str(fault) if fault is not None else f"{type(error).__name__}: {error}"
            for name, collector in self._collectors.items():
                if self._fatal is not None or name not in self.core.metrics:
                    collector.fail(why)
                    self.changed.add(collector)
            for collector in added:
                self._remove(collector)
            if fault is None or fault is error:
                raise
            raise fault from error
