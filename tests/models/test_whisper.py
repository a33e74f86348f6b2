"""Whisper's encoder and decoder: the numbers of `transformers`, incremental, of any length."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.models.checkpoint import load_checkpoint
from earvoice.models.config import DecoderConfig, ModelConfig, PolicyDefaults, TargetLanguage
from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.frontend import FeatureNormalisation, feature_stream, frame_count
from earvoice.models.loaders.whisper import installed_whisper, read_whisper
from earvoice.models.translation import SpeechTranslationModel
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.models.whisper import (
    CtcBranchConfig,
    GrowingUtterance,
    WhisperConfig,
    WhisperEncoder,
    WhisperFilterbank,
)
from earvoice.training.ctc import with_upper_layers
from tests.tiny_model import random_network, save_network

transformers = pytest.importorskip("transformers", reason="the extra 'hf' is not installed")
pytestmark = pytest.mark.torch

SOUND = (np.random.default_rng(0).standard_normal(52_345) * 0.1).astype(np.float32)
SHAPE = {
    "encoder_layers": 2,
    "decoder_layers": 2,
    "d_model": 32,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "vocab_size": 60,
    "max_target_positions": 64,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "init_std": 0.3,
}


def _branch(upper_layers: int = 0) -> CtcBranchConfig:
    return CtcBranchConfig(2, 16, 2, 32, 1, upper_layers)


def _config(pieces: int = 60, **encoder: object) -> ModelConfig:
    return ModelConfig(
        name="tiny",
        version="1",
        source_language="en",
        target_languages=(TargetLanguage("en"),),
        source_pieces=10,
        target_pieces=pieces,
        encoder=WhisperConfig(
            **{
                "d_model": 32,
                "heads": 2,
                "ffn_width": 64,
                "layers": 2,
                "tail_ms": 0,
                "ctc": _branch(),
                **encoder,  # type: ignore[dict-item]
            }
        ),
        decoder=DecoderConfig(
            layers=2,
            heads=2,
            ffn_width=64,
            tied_embeddings=True,
            activation="gelu",
            positions="learned",
            max_tokens=64,
            key_bias=False,
        ),
        policy_defaults=PolicyDefaults(attention_layer=1),
    )


def _ours(config: ModelConfig, folder: Path) -> SpeechTranslationModel:
    network = random_network(config)
    left = network.load_state_dict(read_whisper(folder), strict=False)
    assert not left.unexpected_keys
    assert all(
        name.startswith(("encoder.ctc.", "decoder.output_projection")) for name in left.missing_keys
    )
    network.decoder.tie_embeddings()
    return network.eval()


def _features(sound: np.ndarray, cuts: int = 1) -> torch.Tensor:
    stream = feature_stream(WhisperFilterbank(), FeatureNormalisation.identity())
    return torch.cat([stream(part) for part in np.array_split(sound, cuts)])


@torch.inference_mode()
def _assert_equal(ours: SpeechTranslationModel, theirs: torch.nn.Module, tokens: list[int]) -> None:
    """Features, states and logits over 30 s, which is what `transformers` computes."""
    sound = np.concatenate([SOUND, np.zeros(480_000 - len(SOUND), np.float32)])
    expected = transformers.WhisperFeatureExtractor()(
        SOUND, sampling_rate=16_000, return_tensors="pt"
    )["input_features"]
    features = torch.cat([_features(sound), torch.full((1, 80), -10.0)])
    assert isinstance(ours.encoder, WhisperEncoder)
    scaled, lengths = ours.encoder._with_tail(features[None], torch.tensor([3000]))
    assert lengths.tolist() == [3000]
    torch.testing.assert_close(scaled, expected.transpose(1, 2), atol=2e-5, rtol=0)
    states, read, _ = ours.encoder.hear(features[None])
    assert read is states
    hidden = theirs.model.encoder(expected).last_hidden_state  # type: ignore[union-attr, operator]
    torch.testing.assert_close(states, hidden, atol=1e-4, rtol=0)
    logits = theirs(encoder_outputs=(hidden,), decoder_input_ids=torch.tensor([tokens])).logits
    found = ours.decoder(torch.tensor([tokens]), hidden, torch.tensor([1500]))
    torch.testing.assert_close(found, logits, atol=1e-4, rtol=0)
    assert float(states.std()) > 0.1
    assert float(logits.std()) > 0.1


def _written(folder: Path) -> torch.nn.Module:
    torch.manual_seed(5)
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SHAPE))
    model.save_pretrained(folder)
    network: torch.nn.Module = model.eval()
    return network


def test_equals_transformers(tmp_path: Path) -> None:
    """A random checkpoint in the form of `transformers`: features, states and logits are equal."""
    theirs = _written(tmp_path)
    _assert_equal(_ours(_config(), tmp_path), theirs, [EOS, 7, 30, 12])


def test_equals_transformers_with_the_real_weights() -> None:
    """Those of `tiny.en`, out of CTranslate2's binary."""
    folder = installed_whisper()
    if folder is None:
        pytest.skip("Whisper's weights are not installed: make test-tools installs them")
    decoder = DecoderConfig(
        layers=4,
        heads=6,
        ffn_width=1536,
        tied_embeddings=True,
        activation="gelu",
        positions="learned",
        key_bias=False,
    )
    config = dataclasses.replace(_config(51_864), encoder=WhisperConfig(tail_ms=0), decoder=decoder)
    ours = _ours(config, folder)
    shape = dict(zip(SHAPE, (4, 4, 384, 1536, 1536, 6, 6, 51_864, 448), strict=False))
    theirs = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**shape))
    named = {f"model.{name}": tensor for name, tensor in read_whisper(folder).items()}
    assert set(theirs.load_state_dict(named, strict=False).missing_keys) == {
        "model.encoder.embed_positions.weight",
        "proj_out.weight",
    }
    theirs.tie_weights()
    _assert_equal(ours, theirs.eval(), [50_257, 50_362, 843, 523, 616])


