"""The policies' curves, by the name that tables and figures give them."""

from __future__ import annotations

from collections.abc import Mapping

from earvoice.claims import plan
from earvoice.evaluation.replay.setting import ReplaySetting

FAMILIES: Mapping[str, tuple[ReplaySetting, ...]] = {
    "EDAtt": plan.EDATT,
    "AlignAtt": plan.ALIGN_ATT,
    "LA-2": plan.AGREEMENT[2],
    "LA-2, first chunk 2 s": plan.AGREEMENT_WAITED,
    "LA-3": plan.AGREEMENT[3],
    "LA-4": plan.AGREEMENT[4],
    "LA-2, beam 5": plan.AGREEMENT_BEAM,
    "SP-2, beam 5": plan.SHARED_PREFIX[2],
    "SP-1, beam 5": plan.SHARED_PREFIX[1],
    "Hold-6": plan.HOLD,
    "Hold-6, beam 5": plan.HOLD_BEAM,
    "wait-k, adaptive": plan.WAIT_K["adaptive"],
    "wait-k, fixed": plan.WAIT_K["fixed"],
    "(k, s, 1)": plan.SCHEDULE[1],
    "(k, s, 2)": plan.SCHEDULE[2],
    "(k, s, 3)": plan.SCHEDULE[3],
}
DRAWN = (
    "EDAtt",
    "AlignAtt",
    "LA-2",
    "SP-2, beam 5",
    "Hold-6",
    "wait-k, adaptive",
    "wait-k, fixed",
    "(k, s, 2)",
)
"""Those that the figure shows: more lines could not be told apart."""
