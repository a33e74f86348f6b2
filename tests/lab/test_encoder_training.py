"""Training of the encoder: through decoders that stay, from recordings and from kept sound."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from earvoice.corpus.clips import Clip
from earvoice.corpus.sound import Sound, as_int16
from earvoice.corpus.states import SOUND_SUFFIX, Shard, encode, features_of, write_shards
from earvoice.models.config import ModelConfig, TargetLanguage
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import Vocabulary
from earvoice.models.whisper import CtcBranchConfig, WhisperConfig, WhisperEncoder
from earvoice.training.ctc import CtcTrainer, labelled, piece_frames, with_upper_layers
from earvoice.training.data import D_MODEL, Heard, Sounds, heard_by, read_clips
from earvoice.training.decoder import memory_of
from earvoice.training.encoder import EncoderRecipe, EncoderTrainer, Utterance
from tests.tiny_model import SOURCE_TEXT, TARGET_TEXT, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch
WIDTH = 16
RECIPE = EncoderRecipe(peak_rate=3e-3, ctc_peak_rate=3e-3, room_frames=800)


def vocabularies() -> tuple[Vocabulary, Vocabulary]:
    return (
        Vocabulary(train_sentencepiece(SOURCE_TEXT)),
        Vocabulary(train_sentencepiece(TARGET_TEXT), ("<en>", "<de>")),
    )


def config(source: Vocabulary, target: Vocabulary) -> ModelConfig:
    tiny = tiny_config(source.model, target.model)
    branch = CtcBranchConfig(width=WIDTH, heads=2, ffn_width=16, layers=1)
    return dataclasses.replace(
        tiny,
        encoder=WhisperConfig(
            d_model=WIDTH, heads=2, ffn_width=32, layers=1, tail_ms=100, ctc=branch,
            compression="none",
        ),
        decoder=dataclasses.replace(tiny.decoder, heads=2),
        target_pieces=len(target),
        target_languages=(TargetLanguage("en", "<en>"), TargetLanguage("de", "<de>")),
    )  # fmt: skip


def tone(index: int, seconds: int = 1) -> Sound:
    time_s = np.arange(16_000 * seconds) / 16_000
    return np.asarray(0.3 * np.sin(2 * np.pi * 200 * (index + 1) * time_s), np.float32)


def tones(folder: Path, seconds: int = 1) -> Sounds:
    """Every sentence is a tone: two that are recorded, and one that a corpus has kept."""
    clips, recordings = [], {}
    for index in range(3):
        texts = {"en": SOURCE_TEXT[index % len(SOURCE_TEXT)]}
        key = f"c{index}"
        recordings[key] = folder / f"{key}.wav"
        soundfile.write(recordings[key], tone(index, seconds), 16_000)
        clip = Heard(
            key, "s", "train", texts=texts, shard=np.zeros(0), begin=0, states=60, frames=25
        )
        clips.append(clip)
    clips[2].sound = as_int16(tone(2, seconds))
    clips[2].texts["de"] = TARGET_TEXT[0]
    return Sounds(clips, recordings)


def trainer(folder: Path) -> EncoderTrainer:
    torch.manual_seed(4)
    source, target = vocabularies()
    shape = config(source, target)
    encoder, decoder = WhisperEncoder(shape), TransformerDecoder(shape)
    return EncoderTrainer(encoder, decoder, tones(folder), source, target, RECIPE)


def test_the_loss_falls_the_decoder_stays_and_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    learner = trainer(tmp_path)
    decoder = {name: each.clone() for name, each in learner.decoder.state_dict().items()}
    whole = [
        Utterance(index, tone(index), clip.texts["en"]) for index, clip in enumerate(learner.clips)
    ]
    with torch.no_grad():
        untaught = learner.losses_of(whole)
    learner.train(tmp_path / "encoder.pt", seconds=learner.used_s + 4.0)
    again = trainer(tmp_path)
    again.train(tmp_path / "encoder.pt", seconds=0.0)
    assert again.step == learner.step > 1
    for name, value in learner.encoder.state_dict().items():
        assert torch.equal(value, again.encoder.state_dict()[name])
    for name, value in learner.decoder.state_dict().items():
        assert torch.equal(value, decoder[name])
    with torch.no_grad():
        taught = again.losses_of(whole)
    assert all(after < before for before, after in zip(untaught, taught, strict=True))


def test_the_branch_learns_from_states_and_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is exported is the average of its weights; the encoder stays as it is."""
    source, target = vocabularies()
    shape = config(source, target)
    states = np.random.default_rng(1).normal(size=(160, WIDTH)).astype(np.float16)
    clips = [
        Heard(
            f"c{i}",
            "s",
            "train",
            texts={"en": SOURCE_TEXT[i]},
            shard=states,
            begin=80 * i,
            states=80,
            frames=40,
        )
        for i in range(2)
    ]

    def learner() -> CtcTrainer:
        torch.manual_seed(4)
        return CtcTrainer(WhisperEncoder(shape), labelled(clips, source))

    first = learner()
    both = [(clip.load(), own) for clip, own in first.known]
    untaught, encoder = first.learn(both, 0.0), first.encoder.conv1.weight.clone()
    first.train(tmp_path / "ctc.pt", seconds=first.used_s + 3.0)
    again = learner()
    again.train(tmp_path / "ctc.pt", seconds=0.0)
    assert again.step == first.step > 1
    assert torch.equal(first.encoder.conv1.weight, encoder)
    for name, value in first.average.items():
        assert torch.equal(value, again.average[name])
        assert not torch.equal(value, dict(first.branch.named_parameters())[name])
    assert (again.learn(both, 1.0) < untaught).all()


