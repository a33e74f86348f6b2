"""The table of what the shipped model is to reach."""

import pytest

from earvoice.training.goal import Goal, Measurements, goal_table, goals
from earvoice.training.metric import Score

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal("BLEU", 24.0, 24), "reached"),
        (Goal("BLEU", 23.9, 24), "missed"),
        (Goal("BLEU lost", 3.9, 4, rising=False), "reached"),
        (Goal("BLEU lost", 4.1, 4, rising=False), "missed"),
        (Goal("BLEU", None, 24), "not measured"),
        (Goal("BLEU", 3.0), ""),
    ],
)
def test_a_verdict_follows_the_direction(goal: Goal, verdict: str) -> None:
    """More BLEU is better, more BLEU lost is worse, and what was not measured says so."""
    assert goal.verdict() == verdict


def test_losses_are_against_the_same_sentences() -> None:
    """A loss is the difference of two sets, and stays open while one of them is missing."""
    found = Measurements()
    found.scores["chat/unseen de"] = Score("chat/unseen de", 2, 0.2, 25.0, 0.97)
    assert found.bleu_lost("telephone/unseen de", "chat/unseen de") is None
    found.scores["telephone/unseen de"] = Score("telephone/unseen de", 2, 0.3, 22.5, 0.97)
    assert found.bleu_lost("telephone/unseen de", "chat/unseen de") == 2.5
    verdicts = {goal.what: goal.verdict() for goal in goals(found)}
    assert verdicts["chat, telephone line: BLEU lost"] == "reached"
    assert verdicts["chat, unseen voice: BLEU de"] == "reached"
    assert verdicts["chat, unseen voice: WER %"] == "missed"
    assert verdicts["60 s of silence: words"] == "not measured"
    assert goal_table(found).count("\n") == 1 + len(goals(found))
