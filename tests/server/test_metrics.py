"""`/metrics`: true, complete, and of so many series."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from minillm_serve.server.busy import BusyShare
from minillm_serve.server.histograms import up_to
from tests.server.running import eventually, slow_down

BODY = {"max_tokens": 4, "ignore_eos": True}


def series(running):
    """Names with labels."""
    return set(running.figures())


def test_nothing_that_somebody_made_up_becomes_a_label_b121(start):
    with start() as running:
        running.complete(**BODY)
        running.client.get("/nothing")
        running.post("/v1/completions", model="nobody", prompt="a")
        running.client.get("/v1/models/nobody")
        running.client.request("BREW", "/health")
        running.client.get("/metrics")
        before = series(running)
        for index in range(1000):
            running.client.get(f"/path/{index}")
        for index in range(100):
            running.post("/v1/completions", model=f"model-{index}", prompt="a")
            running.client.get(f"/v1/models/model-{index}")
            headers = {"X-Request-Id": f"id-{index}"}
            running.client.request(f"BREW{index}", "/health", headers=headers)
        assert series(running) == before
        assert not any(re.search(r"model-\d|path/\d|BREW|id-\d", name) for name in before)
        lost = 'minillm:http_requests_total{method="GET",route="unmatched",status="404"}'
        assert running.figures()[lost] == 1001
        assert 'route="/v1/models/{name:path}"' in "".join(before)


def test_two_servers_in_one_process_have_figures_of_their_own_b122(start):
    with start() as first, start() as second:
        first.complete(**BODY)
        assert first.figure("generation_tokens_total") == 4
        assert second.figure("generation_tokens_total") == 0
        second.complete(**BODY)
        assert second.figure("generation_tokens_total") == 4
    with start() as again:
        assert again.figure("generation_tokens_total") == 0


def test_an_engine_that_has_been_served_is_left_as_it_was(start, make_llm):
    llm = make_llm()
    before = llm.engine.on_step
    with start(llm=llm):
        assert len(llm.llm_engine.observers) == 1
    assert (llm.llm_engine.observers, llm.engine.on_step) == ([], before)


def test_a_prompt_that_loses_its_blocks_is_looked_up_once_b119(start):
    """Random prompts in a pool for two of them: many steps, many preemptions, no hits."""
    with start(num_blocks=12, max_num_seqs=4) as running:
        prompts = [[3 + (31 * i + 7 * j) % 90 for j in range(9)] for i in range(6)]
        with ThreadPoolExecutor() as threads:
            bodies = [{"prompt": p, "max_tokens": 24, "ignore_eos": True} for p in prompts]
            replies = list(threads.map(lambda body: running.complete(**body), bodies))
        assert running.figure("num_preemptions_total") > 0
        queries = running.figure("prefix_cache_queries_total")
        hits = running.figure("prefix_cache_hits_total")
        assert 0 <= hits <= queries
        told = [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in replies]
        assert sum(told) == 0
        assert queries == sum(map(len, prompts))
        assert hits == 0
        assert running.figure("prompt_tokens_total") == queries


def test_idle_figures_are_those_of_the_beginning_b117(start, make_llm):
    with start(llm=slow_down(make_llm())) as running:
        names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        assert [running.figure(name) for name in names] == [0, 0, 0]
        with ThreadPoolExecutor() as threads:
            threads.submit(running.complete, max_tokens=60, ignore_eos=True)
            eventually(lambda: running.figure("num_requests_running"))
            assert running.figure("kv_cache_usage_perc") > 0
        assert [running.figure(name) for name in names] == [0, 0, 0]
        assert running.figure("engine_healthy") == 1
        assert running.figure("engine_busy_seconds_total") > 0.2


def test_the_busy_share_falls_to_zero_when_there_is_nothing_to_do(start, make_llm):
    with start(llm=slow_down(make_llm())) as running:
        assert running.figure("engine_busy_perc") == 0
        running.llm.llm_engine.observers[0].busy.window = 0.3
        with ThreadPoolExecutor() as threads:
            threads.submit(running.complete, max_tokens=60, ignore_eos=True)
            eventually(lambda: running.figure("engine_busy_perc") > 0.5)
        eventually(lambda: running.figure("engine_busy_perc") == 0)


def test_steps_count_as_far_as_they_lie_in_the_window():
    busy = BusyShare(10.0)
    assert busy.at(100.0) == 0
    assert [busy.add(100, 102), busy.add(101, 104), busy.add(103, 103.5)] == [2, 2, 0]
    assert busy.add(108, 109) == 1
    assert busy.at(110) == 0.5
    assert busy.at(112.0) == pytest.approx(0.3)  # the first two of them are out of sight
    assert busy.at(112, under_way=2) == pytest.approx(0.5)  # a step that is not done yet
    assert busy.at(112, under_way=60) == 1
    assert busy.at(200) == 0


def test_gaps_are_counted_token_by_token(server):
    before = server.figure("inter_token_latency_seconds_count")
    server.complete(max_tokens=9, ignore_eos=True, n=2, temperature=1.0)
    assert server.figure("inter_token_latency_seconds_count") - before == 2 * 8


def test_the_sizes_of_a_request_and_of_its_steps_are_noted(start):
    with start() as running:
        running.complete("hello", max_tokens=9, ignore_eos=True, n=2, temperature=1.0)
        names = ("request_prompt_tokens", "request_generation_tokens")
        sums = [running.figure(f"{name}_sum") for name in names]
        assert sums == [5, 18]
        names = ("request_params_max_tokens", "request_params_n", "iteration_tokens_total")
        # The prompt, the token of it that is in no full block once more for the second answer, and
        # of each answer all tokens but the last.
        assert [running.figure(f"{name}_sum") for name in names] == [9, 2, 5 + 1 + 2 * 8]
        assert running.figure("request_generation_tokens_bucket", le="10.0") == 0
        assert running.figure("request_generation_tokens_bucket", le="20.0") == 1


def test_the_phases_of_a_request_add_up(start, make_llm):
    with start(llm=slow_down(make_llm())) as running:
        running.complete(max_tokens=9, ignore_eos=True, n=2, temperature=1.0)
        phases = ("queue_time", "prefill_time", "decode_time", "inference_time")
        queue, prefill, decode, inference = (
            running.figure(f"request_{phase}_seconds_sum") for phase in phases
        )
        assert min(queue, prefill, decode) > 0
        assert inference == pytest.approx(prefill + decode)
        assert queue + prefill == pytest.approx(running.figure("time_to_first_token_seconds_sum"))
        assert queue + inference <= running.figure("e2e_request_latency_seconds_sum")
        # Two answers side by side, of nine tokens each.
        per_token = running.figure("request_time_per_output_token_seconds_sum")
        assert per_token == pytest.approx(decode / 8)


def test_drafts_are_counted_by_position(start):
    with start(speculative_config="ngram") as running:
        running.complete([5, 6, 7, 8] * 8, max_tokens=30, ignore_eos=True, temperature=0)
        kept = [
            running.figure("spec_decode_num_accepted_tokens_per_pos_total", position=position)
            for position in range(len(running.llm.spec_stats.num_accepted_tokens_per_pos))
        ]
        assert kept == sorted(kept, reverse=True)
        assert sum(kept) == running.figure("spec_decode_num_accepted_tokens_total") > 0


def test_the_size_of_the_cache_is_told(server):
    assert server.figure("cache_config_info", block_size=4, num_gpu_blocks=256) == 1


GAUGES = "num_requests_running num_requests_waiting kv_cache_usage_perc engine_busy_perc"
COUNTERS = (
    "prefix_cache_queries prefix_cache_hits prompt_tokens generation_tokens num_preemptions "
    "engine_busy_seconds spec_decode_num_drafts spec_decode_num_draft_tokens "
    "spec_decode_num_accepted_tokens"
)
HISTOGRAMS = (
    "time_to_first_token_seconds inter_token_latency_seconds e2e_request_latency_seconds "
    "request_queue_time_seconds request_prefill_time_seconds request_decode_time_seconds "
    "request_inference_time_seconds request_time_per_output_token_seconds request_prompt_tokens "
    "request_generation_tokens request_params_n request_params_max_tokens iteration_tokens_total"
)


def test_vllms_names_are_there(server):
    names = GAUGES.split()
    names += [f"{name}_total" for name in COUNTERS.split()]
    names += [f"{name}_{part}" for name in HISTOGRAMS.split() for part in ("sum", "count")]
    assert {f'minillm:{name}{{model_name="tiny"}}' for name in names} <= series(server)


def test_bounds_of_token_counts_are_round_numbers_up_to_the_longest():
    assert up_to(1) == (1,)
    assert up_to(64) == (1, 2, 5, 10, 20, 50)
    assert up_to(2048) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
