"""Models of other families give what `transformers` itself gives, through our own calls."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.vocabulary import EOS
from earvoice.models.wrapped.directory import is_wrapped

if TYPE_CHECKING:
    from earvoice.models.wrapped.loading import WrappedModel

pytest.importorskip("transformers", reason="the extra 'hf' is not installed: other families")
pytestmark = pytest.mark.torch

SOUND = (np.random.default_rng(0).standard_normal(32_000) * 0.1).astype(np.float32)
FAMILIES = ("speech_to_text", "wav2vec_mbart", "whisper")
NEW_TOKENS = 24
CONFIG = "config.json"
GENERATION = "generation_config.json"


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, target_model: bytes) -> dict[str, Path]:
    from tests.models.tiny_families import speech_to_text, wav2vec_mbart, whisper

    folder = tmp_path_factory.mktemp("families")
    return {
        "speech_to_text": speech_to_text(folder / "s2t", target_model),
        "wav2vec_mbart": wav2vec_mbart(folder / "mbart", target_model),
        "whisper": whisper(folder / "whisper"),
    }


def _load(path: Path, **options: Any) -> WrappedModel:
    from earvoice.models.wrapped.loading import load_wrapped

    return load_wrapped(
        path,
        **{
            "dtype": torch.float32,
            "device": torch.device("cpu"),
            "source_language": "de",
            "target_language": "en",
            **options,
        },
    )


@torch.inference_mode()
def _greedy(model: WrappedModel, forced: list[int], states: torch.Tensor) -> list[int]:
    """Tokens after the forced ones, the end included, as the service chooses them."""
    cache, tokens, reading = model.decoder.open_cache(states), [], forced
    while len(tokens) < NEW_TOKENS and tokens[-1:] != [EOS]:
        logits, _ = model.decoder.prefill(reading, cache, 1)
        logits[:, :EOS] = -torch.inf
        tokens.append(int(logits[-1].argmax()))
        reading = tokens[-1:]
    return tokens


def _generated(family: str, path: Path, model: WrappedModel, sound: np.ndarray) -> list[int]:
    """What `transformers` makes of sound by itself, in our ids; what we never choose is banned."""
    from transformers import (
        Speech2TextForConditionalGeneration,
        SpeechEncoderDecoderModel,
        WhisperForConditionalGeneration,
    )

    kind = {
        "speech_to_text": Speech2TextForConditionalGeneration,
        "wav2vec_mbart": SpeechEncoderDecoderModel,
        "whisper": WhisperForConditionalGeneration,
    }[family]
    network = kind.from_pretrained(path).eval()
    order = model.order
    language = next(iter(model.language_tokens.values()))
    prompt = [network.generation_config.decoder_start_token_id, *(order[t] for t in language)]
    never = [*(network.generation_config.suppress_tokens or ()), *order[:EOS]]
    from transformers import AutoFeatureExtractor

    extractor = AutoFeatureExtractor.from_pretrained(path)
    generated = network.generate(
        **extractor(sound, sampling_rate=16_000, return_tensors="pt"),
        decoder_input_ids=torch.tensor([prompt]),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        num_beams=1,
        suppress_tokens=never,
        forced_eos_token_id=None,
    )
    tokens = generated[0].tolist()
    tokens = tokens[len(prompt) :] if tokens[: len(prompt)] == prompt else tokens
    return [order.index(token) for token in tokens]


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_transformers(checkpoints: dict[str, Path], family: str) -> None:
    """From sound, step by step with our cache: the tokens that `generate` finds.

    Whisper's own encoder output is all of 30 s, so it gets as much sound.
    """
    model = _load(checkpoints[family])
    sound = np.resize(SOUND, 480_000) if family == "whisper" else SOUND
    states = model.encoder.states(sound)
    forced = [EOS, *next(iter(model.language_tokens.values()))]
    tokens = _greedy(model, forced, states)
    assert len(set(tokens)) > 1
    assert tokens == _generated(family, checkpoints[family], model, sound)


@pytest.mark.parametrize("family", FAMILIES)
def test_prefill_equals_steps(checkpoints: dict[str, Path], family: str) -> None:
    """A prefix read at once, or token by token, or after a rejected draft: the same numbers."""
    decoder = _load(checkpoints[family]).decoder
    states = _load(checkpoints[family]).encoder.states(SOUND)
    tokens = [EOS, 7, 9, 12, 8]
    logits, attention = decoder.prefill(tokens, decoder.open_cache(states), 2)
    assert attention.shape == (5, len(states))
    torch.testing.assert_close(attention.sum(-1), torch.ones(5))
    cache = decoder.open_cache(states)
    decoder.prefill([*tokens[:2], 20, 21, 22], cache, 2)
    cache.truncate(2)
    for index in range(2, 5):
        stepped, row = decoder.prefill(tokens[index : index + 1], cache, 2, (1,))
        torch.testing.assert_close(stepped[0], logits[index], atol=1e-5, rtol=0)
        assert row.shape == (1, len(states))
    with pytest.raises(ModelError, match="length is 9; allowed: 0 to 5"):
        cache.truncate(9)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_stand_for_sound(checkpoints: dict[str, Path], family: str) -> None:
    """As many states as the sound is long, however little; silence is finite; too long is told."""
    encoder = _load(checkpoints[family]).encoder
    expected = len(SOUND) / encoder.state_samples
    assert abs(len(encoder.states(SOUND)) - expected) <= 1
    assert len(encoder.states(SOUND[:1000])) == 0
    silent = encoder.states(np.zeros(16_000, np.float32))
    assert bool(silent.isfinite().all())
    if encoder.maximum_samples is not None:
        with pytest.raises(ModelError, match="allowed: "):
            encoder.states(np.zeros(encoder.maximum_samples + 1, np.float32))


def test_pieces_write_their_text(checkpoints: dict[str, Path]) -> None:
    """SentencePiece and byte-level pieces give the words they begin, and bytes without blanks."""
    pieces = _load(checkpoints["speech_to_text"])
    assert pieces.order == tuple(range(len(pieces.order)))
    index = pieces.texts.index(b"d")
    assert pieces.starts_word[index]
    whisper = _load(checkpoints["whisper"])
    die = whisper.texts.index(b"die")
    assert whisper.starts_word[die]
    assert whisper.texts[:3] == (b"", b"", b"")
    assert sorted(whisper.order) == list(range(len(whisper.order)))
    assert whisper.texts[whisper.order.index(0)] == b"!"


def test_languages_are_asked_for_by_token(checkpoints: dict[str, Path]) -> None:
    """mBART-50 by the target's token, Whisper by the source's and the task, Speech2Text by none."""
    assert _load(checkpoints["speech_to_text"]).language_tokens == {"en": ()}
    mbart = _load(checkpoints["wav2vec_mbart"])
    assert len(mbart.language_tokens["de"]) == 1
    assert mbart.language_tokens["de"] != mbart.language_tokens["es"]
    assert len(_load(checkpoints["whisper"]).language_tokens["en"]) == 3
    with pytest.raises(ModelError, match=r"source_language is 'und'; allowed .*: de, en"):
        _load(checkpoints["whisper"], source_language="und")


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_rows_equal_hypotheses_of_their_own(checkpoints: dict[str, Path], family: str) -> None:
    """Rows that are chosen, repeated and dropped give the logits of reading each one whole."""
    model = _load(checkpoints[family])
    forced = [EOS, *next(iter(model.language_tokens.values()))]
    states = model.encoder.states(SOUND)
    beam, hypotheses = model.decoder.open_cache(states), [forced]
    model.decoder.prefill(forced, beam, 1)
    for rows, tokens in (([0, 0, 0], [8, 9, 10]), ([2, 0], [9, 9]), ([1, 1, 0], [10, 8, 8])):
        beam.select(rows)
        hypotheses = [[*hypotheses[row], token] for row, token in zip(rows, tokens, strict=True)]
        logits, attention = model.decoder.step(tokens, [beam], [2], [()])
    for index, hypothesis in enumerate(hypotheses):
        alone = model.decoder.prefill(hypothesis, model.decoder.open_cache(states), 2)
        torch.testing.assert_close(logits[index], alone[0][-1], atol=1e-4, rtol=0)
        torch.testing.assert_close(attention[index], alone[1][-1], atol=1e-5, rtol=0)


def test_a_step_that_raises_has_read_nothing(checkpoints: dict[str, Path]) -> None:
    """The cache before the one that fails gives the same after the failure."""
    decoder = _load(checkpoints["speech_to_text"]).decoder
    states = torch.randn(7, 16, generator=torch.Generator().manual_seed(1))
    first, second, again = (decoder.open_cache(states) for _ in range(3))
    for cache in (first, second, again):
        decoder.prefill([EOS], cache, 1)
    with pytest.raises(IndexError):
        decoder.step([8, 9], [first, second], [1, 99], [(), ()])
    retried, _ = decoder.step([8, 9], [first, second], [1, 1], [(), ()])
    torch.testing.assert_close(retried[0], decoder.step([8], [again], [1], [()])[0][0])


def test_compression_needs_labels(checkpoints: dict[str, Path]) -> None:
    """There is nothing to compress by, and half a byte is no number format of theirs."""
    with pytest.raises(ModelError, match="compression is 'avg'; allowed without a CTC head"):
        _load(checkpoints["speech_to_text"], compression="avg")
    with pytest.raises(ModelError, match=r"dtype is torch\.int8"):
        _load(checkpoints["speech_to_text"], dtype=torch.int8)


def test_bfloat16_is_near(checkpoints: dict[str, Path]) -> None:
    """In bfloat16 the states stay near those in float32."""
    path = checkpoints["speech_to_text"]
    states = _load(path).encoder.states(SOUND)
    rounded = _load(path, dtype=torch.bfloat16).encoder.states(SOUND)
    assert rounded.dtype == torch.float32
    assert float((rounded - states).abs().mean()) < 0.1


def test_facts_are_honest(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """No CTC head, a hash of every file; only other families' directories are wrapped."""
    facts = _load(checkpoints["whisper"]).description
    assert facts.lacks_ctc
    assert not facts.greedy_only
    assert facts.hash == _load(checkpoints["whisper"]).description.hash
    assert facts.hash != _load(checkpoints["speech_to_text"]).description.hash
    assert is_wrapped(checkpoints["whisper"])
    assert not is_wrapped(tmp_path)


