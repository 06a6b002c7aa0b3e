"""The quiz without a browser: what it refuses, what it says, what static views get."""

from typing import Any

import pytest

from minillm_serve.course import Question, Quiz
from minillm_serve.course.markup import inline, plain

QUESTION = Question(
    "Which does **GQA** shrink, $H$ or $H_{kv}$?",
    ["query heads", "KV heads `H_kv`", "$10^9$"],
    answer=1,
    why={0: "Queries are <not> cached.", 2: "No."},
)


def test_every_wrong_choice_must_be_explained() -> None:
    with pytest.raises(ValueError, match=r"does not explain \['b', 'c'\]"):
        Question("?", ["a", "b", "c"], answer=0, why={0: "yes"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"choices": ["a"], "answer": 0}, "two choices or more"),
        ({"choices": ["a", "b"], "answer": 2}, r"answer=2 is not in 0\.\.1"),
        ({"choices": ["a", "b"], "answer": 0, "why": {1: "x", 7: "y"}}, r"\[7\]"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Question("?", **options)


def test_a_quiz_without_questions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one Question"):
        Quiz([])


def test_the_score_counts_right_answers() -> None:
    quiz = Quiz([QUESTION, QUESTION, QUESTION])
    assert quiz.score == 0
    quiz.chosen = [1, 0, None]
    assert quiz.score == 1


def test_the_text_has_questions_choices_and_the_answers_last() -> None:
    text = repr(Quiz([QUESTION, QUESTION]))
    assert "1. Which does GQA shrink, H or H_{kv}?" in text
    assert "   b) KV heads H_kv" in text
    assert text.endswith("Answers: 1b, 2b")
    assert "0x" not in text


def test_b154_static_views_fold_the_answers_and_need_no_mathml() -> None:
    data, _ = Quiz([QUESTION])._repr_mimebundle_()
    page = data["text/html"]
    assert "<details><summary>Answer</summary>" in page
    assert "Queries are &lt;not&gt; cached." in page
    assert "<i>H</i><sub><i>k</i><i>v</i></sub>" in page
    assert "10<sup>9</sup>" in page  # not 109
    assert "<math" not in page
    assert "<script" not in page
    assert data == {**Quiz([QUESTION])._repr_mimebundle_()[0], **_live(data)}


def _live(data: dict[str, Any]) -> dict[str, Any]:
    """The one part that differs from run to run, and that nobody compares."""
    return {key: value for key, value in data.items() if "widget-view" in key}


def test_short_texts_are_escaped_but_for_their_marks() -> None:
    assert inline("a < b & `x<y`") == "a &lt; b &amp; <code>x&lt;y</code>"
    assert inline("2 * 3 * 4") == "2 * 3 * 4"
    assert "<math" in inline("$N$")
    assert inline(r"$2 \cdot N \le 10^{12}$", static=True) == "2 · <i>N</i> ≤ 10<sup>12</sup>"
    assert inline(r"$\frac{1}{2}$", static=True) == r"<code>\frac{1}{2}</code>"
    assert plain("**a** `b` $N$") == "a b N"
