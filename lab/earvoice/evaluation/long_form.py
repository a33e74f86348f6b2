"""Long-form scoring: cuts a long recording's output to the reference sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from earvoice.cli.command import CommandError
from earvoice.evaluation.instance import (
    ElapsedClock,
    Instance,
    correct_simuleval,
    primary_language,
    split_text,
)
from earvoice.evaluation.log import Log, LogError, ReadingOptions


@dataclass(frozen=True)
class ReferenceSentence:
    """A sentence of the reference, and where in the recording it is spoken.

    Attributes:
        recording_end_ms: end of the recording's last sentence.
    """

    recording: str
    start_ms: float
    duration_ms: float
    recording_end_ms: float
    text: str


def read_segmentation(path: Path, references: Sequence[str]) -> tuple[ReferenceSentence, ...]:
    """Return the reference sentences, those of a recording together and in order.

    Args:
        path: YAML, a list of ``{wav, offset, duration}`` in seconds.
    """
    import yaml  # noqa: PLC0415 - only long-form scoring needs it

    try:
        entries = yaml.safe_load(path.read_text(encoding="utf8"))
    except OSError as error:
        raise LogError(str(path), f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise LogError(str(path), f"is not YAML: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise LogError(str(path), "must be a list of sentences with wav, offset and duration")
    if len(entries) != len(references):
        raise LogError(
            str(path), f"{len(references)} references were given for {len(entries)} sentences"
        )
    places = [_read_place(f"{path}, entry {n}", entry) for n, entry in enumerate(entries, start=1)]
    ends_ms: dict[str, float] = {}
    for name, start_ms, duration_ms in places:
        ends_ms[name] = max(ends_ms.get(name, 0.0), start_ms + duration_ms)
    names = [name for name, _ in groupby(places, key=lambda place: place[0])]
    if len(names) != len(ends_ms):
        raise LogError(str(path), "the sentences of a recording must stand together")
    return tuple(
        ReferenceSentence(name, start_ms, duration_ms, ends_ms[name], text)
        for (name, start_ms, duration_ms), text in zip(places, references, strict=True)
    )


def _read_place(place: str, entry: object) -> tuple[str, float, float]:
    match entry:
        case {"wav": str(wav), "offset": int() | float() as offset_s, "duration": duration_s} if (
            isinstance(duration_s, int | float) and offset_s >= 0 and duration_s > 0
        ):
            return Path(wav).stem, offset_s * 1000, duration_s * 1000
        case _:
            raise LogError(
                place,
                f"{entry}: must have wav (a text), offset (seconds, 0 or above) and duration "
                "(seconds, above 0)",
            )


Resegmenter = Literal["omnisteval", "mweralign"]

_NOTES: dict[Resegmenter, str] = {
    "omnisteval": "long form: YAAL is LongYAAL (cut at the end of the recording), AL is LongAL and "
    "so on; no ATD for sentences cut out of a stream",
    "mweralign": "long form: LAAL is StreamLAAL 2.0 as simulstream computes it (delays before a "
    "sentence's start stay below 0); no ATD for sentences cut out of a stream",
}
_SEGMENT_CLOCK_NOTE = "clock 'segment' is 'simuleval' as OmniSTEval corrects it"


def resegment(
    log: Log,
    sentences: Sequence[ReferenceSentence],
    options: ReadingOptions,
    language: str,
    resegmenter: Resegmenter,
) -> Log:
    """Return a log with an instance for each sentence, times relative to the sentence's start."""
    by_name = _name_instances(log)
    cut = _cut_softly if resegmenter == "omnisteval" else _cut_by_word_errors
    recordings = [
        (name, list(group)) for name, group in groupby(sentences, key=lambda s: s.recording)
    ]
    missing = {name for name, _ in recordings} ^ by_name.keys()
    if missing:
        raise LogError(
            "segmentation",
            f"recordings {', '.join(sorted(missing))} must be both in it and in the log",
        )
    instances = [by_name[name] for name, _ in recordings]
    references = [[sentence.text for sentence in own] for _, own in recordings]
    positions = cut(instances, references, options, language)
    parts = tuple(
        _cut_instance(instance, sentence, own, options)
        for instance, (_, own_sentences), own_positions in zip(
            instances, recordings, positions, strict=True
        )
        for sentence, own in zip(own_sentences, own_positions, strict=True)
    )
    name = f"{log.format_name}, cut by {resegmenter} {version(resegmenter)}"
    notes = (*log.notes, _NOTES[resegmenter])
    corrected = any(map(_is_corrected, instances))
    return Log(name, parts, log.word_rule, (*notes, _SEGMENT_CLOCK_NOTE) if corrected else notes)


