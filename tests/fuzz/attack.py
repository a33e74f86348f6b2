"""What an attack is, and the messages that attacks begin with."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from earvoice.api.v1 import speech_translation_service_pb2 as pb
from tests.e2e.calling import Request, config, pieces, speech
from tests.fuzz.exchange import Ending

SECONDS_OF_SPEECH = 3
SPEECH = speech()[: 2 * 16_000 * SECONDS_OF_SPEECH]


@dataclass(frozen=True)
class Attack:
    """One way to trouble the service.

    Attributes:
        name: to run it again by.
        strike: troubles the service at an address, and returns how each call ended.
    """

    name: str
    strike: Callable[[str, random.Random], Awaitable[list[Ending]]]


def configured(**changes: object) -> bytes:
    """A config that works, with some fields changed."""
    return Request(config=config(**changes)).SerializeToString()


def spoken(size: int = 3200) -> list[bytes]:
    """Some seconds of speech as messages."""
    return [Request(audio=piece).SerializeToString() for piece in pieces(SPEECH, size)]


def updated() -> bytes:
    """A change that works."""
    update = pb.StreamingUpdate(beam_size=2)
    return Request(update=update).SerializeToString()
