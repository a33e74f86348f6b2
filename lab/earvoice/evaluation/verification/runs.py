"""A recorded run of the papers' agents: audio, hypothesis and output of every segment."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import cast, get_args

from earvoice.cli.local_services import ServiceChoices, run_services
from earvoice.cli.log_relay import ServiceLogs
from earvoice.client.audio import send_fast
from earvoice.client.audio_file import AudioFile
from earvoice.client.event import Committed, SegmentDone, TranslationEvent
from earvoice.client.options import Endpointing, HistorySelection, TranslationOptions
from earvoice.client.translation_client import connect
from earvoice.evaluation.log import LogError, Record, parse_object
from earvoice.models.config import Compression
from earvoice.policies.agreement import LocalAgreement
from earvoice.policies.attention import AlignAtt, Edatt
from earvoice.policies.base import DecisionPolicy
from earvoice.policies.wait_k import WaitK
from earvoice.runtime.audio_format import AudioFormat


@dataclass(frozen=True)
class RunSegment:
    """A segment, as processed by an agent of the papers' code or by our services.

    Attributes:
        hypothesis: tokens of the best hypothesis, with the prefix, without the end of sentence;
            None if nothing was decoded.
        prefix_count: number of its first tokens that were already committed.
        written: tokens written, without the end of sentence; None if a run has only their text.
    """

    hypothesis: tuple[int, ...] | None
    prefix_count: int
    written: tuple[int, ...] | None
    end_ms: float | None = None


@dataclass(frozen=True)
class RunInstance:
    """One recording of a run, recorded or played.

    Attributes:
        words: the released words, without ``</s>``.
    """

    words: tuple[str, ...]
    delays_ms: tuple[float, ...]
    segments: tuple[RunSegment, ...]
    index: int = 0
    wav: str = ""
    source_ms: float = 0.0


@dataclass(frozen=True)
class RecordedRun:
    place: str
    policy: str
    arguments: Record
    segment_ms: int
    instances: tuple[RunInstance, ...]


END_WORD = "</s>"
END_TOKEN = 2
"""End of sentence in every dictionary of the papers' toolkit."""


def read_run(path: Path) -> RecordedRun:
    content = _read_object(path)
    meta = content.record("meta")
    instances = tuple(_read_instance(fields) for fields in content.records("instances"))
    if not instances:
        raise LogError(str(path), "instances is empty")
    return RecordedRun(
        str(path),
        meta.text("policy"),
        meta.record("args"),
        meta.integer("segment_ms" if "segment_ms" in meta else "seg"),
        instances,
    )


def _read_object(path: Path) -> Record:
    try:
        content = gzip.decompress(path.read_bytes())
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise LogError(str(path), f"is not a gzip file: {error}") from error
    return parse_object(str(path), content)


def _read_instance(fields: Record) -> RunInstance:
    index = fields.integer("index")
    named = Record(f"{fields.place}: instance {index}", fields.fields)
    words, delays = named.text("prediction").split(), named.numbers("delays")
    if len(words) != len(delays):
        raise LogError(
            named.place, f"has {len(delays)} delays for {len(words)} words: must be as many"
        )
    if words and words[-1] == END_WORD:
        words, delays = words[:-1], delays[:-1]
    trace = named.records("trace")
    segments = _texts_apart(trace) if "events" in named else _reads_and_final(trace)
    if not segments:
        raise LogError(named.place, "trace is empty")
    name = Path(named.text("wav")).name
    return RunInstance(tuple(words), delays, segments, index, name, named.number("source_length"))


def _texts_apart(trace: Sequence[Record]) -> tuple[RunSegment, ...]:
    return tuple(_segment(step, None) for step in trace)


def _reads_and_final(trace: Sequence[Record]) -> tuple[RunSegment, ...]:
    """Join the last read and the final write into one segment."""
    segments: list[RunSegment] = []
    for step, following in zip_longest(trace, trace[1:]):
        kind = step.text("type")
        if kind == "final" and segments:
            continue
        if kind not in ("read", "final"):
            raise LogError(step.place, f"type = {kind!r} is not allowed; allowed: read, final")
        written = step.integers("write")
        if following is not None and following.text("type") == "final":
            written += following.integers("write")
            step = step if "hypo" in step or "hypo" not in following else following  # noqa: PLW2901 - the one that decoded
        segments.append(_segment(step, _without_end(written)))
    return tuple(segments)


