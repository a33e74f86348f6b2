"""From what was trained to a checkpoint that the services load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.states import pretrained_encoder
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import read_directory, save_checkpoint
from earvoice.models.config import ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.whisper import WhisperConfig
from earvoice.training.decoder import COMPRESSION_MAX_FRAMES, first_decoder
from earvoice.training.teacher import WHISPER_DECODER

if TYPE_CHECKING:
    from pathlib import Path

    from earvoice.models.transformer import TransformerDecoder
    from earvoice.models.vocabulary import Vocabulary

NAME = "earvoice-en-x-small"
VERSION = "9"
PRETRAINED_SHARE = 0.15
TAGS = tuple(f"<{tag}>" for tag in (SOURCE_LANGUAGE, *TARGET_LANGUAGES))
LANGUAGES = tuple(TargetLanguage(tag, f"<{tag}>") for tag in (*TARGET_LANGUAGES, SOURCE_LANGUAGE))
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
        encoder=WhisperConfig(compression_max_frames=COMPRESSION_MAX_FRAMES),
        decoder=WHISPER_DECODER,
        policy_defaults=PolicyDefaults(attention_layer=3),
    )


def adopt(model: Path, corpus: Path, run: Path) -> None:
    """Let a run go on from a checkpoint's weights and vocabularies, with a fresh optimiser.

    Raises:
        CheckpointError: the checkpoint is damaged.
        FileExistsError: the run has begun.
    """
    for name in ("ctc.pt", "decoder.pt"):
        if (run / name).exists():
            message = f"{run / name} is there: adopt wants a run that has not begun"
            raise FileExistsError(message)
    parts = read_directory(model)
    folder = corpus / "vocabulary"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "source.model").write_bytes(parts.source_vocabulary.model)
    (folder / "target.model").write_bytes(parts.target_vocabulary.model)
    network = build_network(parts.config, parts.tensors)
    branch, decoder = (
        network.encoder.get_submodule("ctc").state_dict(),
        network.decoder.state_dict(),
    )
    torch.save({"branch": branch, "used": 0.0, "step": 0}, run / "ctc.pt")
    torch.save({"decoder": decoder, "average": decoder, "used": 0.0, "step": 0}, run / "decoder.pt")


def exported_decoder(run: Path, target: Vocabulary, config: ModelConfig) -> TransformerDecoder:
    """The mean of the run's last weights, its layers a little nearer to the pretrained ones.

    English gains more by that than the other languages lose (Wortsman 2022).
    """
    state = torch.load(run / "decoder.pt", weights_only=True)["average"]
    decoder = first_decoder(config, target)
    for name, pretrained in decoder.state_dict().items():
        if not name.startswith(("embed_tokens", "output_projection")):
            state[name] = torch.lerp(state[name], pretrained, PRETRAINED_SHARE)
    decoder.load_state_dict(state)
    return decoder.eval()


def export(run: Path, source: Vocabulary, target: Vocabulary, directory: Path) -> None:
    """Write what the run has learned; see `exported_decoder`."""
    config = model_config(len(source), len(target))
    decoder = exported_decoder(run, target, config).state_dict()
    branch = torch.load(run / "ctc.pt", weights_only=True)["branch"]
    encoder = pretrained_encoder().state_dict()
    tensors = {f"encoder.{n}": v for n, v in encoder.items() if not n.startswith("ctc.")}
    tensors |= {f"encoder.ctc.{n}": v for n, v in branch.items()}
    tensors |= {f"decoder.{n}": v for n, v in decoder.items()}
    save_checkpoint(
        directory,
        config,
        tensors,
        normalisation=FeatureNormalisation.identity(),
        source_model=source.model,
        target_model=target.model,
        storage_dtype=torch.float16,
    )
