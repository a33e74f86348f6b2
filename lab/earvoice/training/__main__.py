"""`python -m earvoice.training STEP`: from texts and recordings to a model.

Each step goes on where it stopped. Minutes are of one core, over all starts together.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import soundfile
import torch

from earvoice.corpus.clips import read_people
from earvoice.corpus.recipe import SEED, SHORT_TATOEBA_SHARE, SOURCE_LANGUAGE, TEXT_WEIGHTS
from earvoice.corpus.states import LONGEST_S
from earvoice.corpus.texts import Pair, read_pairs
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.bridge import train_bridge
from earvoice.training.ctc import train_ctc
from earvoice.training.data import read_clips
from earvoice.training.decoder import (
    ENGLISH_RECIPE,
    TRANSLATION_RECIPE,
    Memory,
    PartlyTaught,
    Recipe,
    Trainer,
    compressed,
    english_decoder,
    first_decoder,
    foretold,
    new_pieces,
    often_written,
)
from earvoice.training.encoder import EncoderRecipe, EncoderTrainer
from earvoice.training.export import (
    DECODER_FILE,
    ENCODER_FILE,
    ENGLISH_FILE,
    TAGS,
    TRANSLATIONS_FILE,
    adopt,
    export,
    exported_decoder,
    model_config,
    trained_decoder,
    trained_encoder,
)
from earvoice.training.scores import score_table
from earvoice.training.teacher import BATCH_CLIPS, hear, needs_hearing
from earvoice.training.vocabulary import source_model, target_model, whisper_ranks

if TYPE_CHECKING:
    from earvoice.training.data import Heard

SHORT_WORDS = 5
NEED_DATA = ("hear", "vocabulary", "decoder", "translations", "encoder")
NEED_RUN = ("adopt", "ctc", "decoder", "english", "translations", "encoder", "export", "scores")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.training", description=__doc__)
    steps = {
        "adopt": run_adopt,
        "hear": run_hear,
        "vocabulary": run_vocabulary,
        "ctc": run_ctc,
        "decoder": run_decoder,
        "english": run_english,
        "translations": run_translations,
        "encoder": run_encoder,
        "export": run_export,
        "scores": run_scores,
    }
    parser.add_argument("step", choices=steps)
    parser.add_argument("--corpus", type=Path, required=True, help="what earvoice.corpus wrote")
    parser.add_argument("--data", type=Path, help="texts and recordings")
    parser.add_argument("--run", type=Path, help="where the state is kept")
    parser.add_argument("--minutes", type=float, default=60.0, help="(%(default)s)")
    parser.add_argument("--bridge-minutes", type=float, default=4.0, help="(%(default)s)")
    parser.add_argument("--wait-k", type=int, default=0, help="train for wait-k, masked by words")
    parser.add_argument("--to", type=Path, help="export: the checkpoint's folder")
    parser.add_argument("--model", type=Path, help="adopt: a checkpoint's folder")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if options.data is None and options.step in NEED_DATA:
        parser.error(f"{options.step} needs --data")
    if options.run is None and options.step in NEED_RUN:
        parser.error(f"{options.step} needs --run")
    if options.model is None and options.step == "adopt":
        parser.error("adopt needs --model")
    if options.to is None and options.step == "export":
        parser.error("export needs --to")
    torch.set_num_threads(options.threads)
    if options.run is not None:
        options.run.mkdir(parents=True, exist_ok=True)
    steps[options.step](options)


def run_adopt(options: argparse.Namespace) -> None:
    adopt(options.model, options.corpus, options.run)


def run_hear(options: argparse.Namespace) -> None:
    """What the pretrained recogniser hears in recordings that lack words, case or commas."""
    seconds = {
        path: soundfile.info(path).duration
        for clip, path in read_people(options.data / "speech")
        if needs_hearing(clip)
    }
    items = [
        (clip, path)
        for clip, path in read_people(options.data / "speech")
        if seconds.get(path, LONGEST_S) < LONGEST_S
    ]
    items.sort(key=lambda item: seconds[item[1]])
    parts = [items[i : i + BATCH_CLIPS] for i in range(0, len(items), BATCH_CLIPS)]
    hear([item for part in parts for item in part], options.corpus / "heard.tsv")


def run_vocabulary(options: argparse.Namespace) -> None:
    folder = options.corpus / "vocabulary"
    folder.mkdir(exist_ok=True)
    pairs = [pair for pair in read_pairs(options.data / "text", SEED) if pair.split == "train"]
    clips = whole_clips(options.corpus)
    english = [pair.english for pair in pairs] + [clip.english or "" for clip in clips]
    others = [text for pair in pairs for text in pair.translations.values()]
    (folder / "target.model").write_bytes(target_model(english, others, TAGS))
    said = [clip.said for clip in clips if clip.said]
    (folder / "source.model").write_bytes(source_model(said))


def whole_clips(corpus: Path) -> list[Heard]:
    return [clip for clip in read_clips(corpus, "train") if not clip.is_cut]


def vocabularies(corpus: Path) -> tuple[Vocabulary, Vocabulary]:
    folder = corpus / "vocabulary"
    target = Vocabulary.from_file(folder / "target.model", TAGS)
    return Vocabulary.from_file(folder / "source.model"), target


def run_ctc(options: argparse.Namespace) -> None:
    source, _ = vocabularies(options.corpus)
    train_ctc(whole_clips(options.corpus), source, options.run, 60 * options.minutes, SEED)


def run_decoder(options: argparse.Namespace) -> None:
    source, target = vocabularies(options.corpus)
    clips = [clip for clip in read_clips(options.corpus, "train") if clip.texts]
    config = model_config(len(source), len(target))
    recipe = Recipe(wait_k=options.wait_k)
    decoder = first_decoder(config, target, recipe.dropout)
    pairs = weighted(read_pairs(options.data / "text", SEED))
    taught = often_written(pairs, target, whisper_ranks())
    embedding = PartlyTaught(decoder.embed_tokens.weight, taught)
    trainer = text_trainer(options, source, target, decoder, clips, pairs, recipe, embedding)
    trainer.train(options.run / DECODER_FILE, 60 * options.minutes, SEED)


def run_translations(options: argparse.Namespace) -> None:
    """The decoder goes on without English, whose layers read the same embeddings.

    So of these only those of pieces learn that English does not have.
    """
    source, target = vocabularies(options.corpus)
    clips = [clip for clip in read_clips(options.corpus, "train") if clip.texts]
    for clip in clips:
        clip.texts = {tag: clip.texts[tag] for tag in clip.texts if tag != SOURCE_LANGUAGE}
    recipe = TRANSLATION_RECIPE
    decoder = TransformerDecoder(model_config(len(source), len(target)), recipe.dropout)
    decoder.load_state_dict(trained_decoder(options.run / DECODER_FILE))
    pairs = weighted(read_pairs(options.data / "text", SEED))
    embedding = PartlyTaught(decoder.embed_tokens.weight, new_pieces(target, whisper_ranks()))
    trainer = text_trainer(options, source, target, decoder, clips, pairs, recipe, embedding)
    trainer.train(options.run / TRANSLATIONS_FILE, 60 * options.minutes, SEED)


def text_trainer(
    options: argparse.Namespace,
    source: Vocabulary,
    target: Vocabulary,
    decoder: TransformerDecoder,
    clips: list[Heard],
    pairs: list[Pair],
    recipe: Recipe,
    embedding: PartlyTaught,
) -> Trainer:
    """Of clips, and of texts by the bridge."""
    memory = memory_of(clips, options.run, source)
    bridge = train_bridge(memory, source, options.run, 60 * options.bridge_minutes, SEED)
    return Trainer(decoder, clips, memory, bridge, pairs, source, target, recipe, embedding)


def run_english(options: argparse.Namespace) -> None:
    """Layers of its own for English, which go on from Whisper's."""
    source, target = vocabularies(options.corpus)
    clips = [clip for clip in read_clips(options.corpus, "train") if clip.texts]
    memory = memory_of(clips, options.run, source)
    config = model_config(len(source), len(target))
    told = foretold(clips, first_decoder(config, target).eval(), target)
    recipe, shared = ENGLISH_RECIPE, trained_decoder(options.run / DECODER_FILE)
    decoder, embedding = english_decoder(config, target, shared, recipe.dropout)
    for clip in clips:
        clip.texts = {tag: clip.texts[tag] for tag in clip.texts if tag == SOURCE_LANGUAGE}
    trainer = Trainer(decoder, clips, memory, None, [], source, target, recipe, embedding, told)
    trainer.train(options.run / ENGLISH_FILE, 60 * options.minutes, SEED)


