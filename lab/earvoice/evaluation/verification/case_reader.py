"""Reading recorded decisions.

A file of cases is a JSON object with ``vocab``, the pieces by token id, and ``cases``; the
attention is in an ``.npz`` beside it, ``[state, target]`` by case id.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.readers.record import Record, parse_object
from earvoice.evaluation.verification.policy_case import (
    AgreementCase,
    AttentionCase,
    CaseFile,
    PolicyCase,
    WaitKCase,
)

END_PIECE = "</s>"
WORD_MARK = "▁"


def read_cases(path: Path, attention_path: Path) -> CaseFile:
    """Read cases and their attention.

    Raises:
        LogError: a file or a case is not laid out as expected, or names an unknown policy.
        OSError: a file cannot be read.
    """
    content = parse_object(str(path), path.read_bytes())
    pieces = content.texts("vocab")
    if END_PIECE not in pieces:
        raise LogError(str(path), f"vocab has no {END_PIECE}")
    attention = _read_attention(attention_path)
    cases = tuple(_read_case(case, attention, len(pieces)) for case in content.records("cases"))
    if not cases:
        raise LogError(str(path), "cases is empty")
    starts = tuple(piece.startswith(WORD_MARK) for piece in pieces)
    return CaseFile(pieces.index(END_PIECE), starts, cases)


def _read_attention(path: Path) -> Mapping[str, NDArray[np.float32]]:
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    # A lone array is no context, and has no names.
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise LogError(str(path), f"is no .npz of arrays: {error}") from error


def _read_case(
    fields: Record, attention: Mapping[str, NDArray[np.float32]], vocabulary_size: int
) -> PolicyCase:
    case_id = fields.text("id")
    named = Record(f"{fields.place}: {case_id}", fields.fields)
    kind = named.text("kind")
    match kind:
        case "edatt" | "alignatt":
            case: PolicyCase = _read_attention_case(case_id, kind, named, attention)
        case "la":
            case = _read_agreement_case(case_id, named)
        case "waitk":
            case = _read_wait_k_case(case_id, named)
        case _:
            raise LogError(
                named.place, f"kind = {kind!r} is not allowed; allowed: alignatt, edatt, la, waitk"
            )
    if any(not 0 <= token < vocabulary_size for token in case.shown_tokens):
        raise LogError(named.place, f"has tokens outside vocab: must be 0 to {vocabulary_size - 1}")
    return case


def _read_attention_case(
    case_id: str, kind: str, fields: Record, attention: Mapping[str, NDArray[np.float32]]
) -> AttentionCase:
    if case_id not in attention:
        raise LogError(fields.place, "has no attention in the .npz")
    tokens, rows = fields.integers("tokens"), attention[case_id].T
    if rows.ndim != 2 or len(rows) != len(tokens):  # noqa: PLR2004 - [target, state]
        shape = attention[case_id].shape
        raise LogError(
            fields.place, f"has attention of shape {list(shape)}: must be [states, {len(tokens)}]"
        )
    later = "committed" in fields
    return AttentionCase(
        case_id,
        kind,
        tokens,
        _prefix_count(fields, len(tokens)),
        fields.integer("frame_num"),
        fields.number("alpha"),
        rows,
        drops_last_word=later,
        written=fields.integers("committed" if later else "write"),
    )


def _read_agreement_case(case_id: str, fields: Record) -> AgreementCase:
    history = fields.lists_of_integers("hist")
    if not history:
        raise LogError(fields.place, "hist is empty")
    return AgreementCase(
        case_id,
        fields.text("kind"),
        history,
        _prefix_count(fields, len(history[-1])),
        fields.integers("agreed"),
    )


def _read_wait_k_case(case_id: str, fields: Record) -> WaitKCase:
    return WaitKCase(
        case_id,
        fields.text("kind"),
        fields.integer("k"),
        fields.integers("hypo"),
        fields.integer("n_audio_words"),
        fields.integer("n_predicted_before"),
        fields.integer("n_predicted_after"),
        fields.integers("write"),
    )


def _prefix_count(fields: Record, token_count: int) -> int:
    count = fields.integer("prefix_len")
    if not 0 <= count <= token_count:
        raise LogError(fields.place, f"prefix_len = {count}: must be 0 to {token_count}")
    return count
