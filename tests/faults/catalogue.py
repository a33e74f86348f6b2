"""Every fault of the table."""

from __future__ import annotations

from tests.faults.fault import Fault, Freeze, Kill, Nothing, RollingRestart
from tests.faults.network_fault import (
    BACKEND_DELAY_S,
    CLIENT_DELAY_S,
    BlackHole,
    Delay,
    Loss,
    Reset,
)
from tests.faults.replica import SERVICES
from tests.faults.surroundings_fault import FullDisk, HangingCollector

FAULTS: tuple[Fault, ...] = (
    Nothing(),
    *(Kill(service) for service in SERVICES),
    *(Freeze(service) for service in SERVICES),
    RollingRestart(),
    Loss(),
    *(Reset(service) for service in SERVICES),
    *(BlackHole(service) for service in SERVICES),
    Delay(("policy",), CLIENT_DELAY_S),
    Delay(("encoder", "decoder"), BACKEND_DELAY_S),
    FullDisk(),
    HangingCollector(),
)
# These change rules of the network, or mount a disk.
NEED_ISOLATION = (Loss, FullDisk)
