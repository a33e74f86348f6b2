"""Make a checkpoint that the services load from what a run has trained."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.states import BRANCH, COMPRESSION
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import read_directory, save_checkpoint
from earvoice.models.config import ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.errors import CheckpointError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.lexicon import write_table
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import EOS
from earvoice.models.whisper import WhisperConfig, WhisperEncoder
from earvoice.training.ctc import UPPER_LAYERS, with_branch, with_upper_layers
from earvoice.training.decoder import first_decoder, for_one_language, is_shared
from earvoice.training.lexicon import lexicon_of
from earvoice.training.teacher import WHISPER_DECODER
from earvoice.training.vocabulary import whisper_ranks

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from earvoice.corpus.texts import Pair
    from earvoice.models.vocabulary import Vocabulary

NAME = "earvoice-en-x-small"
VERSION = "26"
PIVOT_LAYERS = 3
PRETRAINED_SHARE = 0.15
"""Share of Whisper's weights in the layers for English."""
TRANSLATIONS_FILE = "translations.pt"
ENGLISH_FILE = "english.pt"
CTC_FILE = "ctc.pt"
ENCODER_FILE = "encoder.pt"
LABELS_FILE = "labels.pt"
UPPER_FILE = "upper.pt"
ATTUNED_FILE = "attuned.pt"
TAUGHT_SHARE = 0.8
"""Share of the trained encoder in the exported one; the rest is the pretrained one."""
UPPER_SHARE = 0.6
"""Share of the branch trained with its own upper layers; the rest is the branch before that."""
ATTUNED_SHARE = 0.2
"""Share of the English decoder trained on the trained encoder; the rest is the one before that."""
TAGS = tuple(f"<{tag}>" for tag in (SOURCE_LANGUAGE, *TARGET_LANGUAGES))
LEAST_EMPTY_PROBABILITY = 0.97
"""For nearly all sounds without English speech, the probability of an empty text is higher."""
TRANSLATION_POLICY = "local_agreement:n=2,compared_tokens=12,held_words=1"
CAPTION_POLICY = "edatt:alpha=0.25,patience_states=20"
SEGMENT_MS = 640
"""Words come earlier than with 800 ms, at equal quality."""
LOOKAHEAD_MS = 2560
"""On dev, captions are as good as with everything re-encoded; with half of it not quite."""
LANGUAGES = (
    *(TargetLanguage(tag, f"<{tag}>", TRANSLATION_POLICY) for tag in TARGET_LANGUAGES),
    TargetLanguage(SOURCE_LANGUAGE, f"<{SOURCE_LANGUAGE}>", CAPTION_POLICY),
)
"""The first is the default."""


def model_config(source_pieces: int, target_pieces: int) -> ModelConfig:
    """Whisper `tiny` with our pieces in the decoder and our CTC branch."""
    return ModelConfig(
        NAME,
        VERSION,
        SOURCE_LANGUAGE,
        LANGUAGES,
        source_pieces,
        target_pieces,
        encoder=WhisperConfig(
            compression=COMPRESSION,
            lookahead_ms=LOOKAHEAD_MS,
            ctc=replace(BRANCH, upper_layers=UPPER_LAYERS),
        ),
        decoder=replace(WHISPER_DECODER, least_empty_probability=LEAST_EMPTY_PROBABILITY),
        policy_defaults=PolicyDefaults(attention_layer=3, segment_ms=SEGMENT_MS),
    )


def with_pivot(config: ModelConfig, target: Vocabulary) -> ModelConfig:
    """English gets its own layers, the other languages are translated from the English text."""
    own = (target.id_of(f"<{SOURCE_LANGUAGE}>"),)
    decoder = replace(config.decoder, own_layers=own, pivot_layers=PIVOT_LAYERS)
    return replace(config, decoder=decoder)


def with_shortlist(config: ModelConfig) -> ModelConfig:
    """Only for export: in training, texts may use all pieces."""
    return replace(config, decoder=replace(config.decoder, shortlist=True))


