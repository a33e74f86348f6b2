"""`python -m earvoice.training STEP`: from texts and recordings to a model.

An interrupted step continues where it stopped. Minutes are of one core, over all starts together.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import soundfile
import torch

from earvoice.cli.command import number_from
from earvoice.corpus.build import BRANCH
from earvoice.corpus.clips import read_people
from earvoice.corpus.espeak_library import phonemes
from earvoice.corpus.recipe import LANGUAGE_WEIGHTS, SEED, SHORT_TATOEBA_SHARE, TEXT_WEIGHTS
from earvoice.corpus.synthesizer import MissingEngineError
from earvoice.corpus.texts import Pair, read_pairs
from earvoice.evaluation.script import run_script
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.ctc import (
    DROPOUT,
    JOINT_PEAK_RATE,
    LAST_PEAK_RATE,
    CtcTrainer,
    labelled,
    with_branch,
    with_upper_layers,
)
from earvoice.training.data import Sounds, digest_of, heard_by, read_clips
from earvoice.training.decoder import (
    ATTUNING_RECIPE,
    ENGLISH_RECIPE,
    TRANSLATION_RECIPE,
    EnglishTrainer,
    TranslationTrainer,
    first_decoder,
    first_translator,
    foretold,
    memory_of,
    unknown_pieces,
)
from earvoice.training.encoder import EncoderRecipe, EncoderTrainer
from earvoice.training.export import (
    ATTUNED_FILE,
    CTC_FILE,
    ENCODER_FILE,
    ENGLISH_FILE,
    LABELS_FILE,
    TAGS,
    TRANSLATIONS_FILE,
    UPPER_FILE,
    adopt,
    english_decoder,
    export,
    model_config,
    trained_encoder,
    with_pivot,
)
from earvoice.training.misheard import Misheard, said_often
from earvoice.training.schedule import OtherBeginningError
from earvoice.training.scores import score_table
from earvoice.training.teacher import hear, needs_hearing
from earvoice.training.vocabulary import source_model, target_model, whisper_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from earvoice.training.data import Heard
    from earvoice.training.schedule import Trainer

SHORT_WORDS = 5
HEARD_SHARDS = ("real-", "dev-")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.training", description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--corpus", type=Path, required=True, help="what earvoice.corpus wrote")
    parser.add_argument("--data", type=Path, help="texts and recordings")
    parser.add_argument("--run", type=Path, help="where the state is kept")
    parser.add_argument(
        "--minutes", type=number_from(0, 1e6, float), default=60.0, help="(%(default)s)"
    )
    parser.add_argument(
        "--wait-k",
        type=number_from(0, 100, int),
        default=0,
        help="english: train for wait-k, masked by words",
    )
    parser.add_argument(
        "--seed", type=int, default=SEED, help="of what a run draws from the corpus (%(default)s)"
    )
    parser.add_argument("--to", type=Path, help="export: the checkpoint's folder")
    parser.add_argument(
        "--also", type=Path, default=[], action="append", metavar="RUN",
        help="export: a run with the same beginning and another seed, whose translations are "
        "averaged with those of --run",
    )  # fmt: skip
    parser.add_argument("--model", type=Path, help="adopt: a checkpoint's folder")
    parser.add_argument("--threads", type=number_from(1, 256, int), default=1)
    options = parser.parse_args()
    step = STEPS[options.step]
    if options.data is None and step.needs_data:
        parser.error(f"{options.step} needs --data")
    if options.run is None and step.needs_run:
        parser.error(f"{options.step} needs --run")
    if options.wait_k and options.step != "english":
        parser.error("--wait-k is for english")
    if options.model is None and options.step == "adopt":
        parser.error("adopt needs --model")
    if options.to is None and options.step == "export":
        parser.error("export needs --to")
    torch.set_num_threads(options.threads)
    if options.run is not None:
        options.run.mkdir(parents=True, exist_ok=True)
    step.run(options)


def train(trainer: Trainer[Any], options: argparse.Namespace) -> None:
    """Train a step for its minutes, unless its state was begun from something else."""
    source, target = vocabularies(options.corpus)
    step = STEPS[options.step]
    earlier = [options.run / STEPS[name].file for name in step.begins_from]
    weights = [
        digest_of(torch.load(path, weights_only=True)["average"], ())
        for path in earlier
        if path.exists()
    ]
    choices = options.seed, options.wait_k, list(source.pieces), list(target.pieces)
    begun_from = hashlib.sha256(repr((choices, weights)).encode()).hexdigest()
    trainer.train(options.run / step.file, 60 * options.minutes, options.seed, begun_from)


def run_adopt(options: argparse.Namespace) -> None:
    for file in filter(None, (step.file for step in STEPS.values())):
        if (options.run / file).exists():
            message = f"{options.run / file} is there: adopt wants a run that has not begun"
            raise FileExistsError(message)
    adopt(options.model, options.corpus, options.run)


def run_hear(options: argparse.Namespace) -> None:
    """Transcribe recordings that lack words, case or commas with the pretrained recogniser."""
    used = [clip for s in ("train", "dev") for clip in read_clips(options.corpus, s, HEARD_SHARDS)]
    keys = {clip.key for clip in used if needs_hearing(clip)}
    items = [item for item in read_people(options.data / "speech") if item[0].key in keys]
    items.sort(key=lambda item: soundfile.info(item[1]).duration)
    hear(items, options.corpus / "heard.tsv")


def run_vocabulary(options: argparse.Namespace) -> None:
    folder = options.corpus / "vocabulary"
    folder.mkdir(exist_ok=True)
    pairs = train_pairs(options.data)
    clips = whole_clips(options.corpus)
    english = [pair.english for pair in pairs] + [clip.english or "" for clip in clips]
    others = [text for pair in pairs for text in pair.translations.values()]
    (folder / "target.model").write_bytes(target_model(english, others, TAGS))
    said = [clip.said for clip in clips if clip.said]
    (folder / "source.model").write_bytes(source_model(said))


def whole_clips(corpus: Path) -> list[Heard]:
    """Train clips without the CTC branch's own, so that the vocabulary does not depend on Pico."""
    clips = read_clips(corpus, "train")
    return [clip for clip in clips if not clip.is_cut and not clip.key.startswith(BRANCH)]


