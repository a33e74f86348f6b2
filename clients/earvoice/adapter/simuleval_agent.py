"""Our services as an agent of SimulEval 1.1: ``--agent-class earvoice.adapter.simuleval_agent.…``.

SimulEval hands over a piece of source and waits for the text that results. Delays are those of the
services if a piece is as long as a segment (``--source-segment-size``).
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING

from simuleval.agents import SpeechToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction

from earvoice.adapter.blocking_session import BlockingConnection, BlockingSession
from earvoice.adapter.tool_text import choose_session
from earvoice.client.event import join_words

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from simuleval.agents import AgentStates


class EarvoiceAgent(SpeechToTextAgent):  # type: ignore[misc]  # SimulEval has no types
    """Translates through running services."""

    def __init__(self, args: Namespace) -> None:
        server, self._options = choose_session(args.earvoice)
        self._connection = BlockingConnection(server)
        self._session: BlockingSession | None = None
        self._sent_samples = 0
        super().__init__(args)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        parser.add_argument(
            "--earvoice",
            default="",
            metavar="ARGUMENTS",
            help="arguments of `earvoice evaluate` for server, languages, policy and stream, in "
            "one text",
        )

    def reset(self) -> None:
        """Start over with the next recording."""
        super().reset()
        if self._session is not None:
            self._session.leave()
        self._session = None
        self._sent_samples = 0

    def policy(self, states: AgentStates | None = None) -> Action:
        """Send the newest piece; write the words that result."""
        states = states or self.states
        samples = states.source[self._sent_samples :]
        self._sent_samples += len(samples)
        words = []
        if samples:
            if self._session is None:
                audio = replace(self._options.audio, sample_rate_hz=states.source_sample_rate)
                self._session = self._connection.open(replace(self._options, audio=audio))
            words += self._session.push(array("f", samples).tobytes())
        if states.source_finished and self._session is not None:
            words += self._session.finish()
            self._session = None
        if not words and not states.source_finished:
            return ReadAction()
        return WriteAction(join_words(words), finished=states.source_finished)
