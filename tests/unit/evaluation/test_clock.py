"""The clocks on a 60 s talk: 1 s segments that release two words each, as the reference has."""

from __future__ import annotations

import pytest

from earvoice.evaluation.instance import (
    TimedSegment,
    delays,
    released_together,
    segment_elapsed,
    simuleval_elapsed,
    true_elapsed,
)
from earvoice.evaluation.metrics import average_lagging, end_offset

TALK_MS = 60_000
WORDS = 120


def talk(computation_ms):
    return [released_together(1000 * n, computation_ms, 2) for n in range(1, 61)]


def lagging(times_ms):
    return average_lagging(times_ms, TALK_MS, WORDS)


def live_run(computation_ms):
    """Decide all that has arrived, 1 s at least, whenever the machine is free.

    Returns the audio received and the time on the wall of each word: one for each 500 ms.
    """
    received, left, segment_count = [], [], 0
    taken_ms = finished_ms = 0
    while taken_ms < TALK_MS:
        start_ms = max(finished_ms, min(TALK_MS, taken_ms + 1000))
        taken_ms = min(TALK_MS, start_ms)
        finished_ms = start_ms + computation_ms
        segment_count += 1
        new_words = taken_ms // 500 - len(received)
        received += [taken_ms] * new_words
        left += [finished_ms] * new_words
    return received, left, segment_count


@pytest.mark.parametrize(
    ("computation_ms", "true_ms", "simuleval_ms"), [(300, 1052, 7879), (1300, 8729, 18636)]
)
def test_replayed_clocks(computation_ms, true_ms, simuleval_ms):
    """Computation that overlaps with audio costs little until the machine falls behind."""
    segments = talk(computation_ms)
    assert lagging(delays(segments)) == pytest.approx(752.1, abs=0.05)
    assert lagging(true_elapsed(segments)) == pytest.approx(true_ms, abs=0.5)
    assert lagging(simuleval_elapsed(segments)) == pytest.approx(simuleval_ms, abs=1)


def test_the_segment_clock_hides_a_backlog():
    """2052 ms, while the last word is 19 s late."""
    segments = talk(1300)
    assert lagging(segment_elapsed(segments)) == pytest.approx(2052.1, abs=0.05)
    assert end_offset(true_elapsed(segments), TALK_MS) == 19_000


def test_a_live_run_merges_and_keeps_up():
    """1.3 s a segment of any length: 47 segments, and the last word 2.1 s late."""
    received, left, segment_count = live_run(1300)
    assert (len(received), segment_count) == (WORDS, 47)
    assert lagging(received) == pytest.approx(1089, abs=0.5)
    assert lagging(left) == pytest.approx(2400, abs=0.5)
    assert end_offset(left, TALK_MS) == 2100


def test_a_word_leaves_inside_its_segment():
    """On the true clock a unit has its own offset; SimulEval waits for the whole segment."""
    segments = [TimedSegment(1000, 1500, (200, 700)), TimedSegment(2000, 100, (50,))]
    assert true_elapsed(segments) == (1200, 1700, 2550)
    assert simuleval_elapsed(segments) == (2500, 2500, 3600)
    assert delays(segments) == (1000, 1000, 2000)


def test_segments_without_output_delay_what_follows():
    """Computation counts whether words come of it or not."""
    segments = [released_together(1000, 2500, 0), released_together(2000, 100, 1)]
    assert true_elapsed(segments) == (3600,)
    assert simuleval_elapsed(segments) == (4600,)