def test_what_this_encoder_hears_has_recordings_worsened_cut_and_in_phrases(tmp_path: Path) -> None:
    source, target = vocabularies()
    encoder = WhisperEncoder(config(source, target)).eval()
    sounds = tones(tmp_path, seconds=2)
    heard_by(encoder, sounds, tmp_path / "heard", seed=1)
    made = [path.stat().st_mtime_ns for path in sorted((tmp_path / "heard/states").iterdir())]
    # What is there is read.
    clips = heard_by(encoder, sounds, tmp_path / "heard", seed=1)
    states = sorted((tmp_path / "heard/states").iterdir())
    assert [path.stat().st_mtime_ns for path in states] == made
    each = ("", "/worse", "/cut", "/phrase-0", "/phrase-1")
    ways = [f"{key}{way}" for key in ("c0", "c1") for way in each]
    assert [clip.key for clip in clips] == [*ways, "c2", "c2/cut"]
    for clip in clips:
        key, _, way = clip.key.partition("/")
        ((states, frames),) = encode([tone(int(key[1:]), seconds=2)], encoder)
        own = clip.shard[clip.begin :][: clip.states]
        is_part = way == "cut" or way.startswith("phrase")
        assert clip.is_cut == is_part
        assert (clip.frames < frames) == is_part
        if not is_part:
            assert np.allclose(own, states, atol=0.05) == (way == "")
    with torch.no_grad():
        encoder.layer_norm.bias += 1.0
    other = heard_by(encoder, sounds, tmp_path / "heard", seed=1)[0].load()
    assert not np.allclose(other, clips[0].load(), atol=0.5)
    sounds.clips[0].texts["en"] = "Something else."
    assert heard_by(encoder, sounds, tmp_path / "heard", seed=1)[0].english == "Something else."
    # Of whom it is without its digest, nobody knows.
    (tmp_path / "heard" / "digest").unlink()
    with torch.no_grad():
        encoder.layer_norm.bias -= 1.0
    again = heard_by(encoder, sounds, tmp_path / "heard", seed=1)[0].load()
    assert np.allclose(again, clips[0].load(), atol=0.05)
    # Another seed cuts elsewhere.
    drawn = heard_by(encoder, sounds, tmp_path / "heard", seed=2)
    assert [clip.states for clip in drawn] != [clip.states for clip in clips]


