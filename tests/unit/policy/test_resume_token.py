"""Resume tokens: short enough for any session, and taken from nobody who has no right to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies import POLICIES, HoldN, LocalAgreement
from earvoice.policies.base import Snapshot, Token
from earvoice.policies.registry import with_policy
from earvoice.policy.endpoints import SegmentGrid
from earvoice.policy.event import (
    SegmentWorked,
    SessionSnapshot,
    SessionTotals,
)
from earvoice.policy.resume import TOKEN_LIMIT_BYTES, ResumeTokens, TokenOwner
from earvoice.policy.settings import PolicySettings, parse_keys
from earvoice.policy.translation import MAX_HYPOTHESIS_TOKENS
from earvoice.policy.utterance import UtteranceState
from earvoice.policy.words import CommitTime, StageTimings, Word
from earvoice.runtime.errors import InternalError, InvalidResumeTokenError, ModelNotFoundError
from tests.unit.policy.running import MODEL, OPTIONS, through_token, with_options

OWNER = TokenOwner("anna", MODEL, "s1", "00-" + "a" * 32 + "-" + "b" * 16 + "-01")
LONG_AGO_SAMPLES = 48_000 * 3600 * 24
LARGEST_TOKEN_ID = 300_000


def tokens_at(unix_s: float, *keys: bytes) -> ResumeTokens:
    """Those whose tokens are good for a minute."""
    return ResumeTokens(keys or (b"k" * 32,), 60.0, lambda: unix_s, lambda: 0.0)


def refusal_of(
    token: bytes, tokens: ResumeTokens, tenant: str = "anna", find=lambda _: MODEL
) -> str:
    """Why a token is not taken."""
    with pytest.raises(InvalidResumeTokenError) as caught:
        tokens.take(token, tenant, find)
    assert "resume_token" in caught.value.message
    return caught.value.metadata["cause"]


def longest_session(committed_count: int, held_text: bytes) -> SessionSnapshot:
    """A session of a day, in an utterance whose hypothesis is as long as any may be."""
    ids = [LARGEST_TOKEN_ID - index for index in range(MAX_HYPOTHESIS_TOKENS)]
    start_sample = LONG_AGO_SAMPLES
    stages = StageTimings(*[1234.56789 + index for index in range(11)])
    committed = CommitTime(9e7, 9e7, stages, 90)
    utterance = UtteranceState(
        index=9000,
        begin_sample=start_sample - 10**7,
        start_sample=start_sample,
        segment_index=200,
        kept=tuple(Token(i, b"x.", True, ()) for i in ids[:committed_count]),
        draft=tuple(ids[committed_count:]),
        word_end_samples=tuple(start_sample + 8000 * n for n in range(committed_count)),
        written_word_count=10**5,
        written_token_count=10**5,
        spoken_for_sample=start_sample + 10**6,
        held=Word(held_text, True, 9000, start_sample, start_sample + 9, committed),
        memory={"newest": ids, "shared": [committed_count] * 62},
    )
    told = tuple(ids), committed_count, 9
    worked = SegmentWorked(9000, 200, LONG_AGO_SAMPLES, 1e5, 1e5, 50, 9, *told)
    return SessionSnapshot(
        with_options(policy=LocalAgreement(64), target_lag_ms=2000),
        utterance,
        SegmentGrid(8000, 800, 800, LONG_AGO_SAMPLES, 199),
        2345.678,
        LONG_AGO_SAMPLES,
        9e7,
        -9e6,
        SessionTotals(10**9, 10**6, 10**6, 9000, 10**6, 10**6, 1e9, {"loop": 999, "length": 9}, 9),
        worked,
    )


@given(st.integers(0, MAX_HYPOTHESIS_TOKENS), st.binary(max_size=100))
def test_the_longest_session_has_a_short_token(committed_count: int, held_text: bytes):
    """4 KiB hold the longest utterance, sixty hypotheses of the past and what is held back."""
    snapshot = longest_session(committed_count, held_text)
    token = tokens_at(1e9).make(snapshot, 10**9, OWNER)
    assert 0 < len(token) <= TOKEN_LIMIT_BYTES
    resumed, *rest = tokens_at(1e9).take(token, "anna", lambda _: MODEL)
    assert rest == [10**9, OWNER]
    was, now = snapshot.utterance, resumed.utterance
    assert replace(now, kept=(), held=None) == replace(was, kept=(), held=None)
    assert [(t.token_id, t.starts_word) for t in now.kept] == [
        (t.token_id, t.starts_word) for t in was.kept
    ]
    assert now.held.utf8 == held_text
    assert resumed.segment == snapshot.segment
    assert resumed.totals == snapshot.totals


def test_what_does_not_fit_gives_no_token():
    """A word without end is no reason to fail: it cannot be resumed until it has ended."""
    assert tokens_at(0).make(longest_session(400, b"x" * 4096), 1, OWNER) == b""


def test_a_token_survives_other_clocks():
    """The first sample existed when it did, whatever a replica's clock shows."""
    resumed = through_token(replace(SessionSnapshot(OPTIONS), origin_s=990.0))
    # 10 s ago here; there it is a second later.
    assert resumed.origin_s == pytest.approx(77.0 - 11.0)


def test_clocks_an_hour_apart_expire_no_token():
    """As the settings come: a replica whose clock has jumped makes no session's last token."""
    lifetime_s = PolicySettings().resume_lifetime_ms / 1000
    behind, right = (
        ResumeTokens([b"k" * 32], lifetime_s, lambda s=s: s) for s in (6400.0, 10_000.0)
    )
    for maker, taker in ((behind, right), (right, behind)):
        token = maker.make(SessionSnapshot(OPTIONS), 1, OWNER)
        assert taker.take(token, "anna", lambda _: MODEL)[1] == 1


