"""Every span, attribute and metric that the services make, declared once.

`docs/telemetry.md` is written from this file, the tests hold real spans and metrics against it, and
readers of traces take their names from here. Nothing is imported that a reader would not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttributeType = Literal[
    "string", "int", "double", "bool", "string[]", "double[]", "bool[]", "int[]"
]
Instrument = Literal["histogram", "counter", "up-down counter", "gauge"]
Service = Literal["policy", "encoder", "decoder", "gateway"]

SERVICE_NAMES: dict[Service, str] = {
    "policy": "earvoice-policy",
    "encoder": "earvoice-encoder",
    "decoder": "earvoice-decoder",
    "gateway": "earvoice-gateway",
}
"""The resource's `service.name`, unless `OTEL_SERVICE_NAME` says otherwise."""


@dataclass(frozen=True)
class Attribute:
    """One attribute of spans; its unit, if it has one, is part of its name."""

    name: str
    type: AttributeType
    meaning: str


@dataclass(frozen=True)
class SpanDeclaration:
    """One kind of span: the service that makes it, its parent, and the time it covers."""

    name: str
    service: Service
    parent: str
    time: str
    attributes: tuple[Attribute, ...]


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    """As OpenTelemetry knows it; Prometheus writes `_` for `.`, and adds the unit."""
    instrument: Instrument
    unit: str
    """Its UCUM code."""
    services: tuple[Service, ...]
    meaning: str
    attribute: str = ""
    """The attribute that distinguishes its series; empty for a single one."""
    values: tuple[str, ...] = ()
    """The attribute's values, where they are few."""
    bounds: tuple[float, ...] = ()
    """Upper bounds of a histogram's buckets, in its unit."""


STAGES = (
    "merge_wait",
    "previous_segment_wait",
    "encoder_queue",
    "encoder_compute",
    "encoder_network",
    "decoder_queue",
    "decoder_compute",
    "decoder_network",
    "decision",
)
"""The parts of `total`, in chronological order; a word's hold comes on top."""

_SESSION_ID = Attribute(
    "earvoice.session.id", "string", "The session, as logs and clients know it."
)
_ERROR_TYPE = Attribute(
    "error.type", "string", "The error's reason; only where one ended the span."
)
_RPC = (
    Attribute("rpc.system.name", "string", "`grpc`."),
    Attribute("rpc.method", "string", "The method called, in full."),
)
_POLICY_NAME = Attribute("earvoice.policy.name", "string", "The decision policy.")
_BATCH_SIZE = Attribute(
    "earvoice.batch.size",
    "int",
    "Sessions that shared the computation; of several computations, the most.",
)
_PROPOSED = Attribute("earvoice.tokens.proposed", "int", "New tokens that the decoder sent.")
_DRAFT_ACCEPTED = Attribute("earvoice.draft.accepted", "int", "Draft tokens that were accepted.")
_COMPUTE_MS = Attribute(
    "earvoice.engine.compute_ms", "double", "Computation, by the engine's clock."
)

_STATUS = Attribute(
    "earvoice.session.status", "string", "`OK`, `CANCELLED`, or the error's reason."
)
_WORDS = Attribute("earvoice.session.words", "int", "Words released.")

_SESSION = (
    _SESSION_ID,
    Attribute("earvoice.model.name", "string", "The model served."),
    Attribute("earvoice.model.hash", "string", "SHA-256 of its checkpoint."),
    _POLICY_NAME,
    Attribute("earvoice.policy.parameters", "string", "Its parameters, as a JSON object."),
    Attribute("earvoice.segment.duration_ms", "int", "Segment duration at the session's start."),
    Attribute("earvoice.session.clock", "string", "Clock of elapsed times: `live` or `true`."),
    Attribute("earvoice.language.source", "string", "BCP-47 tag of the source."),
    Attribute("earvoice.language.target", "string", "BCP-47 tag of the target."),
    _STATUS,
    Attribute("earvoice.session.audio_ms", "double", "Audio received."),
    _WORDS,
    Attribute("earvoice.session.computation_ms", "double", "Computation of all services."),
    Attribute(
        "earvoice.session.replays",
        "int",
        "Utterances sent to another replica because one was lost.",
    ),
    _ERROR_TYPE,
)

