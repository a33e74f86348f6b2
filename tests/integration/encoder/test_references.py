from __future__ import annotations

import numpy as np
import pytest
import torch

from earvoice.encoder.audio import Resampler
from earvoice.models.speech_detector import (
    load_speech_detector,
    speech_stream,
    weights_path,
)

pytestmark = pytest.mark.torch

WINDOW = 512


@pytest.fixture(scope="module")
def detector():
    return load_speech_detector()


@pytest.fixture(scope="module")
def sound(speech) -> np.ndarray:
    return (speech / 32768).astype(np.float32)


def test_the_detector_equals_the_packages_own(detector, sound):
    """Batched over windows, our network gives what the package's TorchScript gives one by one."""
    reference = torch.jit.load(weights_path(), map_location="cpu")
    with torch.no_grad():
        expected = [
            reference(torch.from_numpy(sound[k : k + WINDOW])[None], 16000).item()
            for k in range(0, len(sound) - WINDOW + 1, WINDOW)
        ]
    found, _ = detector(torch.from_numpy(sound))
    assert len(found) == len(expected)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert max(expected) > 0.5 > min(expected)


def test_loading_the_detector_leaves_torchs_threads_alone():
    """The package whose weights we read would set the whole process to one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    load_speech_detector()
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)


def test_a_speech_stream_waits_for_whole_windows(detector, sound):
    """Samples that do not fill a window are kept for the next call."""
    speech_in, whole = speech_stream(detector), speech_stream(detector)
    pieces = [speech_in(sound[:500]), speech_in(sound[500:1100])]
    assert [len(piece) for piece in pieces] == [0, 2]
    np.testing.assert_allclose(pieces[0] + pieces[1], whole(sound[:1100]), atol=1e-6)


@pytest.mark.parametrize("rate_hz", [8000, 11025, 22050, 24000, 32000, 44100, 48000])
def test_the_resampler_equals_torchaudio(sound, rate_hz):
    """The whole signal comes out as from torchaudio's sinc interpolation, its ends included."""
    functional = pytest.importorskip("torchaudio.functional")
    resampler = Resampler(rate_hz, 16000)
    ours = resampler.outputs(sound, 0, resampler.total_count(len(sound)))
    # torchaudio rounds its filter's positions to float32 unless the sound is float64.
    theirs = functional.resample(torch.from_numpy(sound).double(), rate_hz, 16000).numpy()
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
