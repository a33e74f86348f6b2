"""Recorded decisions of the papers' released code: what a policy saw, and what it wrote.

A case is a record of its file; its kind names the policy. Tokens include the end of sentence, even
if the agent ends early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from earvoice.evaluation.log import LogError, Record, parse_object
from earvoice.evaluation.verification.tensors import read_arrays
from earvoice.policies import AlignAtt, Edatt, LocalAgreement, WaitK, parameter
from earvoice.policies.base import Decision, DecisionPolicy, Heard, Hypothesis, Token
from earvoice.policies.wait_k import words_decision
from earvoice.policy.words import committable_count

END_PIECE = "</s>"
WORD_MARK = "▁"
# Not used: the policy gets its attention rows from the case.
LAYER = 1
DURATION_MS = 1000.0


@dataclass(frozen=True)
class RecordedEdatt(Edatt):
    """EDAtt with the thresholds of the recorded cases, some of which never stop it."""

    alpha: float = parameter(minimum=0.0, maximum=10.0)


@dataclass(frozen=True)
class RecordedWaitK(WaitK):
    """Wait-k with the waits of the recorded cases, some of which wait for nothing."""

    k: int = parameter(minimum=0)


@dataclass(frozen=True)
class CaseFile:
    """What the cases of a file share; ``attention`` is [state, token] float32 by case."""

    end_token: int
    word_starts: tuple[bool, ...]
    attention: Mapping[str, np.ndarray]

    def hypothesis(
        self,
        case: Record,
        ids: Sequence[int],
        prefix_count: int = 0,
        rows: Sequence[Sequence[float]] | None = None,
    ) -> Hypothesis:
        """Return tokens as a policy sees them; ``rows`` has the attention [state] of each."""
        count = len(self.word_starts)
        if any(not 0 <= token < count for token in ids):
            raise LogError(case.place, f"has tokens outside vocab: must be 0 to {count - 1}")
        shown = rows or [()] * len(ids)
        tokens = [
            Token(token, b"", self.word_starts[token], row)
            for token, row in zip(ids, shown, strict=True)
        ][prefix_count:]
        end = next((token for token in tokens if token.token_id == self.end_token), None)
        new = [token for token in tokens if token.token_id != self.end_token]
        return Hypothesis(ids[:prefix_count], new, end)

    def written(self, hypothesis: Hypothesis, decision: Decision) -> tuple[int, ...]:
        tokens = tuple(token.token_id for token in hypothesis.tokens[: decision.new_token_count])
        return (*tokens, self.end_token) if decision.ends_utterance else tokens


def verify_policy(path: Path, attention_path: Path) -> tuple[list[str], str]:
    """Decide every case with the options that correspond to its agent.

    Returns:
        A line for each case that differs, and a summary.
    """
    content = parse_object(str(path), path.read_bytes())
    pieces = content.texts("vocab")
    if END_PIECE not in pieces:
        raise LogError(str(path), f"vocab has no {END_PIECE}")
    starts = tuple(piece.startswith(WORD_MARK) for piece in pieces)
    file = CaseFile(pieces.index(END_PIECE), starts, read_arrays(attention_path))
    kinds: Counter[str] = Counter()
    differences: list[str] = []
    ungated = 0
    for fields in content.records("cases"):
        case = Record(f"{fields.place}: {fields.text('id')}", fields.fields)
        kind = case.text("kind")
        kinds[kind] += 1
        match kind:
            case "edatt" | "alignatt":
                found = _compare_attention(case, file)
            case "la":
                found = _compare_agreement(case, file)
            case "waitk":
                ungated += _due_word_count(case) <= 0
                found = _compare_words(case, file)
            case _:
                raise LogError(
                    case.place,
                    f"kind = {kind!r} is not allowed; allowed: alignatt, edatt, la, waitk",
                )
        if found:
            differences.append(f"{case.text('id')}: {'; '.join(found)}")
    if not kinds:
        raise LogError(str(path), "cases is empty")
    counts = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    apart = f", {ungated} of them ungated" if ungated else ""
    return differences, f"{kinds.total()} cases ({counts}{apart}), {len(differences)} differ"


def _compare_attention(case: Record, file: CaseFile) -> list[str]:
    attention = file.attention.get(case.text("id"))
    if attention is None:
        raise LogError(case.place, "has no attention in the .npz")
    ids = case.integers("tokens")
    if attention.ndim != 2 or attention.shape[1] != len(ids):  # noqa: PLR2004 - [state, token]
        shape = list(attention.shape)
        raise LogError(case.place, f"has attention of shape {shape}: must be [states, {len(ids)}]")
    rows = attention.T.tolist()
    hypothesis = file.hypothesis(case, ids, _prefix_count(case, len(ids)), rows)
    # The 1.1 agents record what they committed: at most the words before the last accepted one.
    # Only EDAtt 1.0 ends a translation before the source ends.
    drops_last_word = "committed" in case
    recorded = case.integers("committed" if drops_last_word else "write")
    frames, alpha = case.integer("frame_num"), case.number("alpha")
    policy: DecisionPolicy = AlignAtt(frames, LAYER)
    if case.text("kind") == "edatt":
        policy = RecordedEdatt(alpha, frames, LAYER, allow_early_end=not drops_last_word)
    heard = Heard(DURATION_MS, attention.shape[0])
    if not policy.wants_hypothesis(heard):
        return _compare(recorded, ())
    decision = policy.decide(heard, hypothesis)
    if drops_last_word:
        count = decision.new_token_count
        decision = Decision(committable_count(hypothesis, count, "followed-word"))
    return _compare(recorded, file.written(hypothesis, decision))


def _compare_agreement(case: Record, file: CaseFile) -> list[str]:
    history = case.lists_of_integers("hist")
    if not history:
        raise LogError(case.place, "hist is empty")
    policy, heard = LocalAgreement(n=2), Heard(DURATION_MS, 1)
    for ids in history[:-1]:
        policy.decide(heard, file.hypothesis(case, ids))
    newest = file.hypothesis(case, history[-1], _prefix_count(case, len(history[-1])))
    # Their agreement may include the end of sentence; ours never does.
    agreed = tuple(token for token in case.integers("agreed") if token != file.end_token)
    return _compare(agreed, file.written(newest, policy.decide(heard, newest)))


def _compare_words(case: Record, file: CaseFile) -> list[str]:
    """Compare a decision of wait-k's inner function; it has no gate, so ours is not used either."""
    hypothesis = file.hypothesis(case, case.integers("hypo"))
    before, due = case.integer("n_predicted_before"), _due_word_count(case)
    if due <= 0:
        decision, words = words_decision(hypothesis, due, commit_end=True), before + due
    else:
        policy = RecordedWaitK(case.integer("k"), "adaptive", end_while_reading="commit")
        policy.restore({"written_word_count": before})
        heard = Heard(DURATION_MS, 1, case.integer("n_audio_words"))
        decision = policy.decide(heard, hypothesis)
        words = cast("int", policy.snapshot()["written_word_count"])
    found = _compare(case.integers("write"), file.written(hypothesis, decision))
    after = case.integer("n_predicted_after")
    return found if words == after else [*found, f"recorded {after} words, counted {words}"]


def _due_word_count(case: Record) -> int:
    """Words due by wait-k's rule; may be negative, as only whole agents check that one is due."""
    return case.integer("n_audio_words") - case.integer("n_predicted_before") - case.integer("k")


def _prefix_count(case: Record, token_count: int) -> int:
    count = case.integer("prefix_len")
    if not 0 <= count <= token_count:
        raise LogError(case.place, f"prefix_len = {count}: must be 0 to {token_count}")
    return count


def _compare(recorded: tuple[int, ...], written: tuple[int, ...]) -> list[str]:
    if written == recorded:
        return []
    return [f"recorded {list(recorded)}, decided {list(written)}"]