_SEGMENT = (
    _SESSION_ID,
    Attribute("earvoice.utterance.index", "int", "From 0."),
    Attribute("earvoice.utterance.start_ms", "double", "Where the utterance begins in the audio."),
    Attribute("earvoice.utterance.end_ms", "double", "Where it ends; on its last segment only."),
    Attribute(
        "earvoice.utterance.cause",
        "string",
        "Why it ends, on its last segment: `pause`, `forced` or `end_of_audio`.",
    ),
    Attribute(
        "earvoice.utterance.not_understood",
        "bool",
        "Whether its words were held back to its end, on its last segment.",
    ),
    Attribute("earvoice.segment.index", "int", "Within the utterance, from 1."),
    Attribute("earvoice.segment.end_ms", "double", "Where its audio ends."),
    Attribute("earvoice.segment.grid_end_ms", "double", "Where it would have ended unmerged."),
    Attribute(
        "earvoice.segment.arrival_lateness_ms",
        "double",
        "How much later audio up to `grid_end_ms` arrived than the session's earliest implies.",
    ),
    Attribute("earvoice.segment.merged", "int", "Grid segments merged into it beyond the first."),
    Attribute("earvoice.segment.states", "int", "Encoder states."),
    Attribute(
        "earvoice.segment.computation_ms",
        "double",
        "Computation of encoder and decoder; only of a segment that was finished.",
    ),
    Attribute(
        "earvoice.segment.queue_ms",
        "double",
        "Time in encoder and decoder that was not computation; likewise.",
    ),
    Attribute(
        "earvoice.segment.replays",
        "int",
        "Times it was sent to another replica because one was lost.",
    ),
    _ERROR_TYPE,
)

_DECODE = (
    *_RPC,
    Attribute("earvoice.tokens.prefix", "int", "Committed tokens, the forced prefix."),
    _PROPOSED,
    Attribute("earvoice.tokens.accepted", "int", "New tokens that the policy would commit."),
    Attribute(
        "earvoice.tokens.committed", "int", "Of those, tokens left by guards and word border."
    ),
    Attribute("earvoice.draft.tokens", "int", "Tokens of the draft."),
    _DRAFT_ACCEPTED,
    Attribute("earvoice.beam.size", "int", "Hypotheses followed."),
)

_EMIT = (
    Attribute(
        "earvoice.words.delay_ms",
        "double[]",
        "For each item, audio received at its release: the ideal clock.",
    ),
    Attribute(
        "earvoice.words.elapsed_ms", "double[]", "Since the first sample, on the session's clock."
    ),
    Attribute("earvoice.words.source_end_ms", "double[]", "End of the audio that it attends to."),
    Attribute(
        "earvoice.words.starts_word", "bool[]", "False for a later piece of the word before."
    ),
    Attribute(
        "earvoice.words.hold_ms",
        "double[]",
        "From its last token's commit to its release: until its word was complete, and its "
        "utterance understood.",
    ),
    Attribute(
        "earvoice.words.commit_segment",
        "int[]",
        "Segment of the same utterance in which its last token was committed; its stages are that "
        "segment's.",
    ),
    Attribute(
        "earvoice.words.confidence", "double[]", "How likely it is right, calibrated, 0 to 1."
    ),
    Attribute(
        "earvoice.stage.total_ms",
        "double",
        "From the arrival of audio up to `segment.grid_end_ms` to the commit.",
    ),
    *(
        Attribute(f"earvoice.stage.{stage}_ms", "double", "Part of `total_ms`: docs/latency.md.")
        for stage in STAGES
    ),
)

_STREAM = (
    Attribute("earvoice.gateway.languages", "string[]", "BCP-47 tags of its targets."),
    Attribute("earvoice.gateway.sessions", "string[]", "Its sessions, one or more a language."),
    Attribute(
        "earvoice.gateway.longest_relay_ms",
        "double",
        "Longest time from a word's arrival to its being written to the caller.",
    ),
    _STATUS,
    _WORDS,
    _ERROR_TYPE,
)

