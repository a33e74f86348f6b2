"""The options with which our services do what an agent of the papers' code did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast, get_args

from earvoice.client.audio_format import AudioFormat
from earvoice.client.options import Endpointing, HistorySelection, TranslationOptions
from earvoice.client.policy import AlignAtt, DecisionPolicy, Edatt, LocalAgreement, WaitK
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.readers.record import Record
from earvoice.evaluation.verification.recorded_run import RecordedRun
from earvoice.models.config import Compression


@dataclass(frozen=True)
class ReleasedAgent:
    """An agent, as our services play it.

    Attributes:
        policy: when it speaks.
        segment_ms: how often it is asked.
        beam_size: of its search.
        compression: of the encoder's states.
        history: what a long-form agent keeps; None for one that translates sentences.
    """

    policy: DecisionPolicy
    segment_ms: int
    beam_size: int
    compression: Compression
    history: HistorySelection | None

    def options(self, audio: AudioFormat, target_language: str) -> TranslationOptions:
        """Return a session's options: no guards, no endpoints, every segment decided."""
        return TranslationOptions(
            target_languages=(target_language,),
            audio=audio,
            policy=self.policy,
            segment_ms=self.segment_ms,
            catch_up="every-segment",
            # The agents 1.0 commit tokens; 1.1 drop the last word that they accept.
            commit_unit="followed-word" if self.history else "token",
            endpointing=Endpointing(disabled=True),
            disable_guards=True,
            beam_size=self.beam_size,
            history_selection=self.history,
            hypotheses=True,
        )

    def model_settings(self) -> Mapping[str, str]:
        """Return settings of encoder and decoder, without their prefixes."""
        return {"COMPRESSION": self.compression}


def find_agent(run: RecordedRun) -> ReleasedAgent:
    """Return how our services play the agent of a run.

    Raises:
        LogError: the run is of an agent, or has an option, that they cannot play.
    """
    arguments = run.arguments
    if arguments.integer("prefix_size") or arguments.integer("no_repeat_ngram_size"):
        raise LogError(run.place, "prefix_size and no_repeat_ngram_size must be 0")
    return ReleasedAgent(
        _policy(run.policy, arguments),
        run.segment_ms,
        arguments.integer("beam"),
        _compression(arguments),
        _history(run.policy, arguments),
    )


def _policy(name: str, arguments: Record) -> DecisionPolicy:
    match _agent_name(name, arguments):
        case "edatt":
            return Edatt(
                alpha=arguments.number("attn_threshold"),
                lambda_states=arguments.integer("frame_num"),
                attention_layer=_layer(arguments),
                normalization="l2",
                allow_early_end="simulst_agent_class" not in arguments,
            )
        case "alignatt":
            return AlignAtt(
                frames=arguments.integer("frame_num"), attention_layer=_layer(arguments)
            )
        case "la":
            return LocalAgreement(n=2)
        case "waitk":
            if arguments.fields.get("adaptive_segmentation") is not True:
                raise LogError(
                    arguments.place,
                    "adaptive_segmentation must be true: without it the released agent fails",
                )
            return WaitK(
                k=arguments.integer("waitk"), detection="adaptive", end_while_reading="commit"
            )
        case other:
            raise LogError(
                arguments.place,
                f"policy = {other!r} is not allowed; allowed: edatt, alignatt, la, waitk and "
                "streamatt",
            )


def _agent_name(name: str, arguments: Record) -> str:
    """Return the policy's name; a long-form agent tells it by the class that it wraps."""
    if not name.startswith("streamatt"):
        return name
    wrapped = arguments.text("simulst_agent_class").rpartition(".")[2]
    return wrapped.removesuffix("Agent").removesuffix("ST").lower()


def _layer(arguments: Record) -> int:
    return arguments.integer("extract_attn_from_layer") + 1


def _compression(arguments: Record) -> Compression:
    """Return the compression that the name of the data folder ends in."""
    name = arguments.text("data_bin").rpartition("_")[2]
    if name not in get_args(Compression):
        allowed = ", ".join(get_args(Compression))
        raise LogError(arguments.place, f"data_bin must end in a compression: {allowed}")
    return cast("Compression", name)


def _history(name: str, arguments: Record) -> HistorySelection | None:
    if not name.startswith("streamatt"):
        return None
    method = arguments.text("history_selection_method").rpartition(".")[2]
    match method:
        case "FixedWordsHistorySelection":
            return HistorySelection(words=arguments.integer("history_words"))
        case "PunctuationHistorySelection":
            return HistorySelection()
    raise LogError(
        arguments.place,
        f"history_selection_method = {method!r} is not allowed; allowed: "
        "FixedWordsHistorySelection, PunctuationHistorySelection",
    )
