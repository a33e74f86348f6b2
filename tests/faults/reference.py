"""What each recording gives when nothing disturbs it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.faults.cluster import ClusterPlan, running_cluster
from tests.faults.listener import Heard, listen
from tests.faults.row import client_target


async def hear_references(audios: Iterable[bytes], folder: Path) -> dict[bytes, Heard]:
    """Translate each recording once, in EVERY_SEGMENT, at full speed, one after the other.

    Raises:
        RuntimeError: one of them failed.
    """
    references: dict[bytes, Heard] = {}
    async with running_cluster(ClusterPlan(1), folder / "reference") as cluster:
        for audio in audios:
            if audio in references:
                continue
            heard = await listen(client_target(cluster, 0), audio, "every-segment", paced=False)
            if heard.summary is None:
                raise RuntimeError(f"an undisturbed stream failed: {heard.failure}")
            references[audio] = heard
    return references