def vocabularies(corpus: Path) -> tuple[Vocabulary, Vocabulary]:
    folder = corpus / "vocabulary"
    target = Vocabulary.from_file(folder / "target.model", TAGS)
    return Vocabulary.from_file(folder / "source.model"), target


def run_ctc(options: argparse.Namespace) -> None:
    source, _ = vocabularies(options.corpus)
    encoder = with_branch(source, DROPOUT)
    clips = labelled(read_clips(options.corpus, "train"), source)
    trainer = CtcTrainer(encoder, clips)
    train(trainer, options)


def run_english(options: argparse.Namespace) -> None:
    source, target = vocabularies(options.corpus)
    clips = to_write(read_clips(options.corpus, "train"))
    encoder = trained_encoder(options.run, source, taught_share=0.0)
    memory = memory_of(clips, encoder, options.run / "memory.pt")
    config, recipe = model_config(len(source), len(target)), ENGLISH_RECIPE
    told = foretold(clips, first_decoder(config, target).eval(), target)
    decoder = first_decoder(config, target, recipe.dropout)
    recipe = replace(recipe, wait_k=options.wait_k)
    trainer = EnglishTrainer(decoder, clips, memory, source, target, recipe, told)
    train(trainer, options)


def to_write(clips: Sequence[Heard]) -> list[Heard]:
    """The clips that the English layers learn from: those that start where the recording does."""
    return [
        clip
        for clip in clips
        if clip.english is not None and not clip.key.startswith(BRANCH) and not clip.begin_frame
    ]


def run_translations(options: argparse.Namespace) -> None:
    source, target = vocabularies(options.corpus)
    config = with_pivot(model_config(len(source), len(target)), target)
    decoder = first_translator(config, target, TRANSLATION_RECIPE.dropout)
    pairs, taught = translated(train_pairs(options.data)), unknown_pieces(target, whisper_ranks())
    counts = said_often(pair.english for pair in pairs)
    misheard = Misheard(counts, phonemes(counts))
    trainer = TranslationTrainer(
        decoder, taught, pairs, TEXT_WEIGHTS, LANGUAGE_WEIGHTS, misheard, target, TRANSLATION_RECIPE
    )
    train(trainer, options)


def train_pairs(data: Path) -> list[Pair]:
    return [pair for pair in read_pairs(data / "text", SEED) if pair.split == "train"]


def translated(pairs: Iterable[Pair]) -> list[Pair]:
    """Those of the train texts that translations are learned from."""
    generator = random.Random(SEED)
    return [
        pair
        for pair in pairs
        if TEXT_WEIGHTS.get(pair.source, 1)
        and (
            pair.source != "tatoeba"
            or len(pair.english.split()) >= SHORT_WORDS
            or generator.random() < SHORT_TATOEBA_SHARE
        )
    ]