def test_a_shard_may_have_no_clips(tmp_path: Path) -> None:
    """Where nobody talks in another language, or all that was said is too long."""
    encoder = WhisperEncoder(config(*vocabularies())).eval()
    long = Clip("c", "s", "train"), np.zeros(30 * 16_000, np.float32)
    shards: list[Shard] = [("nothing-talk-000", list), ("real-000", lambda: [long])]
    write_shards(tmp_path / "states", shards, lambda: encoder)
    assert read_clips(tmp_path, "train") == []
    again: list[Shard] = [(name, pytest.fail) for name, _ in shards]
    write_shards(tmp_path / "states", again, lambda: encoder)


def test_a_branch_learns_with_layers_of_the_encoder_for_itself(tmp_path: Path) -> None:
    """From what is read below them; the encoder's own, and so its states, stay as they are."""
    source, target = vocabularies()
    torch.manual_seed(4)
    plain = WhisperEncoder(config(source, target)).eval()
    encoder = with_upper_layers(plain, count=1)
    assert not with_upper_layers(plain, dropout=0.5, count=1).ctc.training
    sounds = tones(tmp_path, seconds=2)
    folder = tmp_path / "read-by-branch"
    clips = heard_by(encoder, sounds, folder, seed=1)
    whole = clips[0]
    with torch.inference_mode():
        features = features_of(tone(0, seconds=2))
        expected = encoder.encode(features).ctc_log_probs
        states, read, _ = encoder.hear(features[None])
    given = whole.load()
    torch.testing.assert_close(given, encoder.joined(read)[0], atol=0.05, rtol=0)
    assert not torch.allclose(given, encoder.joined(states)[0], atol=0.05)
    with torch.inference_mode():
        found = encoder.label(given[None])[0, : whole.frames]
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0)
    trainer = CtcTrainer(encoder, labelled(clips, source))
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    trainer.learn([(given, source.encode(SOURCE_TEXT[0])[:5])], 0.5)
    moved = {n for n, tensor in encoder.state_dict().items() if not torch.equal(tensor, before[n])}
    assert "ctc.upper.0.fc1.weight" in moved
    assert "ctc.head.weight" in moved
    assert all(name.startswith("ctc.") for name in moved)


def test_of_what_is_cut_the_pieces_are_labelled_that_are_heard_before() -> None:
    """By the branch itself, in the whole; a piece that has just begun may be another."""
    source, target = vocabularies()
    text = SOURCE_TEXT[0]
    own = source.encode(text)
    encoder = WhisperEncoder(config(source, target)).eval()
    frames = 10 * len(own)

    def label(joined: torch.Tensor, _lengths: object = None) -> torch.Tensor:
        """A piece each ten frames, from the fifth on."""
        log_probs = torch.full((1, joined.shape[1], len(source) + 1), -9.0)
        log_probs[..., -1] = 0.0
        for number, piece in enumerate(own):
            log_probs[0, 10 * number + 5, -1] = -9.0
            log_probs[0, 10 * number + 5, piece] = 0.0
        return log_probs

    encoder.label = label  # type: ignore[method-assign]
    states = np.zeros((2 * frames, WIDTH), np.float16)
    whole = Heard(
        "c",
        "s",
        "train",
        texts={"en": text},
        shard=states,
        begin=0,
        states=2 * frames,
        frames=frames,
    )
    cuts = [replace(whole.cut(), frames=count) for count in (frames, 18, 19, 8)]
    found = labelled([whole, *cuts], source, encoder)
    assert [clip for clip, _ in found] == [whole, *cuts]
    assert [labels for _, labels in found] == [own, own, own[:1], own[:2], []]
    assert [clip for clip, _ in labelled([whole, *cuts], source)] == [whole]
    phrases = [replace(whole.phrase(0), begin_frame=begin, frames=14) for begin in (5, 6)]
    assert [labels for _, labels in labelled([whole, *phrases], source, encoder)][1:] == [
        own[:2],
        own[1:2],
    ]
    assert not labelled([replace(whole, texts={})], source)
    short = replace(whole, frames=len(own) - 1)
    assert not labelled([short, replace(short.cut(), frames=2)], source, encoder)