def adopt(model: Path, corpus: Path, run: Path) -> None:
    """Start a run from a checkpoint's weights and vocabularies, with a fresh optimiser.

    Raises:
        CheckpointError: the checkpoint is damaged, or of another shape.
    """
    parts = read_directory(model)
    if not parts.config.decoder.pivot_layers:
        raise CheckpointError(f"{model.name} has no pivot_layers; allowed: a model that has some")
    branch_shape = getattr(parts.config.encoder, "ctc", None)
    shapes = [replace(BRANCH, upper_layers=count) for count in (0, UPPER_LAYERS)]
    if branch_shape not in shapes:
        message = f"{model.name} has encoder.ctc = {branch_shape}; allowed: {shapes}"
        raise CheckpointError(message)
    folder = corpus / "vocabulary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.model").write_bytes(parts.source_vocabulary.model)
    (folder / "target.model").write_bytes(parts.target_vocabulary.model)
    network = build_network(parts.config, parts.tensors)
    branch = network.encoder.get_submodule("ctc").state_dict()
    rest = _without_upper(branch)
    _begin(run / CTC_FILE, "branch", rest)
    if branch_shape == shapes[-1]:
        # Alone: `encoder` and `labels` may train the rest before `upper` trains both.
        upper = {name: tensor for name, tensor in branch.items() if name not in rest}
        _begin(run / UPPER_FILE, "branch", upper)
    given = network.decoder.state_dict()
    # Already trained, and already interpolated towards the pretrained one at its export.
    _begin(run / ENCODER_FILE, "encoder", _without_upper(network.encoder.state_dict()))
    (start,) = (f"own.{token}." for token in parts.config.decoder.own_layers)
    given.pop("shortlist", None)
    translations = {name: tensor for name, tensor in given.items() if not name.startswith(start)}
    _begin(run / TRANSLATIONS_FILE, "decoder", translations)
    own = {name.removeprefix(start): given[name] for name in given if name.startswith(start)}
    shared = {name: given[name] for name in given if is_shared(name)}
    _begin(run / ENGLISH_FILE, "decoder", shared | own)


