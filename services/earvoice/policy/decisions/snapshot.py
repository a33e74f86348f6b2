"""A policy's memory as plain JSON values, and reading one back."""

from __future__ import annotations

Snapshot = dict[str, object]


def integer_in(snapshot: Snapshot, name: str) -> int:
    """Return a count of a snapshot.

    Raises:
        ValueError: there is no such integer.
    """
    count = snapshot.get(name)
    if not isinstance(count, int) or isinstance(count, bool):
        raise ValueError(f"{name} = {count!r} is not an integer")
    return count


def token_lists(value: object) -> list[list[int]]:
    """Return a snapshot's list of token lists, copied.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, list) or not all(isinstance(tokens, list) for tokens in value):
        raise ValueError(f"{value!r} is not a list of token lists")
    return [list(tokens) for tokens in value]
