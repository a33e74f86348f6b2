"""Segments end on the grid; utterances at pauses, or cut at the best place before they are long."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from earvoice.policies.attention import Edatt
from earvoice.policy.endpoints import Endpoint, Endpointer, Segment, SegmentGrid
from earvoice.policy.evidence import Evidence, VoiceActivity
from earvoice.policy.stream_options import StreamOptions
from earvoice.runtime.audio_format import AudioFormat

GRID = SegmentGrid(8000, 800, 0)

RATES = st.sampled_from([8000, 11_025, 16_000, 44_100, 48_000])


def due(grid: SegmentGrid, received: int, last: int = 0, *, ended=False, merge=False, limit=None):
    return grid.next_segment(last, received, ended=ended, merge=merge, limit_sample=limit)


def test_a_segment_is_due_when_its_last_sample_has_come():
    """One sample less and nothing is due."""
    assert due(GRID, 6399) is None
    assert due(GRID, 6400) == Segment(1, 6400, 6400)


def test_the_first_segment_is_longer_by_the_initial_wait():
    """Later boundaries move with it."""
    grid = SegmentGrid(8000, 800, 2000)
    assert [grid.boundary(index) for index in (1, 2)] == [22_400, 28_800]


def test_an_utterance_s_grid_counts_from_its_start():
    """Positions stay those of the session."""
    grid = SegmentGrid(8000, 800, 0, anchor_sample=100)
    assert due(grid, 6499) is None
    assert due(grid, 6500) == Segment(1, 6500, 6500)


def test_merge_goes_to_the_newest_boundary():
    """Two boundaries are skipped, and the grid end stays that of the first."""
    assert due(GRID, 20_000, merge=True) == Segment(3, 19_200, 6400, merged_count=2)
    assert due(GRID, 20_000, merge=False) == Segment(1, 6400, 6400)


def test_a_full_segment_is_never_final():
    """Audio that ends on a boundary gives a full segment, then a final one without samples."""
    assert due(GRID, 6400, ended=True) == Segment(1, 6400, 6400)
    assert due(GRID, 6400, last=1, ended=True) == Segment(2, 6400, 6400, final=True)


def test_merge_does_not_pass_the_longest_utterance():
    """However late the machine, the utterance is cut in time."""
    segment = due(GRID, 80_000, merge=True, limit=16_000)
    assert segment is not None
    assert (segment.index, segment.end_sample) == (2, 12_800)
    assert GRID.boundary(2) <= 16_000 < GRID.boundary(3)


def test_no_segment_passes_the_limit():
    """A longer segment, chosen in mid-stream, is cut short there."""
    assert due(GRID, 16_000, last=2, limit=16_000) == Segment(3, 16_000, 16_000)


def test_another_duration_goes_on_from_the_boundary_decided_last():
    """After two segments of 800 ms come those of 500 ms."""
    moved = GRID.moved(500, 0, last_index=2, past_sample=12_800)
    assert [moved.boundary(index) for index in (2, 3, 4)] == [12_800, 16_800, 20_800]


def test_boundaries_before_the_change_are_left_out():
    """The change came 700 ms after the last boundary: the first new segment ends after 1000 ms."""
    moved = GRID.moved(500, 0, last_index=2, past_sample=12_800 + 5600)
    assert [moved.boundary(index) for index in (2, 3, 4)] == [12_800, 20_800, 24_800]


@given(
    rate=RATES,
    segment_ms=st.integers(10, 3000),
    wait_ms=st.integers(0, 3000),
    start=st.integers(0, 100_000),
    received=st.integers(0, 2_000_000),
)
def test_boundaries_are_found_exactly(rate, segment_ms, wait_ms, start, received):
    """The newest boundary is within the audio and the next one is not, also when rounded."""
    grid = SegmentGrid(rate, segment_ms, wait_ms, start)
    segment = due(grid, start + received, merge=True)
    index = segment.index if segment else 0
    assert grid.boundary(index) <= start + received < grid.boundary(index + 1)


@given(
    rate=RATES,
    segments_ms=st.tuples(st.integers(10, 3000), st.integers(10, 3000)),
    last_index=st.integers(0, 20),
    share=st.floats(0, 0.999),
)
def test_a_moved_grid_begins_behind_the_change(rate, segments_ms, last_index, share):
    """Its first boundary lies past the change, by one of its segments at most."""
    old_ms, new_ms = segments_ms
    grid = SegmentGrid(rate, old_ms, 0)
    begin, end = grid.boundary(last_index), grid.boundary(last_index + 1)
    change = begin + int((end - begin) * share)
    moved = grid.moved(new_ms, 0, last_index, change)
    first = moved.boundary(last_index + 1)
    assert moved.boundary(last_index) == begin
    assert change < first <= change + new_ms * rate // 1000 + 1


SECOND = 8000
ENDPOINTER = Endpointer(SECOND, pause_ms=600)


def evidence(voice: VoiceActivity, labels=(), spans=()) -> Evidence:
    return Evidence(labels, 99, spans, 3, False, 6, 100, voice)


@pytest.mark.parametrize(
    ("history", "heard_ms", "limit_ms"),
    [(None, None, None), (None, 30_000, 30_000), (8, None, 40_000), (8, 30_000, 30_000)],
)
def test_without_endpointing_an_utterance_is_as_long_as_the_model_hears(
    history, heard_ms, limit_ms
):
    options = StreamOptions(
        AudioFormat("linear16", 16_000, 1),
        "de",
        Edatt(alpha=0.5, lambda_states=2, attention_layer=1),
        attention_layer=4,
        segment_ms=1000,
        endpointing=None,
        history_selection=history,
        longest_utterance_ms=heard_ms,
    )
    limit_sample = Endpointer.of(options).limit_sample(5)
    assert limit_sample == (None if limit_ms is None else 5 + limit_ms * 16)


def test_a_pause_ends_the_utterance_in_its_middle():
    """600 ms of quiet after 2 s of speech: the utterance ends 300 ms into it."""
    heard = evidence(VoiceActivity(True, 2 * SECOND))
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4799, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4800, 0) == Endpoint(
        2 * SECOND + 2400, "pause"
    )


def test_labels_hold_a_pause_open():
    """Words that only the CTC head hears are not cut off."""
    spans = [2 * SECOND, int(2.5 * SECOND), 4 * SECOND]
    heard = evidence(VoiceActivity(True, 2 * SECOND), labels=(1, 2, 99), spans=spans)
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 4800, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, int(2.5 * SECOND) + 4800, 0) == Endpoint(
        int(2.5 * SECOND) + 2400, "pause"
    )


def test_labels_hold_a_pause_open_no_longer_than_a_pause():
    """A network that hears words in noise without end does not stop utterances from ending."""
    spans = [2 * SECOND, 4 * SECOND]
    heard = evidence(VoiceActivity(True, 2 * SECOND), labels=(1, 2), spans=spans)
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 9599, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 2 * SECOND + 9600, 0) == Endpoint(
        2 * SECOND + 7200, "pause"
    )


def test_a_pause_that_is_over_ends_the_utterance_too():
    """Segments are longer than pauses: most pauses are over when their segment has come."""
    pauses = [(SECOND, SECOND + 4799), (2 * SECOND, 2 * SECOND + 4800)]
    heard = evidence(VoiceActivity(True, 4 * SECOND, pauses))
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 0) == Endpoint(2 * SECOND + 2400, "pause")


def test_a_pause_that_did_not_end_the_utterance_does_not_do_so_later():
    """It was within a sentence, which has ended since."""
    pauses = [(SECOND, SECOND + 4800)]
    heard = evidence(VoiceActivity(True, 4 * SECOND, pauses))
    patient = Endpointer(SECOND, pause_ms=600, in_sentence_ms=1200)
    judged = SECOND + 4799
    assert patient.find_pause(heard, 0, 2 * SECOND, 0, judged, in_sentence=True) is None
    assert patient.find_pause(heard, 0, 4 * SECOND, 0, 2 * SECOND) is None
    assert patient.find_pause(heard, 0, 2 * SECOND, 0, judged) == Endpoint(SECOND + 2400, "pause")


def test_a_pause_within_a_sentence_ends_it_when_it_is_long():
    """The next utterance begins with as little silence as after any pause."""
    heard = evidence(VoiceActivity(True, 2 * SECOND))
    patient = Endpointer(SECOND, pause_ms=600, in_sentence_ms=1200)
    judged, end = 2 * SECOND + 4800, 2 * SECOND + 9600
    assert patient.find_pause(heard, 0, end - 1, 0, judged, in_sentence=True) is None
    assert patient.find_pause(heard, 0, end, 0, judged, in_sentence=True) == Endpoint(
        end - 2400, "pause"
    )


def test_a_pause_before_committed_words_does_not_end_the_utterance():
    """Audio that committed words attend to would be translated twice; inside the pause is fine."""
    pauses = [(2 * SECOND, 2 * SECOND + 4800)]
    heard = evidence(VoiceActivity(True, 4 * SECOND, pauses))
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 2 * SECOND + 4000) == Endpoint(
        2 * SECOND + 4000, "pause"
    )
    assert ENDPOINTER.find_pause(heard, 0, 4 * SECOND, 2 * SECOND + 4801) is None


def test_silence_alone_ends_after_five_seconds_and_keeps_its_tail():
    """The next utterance keeps half a second: speech may have just begun in it."""
    heard = evidence(VoiceActivity(False))
    assert ENDPOINTER.find_pause(heard, 0, 5 * SECOND - 1, 0) is None
    assert ENDPOINTER.find_pause(heard, 0, 5 * SECOND, 0) == Endpoint(36_000, "pause")
    # Without guards, words may be committed there all the same.
    assert ENDPOINTER.find_pause(heard, 0, 5 * SECOND, 39_000) == Endpoint(39_000, "pause")


def test_a_forced_cut_takes_the_longest_pause_of_the_second_half():
    """A longer pause in the first half does not count."""
    pauses = [
        (1 * SECOND, 3 * SECOND),
        (12 * SECOND, 12 * SECOND + 1600),
        (15 * SECOND, 15 * SECOND + 800),
    ]
    heard = evidence(VoiceActivity(True, 20 * SECOND, pauses))
    cut = ENDPOINTER.cut(heard, 0, 20 * SECOND, spoken_for_sample=0)
    assert cut == Endpoint(12 * SECOND + 800, "forced")


def test_a_forced_cut_never_goes_back_before_committed_words():
    """Audio that committed words attend to would be translated twice."""
    pauses = [(12 * SECOND, 12 * SECOND + 1600), (15 * SECOND, 15 * SECOND + 800)]
    heard = evidence(VoiceActivity(True, 20 * SECOND, pauses))
    cut = ENDPOINTER.cut(heard, 0, 20 * SECOND, spoken_for_sample=14 * SECOND)
    assert cut.end_sample == 15 * SECOND + 400


RUN_SPANS = [11 * SECOND + place for place in (0, 300, 600, 1000, 1400, 9 * SECOND)]
"""Runs of blanks in states that are not compressed: one of two states, a shorter one of one."""


def test_without_a_pause_the_longest_run_of_blanks_is_cut():
    """And without blanks the utterance's end."""
    spans = [11 * SECOND, 11 * SECOND + 400, 12 * SECOND, 20 * SECOND]
    voice = VoiceActivity(True, 20 * SECOND)
    heard = evidence(voice, labels=[1, 99, 2, 3], spans=spans)
    assert ENDPOINTER.cut(heard, 0, 20 * SECOND, 0).end_sample == 11 * SECOND + 200
    two_runs = replace(heard, ctc_labels=[1, 99, 99, 2, 99, 3], span_end_samples=RUN_SPANS)
    assert ENDPOINTER.cut(two_runs, 0, 20 * SECOND, 0).end_sample == 11 * SECOND + 300
    assert (
        ENDPOINTER.cut(replace(heard, ctc_labels=[1, 2, 3, 4]), 0, 20 * SECOND, 0).end_sample
        == 20 * SECOND
    )
