"""Changes in mid-stream: where they begin, what goes on, and that they keep their place."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest
from google.protobuf import duration_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from earvoice.api.v1 import decision_policy_pb2 as policy_pb
from earvoice.api.v1 import speech_translation_service_pb2 as pb
from earvoice.policies import Edatt, FrameSchedule, HoldN, LocalAgreement, SharedPrefix, WaitK
from earvoice.policy.audio_buffer import AudioBuffer
from earvoice.policy.event import Event, SegmentWorked, UtteranceEnded
from earvoice.policy.session import MAX_WAITING_UPDATES, TranslationSession
from earvoice.policy.stream_options import Endpointing
from earvoice.policy.wire.config import updated_options
from earvoice.runtime.errors import InvalidFieldError
from tests.fakes import ScriptedDecoder, ScriptedEncoder, make_token
from tests.unit.policy.running import OPTIONS, items_of, run_session, seconds, with_options
from tests.unit.policy.test_config import MODEL

POLICIES = [
    Edatt(0.3, 2, 1),
    LocalAgreement(2),
    HoldN(1),
    WaitK(2),
    WaitK(2, detection="adaptive"),
]


def segment_ends(events) -> list[int]:
    return [event.end_sample for event in events if isinstance(event, SegmentWorked)]


def milliseconds(count: int) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromMilliseconds(count)
    return duration


def policy(**choice) -> policy_pb.DecisionPolicy:
    return policy_pb.DecisionPolicy(**choice)


@pytest.mark.parametrize(("position", "ends"), [(6399, [8000, 12_000]), (6400, [6400, 10_400])])
def test_a_change_waits_for_the_end_of_a_segment_behind_it(position: int, ends: list[int]):
    """Segments that end where it came, or before, are decided as they were meant."""
    changes = [bytes(2 * position), with_options(segment_ms=500), bytes(2 * (12_000 - position))]
    assert segment_ends(run_session(changes))[:2] == ends


async def test_a_reader_waits_while_too_many_changes_are_on_their_way():
    """What a client sends without end is not kept without end."""
    audio = AudioBuffer(OPTIONS.audio_format, 10**9)

    async def emit(event: Event) -> None:
        """Nobody listens."""

    session = TranslationSession(
        OPTIONS, ScriptedEncoder(), ScriptedDecoder(), audio, emit, lambda: 0.0
    )
    for _ in range(MAX_WAITING_UPDATES):
        await audio.append(bytes(2), 0.0)
        await session.update(OPTIONS)
    await audio.append(bytes(2), 0.0)
    waiting = asyncio.create_task(session.update(OPTIONS))
    await asyncio.sleep(0)
    assert not waiting.done()
    await audio.end()
    await session.run()
    await waiting


def test_of_any_number_of_changes_at_one_place_the_last_counts():
    """Also before the first audio, for which the session waits: the reader must get to it."""
    changes = [replace(OPTIONS, segment_ms=300 + count) for count in range(200)]
    events = run_session([seconds(1.0), *changes, seconds(1.0)])
    # 6400 is the last boundary; of the steps of 499 ms only the second and the third fit.
    assert segment_ends(events) == [6400, 10_392, 14_384, 16_000]
    assert segment_ends(run_session([*changes, seconds(1.0)])) == [3992, 7984, 8000]


def test_segments_get_their_new_length_from_the_last_boundary_on():
    """1.6 s in segments of 0.8 s, then 0.5 s each; the rest is final."""
    messages = [seconds(1.6), replace(OPTIONS, segment_ms=500), seconds(1.7)]
    assert segment_ends(run_session(messages)) == [6400, 12_800, 16_800, 20_800, 24_800, 26_400]


def test_a_change_in_the_middle_of_a_segment_takes_it_along():
    """The running segment ends where the first of the new ones does behind the change."""
    messages = [seconds(1.5), replace(OPTIONS, segment_ms=300), seconds(0.9)]
    # 6400 is the last boundary; 8800 and 11_200 lie before the change at 12_000.
    assert segment_ends(run_session(messages)) == [6400, 13_600, 16_000, 18_400, 19_200]


def test_a_change_before_the_first_segment_keeps_the_initial_wait():
    """An utterance has its longer first segment, whatever the others' length."""
    options = with_options(initial_wait_ms=1000)
    messages = [seconds(0.1), replace(options, segment_ms=500), seconds(2.3)]
    assert segment_ends(run_session(messages, options)) == [12_000, 16_000, 19_200]


def test_a_schedule_that_comes_before_the_first_segment_waits_its_own_time():
    """Segments of the same length, but the first one longer."""
    messages = [seconds(0.1), with_options(segment_ms=800, initial_wait_ms=1200), seconds(3.2)]
    assert segment_ends(run_session(messages)) == [16_000, 22_400, 26_400]


