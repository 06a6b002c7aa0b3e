"""What every test starts from: one environment, set before torch or Triton can be imported."""

import os
import shutil

from tests.browser.loud import pytest_terminal_summary  # noqa: F401 (xdist loads no other conftest)


def _set_common_environment() -> None:
    """Fix what a developer's own shell could change about a test run.

    This runs at import, because Triton and the tokenizers read their variables once: a fixture
    would come too late (B134). Child processes and notebook kernels inherit the same values.
    """
    os.environ["HF_HUB_OFFLINE"] = "1"  # a test that asked a hub would pass on some machines only
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads and fork() do not mix
    if shutil.which("nvidia-smi") is None and not os.path.exists("/dev/kfd"):
        os.environ.setdefault("TRITON_INTERPRET", "1")  # no GPU: Triton's kernels run interpreted


_set_common_environment()
