"""Recorded decisions of the papers' released code: what a policy was shown, and what it wrote."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from earvoice.evaluation.log import LogError, Record, parse_object
from earvoice.policies import AlignAtt, Edatt, LocalAgreement, WaitK, parameter
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policies.wait_k import words_decision
from earvoice.policy.stream_options import CommitUnit
from earvoice.policy.words import committable_count

END_PIECE = "</s>"
WORD_MARK = "▁"

Attention = Mapping[str, NDArray[np.float32]]
"""Cross-attention by case, ``[state, token]``."""


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


def verify_policy(path: Path, attention_path: Path) -> PolicyVerification:
    """Let our policies decide every case, with the options that reproduce the released agents."""
    content = parse_object(str(path), path.read_bytes())
    pieces = content.texts("vocab")
    if END_PIECE not in pieces:
        raise LogError(str(path), f"vocab has no {END_PIECE}")
    vocabulary = _Vocabulary(
        pieces.index(END_PIECE), tuple(piece.startswith(WORD_MARK) for piece in pieces)
    )
    attention = _read_attention(attention_path)
    differences, counts, ungated_count = [], Counter[str](), 0
    for fields in content.records("cases"):
        case_id = fields.text("id")
        case = Record(f"{fields.place}: {case_id}", fields.fields)
        kind = case.text("kind")
        match kind:
            case "edatt" | "alignatt":
                found = _differences_of_attention(case, vocabulary, attention)
            case "la":
                found = _differences_of_agreement(case, vocabulary)
            case "waitk":
                found = _differences_of_wait_k(case, vocabulary)
                ungated_count += _due_word_count(case) <= 0
            case _:
                allowed = "alignatt, edatt, la, waitk"
                raise LogError(case.place, f"kind = {kind!r} is not allowed; allowed: {allowed}")
        counts[kind] += 1
        if found:
            differences.append(f"{case_id}: {'; '.join(found)}")
    if not counts:
        raise LogError(str(path), "cases is empty")
    return PolicyVerification(tuple(differences), counts, ungated_count)


def _read_attention(path: Path) -> Attention:
    try:
        with np.load(path) as arrays:
            return {name: arrays[name] for name in arrays.files}
    # A lone array is no context, and has no names.
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise LogError(str(path), f"is no .npz of arrays: {error}") from error


@dataclass(frozen=True)
class _Vocabulary:
    end_token: int
    word_starts: tuple[bool, ...]

    def check(self, tokens: Sequence[int], place: str) -> None:
        size = len(self.word_starts)
        if any(not 0 <= token < size for token in tokens):
            raise LogError(place, f"has tokens outside vocab: must be 0 to {size - 1}")

    def hypothesis(
        self, prefix: tuple[int, ...], new: Sequence[int], rows: Sequence[Sequence[float]] = ()
    ) -> Hypothesis:
        """Return the hypothesis; ``rows`` is cross-attention of the new tokens, if any is read."""
        tokens = [
            Token(token, b"", self.word_starts[token], rows[index] if rows else ())
            for index, token in enumerate(new)
        ]
        end = next((token for token in tokens if token.token_id == self.end_token), None)
        return Hypothesis(prefix, [t for t in tokens if t.token_id != self.end_token], end)

    def differences(
        self, recorded: Sequence[int], hypothesis: Hypothesis, decision: Decision
    ) -> list[str]:
        written = [token.token_id for token in hypothesis.tokens[: decision.new_token_count]]
        if decision.ends_utterance:
            written.append(self.end_token)
        if written == list(recorded):
            return []
        return [f"recorded {list(recorded)}, decided {written}"]


def _prefix_count(case: Record, token_count: int) -> int:
    count = case.integer("prefix_len")
    if not 0 <= count <= token_count:
        raise LogError(case.place, f"prefix_len = {count}: must be 0 to {token_count}")
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


def _differences_of_attention(
    case: Record, vocabulary: _Vocabulary, attention: Attention
) -> list[str]:
    if (case_id := case.text("id")) not in attention:
        raise LogError(case.place, "has no attention in the .npz")
    tokens, rows = case.integers("tokens"), attention[case_id].T
    if rows.ndim != 2 or len(rows) != len(tokens):  # noqa: PLR2004 - [token, state]
        shape = list(attention[case_id].shape)
        raise LogError(
            case.place, f"has attention of shape {shape}: must be [states, {len(tokens)}]"
        )
    vocabulary.check(tokens, case.place)
    # The agents 1.1 commit no more than the words before the last one accepted.
    drops_last_word = "committed" in case
    recorded = case.integers("committed" if drops_last_word else "write")
    prefix_count, frames = _prefix_count(case, len(tokens)), case.integer("frame_num")
    policy: DecisionPolicy = AlignAtt(frames, LAYER)
    if case.text("kind") == "edatt":
        # Only EDAtt 1.0 ends a translation while the source goes on.
        early_end = not drops_last_word
        policy = RecordedEdatt(case.number("alpha"), frames, LAYER, allow_early_end=early_end)
    heard = Heard(DURATION_MS, rows.shape[1])
    new = rows[prefix_count:].tolist()
    hypothesis = vocabulary.hypothesis(tokens[:prefix_count], tokens[prefix_count:], new)
    if not policy.wants_hypothesis(heard):
        return vocabulary.differences(recorded, hypothesis, Decision(0))
    decision = policy.decide(heard, hypothesis)
    if drops_last_word:
        count = committable_count(hypothesis, decision.new_token_count, CommitUnit.FOLLOWED_WORD)
        decision = Decision(count)
    return vocabulary.differences(recorded, hypothesis, decision)


def _differences_of_agreement(case: Record, vocabulary: _Vocabulary) -> list[str]:
    history = case.lists_of_integers("hist")
    if not history:
        raise LogError(case.place, "hist is empty")
    for tokens in history:
        vocabulary.check(tokens, case.place)
    *earlier, newest = history
    count = _prefix_count(case, len(newest))
    policy, heard = LocalAgreement(n=2), Heard(DURATION_MS, 1)
    for tokens in earlier:
        policy.decide(heard, vocabulary.hypothesis((), tokens))
    hypothesis = vocabulary.hypothesis(newest[:count], newest[count:])
    # Their agreement may include the end of sentence; ours never does.
    recorded = [token for token in case.integers("agreed") if token != vocabulary.end_token]
    return vocabulary.differences(recorded, hypothesis, policy.decide(heard, hypothesis))


def _due_word_count(case: Record) -> int:
    """Words due by the rule, possibly negative."""
    before = case.integer("n_predicted_before")
    return case.integer("n_audio_words") - before - case.integer("k")


def _differences_of_wait_k(case: Record, vocabulary: _Vocabulary) -> list[str]:
    """Compare with wait-k's inner function, which has no gate: ours is left out where it shuts."""
    tokens, due = case.integers("hypo"), _due_word_count(case)
    vocabulary.check(tokens, case.place)
    hypothesis = vocabulary.hypothesis((), tokens)
    before, after = case.integer("n_predicted_before"), case.integer("n_predicted_after")
    words: object = before + due
    if due <= 0:
        decision = words_decision(hypothesis, due, commit_end=True)
    else:
        policy = RecordedWaitK(case.integer("k"), "adaptive", end_while_reading="commit")
        policy.restore({"written_word_count": before})
        decision = policy.decide(Heard(DURATION_MS, 1, case.integer("n_audio_words")), hypothesis)
        words = policy.snapshot()["written_word_count"]
    found = vocabulary.differences(case.integers("write"), hypothesis, decision)
    return found if words == after else [*found, f"recorded {after} words, counted {words}"]
