"""Declared parameters: every refusal names the field, its value and what is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.runtime.parameter import (
    Declared,
    ParameterError,
    format_value,
    parameter,
    parameters_of,
    parse_assignments,
)


@dataclass(frozen=True)
class Window(Declared):
    length_ms: int = parameter(minimum=10, maximum=500, unit="ms")


@dataclass(frozen=True)
class Sample(Declared):
    """One parameter of each kind."""

    count: int = parameter(3, minimum=1, maximum=8, unit="words", help="words to wait")
    share: float = parameter(0.5, minimum=0.0, maximum=1.0)
    detection: Literal["fixed", "adaptive"] = parameter("fixed")
    is_open: bool = False
    label: str = ""
    heads: tuple[int, ...] = parameter((), minimum=1, unique=True)
    limit: int | None = parameter(None, minimum=1)
    windows: tuple[Window, ...] = ()
    memory: list[int] = field(init=False, default_factory=list, compare=False)

    def check_together(self) -> None:
        if self.limit is not None and self.limit < self.count:
            raise ParameterError("limit", self.limit, f"{self.count} (count) or more")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": 0}, "count = 0 is not allowed; allowed: a whole number from 1 to 8"),
        ({"count": 2.5}, "count = 2.5 is not allowed; allowed: a whole number from 1 to 8"),
        ({"count": True}, "count = True is not allowed; allowed: a whole number from 1 to 8"),
        ({"share": float("nan")}, "share = nan is not allowed; allowed: a number from 0.0 to 1.0"),
        ({"share": 10**400}, "share = 1000"),
        ({"detection": "loose"}, "detection = 'loose' is not allowed; allowed: fixed, adaptive"),
        ({"is_open": 1}, "is_open = 1 is not allowed; allowed: true or false"),
        ({"label": 1}, "label = 1 is not allowed; allowed: text"),
        ({"heads": [0]}, "heads = (0,) is not allowed; allowed: whole numbers from 1, each once"),
        ({"heads": [2, 2]}, "heads = (2, 2) is not allowed; allowed: whole numbers from 1, each"),
        ({"limit": 2}, "limit = 2 is not allowed; allowed: 3 (count) or more"),
        ({"size": 3}, "size is not a parameter; allowed: count, share, "),
        ({"windows": [{}]}, "windows.length_ms is missing; allowed: a whole number from 10 to 500"),
        ({"windows": [{"length_ms": 5}]}, "windows.length_ms = 5 is not allowed; allowed: a whole"),
        ({"windows": [5]}, "windows = 5 is not allowed; allowed: an object with named fields"),
    ],
)
def test_what_is_not_allowed_is_told(values, message):
    """However deep it stands, the path to it is the caller's."""
    with pytest.raises(ParameterError) as refused:
        Sample.from_dict(values)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("count=few", "count = 'few' is not allowed; allowed: a whole number from 1 to 8"),
        ("is-open=maybe", "is_open = 'maybe' is not allowed; allowed: true or false"),
        ("heads=1+x", "heads = '1+x' is not allowed; allowed: whole numbers from 1, each once"),
        ("count", "count is not an assignment; allowed: PARAMETER=VALUE"),
        ("count=1,count=2", "count is given twice; allowed: one value"),
        ("size=1", "size is not a parameter; allowed: count, "),
    ],
)
def test_a_text_that_cannot_be_meant_is_told(text, message):
    """The same wording, with the text as it was typed."""
    with pytest.raises(ParameterError) as refused:
        parse_assignments(parameters_of(Sample), text)
    assert str(refused.value).startswith(message)


@given(
    st.builds(
        Sample,
        st.integers(1, 8),
        st.floats(0, 1),
        st.sampled_from(["fixed", "adaptive"]),
        st.booleans(),
        st.just("a"),
        st.lists(st.integers(1, 9), unique=True).map(tuple),
        st.none() | st.integers(8, 99),
        st.lists(st.builds(Window, st.integers(10, 500)), max_size=2).map(tuple),
    )
)
def test_what_is_written_reads_back(sample):
    """As a dictionary and, without what stands inside, as a line of text."""
    assert Sample.from_dict(sample.to_dict()) == sample
    line = ",".join(
        f"{name}={format_value(value)}"
        for name in parameters_of(Sample)
        if name != "windows" and (value := getattr(sample, name)) not in (None, ())
    )
    assert (
        Sample(**parse_assignments(parameters_of(Sample), line), windows=sample.windows) == sample
    )


def test_a_declaration_tells_what_it_allows():
    """For help texts and pages; what an object is not made with is no parameter."""
    declared = parameters_of(Sample)
    assert "memory" not in declared
    assert (declared["count"].range, declared["count"].unit) == ("1 to 8", "words")
    assert declared["heads"].range == "from 1"
    assert declared["detection"].range == "fixed, adaptive"
    assert declared["limit"].is_optional
    assert not declared["count"].is_optional
