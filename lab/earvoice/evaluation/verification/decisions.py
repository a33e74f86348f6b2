"""Recorded decisions of the papers' released code: what a policy was shown, and what it wrote."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.log import LogError, Record, parse_object
from earvoice.policies import AlignAtt, Edatt, LocalAgreement, WaitK, parameter
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policies.wait_k import words_decision
from earvoice.policy.stream_options import CommitUnit
from earvoice.policy.words import committable_count


@dataclass(frozen=True)
class AttentionCase:
    """A decision that reads attention: EDAtt or AlignAtt.

    Attributes:
        rows: cross-attention, a row ``[state]`` for each token.
        drops_last_word: whether the agent (1.1) commits no more than the words before the last one
            accepted.
        written: tokens written; end of sentence included where the agent ends early.
    """

    case_id: str
    kind: str
    tokens: tuple[int, ...]
    prefix_count: int
    frames: int
    alpha: float
    rows: NDArray[np.float32]
    drops_last_word: bool
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        return self.tokens


@dataclass(frozen=True)
class AgreementCase:
    """A decision of local agreement.

    Attributes:
        hypotheses: of the segments so far, the newest last, end of sentence included.
        written: the agreed tokens after the prefix.
    """

    case_id: str
    kind: str
    hypotheses: tuple[tuple[int, ...], ...]
    prefix_count: int
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        return tuple(token for past in self.hypotheses for token in past)


@dataclass(frozen=True)
class WaitKCase:
    """A decision of wait-k's inner function, which has no gate.

    Attributes:
        tokens: the hypothesis after the prefix, end of sentence included.
    """

    case_id: str
    kind: str
    k: int
    tokens: tuple[int, ...]
    source_word_count: int
    word_count_before: int
    word_count_after: int
    written: tuple[int, ...]

    @property
    def shown_tokens(self) -> tuple[int, ...]:
        return self.tokens

    @property
    def due_word_count(self) -> int:
        """Words due by the rule, possibly negative."""
        return self.source_word_count - self.word_count_before - self.k

    @property
    def is_gated(self) -> bool:
        """Whether a word is due; only then does a whole agent ask the function."""
        return self.due_word_count > 0


PolicyCase = AttentionCase | AgreementCase | WaitKCase


@dataclass(frozen=True)
class CaseFile:
    end_token: int
    word_starts: tuple[bool, ...]
    cases: tuple[PolicyCase, ...]


END_PIECE = "</s>"
WORD_MARK = "▁"


def read_cases(path: Path, attention_path: Path) -> CaseFile:
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


# Neither is read by a policy that gets its rows from the case.
LAYER = 1
DURATION_MS = 1000.0


@dataclass(frozen=True)
class RecordedEdatt(Edatt):
    """EDAtt with the thresholds of the recorded cases: some lie where nothing stops it."""

    alpha: float = parameter(minimum=0.0, maximum=10.0)


@dataclass(frozen=True)
class RecordedWaitK(WaitK):
    """Wait-k with the waits of the recorded cases: some wait for nothing."""

    k: int = parameter(minimum=0)


def decide(case: PolicyCase, file: CaseFile) -> tuple[tuple[int, ...], int | None]:
    """Show a case to our policy, with the options that reproduce the released agents.

    Returns:
        Tokens written, a committed end of sentence included, and words written so far, where the
        case counts them.
    """
    match case:
        case AttentionCase():
            return _decide_by_attention(case, file), None
        case AgreementCase():
            return _decide_by_agreement(case, file), None
        case WaitKCase():
            return _decide_by_words(case, file)


def _decide_by_attention(case: AttentionCase, file: CaseFile) -> tuple[int, ...]:
    policy = _attention_policy(case)
    heard = Heard(DURATION_MS, case.rows.shape[1])
    if not policy.wants_hypothesis(heard):
        return ()
    tokens = [
        _token(file, token, tuple(row.tolist()))
        for token, row in zip(case.tokens, case.rows, strict=True)
    ]
    hypothesis = _hypothesis(file, case.tokens[: case.prefix_count], tokens[case.prefix_count :])
    decision = policy.decide(heard, hypothesis)
    if case.drops_last_word:
        decision = Decision(
            committable_count(hypothesis, decision.new_token_count, CommitUnit.FOLLOWED_WORD)
        )
    return _written(file, hypothesis, decision)


def _decide_by_agreement(case: AgreementCase, file: CaseFile) -> tuple[int, ...]:
    policy = LocalAgreement(n=2)
    heard = Heard(DURATION_MS, 1)
    *earlier, newest = case.hypotheses
    for tokens in earlier:
        policy.decide(heard, _hypothesis(file, (), [_token(file, token) for token in tokens]))
    new = [_token(file, token) for token in newest[case.prefix_count :]]
    hypothesis = _hypothesis(file, newest[: case.prefix_count], new)
    return _written(file, hypothesis, policy.decide(heard, hypothesis))


def _decide_by_words(case: WaitKCase, file: CaseFile) -> tuple[tuple[int, ...], int]:
    """Decide as wait-k; without our gate where no word is due: theirs has none."""
    hypothesis = _hypothesis(file, (), [_token(file, token) for token in case.tokens])
    if not case.is_gated:
        decision = words_decision(hypothesis, case.due_word_count, commit_end=True)
        words = case.word_count_before + case.due_word_count
        return _written(file, hypothesis, decision), words
    policy = RecordedWaitK(case.k, "adaptive", end_while_reading="commit")
    policy.restore({"written_word_count": case.word_count_before})
    decision = policy.decide(Heard(DURATION_MS, 1, case.source_word_count), hypothesis)
    words = cast("int", policy.snapshot()["written_word_count"])
    return _written(file, hypothesis, decision), words


def _token(file: CaseFile, token: int, attention: tuple[float, ...] = ()) -> Token:
    return Token(token, b"", file.word_starts[token], attention)


def _hypothesis(file: CaseFile, prefix: tuple[int, ...], tokens: list[Token]) -> Hypothesis:
    end = next((token for token in tokens if token.token_id == file.end_token), None)
    new = [token for token in tokens if token.token_id != file.end_token]
    return Hypothesis(prefix, new, end)


def _written(file: CaseFile, hypothesis: Hypothesis, decision: Decision) -> tuple[int, ...]:
    tokens = tuple(token.token_id for token in hypothesis.tokens[: decision.new_token_count])
    return (*tokens, file.end_token) if decision.ends_utterance else tokens


def _attention_policy(case: AttentionCase) -> DecisionPolicy:
    # Only EDAtt 1.0 ends a translation while the source goes on.
    if case.kind == "edatt":
        return RecordedEdatt(
            case.alpha, case.frames, LAYER, allow_early_end=not case.drops_last_word
        )
    return AlignAtt(case.frames, LAYER)


@dataclass(frozen=True)
class PolicyVerification:
    differences: tuple[str, ...]
    case_counts: Counter[str]
    ungated_count: int

    def summary(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.case_counts.items()))
        ungated = f", {self.ungated_count} of them ungated" if self.ungated_count else ""
        return (
            f"{self.case_counts.total()} cases ({kinds}{ungated}), {len(self.differences)} differ"
        )


def verify_policy(file: CaseFile) -> PolicyVerification:
    lines = [_difference(case, file) for case in file.cases]
    return PolicyVerification(
        tuple(line for line in lines if line),
        Counter(case.kind for case in file.cases),
        sum(isinstance(case, WaitKCase) and not case.is_gated for case in file.cases),
    )


def _difference(case: PolicyCase, file: CaseFile) -> str:
    recorded = case.written
    if isinstance(case, AgreementCase):
        # Their agreement may include the end of sentence; ours never does.
        recorded = tuple(token for token in recorded if token != file.end_token)
    written, words = decide(case, file)
    found = []
    if written != recorded:
        found.append(f"recorded {list(recorded)}, decided {list(written)}")
    if isinstance(case, WaitKCase) and words != case.word_count_after:
        found.append(f"recorded {case.word_count_after} words, counted {words}")
    return f"{case.case_id}: {'; '.join(found)}" if found else ""