def run_encoder(options: argparse.Namespace) -> None:
    """Train the encoder and its branch, through the frozen decoder for English."""
    source, target = vocabularies(options.corpus)
    config = model_config(len(source), len(target))
    decoder = english_decoder(options.run, target, config, attuned_share=0.0)
    encoder = trained_encoder(options.run, source, taught_share=0.0)
    sounds = sounds_of(options)
    trainer = EncoderTrainer(encoder, decoder, sounds, source, target, EncoderRecipe())
    train(trainer, options)


def run_labels(options: argparse.Namespace) -> None:
    """Train the branch once more, alone: from now on the encoder is frozen."""
    source, _ = vocabularies(options.corpus)
    encoder = trained_encoder(options.run, source, dropout=DROPOUT)
    clips = heard_by(encoder, sounds_of(options, BRANCH), options.run / "heard", options.seed)
    trainer = CtcTrainer(encoder, labelled(clips, source, encoder), LAST_PEAK_RATE)
    train(trainer, options)


def run_upper(options: argparse.Namespace) -> None:
    """Finally train the branch with its own copy of the encoder's upper layers."""
    source, _ = vocabularies(options.corpus)
    encoder = with_upper_layers(trained_encoder(options.run, source), DROPOUT)
    sounds = sounds_of(options, BRANCH)
    clips = heard_by(encoder, sounds, options.run / "heard-below", options.seed)
    trainer = CtcTrainer(encoder, labelled(clips, source, encoder), JOINT_PEAK_RATE)
    train(trainer, options)


def run_attune(options: argparse.Namespace) -> None:
    """Train English once more: the decoder has never read the trained encoder's states."""
    source, target = vocabularies(options.corpus)
    encoder = trained_encoder(options.run, source)
    clips = heard_by(encoder, sounds_of(options, BRANCH), options.run / "heard", options.seed)
    clips = to_write(clips)
    memory = memory_of(clips, encoder, options.run / "heard" / "memory.pt")
    config, recipe = model_config(len(source), len(target)), ATTUNING_RECIPE
    decoder = english_decoder(
        options.run, target, config, attuned_share=0.0, dropout=recipe.dropout
    )
    told = foretold(clips, decoder, target, memory.of)
    trainer = EnglishTrainer(decoder, clips, memory, source, target, recipe, told)
    train(trainer, options)


def sounds_of(options: argparse.Namespace, *more: str) -> Sounds:
    """Clips whose sound is available: recordings, synthesised, no speech, and shards in `more`."""
    clips = read_clips(options.corpus, "train", ("real-", "spoken-", "nothing-", *more))
    recordings = {clip.key: path for clip, path in read_people(options.data / "speech")}
    return Sounds(clips, recordings)


def run_export(options: argparse.Namespace) -> None:
    source, target = vocabularies(options.corpus)
    # Manuals say what nobody says, but in words that people use: they are counted.
    pairs = train_pairs(options.data)
    export(options.run, source, target, translated(pairs), pairs, options.to, options.also)


def run_scores(options: argparse.Namespace) -> None:
    """Print scores to monitor a run by: dev split, whole utterances, greedy.

    They use the corpus' states, which are the pretrained encoder's.
    """
    source, target = vocabularies(options.corpus)
    clips = read_clips(options.corpus, "dev")
    encoder = trained_encoder(options.run, source, taught_share=0.0)
    table = score_table(clips, encoder, options.run, source, target)
    sys.stdout.write(table)


@dataclass(frozen=True)
class Step:
    """A step of the command.

    Attributes:
        file: of its state; empty where it trains nothing.
        begins_from: the steps whose weights it begins from.
    """

    run: Callable[[argparse.Namespace], None]
    file: str = ""
    begins_from: tuple[str, ...] = ()
    needs_data: bool = True
    needs_run: bool = True


STEPS = {
    "adopt": Step(run_adopt, needs_data=False),
    "hear": Step(run_hear, needs_run=False),
    "vocabulary": Step(run_vocabulary, needs_run=False),
    "ctc": Step(run_ctc, CTC_FILE, needs_data=False),
    "english": Step(run_english, ENGLISH_FILE, ("ctc",), needs_data=False),
    "translations": Step(run_translations, TRANSLATIONS_FILE),
    "encoder": Step(run_encoder, ENCODER_FILE, ("ctc", "english")),
    "labels": Step(run_labels, LABELS_FILE, ("ctc", "encoder")),
    "upper": Step(run_upper, UPPER_FILE, ("ctc", "encoder", "labels")),
    "attune": Step(run_attune, ATTUNED_FILE, ("ctc", "english", "encoder", "labels")),
    "export": Step(run_export),
    "scores": Step(run_scores, needs_data=False),
}


if __name__ == "__main__":
    run_script(main, OtherBeginningError, MissingEngineError)
