"""What a session can be told, and what it answers; `service` carries both over the wire."""

from __future__ import annotations

import dataclasses

from earvoice.encoder.audio_format import AudioFormat
from earvoice.encoder.utterance import Hearing
from earvoice.runtime.model_facts import ModelFacts


@dataclasses.dataclass(frozen=True)
class Open:
    """Open the session; an empty hash takes the model served."""

    audio_format: AudioFormat
    model_hash: str = ""
    enable_source_transcript: bool = False
    skip_silence: bool = False


@dataclasses.dataclass(frozen=True)
class Audio:
    """Add audio and encode the utterance so far."""

    revision: int
    data: bytes


@dataclasses.dataclass(frozen=True)
class Finish:
    """Add the rest and encode the utterance for the last time, up to a position."""

    revision: int
    data: bytes
    end_sample: int


@dataclasses.dataclass(frozen=True)
class Reset:
    """Forget the utterance; another begins at a position."""

    utterance: int
    start_sample: int


Command = Open | Audio | Finish | Reset


@dataclasses.dataclass(frozen=True)
class Opened:
    """The session is open."""

    facts: ModelFacts


@dataclasses.dataclass(frozen=True)
class Encoded:
    """One revision of an utterance; it replaces the one before."""

    utterance: int
    revision: int
    final: bool
    hearing: Hearing
    source_transcript: str
    """Empty unless final and asked for."""


@dataclasses.dataclass(frozen=True)
class ResetDone:
    """Another utterance has begun."""

    utterance: int


Answer = Opened | Encoded | ResetDone
