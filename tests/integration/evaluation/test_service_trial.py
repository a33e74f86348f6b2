"""What an evaluation asks of the services, over real gRPC, of one whose words are known."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile

from earvoice.client import connect
from earvoice.client.errors import TranslationError
from earvoice.runtime.errors import BackendUnavailableError
from earvoice.training.service_trial import ServiceTrial, read_inputs
from tests.integration.client.scripted_service import serve
from tests.integration.evaluation.talking_service import RATE_HZ, TalkingService

pytestmark = pytest.mark.torch
pytest.importorskip("sacrebleu")

SECONDS = (4, 2, 3)
DOMAINS = ("chat", "tatoeba", "chat")


@pytest.fixture
def test_set(tmp_path):
    """Recordings whose references are as many numbers as half seconds."""
    folder = tmp_path / "joined"
    folder.mkdir()
    lines = {"wavs.txt": [], "refs.de.txt": [], "inputs.tsv": ["number\tdomain"]}
    for number, (seconds, domain) in enumerate(zip(SECONDS, DOMAINS, strict=True)):
        path = folder / f"{number}.wav"
        soundfile.write(path, np.zeros(seconds * RATE_HZ, np.int16), RATE_HZ)
        lines["wavs.txt"].append(path.name)
        lines["refs.de.txt"].append(" ".join(map(str, range(1, 2 * seconds + 1))))
        lines["inputs.tsv"].append(f"{number}\t{domain}")
    for name, content in lines.items():
        (folder / name).write_text("\n".join(content) + "\n")
    return folder


@pytest.mark.parametrize(("limit", "names"), [(9, ["0.wav", "2.wav"]), (1, ["0.wav"])])
def test_only_one_domain_is_translated(test_set, limit, names):
    """Restaurant sentences, which follow few patterns, must not flatter a chat's score."""
    sources = read_inputs(test_set, "chat", "de", limit)
    assert [one.path.name for one in sources.recordings] == names
    assert [one.index for one in sources.recordings] == list(range(len(names)))
    assert sources.recordings[0].reference == "1 2 3 4 5 6 7 8"


async def test_a_test_set_is_scored_live_and_offline(test_set, tmp_path):
    """Both over the same services; here both say the references, 0.5 s after each word."""
    service = TalkingService()
    async with serve(service) as address, connect(address) as client:
        trial = ServiceTrial(client, tmp_path / "logs")
        live, offline = await trial.translate(test_set, "chat", "de", 9)
    assert (live.bleu, live.laal_ms) == (pytest.approx(100), pytest.approx(500))
    assert offline == live
    assert service.session_count == 4


async def test_an_input_that_fails_is_no_score(test_set, tmp_path):
    """A score without it would be of another test set."""
    service = TalkingService()
    service.failing_samples = 3 * RATE_HZ
    service.failure = BackendUnavailableError("encoder")
    async with serve(service) as address, connect(address) as client:
        trial = ServiceTrial(client, tmp_path / "logs")
        with pytest.raises(TranslationError):
            await trial.translate(test_set, "chat", "de", 9)


async def test_words_are_counted(tmp_path):
    """As the service counts them."""
    async with serve(TalkingService()) as address, connect(address) as client:
        trial = ServiceTrial(client, tmp_path)
        assert await trial.count_words(np.zeros(3 * RATE_HZ, np.float32), "de") == 6