SPANS = (
    SpanDeclaration(
        "stream",
        "gateway",
        "the caller's span, or none",
        "a speaker's start message to its stream's end",
        _STREAM,
    ),
    SpanDeclaration(
        "session", "policy", "the client's span, or none", "the stream's start to its end", _SESSION
    ),
    SpanDeclaration(
        "segment",
        "policy",
        "none; linked to its session",
        "arrival of the segment's last sample on its own grid to the end of the work on it; on the "
        "clock `true`, from the start of the work",
        _SEGMENT,
    ),
    SpanDeclaration(
        "encode", "policy", "segment", "requests to the encoder and their answers", _RPC
    ),
    SpanDeclaration(
        "encoder.queue",
        "encoder",
        "encode",
        "the reading of a request to its start in the engine",
        (),
    ),
    SpanDeclaration(
        "encoder.compute",
        "encoder",
        "encode",
        "in the engine",
        (
            _BATCH_SIZE,
            _COMPUTE_MS,
            Attribute(
                "earvoice.states.revision", "int", "Revision of the utterance's states, from 1."
            ),
        ),
    ),
    SpanDeclaration("decode", "policy", "segment", "the request to the generation's end", _DECODE),
    SpanDeclaration(
        "decoder.queue", "decoder", "decode", "the reading of the command to its prefill", ()
    ),
    SpanDeclaration(
        "decoder.prefill",
        "decoder",
        "decode",
        "prefix and draft in one pass; where a text is translated, that text's draft",
        (),
    ),
    SpanDeclaration(
        "decoder.steps",
        "decoder",
        "decode",
        "the prefill's end to the generation's, all steps in one span; where a text is translated, "
        "also that text's steps and the prefill of its translation",
        (
            _PROPOSED,
            _DRAFT_ACCEPTED,
            _BATCH_SIZE,
            _COMPUTE_MS,
            Attribute(
                "earvoice.engine.queue_ms",
                "double",
                "Waiting for the engine since the command was read.",
            ),
            Attribute("earvoice.generation.end", "string", "Why it ended: an `EndReason`."),
        ),
    ),
    SpanDeclaration(
        "decide",
        "policy",
        "segment",
        "the deciding answer to the commit",
        (_POLICY_NAME, Attribute("earvoice.guards", "string[]", "Guards that cut the commit.")),
    ),
    SpanDeclaration(
        "emit", "policy", "segment", "the commit to the words' entry into the outbox", _EMIT
    ),
)

_LAG_MS = (0, 250, 500, 750, 1000, 1500, 2000, 2500, 3000, 4000, 5000, 7500, 10_000, 15_000, 30_000)
_STAGE_MS = (1, 2, 5, 10, 20, 50, 100, 200, 300, 500, 750, 1000, 2000, 5000, 10_000)
_RATIO = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
_SHARE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
_BATCH = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_ALL: tuple[Service, ...] = ("policy", "encoder", "decoder")
_EVERY: tuple[Service, ...] = (*_ALL, "gateway")
_GATEWAY: tuple[Service, ...] = ("gateway",)
_ENGINES: tuple[Service, ...] = ("encoder", "decoder")

