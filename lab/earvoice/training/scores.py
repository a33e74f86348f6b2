"""How well held-out clips are written: word error rate of English, BLEU of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sacrebleu
import torch

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.spoken import spoken_form, transcript
from earvoice.evaluation.quality import word_error_rate
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.training.decoder import compressed, labels_alone
from earvoice.training.export import exported_decoder, model_config
from earvoice.training.greedy import greedy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from earvoice.models.transformer import TransformerDecoder
    from earvoice.models.whisper import WhisperEncoder
    from earvoice.training.data import Heard
    from earvoice.training.decoder import Memory

BATCH = 24
WORSENED = ("telephone", "noise 10 dB")


def written(
    decoder: TransformerDecoder,
    memory: Memory,
    chosen: Sequence[int],
    tag: str,
    vocabulary: Vocabulary,
) -> list[str]:
    """What the decoder writes for the chosen clips in one language, greedily."""
    order = sorted(chosen, key=memory.length)
    out: dict[int, str] = {}
    for begin in range(0, len(order), BATCH):
        part = order[begin : begin + BATCH]
        states = torch.nn.utils.rnn.pad_sequence([memory.of(i) for i in part], batch_first=True)
        lengths = torch.tensor([memory.length(i) for i in part])
        prompt = (EOS, vocabulary.id_of(f"<{tag}>"))
        texts, _ = greedy(
            decoder, states, lengths, [prompt] * len(part), EOS, 10 + int(lengths.max())
        )
        for i, tokens in zip(part, texts, strict=True):
            out[i] = vocabulary.decode(tokens)
    return [out[i] for i in chosen]


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
    decoder = exported_decoder(run, target, model_config(len(source), len(target)))
    conditions: dict[str, list[Heard]] = {}
    for clip in clips:
        kind = clip.condition if clip.condition in WORSENED else ""
        conditions.setdefault(f"{clip.source} {kind}".strip(), []).append(clip)
    lines = [f"{'':40} clips   WER  CTC's  BLEU"]
    for name, part in conditions.items():
        memory = compressed(part, encoder)
        heard = written(decoder, memory, range(len(part)), SOURCE_LANGUAGE, target)
        if all(not text for clip in part for text in clip.texts.values()):
            lines.append(f"{name:40} {len(part):5} {sum(map(bool, heard)):5} of them say something")
            continue
        said = [clip.said or "" for clip in part]
        error = 100 * word_error_rate([transcript(spoken_form(text)) for text in heard], said)
        ctc = 100 * word_error_rate(
            [source.decode(labels_alone(m, len(source))) for m in memory.labels], said
        )
        scores = []
        for tag in TARGET_LANGUAGES:
            of_tag = [index for index, clip in enumerate(part) if tag in clip.texts]
            if of_tag:
                given = written(decoder, memory, of_tag, tag, target)
                wanted = [part[index].texts[tag] for index in of_tag]
                scores.append(f"{tag} {bleu(wanted, given):.1f}")
        lines.append(f"{name:40} {len(part):5} {error:5.1f}  {ctc:5.1f}  {', '.join(scores)}")
    return "\n".join(lines) + "\n"
