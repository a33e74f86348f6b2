"""Simultaneous use of a checkpoint, simulated: ``python -m earvoice.training.calibration``.

For every decoder layer and threshold, EDAtt (Papi 2023) translates held-out clips segment by
segment; printed are sacreBLEU and LAAL (ideal clock), to choose the policy defaults of a model.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.vocabulary import EOS
from earvoice.policy.decisions.base import Decision, Heard, Hypothesis, Token
from earvoice.policy.decisions.edatt import EdattParameters, EdattPolicy
from earvoice.training.derived_set import join
from earvoice.training.dev_set import read_dev_sets, with_translation
from earvoice.training.metric import bleu
from earvoice.training.target_text import TargetText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from earvoice.models.checkpoint import Checkpoint
    from earvoice.models.encoder import EncoderOutput
    from earvoice.training.dev_set import DevClip

ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
_FRAME_MS = 10
_TOKENS_PER_SECOND = 12
_SPARE_TOKENS = 10


@dataclass
class Session:
    """One clip under one policy.

    Attributes:
        policy: decides how much is committed.
        opening: forced tokens: the start token and perhaps a language tag.
        committed: target ids, in order.
        delays_ms: for each, the source heard when it was committed.
    """

    policy: EdattPolicy
    opening: list[int]
    committed: list[int] = field(default_factory=list)
    delays_ms: list[float] = field(default_factory=list)


def main() -> None:
    """Print BLEU and LAAL for every layer and threshold."""
    parser = argparse.ArgumentParser(prog="python -m earvoice.training.calibration")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--clips", type=int, default=60, help="joined inputs to translate")
    parser.add_argument("--segment-ms", type=int, default=800)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--to", default="de", help="target language")
    options = parser.parse_args()
    torch.set_num_threads(1)
    checkpoint = load_checkpoint(options.model)
    sets = read_dev_sets(options.corpus, checkpoint.normalisation)
    target = TargetText.of_checkpoint(checkpoint)
    clips = chosen_clips(sets, options.to)[: options.clips]
    grid = [(layer, alpha) for layer in options.layers for alpha in ALPHAS]
    opening = target.opening(options.to)
    runs = [translate(clip, grid, options.segment_ms, checkpoint, opening) for clip in clips]
    for index, (layer, alpha) in enumerate(grid):
        sessions = [run[index] for run in runs]
        sys.stdout.write(
            f"layer {layer} alpha {alpha:.2f}: "
            f"{score_sessions(sessions, clips, checkpoint, options.to)}\n"
        )


def chosen_clips(sets: Mapping[str, list[DevClip]], language: str) -> list[DevClip]:
    """Return joined inputs by seen and unseen voices, in turn: chat, or Tatoeba for Spanish."""
    domain = "chat" if language == "de" else "tatoeba"
    seen, unseen = (
        join(with_translation(sets[f"{domain}/{voice}"], language)) for voice in ("seen", "unseen")
    )
    return [clip for pair in zip(seen, unseen, strict=False) for clip in pair]


def translate(
    clip: DevClip,
    grid: Sequence[tuple[int, float]],
    segment_ms: int,
    checkpoint: Checkpoint,
    opening: list[int],
) -> list[Session]:
    """Translate one clip segment by segment under every (layer, threshold) of the grid."""
    sessions = [
        Session(
            EdattPolicy(EdattParameters(alpha=alpha, lambda_states=2, attention_layer=layer)),
            opening,
        )
        for layer, alpha in grid
    ]
    frames = len(clip.features)
    step = segment_ms // _FRAME_MS
    ends = [*range(step, frames, step), frames]
    for end in ends:
        encoded = checkpoint.network.encoder.encode(clip.features[:end])
        for session in sessions:
            advance(session, encoded, end * _FRAME_MS, checkpoint, final=end == frames)
    return sessions


def advance(
    session: Session,
    encoded: EncoderOutput,
    heard_ms: float,
    checkpoint: Checkpoint,
    *,
    final: bool,
) -> None:
    """Decide one segment: decode behind the committed tokens until the policy halts."""
    if len(encoded.states) < 2 and not final:  # noqa: PLR2004 - EDAtt drops the last state
        return
    hypothesis = decode(session, encoded, heard_ms, checkpoint, final=final)
    if final:
        decision = Decision(len(hypothesis.tokens))
    else:
        decision = session.policy.decide(Heard(heard_ms, len(encoded.states)), hypothesis)
    ids = [token.token_id for token in hypothesis.tokens]
    count = decision.new_token_count
    if not final and not hypothesis.ended:
        # A word is committed when the next one has begun.
        while count and not (count < len(ids) and hypothesis.tokens[count].starts_word):
            count -= 1
    session.committed += ids[:count]
    session.delays_ms += [heard_ms] * count


def decode(
    session: Session,
    encoded: EncoderOutput,
    heard_ms: float,
    checkpoint: Checkpoint,
    *,
    final: bool,
) -> Hypothesis:
    """Decode greedily behind the committed tokens."""
    decoder, vocabulary = checkpoint.network.decoder, checkpoint.target_vocabulary
    layer, limit = session.policy.parameters.attention_layer, _limit(heard_ms)
    cache = decoder.open_cache(encoded.states)
    logits, attention = decoder.prefill([*session.opening, *session.committed], cache, layer)
    tokens: list[Token] = []
    row = attention[-1]
    while len(session.committed) + len(tokens) < limit:
        choice = int(logits[-1].argmax())
        token = Token(choice, b"", vocabulary.starts_word(choice), row.tolist())
        if choice == EOS:
            return Hypothesis(session.committed, tokens, token)
        tokens.append(token)
        if not final and session.policy.is_decided(token, len(tokens) - 1):
            break
        logits, rows = decoder.step([choice], [cache], [layer])
        row = rows[0]
    return Hypothesis(session.committed, tokens)


def laal_ms(delays_ms: Sequence[float], source_ms: float, reference_words: int) -> float:
    """Length-adaptive average lagging (Polák 2022 eq. 6; Papi 2022) of one input, in ms.

    Args:
        delays_ms: for each word, the source heard when it was written.
        source_ms: length of the source.
        reference_words: words of the reference.
    """
    rate = max(len(delays_ms), reference_words) / source_ms
    lags = []
    for index, delay in enumerate(delays_ms):
        lags.append(delay - index / rate)
        if delay >= source_ms:
            break
    return sum(lags) / len(lags)


def _limit(heard_ms: float) -> float:
    return _SPARE_TOKENS + _TOKENS_PER_SECOND * heard_ms / 1000


def _word_delays(session: Session, checkpoint: Checkpoint) -> Iterable[float]:
    vocabulary = checkpoint.target_vocabulary
    for token, delay in zip(session.committed, session.delays_ms, strict=True):
        if vocabulary.starts_word(token):
            yield delay


@dataclass(frozen=True)
class SimultaneousScore:
    """BLEU, its brevity penalty and mean LAAL of many sessions."""

    bleu: float
    brevity: float
    laal_ms: float

    def __str__(self) -> str:
        """One line for people."""
        return f"BLEU {self.bleu:.1f} (brevity {self.brevity:.2f}), LAAL {self.laal_ms:.0f} ms"


def score_sessions(
    sessions: Sequence[Session], clips: Sequence[DevClip], checkpoint: Checkpoint, language: str
) -> SimultaneousScore:
    """Score sessions against the translations of their clips."""
    texts = [checkpoint.target_vocabulary.decode(session.committed) for session in sessions]
    references = [clip.sentence.translation(language) for clip in clips]
    value, brevity, _ = bleu(texts, references)
    lags = []
    for session, clip in zip(sessions, clips, strict=True):
        delays = list(_word_delays(session, checkpoint))
        if delays:
            source_ms = len(clip.features) * _FRAME_MS
            words = len(clip.sentence.translation(language).split())
            lags.append(laal_ms(delays, source_ms, words))
    return SimultaneousScore(value, brevity, sum(lags) / max(1, len(lags)))


if __name__ == "__main__":
    main()