def _spoil(path: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


def _set_nan(tensors: dict[str, torch.Tensor]) -> None:
    tensors["model.encoder.layer_norm.weight"][0] = torch.nan


def _drop(tensors: dict[str, torch.Tensor]) -> None:
    del tensors["model.encoder.layer_norm.weight"]


@pytest.mark.parametrize(
    ("change", "message"),
    [(_set_nan, r"layer_norm\.weight holds NaN"), (_drop, r"missing keys: .*layer_norm\.weight")],
)
def test_damage_is_refused(
    tmp_path: Path,
    target_model: bytes,
    change: Callable[[dict[str, torch.Tensor]], None],
    message: str,
) -> None:
    """A tensor that is missing or holds no numbers is refused by its name."""
    from tests.models.tiny_families import speech_to_text

    path = speech_to_text(tmp_path / "s2t", target_model)
    _spoil(path, change)
    with pytest.raises(CheckpointError, match=message):
        _load(path)


def test_truncated_weights_are_refused(tmp_path: Path, target_model: bytes) -> None:
    """A download that broke off is refused by the file's name."""
    from tests.models.tiny_families import speech_to_text

    weights = speech_to_text(tmp_path / "s2t", target_model) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-64])
    with pytest.raises(CheckpointError, match=r"model\.safetensors is not usable"):
        _load(weights.parent)


