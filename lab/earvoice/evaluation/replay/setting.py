"""One way to translate a recording: a policy, and the stream's choices that a replay knows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from earvoice.client.options import CommitUnit, Endpointing, TranslationOptions
from earvoice.policies import DecisionPolicy, format_policy, parse_policy
from earvoice.policies.registry import split_policy_text
from earvoice.runtime.audio_format import AudioFormat
from earvoice.runtime.parameter import (
    Declared,
    alternatives,
    format_value,
    parameter,
    parameters_of,
    parse_assignments,
)

AttentionView = Literal["one-layer", "mean-over-layers", "with-the-last-state"]
"""What an attention policy is shown: the layer and heads that it asks for; the mean over all layers
of those heads; or its layer with a state of no weight behind the last, so that a policy that drops
the last state drops nothing (both: Papi 2023, section 5)."""


@dataclass(frozen=True)
class ReplaySetting(Declared):
    """A policy, whose None take the model's calibrated values, and the stream's choices.

    ``key`` is how a text names a choice. What has ``live`` is an option of a client, too.
    """

    policy: DecisionPolicy = parameter()
    segment_ms: int | None = parameter(None, key="segment", live=True)
    initial_wait_ms: int | None = parameter(None, key="wait", live=True)
    beam_size: int | None = parameter(None, key="beam", live=True)
    attention: AttentionView = parameter("one-layer", key="attention")
    uses_drafts: bool = parameter(
        True,  # noqa: FBT003 - the field's default
        help="whether the computation counted is that of a decoder that verifies drafts",
        key="drafts",
    )
    uses_guards: bool = parameter(True, key="guards")  # noqa: FBT003 - the field's default
    commit_unit: CommitUnit = parameter("word", key="commit", live=True)
    target_lag_ms: int | None = parameter(None, key="lag", live=True)
    min_confidence: float | None = parameter(
        None, minimum=0.0, maximum=1.0, key="confidence", live=True
    )

    @property
    def name(self) -> str:
        """The text that ``parse_settings`` reads back; name of the setting's folder."""
        given = (
            f"{key}={format_value(getattr(self, choice.name))}"
            for key, choice in CHOICES.items()
            if getattr(self, choice.name) != choice.default
        )
        stream = ",".join(given)
        return f"{format_policy(self.policy)}@{stream}" if stream else format_policy(self.policy)

    def options(self, target_language: str, sample_rate_hertz: int) -> TranslationOptions:
        """Return what a client would ask for, with the shortest samples there are."""
        base = TranslationOptions(
            (target_language,),
            AudioFormat("mulaw", sample_rate_hertz, 1),
            catch_up="every-segment",
            endpointing=Endpointing(disabled=True),
        )
        return self.applied_to(base)

    def applied_to(self, base: TranslationOptions) -> TranslationOptions:
        """Return options of a live session with what the setting says; what it leaves open stays.

        What a replay alone can do, ``attention`` and ``uses_drafts``, is left out.
        """
        changes = {
            choice.name: getattr(self, choice.name)
            for choice in CHOICES.values()
            if "live" in choice.facts and getattr(self, choice.name) != choice.default
        }
        disables = base.disable_guards or not self.uses_guards
        return replace(base, policy=self.policy, disable_guards=disables, **changes)


CHOICES = {
    choice.facts["key"]: choice
    for choice in parameters_of(ReplaySetting).values()
    if "key" in choice.facts
}
"""What may stand after ``@``, by key."""


def parse_settings(text: str) -> Iterator[ReplaySetting]:
    """Yield the settings that a text stands for.

    Args:
        text: ``POLICY:PARAMETER=VALUE,...@KEY=VALUE,...``. After ``@`` stand ``segment`` and
            ``wait`` and ``lag`` in ms, ``beam``, ``attention``, ``drafts``, ``guards``,
            ``commit`` and ``confidence``. Values divided by ``/`` are each a setting.
    """
    name, rest = split_policy_text(text)
    parameters, _, stream = rest.partition("@")
    for given, chosen in product(alternatives(parameters), alternatives(stream)):
        policy = parse_policy(f"{name}:{given}" if given else name)
        yield ReplaySetting(policy, **parse_assignments(CHOICES, chosen))
