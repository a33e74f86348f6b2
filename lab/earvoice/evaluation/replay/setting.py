"""One way to translate a recording: a policy, and the stream options that a replay supports."""

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
"""What an attention policy sees: the layer and heads that it requests; the mean over all layers of
those heads; or its layer with a state of weight 0 after the last, so that a policy that drops the
last state drops nothing (the latter two: Papi 2023, section 5)."""


@dataclass(frozen=True)
class ReplaySetting(Declared):
    """A policy, in which None means the model's calibrated value, and the stream's options.

    ``key`` is a field's name in the textual form. A field with ``live`` is a client's option, too.
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
        """The text that ``parse_settings`` reads back; also the name of the setting's folder."""
        given = (
            f"{key}={format_value(getattr(self, choice.name))}"
            for key, choice in CHOICES.items()
            if getattr(self, choice.name) != choice.default
        )
        stream = ",".join(given)
        return f"{format_policy(self.policy)}@{stream}" if stream else format_policy(self.policy)

    def options(self, target_language: str, sample_rate_hertz: int) -> TranslationOptions:
        """Return what a client would request, with the smallest sample format."""
        base = TranslationOptions(
            (target_language,),
            AudioFormat("mulaw", sample_rate_hertz, 1),
            catch_up="every-segment",
            endpointing=Endpointing(disabled=True),
        )
        return self.applied_to(base)

    def applied_to(self, base: TranslationOptions) -> TranslationOptions:
        """Return a live session's options, overridden by what the setting specifies.

        ``attention`` and ``uses_drafts``, which only a replay supports, are left out.
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
"""The fields allowed after ``@``, by key."""


def parse_settings(text: str) -> Iterator[ReplaySetting]:
    """Yield the settings that a text describes.

    Args:
        text: ``POLICY:PARAMETER=VALUE,...@KEY=VALUE,...``. The keys are ``segment``, ``wait`` and
            ``lag`` in ms, ``beam``, ``attention``, ``drafts``, ``guards``, ``commit`` and
            ``confidence``. Values separated by ``/`` each make a setting.
    """
    name, rest = split_policy_text(text)
    parameters, _, stream = rest.partition("@")
    for given, chosen in product(alternatives(parameters), alternatives(stream)):
        policy = parse_policy(f"{name}:{given}" if given else name)
        yield ReplaySetting(policy, **parse_assignments(CHOICES, chosen))