def _name_instances(log: Log) -> dict[str, Instance]:
    by_name: dict[str, Instance] = {}
    for instance in log.instances:
        name = Path(instance.source).stem
        if not name or name in by_name:
            raise LogError(
                instance.name, f"source = {instance.source!r}: must be a name of its own"
            )
        by_name[name] = instance
    return by_name


# For each recording and each of its sentences, the positions of its units in the output.
_Positions = list[list[list[int]]]


def _cut_softly(
    instances: Sequence[Instance],
    references: Sequence[Sequence[str]],
    options: ReadingOptions,
    language: str,
) -> _Positions:
    alignment = _require("omnisteval.alignment", "pip install 'earvoice[lab]'")
    tokenization = _require("omnisteval.tokenization", "pip install 'earvoice[lab]'")
    wanted: list[list[Any]] = []
    written: list[list[Any]] = []
    for instance, texts in zip(instances, references, strict=True):
        wanted.append(
            [
                alignment.Word(unit, seq_id=(len(wanted), number))
                for number, text in enumerate(texts)
                for unit in split_text(text.lower(), options.unit)
            ]
        )
        units = split_text(instance.prediction, options.unit)
        # The alignment passes each word's time through unchanged, so it can carry the position.
        written.append([alignment.Word(u, emission_ca=place) for place, u in enumerate(units)])
    # Without a language, words are aligned including their punctuation.
    tokens = primary_language(language) or None
    found = alignment.align_words(
        tokenization.tokenize_words(wanted, tokens),
        tokenization.tokenize_words(written, tokens),
        options.unit == "char",
    )
    return [
        [[word.emission_ca for word in found.get((r, n), [])] for n in range(len(texts))]
        for r, texts in enumerate(references)
    ]


def _cut_by_word_errors(
    instances: Sequence[Instance],
    references: Sequence[Sequence[str]],
    options: ReadingOptions,
    _: str,
) -> _Positions:
    if options.unit != "word":
        raise CommandError("mweralign counts words here: give --resegmenter omnisteval")
    mweralign = _require("mweralign.mweralign", "pip install mweralign (GPL-3.0)")
    cut: _Positions = []
    for instance, texts in zip(instances, references, strict=True):
        lines = mweralign.align_texts("\n".join(texts), instance.prediction).split("\n")
        if len(lines) != len(texts):
            raise CommandError(
                f"mweralign made {len(lines)} lines for {len(texts)} sentences of {instance.name}; "
                "sentences without words need --resegmenter omnisteval"
            )
        first = 0
        cut.append([])
        for line in lines:
            count = len(line.split())
            cut[-1].append(list(range(first, first + count)))
            first += count
    return cut


def _require(module: str, remedy: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise CommandError(f"{error.name} is not installed: {remedy}") from error


def _is_corrected(instance: Instance) -> bool:
    # A log of simulstream has the clock `segment` already.
    return "simuleval" in instance.elapsed_ms and "segment" not in instance.elapsed_ms


def _cut_instance(
    instance: Instance,
    sentence: ReferenceSentence,
    positions: Sequence[int],
    options: ReadingOptions,
) -> Instance:
    start_ms = sentence.start_ms
    elapsed_ms: dict[ElapsedClock, tuple[float, ...]] = dict(instance.elapsed_ms)
    if _is_corrected(instance):
        elapsed_ms["segment"] = correct_simuleval(instance.delays_ms, elapsed_ms["simuleval"])
    units = split_text(instance.prediction, options.unit)

    def cut(times_ms: Sequence[float]) -> tuple[float, ...]:
        return tuple(times_ms[position] - start_ms for position in positions)

    return options.instance(
        instance.name,
        options.reference(0, sentence.text),
        sentence.duration_ms,
        cut(instance.delays_ms),
        name=f"{instance.name}, {start_ms / 1000:g} s",
        elapsed_ms={clock: cut(times_ms) for clock, times_ms in elapsed_ms.items()},
        prediction=(" " if options.unit == "word" else "").join(units[p] for p in positions),
        source_ends_ms=instance.source_ends_ms and cut(instance.source_ends_ms),
        spoken_ends_ms=instance.spoken_ends_ms and cut(instance.spoken_ends_ms),
        recording_end_ms=sentence.recording_end_ms - start_ms,
        source=instance.source,
    )
