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


def integers_in(snapshot: Snapshot, name: str) -> list[int]:
    """Return a list of integers of a snapshot, copied.

    Raises:
        ValueError: there is no such list.
    """
    values = snapshot.get(name)
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise ValueError(f"{name} = {values!r} is not a list of integers")
    return list(values)
