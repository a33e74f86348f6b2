"""How often one utterance may be sent to another replica."""

from __future__ import annotations

from collections import Counter

from earvoice.runtime.errors import BackendUnavailableError

MAX_REPLAYS_PER_UTTERANCE = 2
"""A poisonous recording must not kill every replica."""


class ReplayBudget:
    """Counts the losses of one session, both services together.

    Of an endless utterance, losses count as long as audio of that time is kept.

    Args:
        totals: replays of all sessions, by service.

    Attributes:
        sent_sample: audio of the utterance sent so far ends here.
    """

    def __init__(self, totals: Counter[str]) -> None:
        self._totals = totals
        self._utterance = 0
        self._loss_samples: list[int] = []
        self.sent_sample = 0

    def begin(self, utterance: int, start_sample: int) -> None:
        """Another utterance begins, or the same one at a later sample."""
        if utterance != self._utterance:
            self._loss_samples.clear()
        self._utterance, self.sent_sample = utterance, start_sample
        self._loss_samples = [end for end in self._loss_samples if end > start_sample]

    def spend(self, service: str) -> None:
        """Count a loss.

        Raises:
            BackendUnavailableError: it is one too many.
        """
        if len(self._loss_samples) >= MAX_REPLAYS_PER_UTTERANCE:
            raise BackendUnavailableError(
                f"the {service} is gone, after {len(self._loss_samples)} others that this "
                "utterance was sent to: its audio may be what ends them",
                replays=str(len(self._loss_samples)),
            )
        self._loss_samples.append(self.sent_sample)

    def note_replay(self, service: str) -> None:
        """The session goes on after a loss."""
        self._totals[service] += 1