def _segment(step: Record, written: tuple[int, ...] | None) -> RunSegment:
    if "hypo" not in step:
        return RunSegment(None, 0, written)
    hypothesis, prefix = _without_end(step.integers("hypo")), step.integers("prefix")
    if hypothesis[: len(prefix)] != prefix:
        raise LogError(step.place, f"hypo {list(hypothesis)} does not begin with its prefix")
    return RunSegment(hypothesis, len(prefix), written)


def _without_end(tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tokens[:-1] if tokens and tokens[-1] == END_TOKEN else tokens


def play_options(run: RecordedRun) -> TranslationOptions:
    """Return the options with which our services imitate a run's agent; audio and target are open.

    Guards and endpointing are off, and every segment is decided.
    """
    arguments = run.arguments
    if arguments.integer("prefix_size") or arguments.integer("no_repeat_ngram_size"):
        raise LogError(run.place, "prefix_size and no_repeat_ngram_size must be 0")
    history = _history(run.policy, arguments)
    return TranslationOptions(
        target_languages=(),
        policy=_policy(run.policy, arguments),
        segment_ms=run.segment_ms,
        catch_up="every-segment",
        # The 1.0 agents commit tokens; those of 1.1 drop the last word that they accept.
        commit_unit="followed-word" if history else "token",
        endpointing=Endpointing(disabled=True),
        disable_guards=True,
        beam_size=arguments.integer("beam"),
        history_selection=history,
        hypotheses=True,
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
    """Return the policy's name; for a long-form agent, from the class that it wraps."""
    if not name.startswith("streamatt"):
        return name
    wrapped = arguments.text("simulst_agent_class").rpartition(".")[2]
    return wrapped.removesuffix("Agent").removesuffix("ST").lower()


def _layer(arguments: Record) -> int:
    return arguments.integer("extract_attn_from_layer") + 1


def compression_of(run: RecordedRun) -> Compression:
    arguments = run.arguments
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


JOINED = re.compile(r"cc_(\d+)_(\d+)\.wav")
CHUNK_MS = 500
LENGTH_TOLERANCE_MS = 0.1


def read_recording(instance: RunInstance, folder: Path) -> tuple[AudioFormat, tuple[bytes, ...]]:
    """Return format and bytes of an instance's audio.

    ``cc_COUNT_FIRST.wav`` joins several files.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(AudioFile(path)) for path in _paths(instance.wav, folder)]
        formats = {file.audio for file in files}
        if len(formats) != 1:
            raise LogError(instance.wav, f"joins recordings of different formats: {formats}")
        duration_ms = sum(file.duration_ms for file in files)
        if abs(duration_ms - instance.source_ms) > LENGTH_TOLERANCE_MS:
            raise LogError(
                instance.wav, f"lasts {duration_ms} ms: the run says {instance.source_ms} ms"
            )
        chunks = tuple(chunk for file in files for chunk in file.chunks(CHUNK_MS))
        return formats.pop(), chunks


def _paths(name: str, folder: Path) -> list[Path]:
    if (folder / name).is_file():
        return [folder / name]
    joined = JOINED.fullmatch(name)
    if joined is None:
        raise LogError(str(folder), f"has no {name}")
    count, first = (int(number) for number in joined.groups())
    paths = [path for path in sorted(folder.glob("*.wav")) if not JOINED.fullmatch(path.name)]
    if count < 1 or first + count > len(paths):
        raise LogError(str(folder), f"has {len(paths)} recordings, too few for {name}")
    return paths[first : first + count]


DELAY_TOLERANCE_MS = 0.01
"""Less than half a sample, so only rounding passes."""


def played_instance(events: Sequence[TranslationEvent]) -> RunInstance:
    words: list[str] = []
    delays_ms: list[float] = []
    for event in events:
        if not isinstance(event, Committed):
            continue
        for word in event.words:
            if word.starts_word or not words:
                words.append(word.text)
                delays_ms.append(word.delay_ms)
            else:
                words[-1] += word.text
    segments = [_played_segment(event) for event in events if isinstance(event, SegmentDone)]
    return RunInstance(tuple(words), tuple(delays_ms), tuple(segments))


def _played_segment(done: SegmentDone) -> RunSegment:
    tokens, prefix_count = done.hypothesis_tokens, done.prefix_token_count
    written = tokens[prefix_count : prefix_count + done.committed_token_count]
    return RunSegment(tokens or None, prefix_count, written, done.end_ms)


def compare(recorded: RunInstance, played: RunInstance) -> tuple[list[str], Counter[str]]:
    """Return a line for each difference, and how much was compared of what."""
    place = f"instance {recorded.index}"
    lines = [
        f"{place}, segment {number}{_end(ours)}: {difference}"
        for number, (theirs, ours) in enumerate(
            zip_longest(recorded.segments, played.segments), start=1
        )
        for difference in _compare_segment(theirs, ours)
    ]
    lines += [f"{place}: {difference}" for difference in _compare_words(recorded, played)]
    compared = sum(
        theirs.hypothesis is not None and ours.hypothesis is not None
        for theirs, ours in zip(recorded.segments, played.segments, strict=False)
    )
    return lines, Counter(
        instances=1,
        segments=len(recorded.segments),
        hypotheses=compared,
        words=len(recorded.words),
        differ=int(bool(lines)),
        places=len(lines),
    )


def _end(segment: RunSegment | None) -> str:
    return "" if segment is None or segment.end_ms is None else f" (to {segment.end_ms:g} ms)"


def _compare_segment(theirs: RunSegment | None, ours: RunSegment | None) -> Iterator[str]:
    if ours is None:
        yield "recorded, but not worked on"
        return
    if theirs is None:
        # The recorded agent ended early and reads no further.
        if ours.written:
            yield f"nothing recorded, committed {list(ours.written)}"
        return
    if not _same_hypothesis(theirs, ours):
        yield (
            f"hypothesis: recorded {_shown(theirs.hypothesis, theirs.prefix_count)}, "
            f"decoded {_shown(ours.hypothesis, ours.prefix_count)}"
        )
    if theirs.written is not None and theirs.written != ours.written:
        yield f"commit: recorded {list(theirs.written)}, committed {list(ours.written or ())}"


def _same_hypothesis(theirs: RunSegment, ours: RunSegment) -> bool:
    if ours.hypothesis is None and not theirs.written and theirs.written is not None:
        # With a single state the agent decodes but writes nothing; our services do not decode.
        return True
    # An empty hypothesis is reported like none.
    theirs_told = theirs.hypothesis or None
    return (theirs_told, theirs.prefix_count) == (ours.hypothesis, ours.prefix_count)


def _shown(hypothesis: tuple[int, ...] | None, prefix_count: int) -> str:
    if hypothesis is None:
        return "none"
    return f"{list(hypothesis[:prefix_count])} + {list(hypothesis[prefix_count:])}"


def _compare_words(recorded: RunInstance, played: RunInstance) -> Iterator[str]:
    if recorded.words != played.words:
        yield f"words: recorded {' '.join(recorded.words)!r}, released {' '.join(played.words)!r}"
        return
    for number, (word, theirs, ours) in enumerate(
        zip(recorded.words, recorded.delays_ms, played.delays_ms, strict=True), start=1
    ):
        if abs(theirs - ours) > DELAY_TOLERANCE_MS:
            yield f"delay of word {number} {word!r}: recorded {theirs:g} ms, released {ours:g} ms"


async def verify_run(
    run: RecordedRun,
    checkpoint: Path,
    wav_folder: Path,
    start_timeout_s: float,
    log_folder: Path | None,
) -> AsyncGenerator[tuple[list[str], Counter[str]], None]:
    """Start the services with a checkpoint, play every instance and yield its comparison."""
    # Report what is missing before anything is started.
    options = play_options(run)
    settings = {"MODEL_PATH": str(checkpoint), "COMPRESSION": compression_of(run)}
    recordings = [read_recording(instance, wav_folder) for instance in run.instances]
    choices = ServiceChoices(backend_settings=settings, start_timeout_s=start_timeout_s)
    async with (
        run_services(choices, ServiceLogs(folder=log_folder)) as services,
        connect(services.addresses["policy"]) as client,
    ):
        target = (await client.list_models()).models[0].target_languages[0]
        for instance, (audio, chunks) in zip(run.instances, recordings, strict=True):
            own = replace(options, audio=audio, target_languages=(target,))
            session = client.translate(send_fast(chunks), own)
            async with aclosing(session) as events:
                yield compare(instance, played_instance([event async for event in events]))


def summary_of(counts: Counter[str]) -> str:
    return (
        f"{counts['instances']} instances, {counts['segments']} segments "
        f"({counts['hypotheses']} hypotheses), {counts['words']} words: "
        f"{counts['differ']} instances differ, in {counts['places']} places"
    )
