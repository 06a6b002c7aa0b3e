"""What the model is asked in this chapter: three kinds of text, easy and hard to guess."""

from __future__ import annotations

from minillm_serve import LLM

_ROOM = """The reading room is open from ten to seven. On Sundays it is closed. Old maps are read
there with a pencil, not with a pen. A book is lent for four weeks, a film for one week."""

_RIVER = """A river begins as rain on a mountain. Small streams run down the slopes and meet in the
valley, where the water slows down and grows wide. In the end it reaches the sea, where the sun
lifts it up again, as clouds."""

_LIST = """name,city,year
Anna,Bergen,1994
Boris,Leipzig,1988
Clara,Porto,2001
David,Gdansk,1979"""

_CODE = """class Stack:
    def __init__(self):
        self.items = []

    def push(self, item):
        self.items.append(item)

    def pop(self):
        return self.items.pop()"""

#: Kind of text -> what is asked.
ASKED = {
    "code and format": (
        f"Rename the class Stack to Pile in this code. Return all of the code:\n\n{_CODE}",
        f"Write these lines as a JSON array of objects:\n\n{_LIST}",
    ),
    "summary": (
        f"Summarize the following text:\n\n{_RIVER}",
        f"Summarize this for a child:\n\n{_ROOM}",
    ),
    "open-ended": (
        "Write a letter to a friend about an old lighthouse.",
        "What do people often get wrong about bees?",
    ),
}
KINDS = tuple(ASKED)


def prompt(llm: LLM, question: str) -> list[int]:
    """A question in the model's chat template; token ids."""
    return llm.chat_prompt([{"role": "user", "content": question}])


def prompts(llm: LLM) -> dict[str, list[list[int]]]:
    """Of each kind the prompts, likewise."""
    return {kind: [prompt(llm, text) for text in asked] for kind, asked in ASKED.items()}


def pieces_of(llm: LLM, token_ids: list[int]) -> list[str]:
    """The text of each token; what is less than a character is a question mark."""
    return [llm.tokenizer.decode([token]).replace("\ufffd", "?") for token in token_ids]
