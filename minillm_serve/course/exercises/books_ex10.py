"""The books of who is inside: the reference's, and those of mistakes that have a name."""

from __future__ import annotations

from typing import Any

from minillm_serve.course.exercises.exercise import Case


class Inside:
    """Who is inside: the reference's books."""

    def __init__(self) -> None:
        self._inside: dict[str, tuple[str, int]] = {}

    def enter(self, request_id: str, tenant: str, tokens: int) -> None:
        """Somebody was let in."""
        self._inside[request_id] = tenant, tokens

    def leave(self, request_id: str) -> None:
        """Somebody has left."""
        self._inside.pop(request_id, None)

    def held(self, tenant: str) -> int:
        """Tokens of a tenant's requests inside."""
        return sum(tokens for name, tokens in self._inside.values() if name == tenant)

    def equal_share(self, tenant: str, tokens: int) -> float:
        """What each would hold if all held the same, the newcomer let in."""
        names = {name for name, _ in self._inside.values()} | {tenant}
        return (sum(n for _, n in self._inside.values()) + tokens) / len(names)


def keep_books(answer: Any, case: Case) -> list[Any]:
    """What books say to a script of calls; both sides run it."""
    books, found = answer(), list[Any]()
    for name, *arguments in case["calls"]:
        told = getattr(books, name)(*arguments)
        if name in ("held", "equal_share"):
            found.append(told)
    return found


def books(case: Case) -> list[Any]:
    """The reference's."""
    return keep_books(Inside, case)


def books_mistake(case: Case, expected: Any, got: Any) -> str | None:
    """Names the thought behind wrong books."""
    for wrong, why in WRONG_BOOKS.items():
        if got == keep_books(wrong, case):
            return why
    return None


class _Forgets(Inside):
    def leave(self, request_id: str) -> None:
        pass


class _OnePerTenant(Inside):
    def enter(self, request_id: str, tenant: str, tokens: int) -> None:
        super().enter(tenant, tenant, tokens)


class _Regulars(Inside):
    def __init__(self) -> None:
        super().__init__()
        self._known: set[str] = set()

    def enter(self, request_id: str, tenant: str, tokens: int) -> None:
        super().enter(request_id, tenant, tokens)
        self._known.add(tenant)

    def equal_share(self, tenant: str, tokens: int) -> float:
        total = sum(n for _, n in self._inside.values()) + tokens
        return total / len(self._known | {tenant})


class _WithoutNewcomer(Inside):
    def equal_share(self, tenant: str, tokens: int) -> float:
        names = {name for name, _ in self._inside.values()} or {tenant}
        return sum(n for _, n in self._inside.values()) / len(names)


WRONG_BOOKS: dict[type[Inside], str] = {
    _Forgets: "who has left is still counted: after a while everybody looks greedy",
    _OnePerTenant: "a tenant may have several requests inside: one must not replace another",
    _Regulars: "who has nothing inside any more is still counted among those who share",
    _WithoutNewcomer: "the newcomer counts too: its tokens in the sum, its tenant among the names",
}
