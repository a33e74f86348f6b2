"""What random weights do not do by themselves: compress, commit, and agree with a draft.

* **CTC labels.** The CTC head computes its product; then the label of frame t is raised to be
  t // 3 modulo 2. So every run has three frames and all work of the compression is done.
* **Tokens.** A hypothesis of the audio up to second s has 3.5 · s tokens. Which ones is the model's
  own greedy choice, found out beforehand, untimed: so a draft of these is accepted, and one with
  other tokens is not.
* **EDAtt.** After each segment all tokens of the audio up to the segment before are committed, and
  one more token was predicted: the one whose attention ended the decoder's work. It is the next
  draft, and is accepted.
* **LA-2.** A hypothesis is completed in each segment, end of sentence included. Its last two tokens
  change in the next; what two hypotheses agree on is committed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

TOKENS_PER_S = 3.5
RUN_FRAMES = 3
UNSTABLE_TOKENS = 2
RAISED = 1e4

Policy = Literal["edatt", "la2", "la2 without drafts"]
POLICIES: tuple[Policy, ...] = ("edatt", "la2", "la2 without drafts")


class ScriptedHead(nn.Module):
    """A CTC head whose product is computed and whose greedy labels are scripted.

    Args:
        head: what computes.
        run_frames: frames of each run of equal labels.
    """

    def __init__(self, head: nn.Module, run_frames: int) -> None:
        super().__init__()
        self.head = head
        self.run_frames = run_frames

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """[1, T, d] → [1, T, V+1] float32."""
        logits: torch.Tensor = self.head(hidden)
        frames = torch.arange(logits.shape[1])
        logits[0, frames, frames // self.run_frames % 2] += RAISED
        return logits


@dataclass(frozen=True)
class Segment:
    """The decoder's work in one segment, in tokens.

    Attributes:
        prefix: committed tokens, forced.
        draft_right: tokens of the draft that the model chooses too.
        draft_wrong: tokens of the draft after them.
        steps: steps after the prefill, which itself predicts a token.
    """

    prefix: int
    draft_right: int
    draft_wrong: int
    steps: int


def segments(policy: Policy, seconds: float, segment_s: float) -> list[Segment]:
    """The work of each segment of an utterance; the last one is completed and committed."""
    ends = [segment_s * (index + 1) for index in range(round(seconds / segment_s))]
    known = [0, *(math.floor(TOKENS_PER_S * end) for end in ends)]
    work = []
    for index in range(len(ends)):
        before = known[index - 1] if index else 0
        # The end of the sentence is a token, too.
        tokens = known[index + 1] + 1
        if policy == "edatt":
            tokens = tokens if index == len(ends) - 1 else known[index] + 1
            prefix, right, wrong = before, int(index > 0), 0
        else:
            prefix = max(0, before - UNSTABLE_TOKENS)
            stable = max(0, known[index] - UNSTABLE_TOKENS)
            drafted = policy == "la2"
            right, wrong = (stable - prefix) * drafted, (known[index] - stable) * drafted
        work.append(Segment(prefix, right, wrong, max(0, tokens - prefix - right - 1)))
    return work
