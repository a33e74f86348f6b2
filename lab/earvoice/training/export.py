"""From what was trained to a checkpoint that the services load."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.states import COMPRESSION
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import read_directory, save_checkpoint
from earvoice.models.config import ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.whisper import WhisperConfig, WhisperEncoder
from earvoice.training.ctc import with_branch
from earvoice.training.decoder import first_decoder, is_shared
from earvoice.training.teacher import WHISPER_DECODER

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.models.vocabulary import Vocabulary

NAME = "earvoice-en-x-small"
VERSION = "12"
PRETRAINED_SHARE = 0.15
"""Of Whisper's layers in those for English."""
DECODER_FILE = "decoder.pt"
TRANSLATIONS_FILE = "translations.pt"
ENGLISH_FILE = "english.pt"
CTC_FILE = "ctc.pt"
ENCODER_FILE = "encoder.pt"
TAUGHT_SHARE = 0.8
"""Of the taught encoder in what is exported; the rest is the pretrained one."""
TAGS = tuple(f"<{tag}>" for tag in (SOURCE_LANGUAGE, *TARGET_LANGUAGES))
TRANSLATION_POLICY = "local_agreement:n=2"
CAPTION_POLICY = "edatt:alpha=0.25,patience_states=20"
LANGUAGES = (
    *(TargetLanguage(tag, f"<{tag}>", TRANSLATION_POLICY) for tag in TARGET_LANGUAGES),
    TargetLanguage(SOURCE_LANGUAGE, f"<{SOURCE_LANGUAGE}>", CAPTION_POLICY),
)
"""Who asks for no language gets the first."""


def model_config(source_pieces: int, target_pieces: int) -> ModelConfig:
    """Whisper `tiny`, its decoder with our pieces, our CTC branch."""
    return ModelConfig(
        NAME,
        VERSION,
        SOURCE_LANGUAGE,
        LANGUAGES,
        source_pieces,
        target_pieces,
        encoder=WhisperConfig(compression=COMPRESSION),
        decoder=WHISPER_DECODER,
        policy_defaults=PolicyDefaults(attention_layer=3),
    )


def with_own_english(config: ModelConfig, target: Vocabulary) -> ModelConfig:
    token = target.id_of(f"<{SOURCE_LANGUAGE}>")
    return replace(config, decoder=replace(config.decoder, own_layers=(token,)))


def adopt(model: Path, corpus: Path, run: Path) -> None:
    """Let a run go on from a checkpoint's weights and vocabularies, with a fresh optimiser.

    Raises:
        CheckpointError: the checkpoint is damaged.
        FileExistsError: the run has begun.
    """
    for name in (CTC_FILE, DECODER_FILE, ENGLISH_FILE, TRANSLATIONS_FILE, ENCODER_FILE):
        if (run / name).exists():
            message = f"{run / name} is there: adopt wants a run that has not begun"
            raise FileExistsError(message)
    parts = read_directory(model)
    folder = corpus / "vocabulary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.model").write_bytes(parts.source_vocabulary.model)
    (folder / "target.model").write_bytes(parts.target_vocabulary.model)
    network = build_network(parts.config, parts.tensors)
    branch = network.encoder.get_submodule("ctc").state_dict()
    torch.save({"branch": branch, "used": 0.0, "step": 0}, run / CTC_FILE)
    given = network.decoder.state_dict()
    decoder = {name: tensor for name, tensor in given.items() if not name.startswith("own.")}
    _begin(run / DECODER_FILE, decoder)
    for token in parts.config.decoder.own_layers:
        start = f"own.{token}."
        own = {name.removeprefix(start): given[name] for name in given if name.startswith(start)}
        _begin(run / ENGLISH_FILE, decoder | own)


def _begin(path: Path, decoder: dict[str, torch.Tensor]) -> None:
    torch.save({"decoder": decoder, "average": decoder, "used": 0.0, "step": 0}, path)


def trained_decoder(path: Path) -> dict[str, torch.Tensor]:
    """The mean of a run's last weights."""
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["average"]
    return state


def trained_english(path: Path, target: Vocabulary, config: ModelConfig) -> dict[str, torch.Tensor]:
    """Layers for English, nearer to the pretrained ones than was learned (Wortsman 2022)."""
    state = trained_decoder(path)
    own = {name: tensor for name, tensor in state.items() if not is_shared(name)}
    if not torch.load(path, weights_only=True)["step"]:
        return own  # adopted: they were drawn nearer before
    pretrained = first_decoder(config, target).state_dict()
    return {name: torch.lerp(own[name], pretrained[name], PRETRAINED_SHARE) for name in own}


def exported_decoder(run: Path, target: Vocabulary, config: ModelConfig) -> TransformerDecoder:
    """What the run has learned; with layers of its own for English, if it has taught them."""
    went_on = run / TRANSLATIONS_FILE
    state = trained_decoder(went_on if went_on.exists() else run / DECODER_FILE)
    if (run / ENGLISH_FILE).exists():
        english = trained_english(run / ENGLISH_FILE, target, config)
        config = with_own_english(config, target)
        (token,) = config.decoder.own_layers
        state |= {f"own.{token}.{name}": tensor for name, tensor in english.items()}
    decoder = TransformerDecoder(config)
    decoder.load_state_dict(state)
    decoder.tie_embeddings()
    return decoder.eval()


def trained_encoder(
    run: Path, source: Vocabulary, taught_share: float = TAUGHT_SHARE
) -> WhisperEncoder:
    """What the run has learned: the branch, and the encoder if it was taught.

    Args:
        taught_share: how far from the pretrained weights to the taught ones (Wortsman 2022).
    """
    encoder = with_branch(source)
    encoder.ctc.load_state_dict(torch.load(run / CTC_FILE, weights_only=True)["branch"])
    if (run / ENCODER_FILE).exists():
        taught = torch.load(run / ENCODER_FILE, weights_only=True)["average"]
        first = encoder.state_dict()
        encoder.load_state_dict(
            {name: torch.lerp(first[name], taught[name], taught_share) for name in first}
        )
    return encoder.eval()


def export(run: Path, source: Vocabulary, target: Vocabulary, directory: Path) -> None:
    """Write what the run has learned; see `exported_decoder`."""
    decoder = exported_decoder(run, target, model_config(len(source), len(target)))
    encoder = trained_encoder(run, source).state_dict()
    tensors = {f"encoder.{n}": v for n, v in encoder.items()}
    tensors |= {f"decoder.{n}": v for n, v in decoder.state_dict().items()}
    save_checkpoint(
        directory,
        decoder.config,
        tensors,
        normalisation=FeatureNormalisation.identity(),
        source_model=source.model,
        target_model=target.model,
        storage_dtype=torch.float16,
        embeddings_in_int8=True,
    )
