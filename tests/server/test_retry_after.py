"""What the engine's door says, as HTTP has it."""

from minillm_serve.core import Queue, Refuse
from tests.llm.parts_right import MyAdmission

BODY = {"prompt": "hello", "max_tokens": 4}


def test_a_refusal_of_somebody_s_door_is_a_429_with_its_pause(start, make_llm):
    class Closed(MyAdmission):
        asked = 0

        def admit(self, request, load):
            Closed.asked += 1
            return Refuse(retry_after=41.2, why="closed") if Closed.asked > 2 else Queue(60.0)

    llm = make_llm(parts={"admission": Closed})  # whose self-test has knocked twice
    with start(llm=llm) as running:
        for more in ({}, {"stream": True}):
            reply = running.post("/v1/completions", **BODY, **more)
            assert (reply.status_code, reply.headers["retry-after"]) == (429, "42")
            assert reply.json()["error"]["code"] == "overloaded"
            assert "again in 42 s" in reply.json()["error"]["message"]
        assert running.client.get("/health").status_code == 200


def test_who_was_to_wait_at_most_so_long_and_has_not_begun_is_a_503(start, make_llm):
    class Hurried(MyAdmission):
        def admit(self, request, load):
            return Queue(at_most=0.0)

    with start(llm=make_llm(parts={"admission": Hurried})) as running:
        reply = running.post("/v1/completions", **BODY)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert reply.json()["error"]["code"] == "deadline"
        running.wait_until_idle()