@pytest.mark.parametrize("cuts", [1, 2, 41, 500])
def test_features_do_not_depend_on_cuts(cuts: int) -> None:
    """However the sound comes, and from its middle on: the same frames, counted before."""
    features = _features(SOUND, cuts)
    assert len(features) == frame_count(len(SOUND), WhisperFilterbank.lead_samples)
    torch.testing.assert_close(features, _features(SOUND), atol=2e-6, rtol=0)
    context = -(-WhisperFilterbank.lead_samples // 160)
    later = _features(SOUND[(100 - context) * 160 :])[context:]
    torch.testing.assert_close(later, features[100:], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("tail_ms", "upper_layers"), [(0, 0), (500, 0), (100, 1), (100, 2)])
def test_a_batch_equals_each_alone(tail_ms: int, upper_layers: int) -> None:
    """Padding changes nothing, whatever the lengths; each has its own loudest value and tail."""
    network = random_network(_config(tail_ms=tail_ms, ctc=_branch(upper_layers)))
    parts = [_features(SOUND), 1.0 + _features(SOUND)[:101], _features(SOUND)[:4]]
    padded = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
    lengths = torch.tensor([len(part) for part in parts])
    batch = network.encoder(padded, lengths)
    for index, part in enumerate(parts):
        alone = network.encoder.encode(part)
        count = int(batch.lengths[index])
        frames = int(batch.ctc_lengths[index])
        assert frames == -(-len(part) // 4)
        assert alone.run_lengths.tolist() == batch.run_lengths[index, :count].tolist()
        assert int(alone.run_lengths.sum()) == frames
        torch.testing.assert_close(alone.states, batch.states[index, :count], atol=1e-5, rtol=0)
        labelled = batch.ctc_log_probs[index, :frames]
        torch.testing.assert_close(alone.ctc_log_probs, labelled, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("frames", [1, 5, 326])
def test_prepared_for_inference_it_gives_the_same(dtype: torch.dtype, frames: int) -> None:
    """The fused encoder and decoder are those of training."""
    config = _config(tail_ms=100, compression="none")
    plain, prepared = random_network(config), random_network(config)
    prepared.prepare_inference(dtype)
    features = _features(SOUND)[:frames]
    tolerance = 1e-4 if dtype == torch.float32 else 0.3
    before, after = plain.encoder.encode(features), prepared.encoder.encode(features)
    torch.testing.assert_close(after.states, before.states, atol=tolerance, rtol=0)
    caches = [network.decoder.open_cache(before.states) for network in (plain, prepared)]
    tokens = [EOS, 5, 9, 11]
    expected, _ = plain.decoder.prefill(tokens, caches[0], 1)
    found, _ = prepared.decoder.prefill(tokens[:2], caches[1], 1)
    torch.testing.assert_close(found, expected[:2], atol=tolerance, rtol=0)
    for row, token in enumerate(tokens[2:], start=2):
        logits, _ = prepared.decoder.step([token], [caches[1]], [1])
        torch.testing.assert_close(logits[0], expected[row], atol=tolerance, rtol=0)


@pytest.mark.parametrize("upper_layers", [0, 1])
@pytest.mark.parametrize("prepared", [False, True])
def test_a_growing_utterance_keeps_what_has_heard_enough(prepared: bool, upper_layers: int) -> None:
    """Until then it is heard whole; then early states stay, and only their ends are heard on."""
    network = random_network(
        _config(tail_ms=100, lookahead_ms=640, compression="none", ctc=_branch(upper_layers))
    )
    if prepared:
        network.prepare_inference(torch.float32)
    features, encode = _features(SOUND), network.encoder.open_utterance()
    # Two steps of 640 ms complete 127 frames of 10 ms, of which 63 have heard as much: 15 states.
    for frames in (60, 127):
        early, is_whole = encode(features[:frames])
        assert is_whole
        whole = network.encoder.encode(features[:frames])
        torch.testing.assert_close(early.states, whole.states, atol=1e-5, rtol=0)
        torch.testing.assert_close(early.ctc_log_probs, whole.ctc_log_probs, atol=1e-4, rtol=0)
    late, is_whole = encode(features[:180])
    assert not is_whole
    assert late.states.shape == (45, 32)
    assert torch.equal(late.states[:15], early.states[:15])
    assert torch.equal(late.ctc_log_probs[:15], early.ctc_log_probs[:15])
    assert not torch.allclose(late.states[15:31], early.states[15:31], atol=1e-3)


def test_a_growing_utterance_holds_only_what_it_keeps() -> None:
    """Between two steps, what was computed of the sound since the last is not held."""
    config = _config(tail_ms=100, lookahead_ms=640, compression="none", ctc=_branch(1))
    encoder = random_network(config).encoder
    assert isinstance(encoder, WhisperEncoder)
    growing = GrowingUtterance(encoder)
    growing.encode(_features(SOUND)[:180])
    for layer in (*growing._earlier, *growing._earlier_upper, *growing._earlier_labelled):
        assert layer._kept
        assert not layer._all


@pytest.mark.parametrize(("cut", "upper_layers"), [(7, 0), (64, 1), (127, 2), (300, 0)])
def test_what_a_growing_utterance_keeps_is_a_function_of_its_sound(
    cut: int, upper_layers: int
) -> None:
    """However often it was asked for, and where: after a resume all of the sound comes at once."""
    encoder = random_network(
        _config(tail_ms=100, lookahead_ms=640, compression="none", ctc=_branch(upper_layers))
    ).encoder
    features, encode = _features(SOUND), encoder.open_utterance()
    at_once, _ = encoder.open_utterance()(features)
    for frames in range(cut, len(features), cut):
        encode(features[:frames])
    grown, _ = encode(features)
    torch.testing.assert_close(grown.states, at_once.states, atol=1e-5, rtol=0)
    assert grown.labels.tolist() == at_once.labels.tolist()


def test_layers_of_the_branchs_own_change_what_is_labelled_and_nothing_else() -> None:
    """While they are those of the encoder, not even that."""
    plain = random_network(_config(tail_ms=100, compression="none")).encoder
    assert isinstance(plain, WhisperEncoder)
    grown = with_upper_layers(plain, count=1)
    features = _features(SOUND)
    expected, found = plain.encode(features), grown.encode(features)
    assert torch.equal(found.states, expected.states)
    torch.testing.assert_close(found.ctc_log_probs, expected.ctc_log_probs)
    with torch.no_grad():
        grown.ctc.upper[0].fc1.bias += 1.0
    changed = grown.encode(features)
    assert torch.equal(changed.states, expected.states)
    assert not torch.allclose(changed.ctc_log_probs, expected.ctc_log_probs, atol=0.01)


def test_without_lookahead_all_is_heard_anew() -> None:
    """As every other family does."""
    encoder = random_network(_config(tail_ms=100)).encoder
    features, encode = _features(SOUND), encoder.open_utterance()
    for frames in (127, 320):
        grown, is_whole = encode(features[:frames])
        assert is_whole
        assert torch.equal(grown.states, encoder.encode(features[:frames]).states)


def test_a_hypothesis_is_as_long_as_there_are_positions() -> None:
    """Learned positions end, and the decoder says so instead of repeating one."""
    decoder = random_network(_config()).decoder
    states = torch.randn(5, 32)
    assert decoder.prefill([EOS] * 64, decoder.open_cache(states), 1)[0].shape == (64, 60)
    with pytest.raises(ModelError, match="has 65 tokens; allowed: 64"):
        decoder.prefill([EOS] * 65, decoder.open_cache(states), 1)


def test_a_checkpoint_comes_back(tmp_path: Path, source_model: bytes, target_model: bytes) -> None:
    """Written in our own format and loaded as any other."""
    config = dataclasses.replace(
        _config(len(Vocabulary(target_model))), source_pieces=len(Vocabulary(source_model))
    )
    network = random_network(config)
    save_network(tmp_path, network, source_model, target_model)
    loaded = load_checkpoint(tmp_path)
    assert loaded.config == config
    sound = loaded.open_features()(SOUND)
    torch.testing.assert_close(sound, _features(SOUND))
    torch.testing.assert_close(
        loaded.network.encoder.encode(sound).states,
        network.encoder.encode(sound).states,
        atol=1e-4,
        rtol=0,
    )


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    """Fields and weights that describe no network are named."""
    with pytest.raises(ModelError, match=r"heads = 5 is not allowed; allowed: divisors"):
        _config(heads=5)
    with pytest.raises(ModelError, match=r"ctc\.upper_layers = 3 is not allowed; allowed: 0 to 2"):
        _config(ctc=_branch(upper_layers=3))
    with pytest.raises(ModelError, match=r"encoder\.architecture = 'wav' .*allowed: conformer"):
        ModelConfig.from_dict({**_config().to_dict(), "encoder": {"architecture": "wav"}})
    with pytest.raises(CheckpointError, match=r"has no model\.bin and no model\.safetensors"):
        read_whisper(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"\6\0\0\0\5\0Whis")
    with pytest.raises(CheckpointError, match=r"model\.bin is damaged"):
        read_whisper(tmp_path)
