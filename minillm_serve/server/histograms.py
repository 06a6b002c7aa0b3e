"""What is shown as a histogram, under vLLM's names and with its bounds, so that its queries fit."""

#: Bounds in seconds: from a token on a fast GPU to a long answer on a laptop.
_MILLISECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
TO_FIRST_TOKEN = (*_MILLISECONDS, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_SHORT_GAPS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
BETWEEN_TOKENS = (*_SHORT_GAPS, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_SHORT = (0.01, 0.03, 0.1)  # of our own: small models are quick
_SECONDS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0)
OF_REQUESTS = (*_SHORT, *_SECONDS, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
#: Bounds in tokens of a step: powers of two.
OF_STEPS = (1.0, *(2.0**power for power in range(3, 15)))
OF_ANSWERS = (1.0, 2.0, 5.0, 10.0, 20.0)

#: What a name stands for, and where the buckets end.
Histograms = dict[str, tuple[str, tuple[float, ...]]]


def histograms(max_len: int) -> Histograms:
    """All of a server.

    Args:
        max_len: most tokens of a prompt and its answer.
    """
    of_tokens = up_to(max_len)
    return {
        "time_to_first_token_seconds": ("From arrival to the first token.", TO_FIRST_TOKEN),
        "inter_token_latency_seconds": (
            "From one token of an answer to the next.",
            BETWEEN_TOKENS,
        ),
        "request_time_per_output_token_seconds": (
            "Mean time of a request's tokens after the first.",
            BETWEEN_TOKENS,
        ),
        "e2e_request_latency_seconds": ("From arrival to the end.", OF_REQUESTS),
        "request_queue_time_seconds": ("From arrival to the first step.", OF_REQUESTS),
        "request_prefill_time_seconds": ("From the first step to the first token.", OF_REQUESTS),
        "request_decode_time_seconds": ("From the first token to the last.", OF_REQUESTS),
        "request_inference_time_seconds": ("From the first step to the last token.", OF_REQUESTS),
        "request_prompt_tokens": ("Tokens of a request's prompt.", of_tokens),
        "request_generation_tokens": ("Tokens of a request's answers.", of_tokens),
        "request_params_max_tokens": ("Most tokens that a request asks for.", of_tokens),
        "request_params_n": ("Answers that a request asks for.", OF_ANSWERS),
        "iteration_tokens_total": ("Tokens that a step computes.", OF_STEPS),
    }


def up_to(most: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 and so on, up to a number that is at least 1."""
    bounds, power = list[float](), 1
    while power <= most:
        bounds += [float(power * digit) for digit in (1, 2, 5) if power * digit <= most]
        power *= 10
    return tuple(bounds)
