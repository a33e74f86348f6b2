"""Shards on disk, and who speaks what."""

import random
from pathlib import Path

import numpy as np

from earvoice.corpus.clip_store import Clip, ClipStore
from earvoice.corpus.feature_store import FeatureClip, FeatureStore
from earvoice.corpus.rendering import plan_requests, plan_second_requests
from earvoice.corpus.sentence import Sentence, read_sentences, write_sentences
from earvoice.corpus.voice import draw_second_voice


def make_sentence(key: str, split: str, speaker: str) -> Sentence:
    """A sentence of one conversation."""
    said = (key, split, "chat", "g", speaker, 'Say "it", now!', "say it now")
    return Sentence(*said, german="Sag's\\n!", spanish="¡Dilo!")


def test_sentences_survive_their_table(tmp_path: Path) -> None:
    """Quotes, backslashes and empty fields come back as they were."""
    rows = [make_sentence("a", "train", "x"), make_sentence("b", "dev", "")]
    write_sentences(tmp_path / "t.tsv", rows)
    assert read_sentences(tmp_path / "t.tsv") == rows


def test_clips_survive_their_shard(tmp_path: Path) -> None:
    """Every clip gets its own samples back, empty shards included."""
    store = ClipStore(tmp_path)
    waves = [np.arange(n, dtype=np.int16) for n in (5, 0, 3)]
    clips = [Clip(f"k{i}", f"s{i}", "v", len(wave)) for i, wave in enumerate(waves)]
    assert not store.has(7, "these")
    store.write(7, clips, waves, "these")
    store.write(2, [], [], "none")
    assert store.shards() == [2, 7]
    for (clip, wave), (wanted, samples) in zip(
        store.read(7), zip(clips, waves, strict=True), strict=True
    ):
        assert clip == wanted
        np.testing.assert_array_equal(wave, samples)


def test_a_shard_of_other_requests_is_made_again(tmp_path: Path) -> None:
    """One that tells nothing of its requests, as it once was, stays."""
    store = ClipStore(tmp_path)
    store.write(1, [], [], "these")
    assert store.has(1, "these")
    assert not store.has(1, "others")
    (tmp_path / "00001.asked").unlink()
    assert store.has(1, "others")


def test_features_of_older_sound_do_not_count(tmp_path: Path) -> None:
    """They are computed again once a shard has been spoken anew."""
    clips, store = ClipStore(tmp_path / "clips"), FeatureStore(tmp_path / "features")
    clips.write(1, [], [], "these")
    store.write("x", [], [])
    assert store.has("x", clips.written_s(1))
    assert not store.has("x", clips.written_s(1) + 60)


def test_a_shard_without_index_does_not_count(tmp_path: Path) -> None:
    """What an interruption left behind is made again."""
    (tmp_path / "00003.pcm").write_bytes(b"\0\0")
    assert ClipStore(tmp_path).shards() == []


def test_features_survive_their_shard(tmp_path: Path) -> None:
    """Every clip gets its own frames back."""
    store = FeatureStore(tmp_path)
    frames = [np.full((n, 80), n, np.float16) for n in (4, 2)]
    clips = [FeatureClip(f"k{n}", "s", "v", n) for n in (4, 2)]
    store.write("x", clips, frames)
    for (clip, rows), wanted in zip(store.read(), frames, strict=True):
        assert clip.frames == len(rows)
        np.testing.assert_array_equal(rows, wanted)


def test_one_speaker_keeps_one_voice() -> None:
    """A speaker of a conversation has one voice in train, three in dev; seeds decide."""
    rows = [make_sentence(f"k{i}", "train", "ab"[i % 2]) for i in range(6)]
    requests = plan_requests(rows, seed=1)
    assert len({request.voice for request in requests[::2]}) == 1
    assert requests[0].voice != requests[1].voice
    assert requests == plan_requests(rows, seed=1)
    dev = plan_requests([make_sentence("d", "dev", "a")], seed=1)
    assert [request.key for request in dev] == ["d/seen", "d/unseen", "d/speaker"]
    names = [request.voice.name for request in dev]
    assert names[2] == "ked_diphone"
    assert names[1] not in {request.voice.name for request in requests}


def test_a_second_speaking_is_of_train_alone_and_by_another_voice() -> None:
    """Held-out sentences are not said again; a speaker keeps the second voice, too."""
    rows = [make_sentence(f"k{i}", "train", "ab"[i % 2]) for i in range(6)]
    first = plan_requests(rows, seed=1)
    again = plan_second_requests([*rows, make_sentence("d", "dev", "a")], seed=1)
    assert [request.key for request in again] == [f"{row.key}/again" for row in rows]
    assert len({request.voice for request in again}) == 2
    assert not {request.voice for request in first} & {request.voice for request in again}
    voices = [draw_second_voice(random.Random(seed)).name for seed in range(500)]
    assert "ked_diphone" not in voices
    assert not {name.partition("+")[2] for name in voices} & {"Michael", "anika", "shelby", "paul"}
