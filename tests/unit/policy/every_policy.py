"""Every decision policy, and random utterances for what must hold for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from earvoice.policies import (
    AlignAtt,
    Edatt,
    FrameSchedule,
    HoldN,
    LocalAgreement,
    Offline,
    SharedPrefix,
    StridedWaitK,
    Transducer,
    WaitK,
)
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from tests.fakes import make_token

PARAMETERS = [
    Edatt(0.3, 2, 1),
    Edatt(0.3, 2, 1, normalization="l1", allow_early_end=True),
    AlignAtt(2, 1),
    AlignAtt(1, 1, allow_early_end=True),
    LocalAgreement(2),
    LocalAgreement(3),
    LocalAgreement(2, compared_tokens=2),
    LocalAgreement(2, held_words=1),
    LocalAgreement(2, compared_tokens=2, held_words=2),
    SharedPrefix(1),
    SharedPrefix(3),
    WaitK(2),
    WaitK(2, detection="adaptive", inclusive=True, end_while_reading="commit"),
    HoldN(2),
    StridedWaitK(2, 300),
    StridedWaitK(2, None, 1, catch_up=-0.4),
    StridedWaitK(2, None, 2, catch_up=1.5),
    FrameSchedule(100, 40, 2),
    FrameSchedule(40, 40, 1, max_length_ratio=3.0),
    Transducer(),
    Offline(),
]
STATE_COUNT = 6


@dataclass(frozen=True)
class SeenSegment:
    """What the decoder makes of one more segment."""

    duration_ms: int
    tokens: list[Token]
    ended: bool
    others: list[list[int]]
    word_count: int


ROWS = [
    *(tuple(float(i == place) for i in range(STATE_COUNT)) for place in range(STATE_COUNT)),
    (1 / STATE_COUNT,) * STATE_COUNT,
    (0.5, 0.0, 0.2, 0.0, 0.3, 0.0),
]
# One draw a token: hypothesis takes its time for each.
TOKENS = [
    make_token(token_id, starts=starts, attention=row)
    for token_id in (4, 5)
    for starts in (True, False)
    for row in ROWS
]
SEGMENTS = st.lists(
    st.builds(
        SeenSegment,
        st.integers(100, 2000),
        st.lists(st.sampled_from(TOKENS), max_size=6),
        st.booleans(),
        st.lists(st.sampled_from([[], [4], [4, 4, 5], [5, 4], [4, 5, 5, 4]]), max_size=2),
        st.integers(0, 4),
    ),
    max_size=5,
)


def each_policy(test):
    """Run a property for each policy, on fewer examples: there are many policies."""
    test = settings(max_examples=12, deadline=None)(test)
    names = [f"{type(p).__name__}-{i}" for i, p in enumerate(PARAMETERS)]
    return pytest.mark.parametrize("parameters", PARAMETERS, ids=names)(test)


class RandomUtterance:
    """Tells a policy of segment after segment, and keeps what it commits."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        self.heard = Heard(0.0, STATE_COUNT)
        self.hypothesis: Hypothesis | None = None

    def hear(self, segment: SeenSegment) -> None:
        self.heard = Heard(
            self.heard.duration_ms + segment.duration_ms,
            STATE_COUNT,
            self.heard.complete_word_count + segment.word_count,
            has_partial_word=bool(segment.duration_ms % 2),
            committed_token_count=len(self.committed),
        )
        ids = [token.token_id for token in segment.tokens]
        end = make_token(2, attention=[0.0] * STATE_COUNT) if segment.ended else None
        self.hypothesis = Hypothesis(
            tuple(self.committed), segment.tokens, end, [ids, *segment.others]
        )

    def decide(self, policy: DecisionPolicy) -> Decision:
        """Ask the policy about the whole hypothesis, and commit what it says."""
        decision = Decision(0)
        if self.hypothesis is not None and policy.wants_hypothesis(self.heard):
            decision = policy.decide(self.heard, self.hypothesis)
            new = self.hypothesis.tokens[: decision.new_token_count]
            self.committed += [token.token_id for token in new]
        return decision
