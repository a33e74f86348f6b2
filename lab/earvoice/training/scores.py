"""Scores on held-out clips: word error rate for English, BLEU for the other languages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sacrebleu
import torch
from torch import nn

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.decoder.search import LEAST_PIVOT_TOKENS, PIVOT_TOKENS_PER_STATE
from earvoice.evaluation.quality import word_error_rate
from earvoice.models.ctc import spelled
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.decoder import compressed
from earvoice.training.export import exported_decoder, model_config, with_pivot
from earvoice.training.greedy import greedy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.models.transformer import TransformerDecoder
    from earvoice.models.whisper import WhisperEncoder
    from earvoice.training.data import Heard

BATCH = 24
WORSENED = ("telephone", "noise 10 dB")


def written(
    decoder: TransformerDecoder, sources: Sequence[torch.Tensor], tag: str, vocabulary: Vocabulary
) -> list[list[int]]:
    """What the decoder writes, greedily.

    Args:
        sources: [S, d] states of each clip; for other languages [P] English pieces and the end.
    """
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    prompt = (EOS, vocabulary.id_of(f"<{tag}>"))
    out: dict[int, list[int]] = {}
    for begin in range(0, len(order), BATCH):
        part = order[begin : begin + BATCH]
        rows = [sources[i] for i in part]
        read, lengths = (
            nn.utils.rnn.pad_sequence(rows, batch_first=True),
            torch.tensor([*map(len, rows)]),
        )
        longest = int(lengths.max())
        if tag == SOURCE_LANGUAGE:
            # Where the decoder service cuts it: a model that has not learned to end goes on.
            most = LEAST_PIVOT_TOKENS + int(PIVOT_TOKENS_PER_STATE * longest)
        else:
            most = 20 + 2 * longest
            with torch.inference_mode():
                read = decoder.read_pivot(read, lengths)
        texts, _ = greedy(decoder, read, lengths, [prompt] * len(part), EOS, most)
        out.update(zip(part, texts, strict=True))
    return [out[i] for i in range(len(out))]


def bleu(wanted: Sequence[str], given: Sequence[str]) -> float:
    return float(sacrebleu.corpus_bleu(list(given), [list(wanted)]).score)


def score_table(
    clips: Sequence[Heard],
    encoder: WhisperEncoder,
    run: Path,
    source: Vocabulary,
    target: Vocabulary,
) -> str:
    """A row for each condition: clips, WER of the decoder and of CTC, BLEU of each language."""
    config = with_pivot(model_config(len(source), len(target)), target)
    decoder = exported_decoder(run, target, config, attuned_share=0.0)
    conditions: dict[str, list[Heard]] = {}
    for clip in clips:
        if clip.said is None:
            continue  # a recording whose words nobody knows
        kind = clip.condition if clip.condition in WORSENED else ""
        conditions.setdefault(f"{clip.source} {kind}".strip(), []).append(clip)
    lines = [f"{'':40} clips   WER  CTC's  BLEU"]
    for name, part in conditions.items():
        memory = compressed(part, encoder)
        states = [memory.of(index) for index in range(len(part))]
        pieces = written(decoder, states, SOURCE_LANGUAGE, target)
        heard = [target.decode(own) for own in pieces]
        if all(not text for clip in part for text in clip.texts.values()):
            lines.append(f"{name:40} {len(part):5} {sum(map(bool, heard)):5} of them say something")
            continue
        said = [clip.said or "" for clip in part]
        error = 100 * word_error_rate([transcript(spoken_form(text)) for text in heard], said)
        ctc = 100 * word_error_rate(
            [source.decode(spelled(m, len(source))) for m in memory.labels], said
        )
        scores = []
        for tag in TARGET_LANGUAGES:
            of_tag = [index for index, clip in enumerate(part) if tag in clip.texts]
            if of_tag:
                texts = [torch.tensor([*pieces[i], EOS]) for i in of_tag]
                given = [target.decode(own) for own in written(decoder, texts, tag, target)]
                wanted = [part[index].texts[tag] for index in of_tag]
                scores.append(f"{tag} {bleu(wanted, given):.1f}")
        lines.append(f"{name:40} {len(part):5} {error:5.1f}  {ctc:5.1f}  {', '.join(scores)}")
    return "\n".join(lines) + "\n"
