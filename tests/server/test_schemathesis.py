"""Requests made up from the API's own document, by schemathesis, on a real port."""

import re
import subprocess
import sys

#: All of schemathesis' but one: that whatever fits the document is accepted. A document cannot say
#: that prompt and answer must fit into the context together, or what a regular expression may be.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "missing_required_header,unsupported_method,allow_header_conformance"
)


def test_whatever_is_asked_gets_an_answer_that_the_document_knows(server, tmp_path):
    """No 5xx, no status, type or shape of an answer that is not documented.

    A long run: the same command with `--max-examples 300 --phases coverage,fuzzing`.
    """
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"]
    options = {
        "--checks": CHECKS,
        "--phases": "fuzzing",
        "--max-examples": "12",
        "--seed": "1",
        "--request-timeout": "60",
    }
    command += [word for option in options.items() for word in option]
    done = subprocess.run(
        [*command, "--continue-on-failure", "--no-color"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    generated = re.search(r"(\d+) generated", done.stdout)
    assert generated is not None, done.stdout[-5000:]
    assert int(generated[1]) > 60