def test_pickled_weights_and_other_families_are_refused(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    """Nothing is unpickled, and a family that is not known is named."""
    config = json.loads((checkpoints["speech_to_text"] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="pickled weights are not read"):
        _load(tmp_path)
    for kind in ("bert", ["whisper"], None):
        (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": kind}))
        with pytest.raises(ModelError, match=re.escape(f"{kind!r}; allowed: speech_to_text")):
            _load(tmp_path)


def test_a_family_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another class of `transformers` needs a row and no more."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    from earvoice.models.wrapped.families import WRAPPED_FAMILIES, WrappedFamily
    from tests.models.tiny_families import whisper

    class ToyConfig(WhisperConfig):  # type: ignore[misc]
        model_type = "toy"

    class Toy(WhisperForConditionalGeneration):  # type: ignore[misc]
        config_class = ToyConfig

    row = WrappedFamily(
        Toy,
        state_samples=lambda config: 160 * config.num_mel_bins // 40,
        languages=lambda _model, tokenizer, source, target: {f"{source}-{target}": (7,)},
        maximum_samples=lambda _config, extractor: extractor.n_samples,
        fills_up=True,
    )
    monkeypatch.setitem(WRAPPED_FAMILIES, "toy", row)
    path = whisper(tmp_path / "toy")
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_type": "toy"}))
    model = _load(path)
    states = model.encoder.states(SOUND)
    assert states.shape == (len(SOUND) // 320, 16)
    assert model.language_tokens == {"de-en": (model.order.index(7),)}
    tokens = _greedy(model, [EOS, *model.language_tokens["de-en"]], states)
    assert 1 <= len(tokens) <= NEW_TOKENS


def test_whisper_writes_captions(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """The speaker's language by transcription; a Whisper of English alone needs no language."""
    tokens = _load(checkpoints["whisper"]).language_tokens
    assert set(tokens) == {"de", "en"}
    assert tokens["de"] != tokens["en"]
    english = _load(checkpoints["whisper"], source_language="en").language_tokens
    assert set(english) == {"en"}
    path = tmp_path / "english"
    shutil.copytree(checkpoints["whisper"], path)
    settings = json.loads((path / "generation_config.json").read_text())
    settings = {**settings, "is_multilingual": False}
    del settings["lang_to_id"], settings["task_to_id"]
    (path / "generation_config.json").write_text(json.dumps(settings))
    alone = _load(path, source_language="en").language_tokens
    assert {tag: len(forced) for tag, forced in alone.items()} == {"en": 1}


@pytest.mark.parametrize(
    ("family", "file", "field", "value"),
    [
        ("speech_to_text", CONFIG, "d_model", "wide"),
        ("speech_to_text", CONFIG, "encoder_attention_heads", 0),
        ("whisper", GENERATION, "eos_token_id", []),
        ("whisper", GENERATION, "task_to_id", ["translate"]),
        ("whisper", GENERATION, "lang_to_id", ["<|de|>"]),
        ("whisper", GENERATION, "suppress_tokens", "none"),
    ],
)
def test_settings_of_other_types_are_refused(
    tmp_path: Path, checkpoints: dict[str, Path], family: str, file: str, field: str, value: object
) -> None:
    """The error names the checkpoint, and is ours."""
    path = shutil.copytree(checkpoints[family], tmp_path / "spoilt")
    settings = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps({**settings, field: value}))
    with pytest.raises(CheckpointError, match="checkpoint spoilt is not usable"):
        _load(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("decoder_start_token_id", 99_999),
        ("eos_token_id", 99_999),
        ("suppress_tokens", [99_999]),
        ("begin_suppress_tokens", [99_999]),
        ("task_to_id", {"translate": 99_999}),
    ],
)
def test_tokens_must_be_in_the_vocabulary(
    tmp_path: Path, checkpoints: dict[str, Path], field: str, value: object
) -> None:
    """A token that the network does not know is refused at load, not met in a session."""
    path = shutil.copytree(checkpoints["whisper"], tmp_path / "spoilt")
    settings = json.loads((path / GENERATION).read_text())
    (path / GENERATION).write_text(json.dumps({**settings, field: value}))
    with pytest.raises(ModelError, match=r"names token 99999; allowed: 0 to \d+"):
        _load(path)


@pytest.mark.parametrize("family", ["whisper", "wav2vec_mbart"])
def test_a_tokenizer_must_have_pieces(
    tmp_path: Path, checkpoints: dict[str, Path], family: str
) -> None:
    """`transformers` makes an empty tokenizer without the vocabulary: no word would be written."""
    path = shutil.copytree(checkpoints[family], tmp_path / "spoilt")
    (path / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="spoilt: its tokenizer has no pieces"):
        _load(path)


def test_a_multilingual_whisper_must_name_its_languages(
    tmp_path: Path, checkpoints: dict[str, Path]
) -> None:
    """Without their tokens, it would be asked as a Whisper of English alone is."""
    path = shutil.copytree(checkpoints["whisper"], tmp_path / "spoilt")
    settings = json.loads((path / GENERATION).read_text())
    del settings["lang_to_id"]
    (path / GENERATION).write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"multilingual; generation_config\.json needs"):
        _load(path)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_whisper_needs_its_generation_config(
    tmp_path: Path, checkpoints: dict[str, Path], is_there: bool
) -> None:
    """The file and what it lacks are told; `config.json` does not have it all."""
    path = shutil.copytree(checkpoints["whisper"], tmp_path / "spoilt")
    settings = json.loads((path / GENERATION).read_text())
    (path / GENERATION).unlink()
    if is_there:
        del settings["no_timestamps_token_id"]
        (path / GENERATION).write_text(json.dumps(settings))
    told = r"generation_config\.json: no_timestamps_token_id is None"
    with pytest.raises(ModelError, match=told):
        _load(path)


@pytest.mark.parametrize("file", [GENERATION, "tokenizer_config.json", "preprocessor_config.json"])
def test_files_of_another_form_are_refused(
    tmp_path: Path, checkpoints: dict[str, Path], file: str
) -> None:
    """A list where an object is expected."""
    path = shutil.copytree(checkpoints["speech_to_text"], tmp_path / "spoilt")
    (path / file).write_text("[]")
    with pytest.raises(CheckpointError, match="checkpoint spoilt is not usable"):
        _load(path)


def test_nested_configurations_are_refused(tmp_path: Path) -> None:
    """Brackets without end are no configuration."""
    (tmp_path / CONFIG).write_text('{"model_type": "whisper", "a": ' + "[" * 100_000)
    with pytest.raises(ModelError, match="is not readable"):
        _load(tmp_path)
