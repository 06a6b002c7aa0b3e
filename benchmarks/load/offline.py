"""A child of `bench serve`: reads jobs line by line, and answers them by `LLM.generate`."""

import json
import sys
import time
from collections.abc import Sequence

from minillm_serve import LLM, SamplingParams
from minillm_serve.cli_options import engine_arguments
from minillm_serve.cli_serve import parser


def main(argv: Sequence[str]) -> int:
    """Serves until its input ends. A line in: `[[prompt ids, output length], ...]`."""
    options = parser().parse_args(argv)
    options.model = options.served or options.model
    try:
        llm = LLM(**engine_arguments(options))
    except ValueError as error:
        print(f"offline: {error}", file=sys.stderr)
        return 1
    print("{}", flush=True)
    for line in sys.stdin:
        jobs = json.loads(line)
        params = [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for _, n in jobs]
        llm.reset_prefix_cache()
        began = time.perf_counter()
        outputs = llm.generate([prompt for prompt, _ in jobs], params, use_tqdm=False)
        seconds = time.perf_counter() - began
        texts = [output.outputs[0].text for output in outputs]
        print(json.dumps({"seconds": seconds, "texts": texts}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
