"""Decisions agree with the papers' released code, case by case."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from earvoice.policies import AlignAtt, Edatt, LocalAgreement, parameter
from earvoice.policies.base import Heard, Hypothesis
from earvoice.policies.wait_k import words_decision
from tests.fakes import make_token

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "policy"
END = 2
HEARD = Heard(1000, 10)

DATA = json.loads((GOLDEN / "policy_v1_0.json").read_text(encoding="utf8"))


@dataclass(frozen=True)
class RecordedEdatt(Edatt):
    """With thresholds where nothing stops it, as some of the cases have."""

    alpha: float = parameter(minimum=0.0, maximum=10.0)


def cases(kind: str) -> list[object]:
    return [pytest.param(case, id=case["id"]) for case in DATA["cases"] if case["kind"] == kind]


@pytest.fixture(scope="module")
def attention() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "policy_v1_0_attn.npz") as file:
        return {name: file[name] for name in file.files}


def written(policy, case, attention) -> list[int]:
    """What the policy writes of a recorded case; an early end is one of the tokens."""
    rows = attention[case["id"]].T.astype(float)
    if not policy.wants_hypothesis(Heard(1000, rows.shape[1])):
        return []
    tokens = [
        make_token(token, attention=row.tolist())
        for token, row in zip(case["tokens"], rows, strict=True)
    ]
    new = tokens[case["prefix_len"] :]
    hypothesis = Hypothesis(
        case["tokens"][: case["prefix_len"]],
        [token for token in new if token.token_id != END],
        next((token for token in new if token.token_id == END), None),
    )
    decision = policy.decide(HEARD, hypothesis)
    committed = [token.token_id for token in hypothesis.tokens[: decision.new_token_count]]
    return committed + [END] * decision.ends_utterance


@pytest.mark.parametrize("case", cases("edatt"))
def test_edatt(case, attention):
    """The same tokens are written, early ends as in the released agent."""
    policy = RecordedEdatt(case["alpha"], case["frame_num"], 1, allow_early_end=True)
    assert written(policy, case, attention) == case["write"]


@pytest.mark.parametrize("case", cases("alignatt"))
def test_align_att(case, attention):
    """The same tokens are written; this released agent never ends early."""
    assert written(AlignAtt(case["frame_num"], 1), case, attention) == case["write"]


@pytest.mark.parametrize("case", cases("la"))
def test_local_agreement(case):
    """The agreed tokens after the prefix are the same."""
    history = [[token for token in past if token != END] for past in case["hist"]]
    prefix = history[-1][: case["prefix_len"]]
    policy = LocalAgreement(n=2)
    for past in history[:-1]:
        policy.decide(HEARD, Hypothesis((), [make_token(token) for token in past]))
    new = [make_token(token) for token in history[-1][case["prefix_len"] :]]
    count = policy.decide(HEARD, Hypothesis(prefix, new)).new_token_count
    assert [token.token_id for token in new[:count]] == [t for t in case["agreed"] if t != END]


@pytest.mark.parametrize("case", cases("waitk"))
def test_wait_k(case):
    """The recorded inner function has no gate: m words are taken, m possibly negative."""
    due = case["n_audio_words"] - case["n_predicted_before"] - case["k"]
    tokens = [
        make_token(token, starts=DATA["vocab"][token].startswith("▁")) for token in case["hypo"]
    ]
    count = words_decision(Hypothesis((), tokens), due, commit_end=False).new_token_count
    assert [token.token_id for token in tokens[:count]] == case["write"]
    assert case["n_predicted_before"] + due == case["n_predicted_after"]
