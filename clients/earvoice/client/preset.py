"""The papers' settings, by name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from earvoice.client.options import Endpointing
from earvoice.client.policy import choose_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from earvoice.client.options import CommitUnit, TranslationOptions
    from earvoice.client.policy import DecisionPolicy


@dataclass(frozen=True)
class Preset:
    """One setting of one paper; what is None is the model's or the server's.

    Attributes:
        name: by which it is chosen.
        summary: what it is, in a few words.
        policy: with the paper's parameters. The attention layer is always left to the model: the
            papers' "4 of 6" means nothing to a decoder of another depth.
        segment_ms: length of a segment.
        initial_wait_ms: by how much the first segment of an utterance is longer.
        beam_size: hypotheses that the decoder follows.
        commit_unit: what is committed at once.
        is_released_code: goes by the papers' released agents: no guards, and utterances end with
            the audio only.
    """

    name: str
    summary: str
    policy: DecisionPolicy
    segment_ms: int | None = None
    initial_wait_ms: int | None = None
    beam_size: int | None = None
    commit_unit: CommitUnit | None = None
    is_released_code: bool = False

    @property
    def paper(self) -> str:
        """The paper's author and year, such as ``papi-2023``; the first part of the name."""
        author, year, *_ = self.name.split("-")
        return f"{author}-{year}"

    def with_parameters(self, parameters: Mapping[str, object]) -> Preset:
        """Return the preset with other parameters of its policy.

        Raises:
            ValueError: the policy has no such parameter.
        """
        policy = choose_policy(self.policy.NAME, **{**vars(self.policy), **parameters})
        return replace(self, policy=policy)

    def apply(self, options: TranslationOptions) -> TranslationOptions:
        """Return options with this preset's choices in place of their own."""
        applied = replace(
            options,
            policy=self.policy,
            segment_ms=self.segment_ms,
            initial_wait_ms=self.initial_wait_ms,
            beam_size=self.beam_size,
            commit_unit=self.commit_unit,
        )
        if not self.is_released_code:
            return applied
        return replace(applied, disable_guards=True, endpointing=Endpointing(disabled=True))
