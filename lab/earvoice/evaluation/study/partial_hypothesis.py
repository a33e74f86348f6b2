"""What the model makes of an input's beginnings: a whole hypothesis of each, nothing forced."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from earvoice.evaluation.recording import Grid
from earvoice.evaluation.replay.continuation import Continuation
from earvoice.evaluation.replay.hypothesis_file import Request
from earvoice.evaluation.replay.replay_run import OpenedInput


@dataclass(frozen=True)
class PartialHypothesis:
    """A hypothesis of a beginning.

    Attributes:
        end_ms: where the beginning ends.
        found: the hypothesis; None where there is no encoder state yet.
    """

    end_ms: float
    found: Continuation | None


async def find_partial_hypotheses(
    opened: OpenedInput, segment_ms: int, most_tokens: int
) -> list[PartialHypothesis]:
    """Return a hypothesis for each full segment of an input but the last.

    Args:
        opened: the input.
        segment_ms: duration of a segment.
        most_tokens: longer ones are cut.

    Raises:
        RecordingError: a boundary of these segments was not recorded.
    """
    rate_hertz, table = opened.recorded.sample_rate_hertz, opened.table

    async def find(end: int) -> PartialHypothesis:
        number, _ = table.revision(end, final=False)
        found = None
        if table.state_count(number):
            request = Request(number, (), most_tokens, forbid_end=False)
            found, _ = await opened.source.continuation(request, ())
        return PartialHypothesis(end * 1000 / rate_hertz, found)

    ends = Grid(segment_ms).boundaries(rate_hertz, opened.recorded.sample_count)
    return list(await asyncio.gather(*map(find, ends)))
