"""Hypotheses of one recorded input, kept beside it so that they need not be searched again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file

from earvoice.evaluation.recording import RecordingError
from earvoice.evaluation.replay.beam_search import Beam
from earvoice.evaluation.replay.continuation import Continuation

HYPOTHESES_FOLDER = "hypotheses"
_KEY = "hypotheses"


@dataclass(frozen=True)
class Request:
    """What a session wants to know.

    Attributes:
        revision: number of the revision.
        prefix: forced.
        limit: most tokens after it, end of sentence included.
        forbid_end: never choose the end of sentence.
        beam_size: 1 is greedy.
    """

    revision: int
    prefix: tuple[int, ...]
    limit: int
    forbid_end: bool
    beam_size: int = 1


@dataclass(frozen=True)
class KnownHypotheses:
    """Everything found for an input in one target language.

    Attributes:
        greedy: by revision and whether the end of sentence was forbidden.
        beams: by what was asked for.
    """

    greedy: Mapping[tuple[int, bool], Sequence[Continuation]]
    beams: Mapping[Request, Beam]


def hypothesis_path(recording: Path, index: int, language: str) -> Path:
    """Return where the hypotheses of an input are."""
    return recording / HYPOTHESES_FOLDER / f"{index:04d}.{language}.safetensors"


def write_hypotheses(path: Path, known: KnownHypotheses) -> None:
    """Write all of it at once."""
    weights: dict[str, torch.Tensor] = {}
    greedy = [
        {"revision": revision, "forbid_end": forbid_end, **_describe(continuation, weights)}
        for (revision, forbid_end), continuations in known.greedy.items()
        for continuation in continuations
    ]
    beams = [
        {
            "request": asdict(request),
            "best": _describe(beam.best, weights),
            "alternatives": beam.alternatives,
            "step_count": beam.step_count,
        }
        for request, beam in known.beams.items()
    ]
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    save_file(weights, part, {_KEY: json.dumps({"greedy": greedy, "beams": beams})})
    part.replace(path)


def read_hypotheses(path: Path) -> KnownHypotheses:
    """Return what `write_hypotheses` wrote; nothing if nothing was written.

    Raises:
        RecordingError: the file is damaged.
    """
    if not path.exists():
        return KnownHypotheses({}, {})
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            content = json.loads(file.metadata()[_KEY])
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        greedy: dict[tuple[int, bool], list[Continuation]] = {}
        for line in content["greedy"]:
            key = (line["revision"], line["forbid_end"])
            greedy.setdefault(key, []).append(_continuation(line, weights))
        beams = {
            _request(line["request"]): Beam(
                _continuation(line["best"], weights),
                tuple(map(tuple, line["alternatives"])),
                line["step_count"],
            )
            for line in content["beams"]
        }
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, KeyError) as error:
        raise RecordingError(f"{path} cannot be read: {error}") from error
    return KnownHypotheses(greedy, beams)


def _describe(continuation: Continuation, weights: dict[str, torch.Tensor]) -> dict[str, Any]:
    name = str(len(weights))
    weights[name] = continuation.weights.contiguous()
    return {
        "prefix": continuation.prefix,
        "tokens": continuation.tokens,
        "ended": continuation.ended,
        "log_probabilities": continuation.log_probabilities,
        "weights": name,
    }


def _continuation(line: Mapping[str, Any], weights: Mapping[str, torch.Tensor]) -> Continuation:
    return Continuation(
        tuple(line["prefix"]),
        tuple(line["tokens"]),
        line["ended"],
        tuple(line["log_probabilities"]),
        weights[line["weights"]],
    )


def _request(fields: Mapping[str, Any]) -> Request:
    return Request(**{**fields, "prefix": tuple(fields["prefix"])})