@given(st.binary(max_size=200), st.data())
def test_no_forged_token_is_taken(noise: bytes, data):
    """Neither noise nor a token with one bit changed."""
    tokens = tokens_at(0)
    assert refusal_of(noise, tokens) == "forged"
    token = bytearray(tokens.make(SessionSnapshot(OPTIONS), 1, OWNER))
    token[data.draw(st.integers(0, len(token) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert refusal_of(bytes(token), tokens) == "forged"


def test_a_token_that_is_too_long_is_not_looked_at():
    """Whatever it is, it is none of ours."""
    assert refusal_of(bytes(TOKEN_LIMIT_BYTES + 1), tokens_at(0)) == "forged"


def test_a_token_expires():
    """It is good for as long as the settings say."""
    token = tokens_at(1000.0).make(SessionSnapshot(OPTIONS), 1, OWNER)
    assert tokens_at(1059.0).take(token, "anna", lambda _: MODEL)[1] == 1
    assert refusal_of(token, tokens_at(1061.0)) == "expired"


def test_a_token_is_its_tenant_s_own():
    """Another one may have found it."""
    token = tokens_at(0).make(SessionSnapshot(OPTIONS), 1, OWNER)
    assert refusal_of(token, tokens_at(0), tenant="bert") == "tenant"


def test_a_token_belongs_to_a_model():
    """Another model's tokens mean something else."""

    def find(model_hash: str):
        raise ModelNotFoundError(model_hash)

    token = tokens_at(0).make(SessionSnapshot(OPTIONS), 1, OWNER)
    assert refusal_of(token, tokens_at(0), find=find) == "model"


def test_a_memory_that_is_not_understood_is_refused():
    """A later version may remember something else; that is no bug of this one."""
    utterance = UtteranceState(0, 0, 0, segment_index=1, memory={"seen": 3})
    token = tokens_at(0).make(SessionSnapshot(OPTIONS, utterance), 1, OWNER)
    assert refusal_of(token, tokens_at(0)) == "version"


def test_a_token_of_a_policy_that_is_not_served_is_another_version_s():
    """So its client tries the other replicas, one of which may know it."""
    policies = with_policy(POLICIES, Remembering())
    elsewhere = ResumeTokens([b"k" * 32], 60.0, lambda: 0.0, lambda: 0.0, policies)
    options = with_options(policy=Remembering(), attention_layer=MODEL.default_attention_layer)
    token = elsewhere.make(SessionSnapshot(options), 1, OWNER)
    assert elsewhere.take(token, "anna", lambda _: MODEL)
    assert refusal_of(token, tokens_at(0)) == "version"


@dataclass(frozen=True)
class Remembering(HoldN):
    """An operator's own policy, with any memory."""

    name = "remembering"
    memory: dict[str, object] = field(init=False, compare=False, default_factory=dict)

    def restore(self, snapshot: Snapshot) -> None:
        self.memory.update(snapshot)


def remembered(memory: Snapshot) -> Snapshot:
    """What a token keeps of it."""
    policies = with_policy(POLICIES, Remembering())
    tokens = ResumeTokens([b"k" * 32], 60.0, lambda: 0.0, lambda: 0.0, policies)
    utterance = UtteranceState(segment_index=1, memory=memory)
    options = with_options(policy=Remembering(), attention_layer=MODEL.default_attention_layer)
    token = tokens.make(SessionSnapshot(options, utterance), 1, OWNER)
    return tokens.take(token, "anna", lambda _: MODEL)[0].utterance.memory


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=9), JSON, max_size=3))
def test_a_policy_may_remember_any_json(memory):
    """Which its own types come back from, too: 1 is neither 1.0 nor true."""
    assert json.dumps(remembered(memory), sort_keys=True) == json.dumps(memory, sort_keys=True)


@pytest.mark.parametrize("value", [{1, 2}, [object()], b"x"])
def test_a_memory_that_is_not_json_is_told(value):
    """Whose it is, and what may be."""
    message = r"^policy\.remembering: snapshot returned .*; allowed: plain JSON values"
    with pytest.raises(InternalError, match=message):
        remembered({"seen": value})


def test_keys_can_be_changed_without_a_pause():
    """The first key signs; those after it are still taken, and no others."""
    old, new = b"a" * 32, b"b" * 32
    token = tokens_at(0, old).make(SessionSnapshot(OPTIONS), 1, OWNER)
    assert tokens_at(0, new, old).take(token, "anna", lambda _: MODEL)[1] == 1
    assert refusal_of(token, tokens_at(0, new)) == "forged"
    newest = tokens_at(0, new, old).make(SessionSnapshot(OPTIONS), 1, OWNER)
    assert tokens_at(0, new).take(newest, "anna", lambda _: MODEL)[1] == 1
    assert refusal_of(newest, tokens_at(0, old)) == "forged"


def test_keys_are_written_in_hex_or_base64():
    """What is neither, or too short, is named by its number and not shown."""
    assert parse_keys("61" * 32 + ", " + "YmJi" * 11) == [b"a" * 32, b"b" * 33]
    for text, why in (("secret!", "key 1 is neither"), ("61" * 32 + ",6161", "key 2 has 2 bytes")):
        with pytest.raises(ValueError, match=why) as caught:
            parse_keys(text)
        assert "secret" not in str(caught.value)
