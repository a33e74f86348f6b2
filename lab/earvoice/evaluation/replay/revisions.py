"""One recorded input, opened: its revisions by where they end."""

from __future__ import annotations

from earvoice.decoder.strategy import StateBlock
from earvoice.evaluation.recording import RecordedInput, Recording, RecordingError, Revision
from earvoice.policy.backend import Encoded
from earvoice.policy.backends.replica_session import evidence_of
from earvoice.policy.evidence import Evidence
from earvoice.policy.timeline import HopTimings


class RevisionTable:
    def __init__(self, recording: Recording, recorded: RecordedInput) -> None:
        self.recorded = recorded
        self._messages = [message.encoded for message in recording.messages(recorded)]
        self._numbers = {
            (revision.end_sample, revision.final): number
            for number, revision in enumerate(recorded.revisions)
        }
        self._evidence: dict[int, Evidence] = {}
        self._blocks: dict[int, StateBlock] = {}

    def revision(self, end_sample: int, *, final: bool) -> tuple[int, Revision]:
        """Return the number, from 0, of the revision that ends at a place, and what it is."""
        number = self._numbers.get((end_sample, final))
        if number is None:
            end_ms = end_sample * 1000 / self.recorded.sample_rate_hertz
            raise RecordingError(
                f"{self.recorded.source}: nothing was recorded at {end_ms:g} ms; allowed: segments "
                "whose boundaries `earvoice record --segment` was given"
            )
        return number, self.recorded.revisions[number]

    def state_count(self, number: int) -> int:
        return self._messages[number].states.state_count

    def encoded(self, number: int, timings: HopTimings) -> Encoded:
        if number not in self._evidence:
            self._evidence[number] = evidence_of(self._messages[number])
        return Encoded(self._messages[number].states, self._evidence[number], timings)

    def block(self, number: int) -> StateBlock:
        """Return a revision's states as the decoder service takes them.

        Always the same object: a search keeps what it has computed of it.
        """
        if number not in self._blocks:
            self._blocks[number] = StateBlock(self._messages[number].states)
        return self._blocks[number]


class RecordedEncoder:
    """An encoder session that answers from a recording; audio only tells how far it has come."""

    def __init__(self, table: RevisionTable, frame_bytes: int) -> None:
        self._table = table
        self._frame_bytes = frame_bytes
        self._end_sample = 0
        self._heard_ms = 0.0
        self.replay_count = 0

    async def encode(self, audio: bytes, end_sample: int | None = None) -> Encoded:
        self._end_sample += len(audio) // self._frame_bytes
        number, revision = self._table.revision(self._end_sample, final=end_sample is not None)
        computation_ms = revision.hearing_ms - self._heard_ms + revision.encoding_ms
        self._heard_ms = revision.hearing_ms
        timings = HopTimings(computation_ms, computation_ms, computation_ms)
        return self._table.encoded(number, timings)

    async def reset(self, utterance: int, start_sample: int) -> None:
        del utterance
        raise RecordingError(
            f"nothing was recorded of an utterance from sample {start_sample} on; endpointing and "
            "history selection cannot be replayed"
        )