def memory_of(clips: list[Heard], run: Path, source: Vocabulary) -> Memory:
    """Compressed once, kept for the next start with the same clips."""
    path = run / "memory.pickle"
    keys = [clip.key for clip in clips]
    if path.exists():
        with path.open("rb") as stream:
            known, kept = pickle.load(stream)  # noqa: S301 - our own file
        if known == keys:
            assert isinstance(kept, Memory)  # noqa: S101 - written below
            return kept
    memory = compressed(clips, trained_encoder(run, source, taught_share=0.0))
    with path.open("wb") as stream:
        pickle.dump((keys, memory), stream)
    return memory


def weighted(pairs: list[Pair]) -> list[Pair]:
    """The train texts of one pass."""
    generator = random.Random(SEED)
    return [
        pair
        for pair in pairs
        for _ in range(TEXT_WEIGHTS.get(pair.source, 1))
        if pair.split == "train"
        and (
            pair.source != "tatoeba"
            or len(pair.english.split()) >= SHORT_WORDS
            or generator.random() < SHORT_TATOEBA_SHARE
        )
    ]


def run_encoder(options: argparse.Namespace) -> None:
    """The encoder and its branch, by what the decoders of all languages make of their states."""
    source, target = vocabularies(options.corpus)
    clips = read_clips(options.corpus, "train", ("real-", "spoken-", "nothing-"))
    recordings = {clip.key: path for clip, path in read_people(options.data / "speech")}
    decoder = exported_decoder(options.run, target, model_config(len(source), len(target)))
    encoder = trained_encoder(options.run, source, taught_share=0.0)
    trainer = EncoderTrainer(encoder, decoder, clips, recordings, source, target, EncoderRecipe())
    trainer.train(options.run / ENCODER_FILE, 60 * options.minutes, SEED)


def run_export(options: argparse.Namespace) -> None:
    source, target = vocabularies(options.corpus)
    export(options.run, source, target, options.to)


def run_scores(options: argparse.Namespace) -> None:
    """Of the dev split, whole utterances, greedy: what a run is watched by.

    From the corpus' states, which are the pretrained encoder's.
    """
    source, target = vocabularies(options.corpus)
    clips = read_clips(options.corpus, "dev")
    encoder = trained_encoder(options.run, source, taught_share=0.0)
    table = score_table(clips, encoder, options.run, source, target)
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
