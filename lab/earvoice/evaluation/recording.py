"""A recording of the encoder: every revision that a policy can request, stored once for all.

    recording.json         the model, its number format, the grids
    inputs.jsonl           an input a line: audio length and revisions; complete once it has a line
    revisions/0000.pb      its revisions, each a length followed by an `EncodeResponse`

The encoder's output is a function of the samples since the utterance's start, so a revision is
identified by its end and serves every policy, segment size and initial wait with a boundary there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import pairwise
from pathlib import Path

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from google.protobuf.proto import parse_length_prefixed, serialize_length_prefixed

from earvoice.api.v1 import encoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.cli.command import CommandError, ExitCode
from earvoice.decoder.strategy import ServedModel, TokenTable
from earvoice.encoder.settings import EncoderSettings
from earvoice.evaluation.source_set import SourceRecording
from earvoice.models.wrapped.directory import is_wrapped
from earvoice.policy.endpoints import SegmentGrid
from earvoice.runtime.files import atomic_write, drop_torn_line

FORMAT_VERSION = 2
DESCRIPTION_FILE = "recording.json"
INPUTS_FILE = "inputs.jsonl"
REVISIONS_FOLDER = "revisions"
RECORDING_FOLDER = "recording"
"""Name of the recording's folder, beside the log of the recorded run."""
_PRECISIONS = ("fp32", "bf16", "auto")


class RecordingError(CommandError):
    """A recording that cannot be read, or lacks what is requested."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ExitCode.INPUT)


def check_recordable(settings: EncoderSettings) -> None:
    """Refuse, before anything is computed, a model that replays cannot compute as it was served."""
    path = settings.model_path
    if not path.exists():
        raise RecordingError(f"model {path}: no such file or folder")
    if is_wrapped(path):
        # Replay decodes with our own search and caches.
        message = f"model {path} is computed by transformers; recordings take our own networks"
        raise RecordingError(message)
    if settings.precision not in _PRECISIONS:
        raise RecordingError(
            f"EARVOICE_ENCODER_PRECISION = {settings.precision!r}; recordings take: "
            f"{', '.join(_PRECISIONS)}"
        )


@dataclass(frozen=True)
class Grid:
    segment_ms: int
    initial_wait_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> Grid:
        """Read ``SEGMENT`` or ``SEGMENT+WAIT`` in milliseconds."""
        found = re.fullmatch(r"([1-9][0-9]*)(?:\+([0-9]+))?", text)
        if found is None:
            raise ValueError(f"segment = {text!r}; allowed: SEGMENT or SEGMENT+WAIT, whole ms")
        return cls(int(found[1]), int(found[2] or 0))

    def __str__(self) -> str:
        wait = f"+{self.initial_wait_ms}" if self.initial_wait_ms else ""
        return f"{self.segment_ms}{wait}"

    def boundaries(self, sample_rate_hertz: int, sample_count: int) -> Iterator[int]:
        """Yield the end of each full segment of an utterance, in samples since its start."""
        grid = SegmentGrid(sample_rate_hertz, self.segment_ms, self.initial_wait_ms)
        index = 1
        while (end := grid.boundary(index)) <= sample_count:
            yield end
            index += 1


@dataclass(frozen=True)
class Description:
    model_name: str
    model_hash: str
    computes_in_bfloat16: bool
    grids: tuple[str, ...]
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True)
class Revision:
    """One revision without its message.

    Attributes:
        hearing_ms: computation of resampler, features and voice activity, since the start.
        encoding_ms: computation of the network and of what is derived from its output.
    """

    end_sample: int
    final: bool
    hearing_ms: float
    encoding_ms: float


@dataclass(frozen=True)
class RecordedInput:
    """One recorded utterance; its revisions in order of their ends, the final one last.

    Attributes:
        digest: of the recording's file, by `digest_of`; empty in folders of earlier versions.
    """

    index: int
    source: str
    reference: str
    sample_rate_hertz: int
    sample_count: int
    revisions: tuple[Revision, ...]
    digest: str = ""

    @property
    def duration_ms(self) -> float:
        return self.sample_count * 1000 / self.sample_rate_hertz

    @property
    def source_recording(self) -> SourceRecording:
        return SourceRecording(self.index, Path(self.source), self.duration_ms, self.reference)


class Recording:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def describe(self) -> Description:
        path = self.folder / DESCRIPTION_FILE
        try:
            fields = json.loads(path.read_text(encoding="utf8"))
            description = Description(**{**fields, "grids": tuple(fields["grids"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RecordingError(f"{path} is no description of a recording: {error}") from error
        if description.format_version != FORMAT_VERSION:
            raise RecordingError(
                f"{path}: format_version = {description.format_version}; allowed: {FORMAT_VERSION}"
            )
        return description

    def begin(self, description: Description) -> None:
        """Make the folder, or continue one that was made in the same way."""
        path = self.folder / DESCRIPTION_FILE
        if path.exists():
            found, wanted = asdict(self.describe()), asdict(description)
            for name in wanted:
                if found[name] != wanted[name]:
                    there, now = (json.dumps(side[name]) for side in (found, wanted))
                    raise RecordingError(
                        f"{self.folder} was recorded with {name} = {there}, now it would be {now}; "
                        "give another --output"
                    )
            drop_torn_line(self.folder / INPUTS_FILE)
            return
        (self.folder / REVISIONS_FOLDER).mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as partial:
            partial.write_text(json.dumps(asdict(description), indent=2) + "\n", encoding="utf8")

    def add(self, recorded: RecordedInput, messages: Sequence[pb.EncodeResponse]) -> None:
        """Store an input; it counts once it is written completely."""
        content = BytesIO()
        for message in messages:
            serialize_length_prefixed(message, content)
        self._revisions_path(recorded.index).write_bytes(content.getvalue())
        with (self.folder / INPUTS_FILE).open("a", encoding="utf8") as file:
            file.write(json.dumps(asdict(recorded), ensure_ascii=False) + "\n")

    def inputs(self) -> list[RecordedInput]:
        """Return the complete inputs, in order of their index."""
        path = self.folder / INPUTS_FILE
        if not path.exists():
            return []
        # Anything after the last newline was left unfinished by a killed run.
        *lines, _ = path.read_bytes().split(b"\n")
        inputs = sorted((self._parse(line) for line in lines), key=lambda item: item.index)
        for before, after in pairwise(inputs):
            if before.index == after.index:
                raise RecordingError(f"{path} has input {after.index} twice: must be once")
        return inputs

    def messages(self, recorded: RecordedInput) -> list[pb.EncodeResponse]:
        """Return an input's revisions, as the encoder service sends them."""
        path = self._revisions_path(recorded.index)
        try:
            content = BytesIO(path.read_bytes())
            found = [parse_length_prefixed(pb.EncodeResponse, content) for _ in recorded.revisions]
        except (OSError, DecodeError, ValueError) as error:
            raise RecordingError(f"{path} cannot be read: {error}") from error
        messages = [message for message in found if message is not None]
        if len(messages) < len(found):
            raise RecordingError(
                f"{path} cannot be read: {path} has {len(messages)} revisions; too few"
            )
        return messages

    def _revisions_path(self, index: int) -> Path:
        return self.folder / REVISIONS_FOLDER / f"{index:04d}.pb"

    def _parse(self, line: bytes) -> RecordedInput:
        try:
            fields = json.loads(line)
            revisions = tuple(Revision(**revision) for revision in fields["revisions"])
            return RecordedInput(**{**fields, "revisions": revisions})
        except (ValueError, TypeError, KeyError) as error:
            raise RecordingError(f"{self.folder / INPUTS_FILE} is damaged: {error}") from error


