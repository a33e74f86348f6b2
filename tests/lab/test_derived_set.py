"""Held-out sets that are made of others."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from earvoice.corpus.clip_store import Clip, ClipStore
from earvoice.corpus.extraction import log_mel
from earvoice.corpus.sentence import write_sentences
from earvoice.models.config import SAMPLE_RATE_HZ
from earvoice.models.frontend import INT16_SCALE, FeatureNormalisation
from earvoice.training.derived_set import read_over_telephone
from earvoice.training.dev_set import DevClip
from tests.lab.tiny_corpus import make_sentence

AS_IT_IS = FeatureNormalisation(torch.zeros(80), torch.ones(80))


def test_a_telephone_set_is_the_held_out_sound_over_a_line(tmp_path: Path) -> None:
    """One domain's held-out clips, by voice, without what lies above the line's band."""
    heard, trained, other = (
        replace(make_sentence(1), key="heard", split="dev"),
        replace(make_sentence(2), key="trained"),
        replace(make_sentence(3), key="other", split="dev", domain="other"),
    )
    write_sentences(tmp_path / "sentences.tsv", [heard, trained, other])
    noise = np.random.default_rng(0).normal(0, 3_000, SAMPLE_RATE_HZ).astype(np.int16)
    keys = ("heard/unseen", "heard/speaker", "trained", "other/unseen")
    clips = [Clip(key, key.partition("/")[0], "test", len(noise)) for key in keys]
    ClipStore(tmp_path / "clips").write(0, clips[:2], [noise] * 2, "")
    ClipStore(tmp_path / "engine-clips").write(3, clips[2:], [noise] * 2, "")

    sets = read_over_telephone(tmp_path, "test", AS_IT_IS)

    assert {name: [clip.sentence for clip in clips] for name, clips in sets.items()} == {
        "telephone/unseen": [heard],
        "telephone/speaker": [heard],
    }
    line = sets["telephone/unseen"][0].features
    full = DevClip.of(log_mel(noise.astype(np.float32) / INT16_SCALE), heard, AS_IT_IS).features
    assert line.shape == full.shape
    lost_nats = (full - line).mean(0)
    assert lost_nats[20:50].abs().max() < 0.2
    assert lost_nats[65:].min() > 5.0