def test_where_a_label_begins_is_read_from_the_likeliest_path() -> None:
    def path(*labels: int) -> np.ndarray:
        return np.log(np.eye(3)[list(labels)] * 0.9 + 0.03)

    blank = 2
    assert piece_frames(path(blank, 0, 0, 1, blank), [0, 1]) == [1, 3]
    assert piece_frames(path(0, blank, blank, 0), [0, 0]) == [0, 3]
    # The same twice has a blank between.
    (first, second) = piece_frames(path(0, 0, 0), [0, 0])
    assert second - first == 2
    assert piece_frames(path(0, 0), [0, 0]) == []
    assert piece_frames(path(blank), []) == []


def test_what_the_decoder_reads_is_kept_until_the_encoder_or_its_branch_is_another(
    tmp_path: Path,
) -> None:
    source, target = vocabularies()
    torch.manual_seed(4)
    encoder = WhisperEncoder(config(source, target)).eval()
    states = np.random.default_rng(1).normal(size=(40, D_MODEL)).astype(np.float16)
    encoder.ctc.join = torch.nn.Linear(2 * D_MODEL, WIDTH)
    clips = [
        Heard(key, "s", "train", shard=states, begin=begin, states=20, frames=10)
        for key, begin in (("a", 0), ("b", 20))
    ]
    path = tmp_path / "memory.pt"
    first = memory_of(clips, encoder, path)
    assert first.states.shape == (20, D_MODEL)
    written = path.stat().st_mtime_ns
    again = memory_of(clips, encoder, path)
    assert path.stat().st_mtime_ns == written
    assert torch.equal(again.states, first.states)
    assert (again.begins, again.labels) == (first.begins, first.labels)
    with torch.no_grad():
        encoder.ctc.head.bias[3] += 100.0
    other = memory_of(clips, encoder, path)
    assert {label for labels in other.labels for label in labels} == {3}
    # Other sound under the same key.
    states[20:] = 0.0
    assert not memory_of(clips, encoder, path).states[10:].any()
    assert memory_of(clips[:1], encoder, path).begins == [0, 10]


def test_a_recording_is_foretold_as_the_pretrained_encoder_hears_it_undisturbed(
    tmp_path: Path,
) -> None:
    """Whoever hears as that encoder does has nothing to learn from it, noise is to be unlearned."""
    learner = trainer(tmp_path)
    learner.recipe = dataclasses.replace(RECIPE, foretold_share=1.0, ctc_share=0.0)
    text = learner.clips[0].texts["en"]
    noise = np.random.default_rng(1).normal(0, 0.3, 16_000).astype(np.float32)
    slopes = []
    for sound in (learner.sounds.undisturbed(0), tone(0) + noise):
        learner.encoder.zero_grad()
        pieces, _ = learner.losses_of([Utterance(0, sound, text)])
        torch.autograd.backward(pieces)
        slopes.append(sum(float(p.grad.abs().sum()) for p in learner.encoder.parameters()
                          if p.grad is not None))  # fmt: skip
    assert slopes[0] < 0.1 * slopes[1]


def test_what_a_synthesiser_said_is_kept_with_its_states(tmp_path: Path) -> None:
    folder = tmp_path / "states"
    folder.mkdir()
    sounds = [tone(0)[:400], tone(1)[:300]]
    lines = [
        asdict(Clip(key, "s", "train", texts={"en": key}))
        | {"begin": 0, "states": 4, "frames": 2, "first_sample": first, "samples": len(sound)}
        for key, first, sound in (("a", 0, sounds[0]), ("b", 400, sounds[1]))
    ]
    (folder / "spoken-0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    np.save(folder / "spoken-0.npy", np.zeros((4, 384), np.float16))
    np.save(folder / f"spoken-0{SOUND_SUFFIX}", as_int16(np.concatenate(sounds)))
    for clip, sound in zip(read_clips(tmp_path, "train"), sounds, strict=True):
        assert clip.sound is not None
        assert np.array_equal(clip.sound, as_int16(sound))
