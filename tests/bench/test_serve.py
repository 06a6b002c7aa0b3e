"""The load generator: what it sends when, what it makes of what comes back, and its report."""

import asyncio
import itertools
import json
import re

import pytest

from benchmarks import serve
from benchmarks.load.answers import read
from benchmarks.load.client import Client, Recording
from benchmarks.load.drive import Extras, closed_loop, open_loop
from benchmarks.load.page import page
from benchmarks.load.summary import summarise, table
from benchmarks.workloads import Job, chat
from minillm_serve import LLM
from minillm_serve.cli import main
from minillm_serve.sim.metrics import SLO
from tests.llm.tiny import save_tiny
from tests.models.tiny import VOCAB
from tests.server.running import Running, run_async

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
PIECES = [{"choices": [{"text": text}]} for text in ("a", "", "b")]
USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5}}


def chunked(*parts, ends=True):
    """A body in the chunks of HTTP."""
    framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return framed + b"0\r\n\r\n" if ends else framed


def events(*objects):
    return [b"data: " + json.dumps(thing).encode() + b"\n\n" for thing in objects]


def heard(raw, size):
    """Bytes as they may come: in pieces of one size, a second apart."""
    return [(float(at // size), raw[at : at + size]) for at in range(0, len(raw), size)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return str(save_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def server(tiny):
    llm = LLM(tiny, num_blocks=200, max_num_seqs=4, max_num_waiting=8)
    with Running(llm) as running:
        yield running
        running.wait_until_idle()


@pytest.fixture(autouse=True)
def _ids_that_it_knows(monkeypatch):
    monkeypatch.setattr("benchmarks.workloads.LOWEST_ID", 3)
    monkeypatch.setattr("benchmarks.workloads.HIGHEST_ID", VOCAB - 1)


@pytest.mark.parametrize("size", [1, 3, 17, 10_000])
def test_an_answer_is_read_alike_however_its_bytes_were_cut(size):
    done = [b": still here\n\n", *events(*PIECES, USAGE), b"data: [DONE]\n\n"]
    answer = read(Recording(0.0, 0.0, heard(HEAD + chunked(*done), size)))
    assert (answer.status, answer.problem, answer.text) == (200, None, "ab")
    assert (answer.prompt_tokens, answer.output_tokens) == (7, 5)
    assert len(answer.pieces) == 2
    log = answer.token_log()
    assert len(log.times) == 5
    assert (log.times[0], log.times[-1]) == answer.pieces


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "no answer"),
        (HEAD + chunked(*events(*PIECES), ends=False), "the answer breaks off"),
        (HEAD + chunked(*events(*PIECES)), "the stream has no usage"),
        (HEAD + chunked(*events(USAGE)), "the stream is empty"),
        (HEAD + chunked(b"data: {\n\n"), "no JSON"),
        (HEAD + chunked(*events(PIECES[0], {"error": {"message": "it broke"}})), "it broke"),
        (b"HTTP/1.1 429 No\r\nContent-Length: 28\r\n\r\n" + b'{"error":{"message":"later"}}'[:28],
         "no JSON"),
        (b"HTTP/1.1 400 No\r\nContent-Length: 29\r\n\r\n" + b'{"error":{"message":"wrong"}}',
         "wrong"),
        (b"this is no HTTP\r\n\r\n", "no answer"),
    ],
)  # fmt: skip
def test_whatever_comes_back_is_a_problem_with_a_name(raw, problem):
    answer = read(Recording(0.0, 0.0, heard(raw, 5)))
    assert problem in answer.problem
    assert not answer.is_served
    assert answer.is_refused == raw.startswith(b"HTTP/1.1 429")
    with pytest.raises(ValueError, match="no tokens"):
        answer.token_log()


class BusyClient:
    """Stands in for a client that a busy machine keeps from its work: nothing is sent in time."""

    def __init__(self):
        self.now = 0.0
        self.under_way = self.most = 0

    def clock(self):
        return self.now

    async def send(self, body, due):
        recording = Recording(due, self.now)
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.now += 10.0
        await asyncio.sleep(0)
        self.under_way -= 1
        return recording


def test_a_latency_counts_from_when_a_request_was_due_however_late_it_was_sent():
    """Otherwise a server that blocks everybody looks fast (coordinated omission)."""
    jobs, times = [Job([5], 1)] * 3, [0.0, 0.01, 0.02]
    recordings = run_async(open_loop(BusyClient(), jobs, times, Extras("m")))
    assert [recording.due for recording in recordings] == times
    assert [recording.sent for recording in recordings] == [0.0, 10.0, 20.0]


def test_as_many_people_as_were_asked_for_share_the_jobs_of_a_closed_loop():
    jobs, client = [Job([number], 1) for number in range(7)], BusyClient()
    recordings = run_async(closed_loop(client, jobs, 3, Extras("m")))
    assert client.most == 3
    assert len(recordings) == 7
    assert all(recording.due == recording.sent for recording in recordings)


