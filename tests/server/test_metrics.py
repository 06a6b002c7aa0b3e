"""`/metrics`: true, complete, and of so many series."""

import re
from concurrent.futures import ThreadPoolExecutor

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


def test_gaps_are_counted_token_by_token(server):
    before = server.figure("inter_token_latency_seconds_count")
    server.complete(max_tokens=9, ignore_eos=True, n=2, temperature=1.0)
    assert server.figure("inter_token_latency_seconds_count") - before == 2 * 8


NAMES = (
    "num_requests_running num_requests_waiting kv_cache_usage_perc prefix_cache_queries_total "
    "prefix_cache_hits_total prompt_tokens_total generation_tokens_total num_preemptions_total "
    "time_to_first_token_seconds_sum inter_token_latency_seconds_sum "
    "e2e_request_latency_seconds_sum request_queue_time_seconds_sum engine_busy_seconds_total "
    "spec_decode_num_drafts_total spec_decode_num_draft_tokens_total "
    "spec_decode_num_accepted_tokens_total"
)


def test_vllms_names_are_there(server):
    names = [f'minillm:{name}{{model_name="tiny"}}' for name in NAMES.split()]
    assert set(names) <= series(server)