METRICS = (
    Metric(
        "earvoice.word.lag",
        "histogram",
        "ms",
        ("policy",),
        "A word's release minus the end of the audio that it attends to.",
        "clock",
        ("ideal", "live", "true"),
        _LAG_MS,
    ),
    Metric(
        "earvoice.word.confidence",
        "histogram",
        "1",
        ("policy",),
        "How likely a released word is right, as far as the model was calibrated.",
        bounds=_SHARE,
    ),
    Metric(
        "earvoice.utterances.not_understood",
        "counter",
        "{utterance}",
        ("policy",),
        "Utterances whose words were held back to the end: not understood.",
    ),
    Metric(
        "earvoice.stage.duration",
        "histogram",
        "ms",
        ("policy",),
        "Part of the time from a segment's arrival to its commit; only those that release words.",
        "stage",
        STAGES,
        _STAGE_MS,
    ),
    Metric(
        "earvoice.segment.computation",
        "histogram",
        "ms",
        ("policy",),
        "Computation of encoder and decoder for a segment.",
        bounds=_STAGE_MS,
    ),
    Metric(
        "earvoice.session.real_time_factor",
        "histogram",
        "1",
        ("policy",),
        "Computation divided by audio, at a session's end.",
        bounds=_RATIO,
    ),
    Metric("earvoice.sessions.active", "up-down counter", "{session}", _ALL, "Running sessions."),
    Metric(
        "earvoice.sessions.limit",
        "gauge",
        "{session}",
        _ALL,
        "Sessions taken at once: as configured, or as measured at the start.",
    ),
    Metric(
        "earvoice.sessions.refused",
        "counter",
        "{session}",
        _ALL,
        "Refused sessions, by the error's reason; a tenant's own limit is counted separately.",
        "reason",
        ("SESSION_LIMIT", "TENANT_LIMIT", "NOT_READY", "BACKEND_UNAVAILABLE", "MODEL_MISMATCH"),
    ),
    Metric(
        "earvoice.sessions.resumed",
        "counter",
        "{session}",
        ("policy",),
        "Sessions resumed here with a resume token, after something was lost or stopped.",
    ),
    Metric(
        "earvoice.backend.ready",
        "gauge",
        "{replica}",
        ("policy",),
        "Replicas of encoder and decoder that sessions may go to.",
        "backend",
        ("encoder", "decoder"),
    ),
    Metric(
        "earvoice.backend.replays",
        "counter",
        "{replay}",
        ("policy",),
        "Utterances sent to another replica because one was lost.",
        "backend",
        ("encoder", "decoder"),
    ),
    Metric(
        "earvoice.engine.busy_ratio",
        "gauge",
        "1",
        _ENGINES,
        "Share of the last 15 s that the engine computed.",
    ),
    Metric(
        "earvoice.engine.queue_depth",
        "gauge",
        "{request}",
        _ENGINES,
        "Requests waiting for the engine.",
    ),
    Metric(
        "earvoice.engine.batch_size",
        "histogram",
        "{session}",
        _ENGINES,
        "Sessions that shared a computation.",
        bounds=_BATCH,
    ),
    Metric(
        "earvoice.segments.merged",
        "counter",
        "{segment}",
        ("policy",),
        "Grid segments merged into others: the machine was late, or a forced cut left them behind.",
    ),
    Metric(
        "earvoice.draft.tokens",
        "counter",
        "{token}",
        ("policy",),
        "Tokens of drafts, by what became of them.",
        "outcome",
        ("accepted", "rejected"),
    ),
    Metric(
        "earvoice.guard.hits", "counter", "{cut}", ("policy",), "Commits cut by a guard.", "guard"
    ),
    Metric(
        "earvoice.gateway.sockets", "gauge", "{connection}", _GATEWAY, "Connections that are open."
    ),
    Metric(
        "earvoice.gateway.speakers",
        "gauge",
        "{stream}",
        _GATEWAY,
        "Running streams on open connections.",
    ),
    Metric(
        "earvoice.gateway.readers", "gauge", "{reader}", _GATEWAY, "Readers of published streams."
    ),
    Metric(
        "earvoice.gateway.refused",
        "counter",
        "{connection}",
        _GATEWAY,
        "Connections that were refused, by a limit or while it drained.",
    ),
    Metric(
        "earvoice.gateway.relay",
        "histogram",
        "ms",
        _GATEWAY,
        "From a word's arrival from the policy service to its being written to the caller.",
        bounds=_STAGE_MS,
    ),
    Metric(
        "earvoice.descriptors.open",
        "gauge",
        "{descriptor}",
        _EVERY,
        "Files and connections that the process has open.",
    ),
    Metric(
        "earvoice.descriptors.limit",
        "gauge",
        "{descriptor}",
        _EVERY,
        "Most that may be open; connections and sessions are refused before that.",
    ),
    Metric(
        "earvoice.telemetry.dropped",
        "counter",
        "{item}",
        _EVERY,
        "Spans, or readings of the metrics, that could not be exported.",
        "signal",
        ("traces", "metrics"),
    ),
)