def test_figures_agree_with_what_happened_and_who_was_refused_misses_the_promise():
    clock = itertools.count()
    served = [
        Recording(0.0, 0.5, [(float(next(clock) + 1), part) for part in (HEAD, chunked(*all_of))])
        for all_of in [events({"choices": [{"text": "x"}]}, USAGE)] * 2
    ]
    refused = Recording(0.0, 0.0, [(1.0, b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")])
    found = summarise([read(each) for each in [*served, refused]], [5, 5, 5], SLO(ttft=3.0))
    assert (found["requests"], found["served"], found["refused"], found["failed"]) == (3, 2, 1, 0)
    assert (found["seconds"], found["output_tok_s"], found["requests_s"]) == (4.0, 2.5, 0.5)
    assert (found["goodput"], found["share_as_promised"]) == (0.25, 1 / 3)
    assert found["ttft"]["max"] == 4.0
    assert found["late"]["max"] == 0.5
    assert found["of_other_length"] == 0
    assert "2 served, 1 refused" in table(found)


def test_nobody_served_is_still_a_report():
    found = summarise([read(Recording(0.0))], [5], SLO())
    assert found["problems"] == {"no answer": 1}
    assert "1 failed" in table(found)


def test_conversations_are_mostly_short_and_some_are_long():
    jobs = chat(2000, seed=3)
    assert abs(sum(len(job.prompt) for job in jobs) / 2000 - 161) < 12
    assert max(job.output_len for job in jobs) == 1024
    assert jobs == chat(2000, seed=3)


@pytest.mark.parametrize(
    "how",
    [
        ["--requests", "3", "--concurrency", "2"],
        ["--rate", "50", "--requests", "4", "--ttft-slo", "50"],
        ["--trace", "trace.csv", "--speed", "100", "--repeat", "2"],
    ],
)
def test_a_server_that_runs_is_measured_and_reported_in_one_file(server, tmp_path, how, capsys):
    (tmp_path / "trace.csv").write_text("time,prompt_tokens,output_tokens\n0,9,4\n2,20,3\n2,5,1\n")
    how = [str(tmp_path / each) if each == "trace.csv" else each for each in how]
    out = tmp_path / "run.json"
    assert main(["bench", "serve", "--url", server.url, *how, "--output", str(out)]) == 0
    record = json.loads(out.read_text())
    assert record["stamp"]["hardware"]
    for run in record["runs"]:
        assert run["served"] == run["requests"] >= 3
        assert run["of_other_length"] == 0
        assert run["share_as_promised"] == 1
    text = out.with_suffix(".html").read_text()
    assert record["title"] in text
    assert not re.search(r"https?://|<script|<link|\bsrc=\"(?!data:)", text)
    assert out.with_suffix(".png").stat().st_size > 10_000
    assert "ttft" in capsys.readouterr().out


def test_a_server_that_refuses_is_reported_as_such(server, capsys):
    assert serve.main(["--url", server.url, "--requests", "40", "--no-warm-up"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"40 requests: \d+ served, [1-9]\d* refused, 0 failed", told)
    assert "x too many requests wait already" in told


def test_a_server_is_started_and_the_same_engine_without_one_beside_it(tiny, tmp_path, capsys):
    out = tmp_path / "run.json"
    options = ["--model", tiny, "--requests", "4", "--offline", "--output", str(out)]
    assert serve.main([*options, "--num-blocks", "200", "--dtype", "float64"]) == 0
    (run,) = json.loads(out.read_text())["runs"]
    assert run["served"] == run["same_text"] == 4
    assert run["ratio"] == run["output_tok_s"] / run["offline_tok_s"]
    assert "HTTP / offline" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--url", "127.0.0.1:1"], "expected one like http://127.0.0.1:8000"),
        (["--url", "http://127.0.0.1:1"], "is this the URL of a server?"),
        (["--url", "http://127.0.0.1:1", "--offline"], "--offline: only for a server"),
        (["--url", "http://127.0.0.1:1", "--num-blocks", "4"], "--num-blocks 4: only for a server"),
        (["--rate", "0"], "Poisson.rate is 0.0"),
        (["--ttft-slo", "-1"], "objectives are seconds above 0"),
        (["--trace", "a.txt"], "expected a name that ends in .csv or .jsonl"),
    ],
)
def test_options_that_cannot_be_used_are_refused_by_name(options, message, capsys):
    assert main(["bench", "serve", *options]) == 1
    assert message in capsys.readouterr().err


def test_a_report_shows_a_servers_words_as_text():
    run = summarise([read(Recording(0.0))], [1], SLO()) | {"problems": {"<script>": 1}}
    about = {"slo": {"ttft": None}, "hardware": "h", "date": "d", "commit": "c"}
    text = page({"title": "<b>", "stamp": about, "runs": [run]}, [])
    assert "<b>" not in text
    assert "<script>" not in text
    assert "1 x &lt;script&gt;" in text


def test_a_client_gives_up_what_takes_too_long(server):
    client = Client(server.url, timeout=0.05)
    body = Extras("tiny").body(Job([5, 6], 400))
    answer = read(run_async(client.send(body, 0.0)))
    assert answer.problem == "no end after 0.05 s"