def test_shorter_segments_need_no_further_audio_to_begin():
    """Whoever waits for the end of a long segment is woken by the change."""
    options = with_options(segment_ms=10_000)
    messages = [seconds(1.0), replace(options, segment_ms=500), seconds(0.5)]
    assert segment_ends(run_session(messages, options)) == [12_000, 12_000]


def test_a_change_after_the_last_audio_changes_no_boundary():
    """No segment ends behind it but the final one, which commits everything anyway."""
    messages = [seconds(1.0), replace(OPTIONS, segment_ms=200)]
    assert segment_ends(run_session(messages)) == [6400, 8000]


def test_a_merged_segment_with_a_change_in_it_is_decided_the_new_way():
    """It ends behind the change, so it is the first that the change holds for."""
    options = with_options(merges_segments=True, policy=HoldN(4))
    update = replace(options, policy=HoldN(0), segment_ms=500)
    messages = [seconds(1.0), update, seconds(1.3)]
    events = run_session(messages, options, late=True)
    segments = [event for event in events if isinstance(event, SegmentWorked)]
    assert [event.end_sample for event in segments] == [16_000, 18_400]
    assert {item.delay_samples for item in items_of(events)} == {16_000, 18_400}
    assert len([item for item in items_of(events) if item.delay_samples == 16_000]) == 7


def test_a_longer_segment_does_not_pass_the_longest_utterance():
    """An utterance is cut in time although its next boundary would lie behind."""
    messages = [seconds(19.5), replace(OPTIONS, segment_ms=10_000), seconds(19.5)]
    ended = [event for event in run_session(messages) if isinstance(event, UtteranceEnded)]
    assert all(event.end_sample - event.start_sample <= 20 * 8000 for event in ended)


def test_another_policy_goes_on_with_the_committed_text():
    """From Hold-4 to Hold-0: the prefix stays, the tail is released at the next segment."""
    slow = with_options(policy=HoldN(4))
    messages = [seconds(1.7), replace(slow, policy=HoldN(0)), seconds(0.8)]
    decoder = ScriptedDecoder()
    items = items_of(run_session(messages, slow, decoder=decoder))
    assert [item.text for item in items] == [f"w{10 + n}" for n in range(8)]
    assert [request.prefix for request in decoder.requests] == [
        (),
        (),
        tuple(range(10, 12)),
        tuple(range(10, 18)),
    ]


def test_the_same_policy_keeps_its_memory():
    """Wait-k knows how many words it has written when its k changes."""
    slow = with_options(policy=WaitK(3))
    messages = [seconds(4.0), replace(slow, policy=WaitK(2)), seconds(4.0)]
    plain = items_of(run_session([seconds(8.0)], slow))
    changed = items_of(run_session(messages, slow))
    before = [item.delay_samples for item in plain if item.delay_samples <= 32_000]
    assert [item.delay_samples for item in changed][: len(before)] == before
    at_next = [sum(i.delay_samples == 38_400 for i in items) for items in (plain, changed)]
    assert at_next[1] == at_next[0] + 1


def test_a_beam_is_asked_for_from_then_on():
    """A policy that reads the whole beam gets it with the first segment that it decides."""
    beam = replace(OPTIONS, policy=SharedPrefix(1), beam_size=5)
    decoder = ScriptedDecoder()
    items = items_of(run_session([seconds(1.6), beam, seconds(1.6)], decoder=decoder))
    assert [request.beam_size for request in decoder.requests] == [1, 1, 5, 5, 5]
    assert [request.all_hypotheses for request in decoder.requests] == [False] * 2 + [True] * 2 + [
        False
    ]
    assert [request.draft for request in decoder.requests][2:] == [()] * 3
    assert [item.text for item in items] == [f"w{10 + n}" for n in range(len(items))]


def unstable_word(number: int, states: int):
    changing = number >= states // 4 - 1
    token_id = 10 + (number * 7 + (states if changing else 0)) % 40
    place = min(number * 4 + 1, states - 1)
    return [make_token(token_id, attention=[float(i == place) for i in range(states)])]


@settings(max_examples=25, deadline=None)
@given(
    samples=st.integers(1, 50_000),
    changes=st.lists(
        st.tuples(
            st.integers(0, 50_000),
            st.sampled_from(POLICIES),
            st.sampled_from([100, 330, 800, 2100]),
        ),
        max_size=3,
    ),
    cuts=st.lists(st.integers(0, 50_000), max_size=10),
)
def test_the_text_does_not_depend_on_how_audio_is_cut_around_changes(samples, changes, cuts):
    """It is a function of the samples and of the changes' places among them."""
    start = with_options(endpointing=None)
    updates = [
        (min(place, samples), replace(start, policy=parameters, segment_ms=segment_ms))
        for place, parameters, segment_ms in sorted(changes, key=lambda change: change[0])
    ]

    def messages(borders: set[int]) -> list[object]:
        found: list[object] = []
        left = list(updates)
        for begin, end in itertools.pairwise(sorted(borders | {0, samples})):
            found += [options for place, options in left if place == begin]
            left = [update for update in left if update[0] > begin]
            found.append(bytes(2 * (end - begin)))
        return found + [options for _, options in left]

    def outcome(borders: set[int]):
        events = run_session(messages(borders), start, decoder=ScriptedDecoder(word=unstable_word))  # type: ignore[arg-type]
        items = [(item.text, item.delay_samples) for item in items_of(events)]
        return segment_ends(events), items

    places = {place for place, _ in updates}
    assert outcome(places | {cut for cut in cuts if cut < samples}) == outcome(places)


