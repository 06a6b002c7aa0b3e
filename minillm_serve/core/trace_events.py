"""A schedule record as a file for chrome://tracing and https://ui.perfetto.dev."""

from typing import Any

from minillm_serve.core.record import ScheduleRecord

_PROCESS = 1
_STEPS = 0  # the thread of the steps; slot s is thread s + 1

Event = dict[str, Any]


def chrome_trace(record: ScheduleRecord) -> dict[str, Any]:
    """The record in Chrome's trace event format, to be written with `json.dump`.

    One row shows the steps, one each slot of the batch: who computed what there. A preemption is a
    flag; how many blocks were in use is a curve. Times are in microseconds after the first step
    began.
    """
    ran = list(record.ran())
    zero = ran[0][0] if ran else 0.0
    times = [(round((a - zero) * 1e6, 3), round((b - zero) * 1e6, 3)) for a, b in ran]
    slots = max([record.num_slots, *(span.slot + 1 for span in record.spans())])
    events = [*_steps(record, times), *_spans(record, times), *_preemptions(record, times)]
    names = [_name("process_name", _STEPS, "minillm-serve"), _name("thread_name", _STEPS, "steps")]
    names += [_name("thread_name", slot + 1, f"slot {slot}") for slot in range(slots)]
    return {
        "traceEvents": names + sorted(events, key=lambda event: event["ts"]),
        "displayTimeUnit": "ms",
    }


def _steps(record: ScheduleRecord, times: list[tuple[float, float]]) -> list[Event]:
    events = []
    for step, (began, ended) in enumerate(times):
        counts = {"sequences": record.num_rows[step], "idle": record.num_idle[step]}
        events.append(_bar(f"step {step}", "step", _STEPS, began, ended, counts))
        used = {"blocks": record.blocks_used[step]}
        events.append({"name": "blocks in use", "ph": "C", **_place(began, _STEPS), "args": used})
    return events


def _spans(record: ScheduleRecord, times: list[tuple[float, float]]) -> list[Event]:
    events = []
    for span in record.spans():
        told = {
            "start": span.start,
            "tokens_a_step": span.num_tokens,
            "steps": span.num_steps,
            "blocks": span.num_blocks,
        }
        kind = "decode" if span.num_tokens == 1 else "prefill"
        began, ended = times[span.first_step][0], times[span.end_step - 1][1]
        events.append(_bar(span.request_id, kind, span.slot + 1, began, ended, told))
    return events


def _preemptions(record: ScheduleRecord, times: list[tuple[float, float]]) -> list[Event]:
    return [
        {
            "name": f"{one.request_id} {'swapped out' if one.swapped else 'preempted'}",
            "ph": "i",
            "s": "p",
            **_place(times[one.step][0], _STEPS),
        }
        for one in record.preemptions()
    ]


def _bar(
    name: str, kind: str, thread: int, began: float, ended: float, told: dict[str, int]
) -> Event:
    duration = round(ended - began, 3)
    bar = {"name": name, "cat": kind, "ph": "X", **_place(began, thread)}
    return {**bar, "dur": duration, "args": told}


def _place(time: float, thread: int) -> Event:
    return {"ts": time, "pid": _PROCESS, "tid": thread}


def _name(what: str, thread: int, name: str) -> Event:
    return {"name": what, "ph": "M", **_place(0.0, thread), "args": {"name": name}}
