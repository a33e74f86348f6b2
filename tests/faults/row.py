"""One row of the table: a fault, the streams that it meets, and what became of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.faults.cluster import Cluster
from tests.faults.comparison import Comparison, compare
from tests.faults.fault import Fault
from tests.faults.listener import CatchUp, Heard, listen

# Words are out by then, and utterances have begun and ended.
STRIKE_BETWEEN_S = (7.0, 11.0)
CATCH_UPS: tuple[CatchUp, ...] = ("every-segment", "merge")

References = Mapping[bytes, Heard]


@dataclass(frozen=True)
class Row:
    """What a fault did.

    Attributes:
        fault: its name.
        replica_count: of each service.
        heard: every stream's.
        comparisons: each beside the undisturbed run, in the same order.
        troubles: what else is wrong, in words for people.
    """

    fault: str
    replica_count: int
    heard: tuple[Heard, ...]
    comparisons: tuple[Comparison, ...]
    troubles: tuple[str, ...]

    @property
    def lost(self) -> int:
        """Words lost, all streams together."""
        return sum(comparison.lost for comparison in self.comparisons)

    @property
    def doubled(self) -> int:
        """Words doubled, all streams together."""
        return sum(comparison.doubled for comparison in self.comparisons)

    @property
    def longest_gap_s(self) -> float:
        """Longest time in which a client heard nothing."""
        return max(heard.longest_gap_s for heard in self.heard)

    @property
    def replays(self) -> int:
        """How often the policies lost an encoder or decoder and did its work again elsewhere."""
        return sum(heard.summary.replays for heard in self.heard if heard.summary)

    @property
    def reconnects(self) -> int:
        """How often clients went to another policy, or to the same one again."""
        return sum(heard.reconnect_count for heard in self.heard)

    @property
    def recovered(self) -> int:
        """Streams that ended with their summary."""
        return sum(heard.summary is not None for heard in self.heard)

    def cells(self) -> tuple[str, ...]:
        """Return the numbers as text, one a column of the table."""
        stream_count = len(self.heard)
        numbers = (self.replica_count, stream_count, self.lost, self.doubled)
        gap, recovered = f"{self.longest_gap_s:.1f}", f"{self.recovered} of {stream_count}"
        went_on = (self.replays, self.reconnects)
        return self.fault, *map(str, numbers), gap, recovered, *map(str, went_on)

    @property
    def is_good(self) -> bool:
        """Whether nothing was lost, nothing doubled, and nothing else is wrong."""
        harmed = self.lost or self.doubled or self.troubles
        return not harmed and self.recovered == len(self.heard)


async def run_row(
    fault: Fault,
    cluster: Cluster,
    audios: Sequence[bytes],
    references: References,
    draw: random.Random,
) -> Row:
    """Run live streams, let the fault happen among them, and compare.

    Args:
        fault: what goes wrong.
        cluster: where.
        audios: a recording a stream; streams take turns with EVERY_SEGMENT and MERGE.
        references: the undisturbed run of each recording.
        draw: says when the fault happens.
    """
    catch_ups = [CATCH_UPS[index % len(CATCH_UPS)] for index in range(len(audios))]
    heard = await _run(fault, cluster, audios, catch_ups, draw.uniform(*STRIKE_BETWEEN_S))
    await fault.mend(cluster)
    comparisons = [
        compare(one, references[audio], catch_up)
        for one, catch_up, audio in zip(heard, catch_ups, audios, strict=True)
    ]
    flaws = [flaw for comparison in comparisons for flaw in comparison.flaws]
    failures = [one.failure for one in heard if one.failure]
    troubles = tuple(dict.fromkeys([*cluster.take_troubles(), *flaws, *failures]))
    count = cluster.plan.replica_count
    return Row(fault.name, count, tuple(heard), tuple(comparisons), troubles)


async def _run(
    fault: Fault,
    cluster: Cluster,
    audios: Sequence[bytes],
    catch_ups: Sequence[CatchUp],
    strike_after_s: float,
) -> list[Heard]:
    async def strike() -> None:
        await asyncio.sleep(strike_after_s)
        await fault.strike(cluster)

    async with asyncio.TaskGroup() as group:
        streams = [
            group.create_task(listen(client_target(cluster, index), audio, mode, paced=True))
            for index, (audio, mode) in enumerate(zip(audios, catch_ups, strict=True))
        ]
        group.create_task(strike())
    return [stream.result() for stream in streams]


def client_target(cluster: Cluster, index: int) -> str:
    """Return the policies' addresses, another one first for every client."""
    addresses = cluster.addresses("policy")
    first = index % len(addresses)
    return ",".join([*addresses[first:], *addresses[:first]])
