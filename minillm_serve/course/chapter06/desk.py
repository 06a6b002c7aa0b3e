"""What is said to the real model in this chapter: a help desk's long rules, and short questions."""

from minillm_serve import LLM

RULES = """You answer at the help desk of a town library. These are the rules of the house.
The library opens at ten on weekdays and at twelve on Saturdays, and it closes at seven. On Sundays
it is closed. A card costs nothing for children and eight crowns a year for everybody else. With a
card you may take home ten books, four films and two games at a time. Books are lent for four weeks,
films and games for one. A loan can be renewed twice, unless somebody has asked for the same book.
Whoever is late pays half a crown for each day and each thing, and never more than the thing is
worth. Old maps, newspapers and the local archive are read in the house, in the small room on the
second floor, with a pencil and not with a pen. There are nine desks with a lamp and two without.
Talking is welcome on the ground floor, whispering on the first and silence on the second. Food
stays in the hall; water in a bottle may come along. Dogs that help somebody are let in, all others
wait at the hook beside the door. If something is lost, ask for the box behind the desk. If somebody
is unkind, ask for the librarian. Answer in one or two short sentences, kindly and to the point. If
the rules do not say it, say that you do not know, and whom to ask."""

QUESTIONS = (
    "When do you open on Saturday?",
    "May I bring my dog?",
    "How many books can I take home?",
    "Where do I find old maps?",
    "What does a card cost?",
    "I am two days late. What now?",
    "Is there a desk with a lamp?",
    "Can I eat here?",
    "I have lost a glove.",
    "May I renew a film?",
    "Where can I talk?",
    "Do you lend paintings?",
)

NAMES = ("Anna", "Boris", "Clara", "David", "Emma")


def desk_prompts(llm: LLM) -> list[list[int]]:
    """One prompt a question, each behind the same rules; token ids."""
    return [llm.chat_prompt([*rules(), said(question)]) for question in QUESTIONS]


def rules() -> list[dict[str, str]]:
    """How every conversation begins."""
    return [{"role": "system", "content": RULES}]


def said(question: str) -> dict[str, str]:
    """Something that somebody says."""
    return {"role": "user", "content": question}


def letter(llm: LLM, name: str) -> list[int]:
    """A form letter, which everybody knows but for the name at its top; token ids."""
    return llm.tokenizer.encode(f"A reminder to {name}, in confidence. {RULES[:700]}")
