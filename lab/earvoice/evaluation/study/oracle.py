"""The earliest a policy could have spoken: when the model's final words were there for good.

Every beginning is translated without a forced prefix. A word of the last translation is released by
the first segment from which every translation begins with all words up to it. A policy that writes
this text and is earlier has guessed what a later revision contradicts; what another one loses
against it is its headroom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, groupby

from earvoice.client.policy import Offline
from earvoice.decoder.model import TokenTable
from earvoice.evaluation.clock import released_together
from earvoice.evaluation.replay.hypothesis_file import Request
from earvoice.evaluation.replay.replay_run import OpenedInput, ReplayRun
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run.translated_recording import TranslatedRecording
from earvoice.evaluation.study.partial_hypothesis import find_partial_hypotheses
from earvoice.evaluation.text_unit import Unit, split_text


async def translate_by_oracle(
    run: ReplayRun, opened: OpenedInput, segment_ms: int
) -> TranslatedRecording:
    """Return the offline translation of an input, its words as early as they were stable.

    It has no computation: there is no policy that could be timed.

    Raises:
        RecordingError: a boundary of these segments was not recorded.
    """
    offline, _ = await run.translate_opened(opened, ReplaySetting(Offline(), segment_ms))
    if not offline.units:
        return offline
    recorded = opened.recorded
    final, _ = opened.table.revision(recorded.sample_count, final=True)
    found, _ = await opened.source.continuation(Request(final, (), 1, forbid_end=False), ())
    tokens = found.tokens[: len(found.tokens) - found.ended]
    partial = await find_partial_hypotheses(opened, segment_ms, len(tokens))
    agreed = [
        agreed_count(one.found.tokens, tokens, run.tokens) if one.found else 0 for one in partial
    ]
    ends_ms = [one.end_ms for one in partial]
    stable_ms = stable_from(agreed, ends_ms, len(tokens), recorded.duration_ms)
    last_tokens = [end - 1 for end in unit_ends(tokens, run.tokens, offline.unit)]
    units = tuple(
        replace(unit, delay_ms=stable_ms[last])
        for unit, last in zip(offline.units, last_tokens, strict=False)
    )
    releases = groupby(unit.delay_ms for unit in units)
    segments = [released_together(end_ms, 0.0, len(list(own))) for end_ms, own in releases]
    if segments[-1].end_ms < recorded.duration_ms:
        segments.append(released_together(recorded.duration_ms, 0.0, 0))
    return replace(offline, units=units, segments=tuple(segments))


def stable_from(
    agreed: Sequence[int], ends_ms: Sequence[float], token_count: int, final_ms: float
) -> list[float]:
    """Return for each token the end of the segment from which it stands.

    Args:
        agreed: of each segment but the last, how many first tokens are those of the last.
        ends_ms: of each of these segments.
        token_count: tokens of the last translation.
        final_ms: end of the audio.
    """
    # From each segment on, at least so many tokens stand.
    standing = list(accumulate(reversed(agreed), min))[::-1]
    segments = list(zip(ends_ms, standing, strict=True))
    return [
        next((end_ms for end_ms, count in segments if count > place), final_ms)
        for place in range(token_count)
    ]


def agreed_count(hypothesis: Sequence[int], final: Sequence[int], table: TokenTable) -> int:
    """Return how many first tokens of the final text a hypothesis has, in words that end alike.

    A hypothesis that begins with the pieces of "Haus" but goes on to "Hauses" has another word.
    """
    count = shared_count(hypothesis, final)
    if count == len(hypothesis) or hypothesis[count] == table.end_token:
        return count
    while count and not table.starts_word[hypothesis[count]]:
        count -= 1
    return count


def shared_count(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many first tokens two rows share."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(first), len(second)))


def unit_ends(tokens: Sequence[int], table: TokenTable, unit: Unit) -> list[int]:
    """Return for each unit of a text how many tokens write it and all before."""
    starts = [place for place, token in enumerate(tokens) if table.starts_word[token] or not place]
    ends = [*starts[1:], len(tokens)]
    return [
        end
        for start, end in zip(starts, ends, strict=True)
        for _ in split_text(text_of(tokens[start:end], table), unit)
    ]


def text_of(tokens: Sequence[int], table: TokenTable) -> str:
    """Return what the tokens of a word write."""
    return b"".join(table.texts[token] for token in tokens).decode("utf8", "replace")