def test_what_an_update_leaves_unset_stays():
    """Only the fields that may change do, with what they entail."""
    changed = updated_options(OPTIONS, pb.StreamingUpdate(policy=policy(hold_n={"n": 3})), MODEL)
    assert changed == replace(OPTIONS, policy=HoldN(3), attention_layer=4)
    changed = updated_options(OPTIONS, pb.StreamingUpdate(beam_size=3), MODEL)
    assert changed == replace(OPTIONS, beam_size=3)
    update = pb.StreamingUpdate(segment_duration=milliseconds(1200))
    assert updated_options(OPTIONS, update, MODEL) == replace(OPTIONS, segment_ms=1200)


def test_a_policy_that_reads_the_beam_brings_one():
    """Five hypotheses where there was one, and those there are where there were more."""
    update = pb.StreamingUpdate(policy=policy(shared_prefix={}))
    assert updated_options(OPTIONS, update, MODEL).beam_size == 5
    assert updated_options(with_options(beam_size=3), update, MODEL).beam_size == 3


def test_a_schedule_brings_its_segments():
    """They follow from it."""
    schedule = policy(frame_schedule={"wait_frames": 100, "stride_frames": 10, "tokens": 1})
    changed = updated_options(OPTIONS, pb.StreamingUpdate(policy=schedule), MODEL)
    assert (changed.segment_ms, changed.initial_wait_ms) == (100, 900)


def test_a_schedule_takes_its_segments_with_it():
    """10 ms suit nobody else, and nobody could take its wait back."""
    start = with_options(policy=FrameSchedule(200, 1, 1), segment_ms=10, initial_wait_ms=1990)
    changed = updated_options(start, pb.StreamingUpdate(policy=policy(hold_n={})), MODEL)
    assert (changed.segment_ms, changed.initial_wait_ms) == (MODEL.default_segment_ms, 0)
    faster = policy(frame_schedule={"wait_frames": 50, "stride_frames": 10, "tokens": 1})
    changed = updated_options(start, pb.StreamingUpdate(policy=faster), MODEL)
    assert (changed.segment_ms, changed.initial_wait_ms) == (100, 400)


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (pb.StreamingUpdate(), "update = 'nothing'"),
        (pb.StreamingUpdate(beam_size=17), "beam_size = 17.*1 to 16"),
        (pb.StreamingUpdate(beam_size=-1), "beam_size = -1.*1 to 16"),
        (
            pb.StreamingUpdate(beam_size=1, policy=policy(shared_prefix={})),
            "beam_size = 1 .*2 to 16 with policy.shared_prefix",
        ),
        (pb.StreamingUpdate(segment_duration=milliseconds(100)), "segment_duration = '100 ms'"),
        (pb.StreamingUpdate(policy=policy(edatt={"alpha": 2})), "policy.edatt.alpha = 2"),
        (
            pb.StreamingUpdate(
                segment_duration=milliseconds(800),
                policy=policy(frame_schedule={"wait_frames": 50, "stride_frames": 20, "tokens": 1}),
            ),
            "segment_duration = '800 ms'.*200 ms, which policy.frame_schedule dictates",
        ),
    ],
)
def test_a_bad_update_names_its_field(update: pb.StreamingUpdate, message: str):
    """Field, value and what is allowed, as for a config."""
    with pytest.raises(InvalidFieldError, match=message):
        updated_options(OPTIONS, update, MODEL)


OFFLINE = policy(offline={})
SLOW = milliseconds(8000)
BRIEF = {"endpointing": Endpointing(600, 5000)}


@pytest.mark.parametrize(
    ("chosen", "update", "field", "message"),
    [
        ({"history_selection": 5}, {"policy": OFFLINE}, "policy", "history_selection = 'set'"),
        ({"target_lag_ms": 2000}, {"policy": OFFLINE}, "policy", "target_lag = '2000 ms'"),
        (BRIEF, {"segment_duration": SLOW}, "segment_duration", "max_utterance = '5000 ms'"),
        (BRIEF, {"segment_duration": SLOW, "policy": OFFLINE}, "segment_duration", "8000 ms .*or"),
    ],
)
def test_a_clash_with_the_config_names_the_update_s_field(chosen, update, field, message):
    """And tells of the other, which an update cannot have."""
    with pytest.raises(InvalidFieldError, match=f"^{field} = .*because .*{message}") as caught:
        updated_options(with_options(**chosen), pb.StreamingUpdate(**update), MODEL)
    assert caught.value.metadata["field"] == field