MODEL_FILE = "model.json"
# A token's bytes need not be valid UTF-8; latin-1 maps each byte to a character.
_ENCODING = "latin-1"


def write_served_model(folder: Path, model: ServedModel) -> None:
    tokens = model.tokens
    content = {
        "description": MessageToDict(model.description, preserving_proto_field_name=True),
        "language_tokens": model.language_tokens,
        "dimension": model.dimension,
        "texts": [text.decode(_ENCODING) for text in tokens.texts],
        "starts_word": tokens.starts_word,
        "end_token": tokens.end_token,
    }
    with atomic_write(folder / MODEL_FILE) as partial:
        partial.write_text(json.dumps(content) + "\n", encoding="utf8")


def read_served_model(folder: Path) -> ServedModel:
    path = folder / MODEL_FILE
    try:
        content = json.loads(path.read_text(encoding="utf8"))
        return ServedModel(
            ParseDict(content["description"], types_pb2.ModelDescription()),
            {tag: tuple(tokens) for tag, tokens in content["language_tokens"].items()},
            content["dimension"],
            TokenTable(
                tuple(text.encode(_ENCODING) for text in content["texts"]),
                tuple(content["starts_word"]),
                content["end_token"],
            ),
        )
    except (OSError, ValueError, TypeError, KeyError, ParseError) as error:
        raise RecordingError(f"{path} is no description of a model: {error}") from error