def _without_upper(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The state of a branch or an encoder without the branch's own upper layers."""
    return {
        name: tensor
        for name, tensor in state.items()
        if not name.removeprefix("ctc.").startswith("upper")
    }


def _begin(path: Path, part: str, state: dict[str, torch.Tensor]) -> None:
    torch.save({part: state, "average": state, "used": 0.0, "step": 0}, path)


def _is_adopted(kept: dict[str, Any]) -> bool:
    """Whether a part is from a checkpoint, so already interpolated with the pretrained one."""
    return not kept["step"]


def between(
    first: Mapping[str, torch.Tensor], second: Mapping[str, torch.Tensor], share: float
) -> dict[str, torch.Tensor]:
    """Interpolate the second's weights: 0 gives the first's, 1 its own (Wortsman 2022)."""
    return {name: torch.lerp(first[name], second[name], share) for name in second}


def english_decoder(
    run: Path,
    target: Vocabulary,
    config: ModelConfig,
    attuned_share: float = ATTUNED_SHARE,
    dropout: float = 0.0,
) -> TransformerDecoder:
    """The English decoder, its layers interpolated from the trained towards the pretrained ones.

    Args:
        config: `model_config`.
        attuned_share: share of the weights trained on the trained encoder's states; 0 gives a
            decoder for the pretrained encoder's.
        dropout: for further training.
    """
    kept = torch.load(run / ENGLISH_FILE, weights_only=True)
    state = kept["average"]
    if not _is_adopted(kept):
        pretrained = first_decoder(config, target).state_dict()
        own = {name: pretrained[name] for name in pretrained if not is_shared(name)}
        state |= between(state, own, PRETRAINED_SHARE)
    if attuned_share and (run / ATTUNED_FILE).exists():
        attuned = torch.load(run / ATTUNED_FILE, weights_only=True)["average"]
        state = between(state, attuned, attuned_share)
    return _decoder(config, state, dropout)


def exported_decoder(
    run: Path,
    target: Vocabulary,
    config: ModelConfig,
    also: Sequence[Path] = (),
    attuned_share: float = ATTUNED_SHARE,
) -> TransformerDecoder:
    """The run's trained decoder for all languages.

    Args:
        config: `with_pivot`.
        also: runs with the same start and another seed; the weights for translation are averaged
            over all runs (Wortsman 2022).
        attuned_share: for English; see `english_decoder`.
    """
    learned = [
        torch.load(each / TRANSLATIONS_FILE, weights_only=True)["average"] for each in (run, *also)
    ]
    state = {n: torch.stack([each[n] for each in learned]).mean(0) for n in learned[0]}
    (token,) = config.decoder.own_layers
    single = for_one_language(config)
    english = english_decoder(run, target, single, attuned_share).state_dict()
    state |= {f"own.{token}.{n}": tensor for n, tensor in english.items() if not is_shared(n)}
    return _decoder(config, state)


def _decoder(
    config: ModelConfig, state: dict[str, torch.Tensor], dropout: float = 0.0
) -> TransformerDecoder:
    decoder = TransformerDecoder(config, dropout)
    decoder.load_state_dict(state)
    decoder.tie_embeddings()
    return decoder.eval()


def trained_encoder(
    run: Path,
    source: Vocabulary,
    taught_share: float = TAUGHT_SHARE,
    dropout: float = 0.0,
) -> WhisperEncoder:
    """The run's trained branch, and its encoder if that was trained.

    Args:
        taught_share: share of the trained weights in the encoder; the rest is pretrained. With 0
            the branch is the one trained on the pretrained encoder's states.
        dropout: of the branch.
    """
    encoder = with_branch(source, dropout)
    encoder.ctc.load_state_dict(torch.load(run / CTC_FILE, weights_only=True)["average"])
    if (run / ENCODER_FILE).exists():
        kept = torch.load(run / ENCODER_FILE, weights_only=True)
        if taught_share and _is_adopted(kept):
            taught_share = 1.0
        encoder.load_state_dict(between(encoder.state_dict(), kept["average"], taught_share))
    if taught_share and (run / LABELS_FILE).exists():
        encoder.ctc.load_state_dict(torch.load(run / LABELS_FILE, weights_only=True)["average"])
    return encoder.eval()


def exported_encoder(run: Path, source: Vocabulary) -> WhisperEncoder:
    """The trained encoder, its branch interpolated towards the one with its own upper layers."""
    encoder = with_upper_layers(trained_encoder(run, source))
    if (run / UPPER_FILE).exists():
        kept = torch.load(run / UPPER_FILE, weights_only=True)
        share = 1.0 if _is_adopted(kept) else UPPER_SHARE
        moved = between(encoder.ctc.state_dict(), kept["average"], share)
        encoder.ctc.load_state_dict(moved, strict=False)
    return encoder


def shortlist_of(pairs: Iterable[Pair], target: Vocabulary) -> torch.Tensor:
    """[2, V]: 1 for the pieces that English and that translations use, 0 for others.

    Both use those of their texts, bytes and the end. English uses all of Whisper's, too, since
    people's names are in them.
    """
    always = {EOS, *(i for i, piece in enumerate(target.pieces) if piece.startswith("<0x"))}
    ranks = whisper_ranks()
    english = always | {i for i, piece in enumerate(target.pieces) if piece in ranks}
    translated = set(always)
    for pair in pairs:
        english.update(target.encode(pair.english))
        for text in pair.translations.values():
            translated.update(target.encode(text))
    shortlist = torch.zeros(2, len(target))
    for row, listed in zip(shortlist, (english, translated), strict=True):
        row[list(listed)] = 1
    return shortlist


def export(
    run: Path,
    source: Vocabulary,
    target: Vocabulary,
    pairs: Iterable[Pair],
    counted: Iterable[Pair],
    directory: Path,
    also: Sequence[Path] = (),
) -> None:
    """Write the run's checkpoint; the decoder's matrices are in 8 bits.

    Args:
        pairs: texts and translations whose pieces form the shortlists.
        counted: texts and translations whose words form the lexicon.
        also: see `exported_decoder`.
    """
    config = with_pivot(model_config(len(source), len(target)), target)
    decoder = exported_decoder(run, target, config, also).state_dict()
    config = with_shortlist(config)
    tensors = {f"encoder.{n}": v for n, v in exported_encoder(run, source).state_dict().items()}
    decoder["shortlist"] = shortlist_of(pairs, target)
    tensors |= {f"decoder.{n}": v for n, v in decoder.items()}
    save_checkpoint(
        directory,
        config,
        tensors,
        normalisation=FeatureNormalisation.identity(),
        source_model=source.model,
        target_model=target.model,
        lexicon=write_table(lexicon_of(counted)),
        storage_dtype=torch.float16,
        in_int8=[
            f"decoder.{name}"
            for name, tensor in decoder.items()
            if tensor.ndim > 1 and name.startswith(("embed_tokens.", "layers.", "pivot.", "own."))
        ],
    )
