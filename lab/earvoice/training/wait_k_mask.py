"""Wait-k training (Ma 2019; Papi 2022, section 3): how much source each target word may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from earvoice.models.vocabulary import EOS, PAD

if TYPE_CHECKING:
    from earvoice.models.translation import SightMask
    from earvoice.models.vocabulary import Vocabulary


def wait_k_mask(
    k: int, source: Vocabulary, target: Vocabulary, *, reads_words: bool = False
) -> SightMask:
    """Return a mask that lets the t-th target word see the first g(t) = k + t - 1 source words.

    The encoder hears everything; it is cross-attention that is masked. Source words are those of
    the greedy CTC transcript (adaptive detection): a word's states reach from the piece that
    begins it to the next such piece, blanks included, and states before the first word are always
    seen. All pieces of a target word, the first included, see the same source; the end of the
    sentence counts as one more word. In a text source the words are known, and its end comes with
    the last of them.

    Args:
        k: words of the source that are heard before the first word is written.
        source: pieces of the transcript; the label after its last is CTC's blank.
        target: pieces of the translation.
        reads_words: whether the labels are the pieces of a text instead of CTC's.

    Raises:
        ValueError: k is below 1.
    """
    if k < 1:
        message = f"wait_k = {k}; allowed: 1 and above"
        raise ValueError(message)
    # A padded state's label is -1 and finds the blank.
    starts_source = torch.tensor([*_word_starts(source), False])
    starts_target = torch.tensor(_word_starts(target))
    starts_target[[EOS, PAD]] = True

    def visible(labels: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the states that each row sees.

        Args:
            labels: [B, S] int64 CTC label of each state, -1 where padded.
            tokens: [B, L] int64, start token first, padded on the right; row t predicts token
                t + 1.

        Returns:
            [B, L, S] bool; what a row sees, all later ones see.
        """
        begins = starts_source.to(labels.device)[labels]
        if not reads_words:
            begins[:, 1:] &= labels[:, 1:] != labels[:, :-1]
        heard = begins.cumsum(1)
        following = functional.pad(tokens[:, 1:], (0, 1), value=EOS)
        word = starts_target.to(tokens.device)[following].cumsum(1).clamp(min=1)
        return heard[:, None, :] <= k + word[:, :, None] - 1

    return visible


def _word_starts(vocabulary: Vocabulary) -> list[bool]:
    return [vocabulary.starts_word(index) for index in range(len(vocabulary))]
