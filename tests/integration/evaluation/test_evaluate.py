"""``earvoice evaluate`` over real gRPC, against a service whose words are known."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys

import numpy as np
import pytest
import soundfile

from earvoice.api.v1 import speech_translation_service_pb2 as api
from earvoice.api.v1 import speech_translation_service_pb2_grpc as api_grpc
from earvoice.runtime.errors import BackendUnavailableError, SessionLimitError
from tests.integration.client.scripted_service import serve

Response = api.StreamingTranslateResponse

RATE_HZ = 16_000
SEGMENT_SAMPLES = RATE_HZ // 2
COMPUTATION_MS = 100.0


class TalkingService(api_grpc.SpeechTranslationServiceServicer):
    """Counts audio as the real one does, on the clock ``true``; its words are their numbers.

    Attributes:
        failing_samples: sessions of so much audio fail at their end, with ``failure``.
        failure: what they fail with; None lets all end well.
        refusal: what every session is refused with before it begins; None takes all.
    """

    def __init__(self):
        self.failing_samples = 0
        self.failure = None
        self.refusal = None
        self.model_hash = "f00"
        self.session_count = 0
        self.shown_tokens = set()
        self.most_at_once = 0
        self._running = 0

    async def ListModels(self, request, context):
        return api.ListModelsResponse(models=[self._model()], policies=["edatt"])

    async def StreamingTranslate(self, request_iterator, context):
        if self.refusal is not None:
            raise self.refusal
        self.session_count += 1
        self.shown_tokens.add(dict(context.invocation_metadata()).get("authorization", ""))
        self._running += 1
        self.most_at_once = max(self.most_at_once, self._running)
        try:
            seq = 0
            async for response in self._talk(request_iterator):
                seq += 1
                response.seq = seq
                yield response
        finally:
            self._running -= 1

    async def _talk(self, requests):
        received, segment = 0, 0
        async for request in requests:
            if request.WhichOneof("message") == "config":
                yield Response(
                    session_started={
                        "config": request.config,
                        "model": self._model(),
                        "elapsed_clock": api.ELAPSED_CLOCK_TRUE,
                    }
                )
                continue
            received += len(request.audio) // 2
            while (segment + 1) * SEGMENT_SAMPLES <= received:
                segment += 1
                for response in self._release(segment):
                    yield response
        if self.failure is not None and received == self.failing_samples:
            raise self.failure
        end = {"end_sample": received, "cause": "UTTERANCE_END_CAUSE_END_OF_AUDIO"}
        yield Response(end_of_utterance=end)
        yield Response(summary={"audio_samples": received, "word_count": segment})

    def _release(self, segment):
        end = segment * SEGMENT_SAMPLES
        item = api.CommittedItem(
            text=str(segment),
            starts_word=True,
            target_language_code="de",
            source_end_sample=end - SEGMENT_SAMPLES,
            source_start_sample=end - SEGMENT_SAMPLES,
            delay_samples=end,
            elapsed_ms=1000 * end / RATE_HZ + COMPUTATION_MS,
        )
        yield Response(committed={"items": [item]})
        done = {"segment": segment, "end_sample": end, "computation_ms": COMPUTATION_MS}
        yield Response(segment_done=done)

    def _model(self):
        return {
            "name": "m",
            "version": "1",
            "hash": self.model_hash,
            "source_language_code": "en",
            "target_language_codes": ["de"],
            "precision": 1,
        }


SECONDS = (1, 2, 3, 4)


@pytest.fixture
def test_set(tmp_path):
    """Recordings of 1 to 4 seconds with their references: as many numbers as half seconds."""
    for seconds in SECONDS:
        soundfile.write(tmp_path / f"{seconds}.wav", np.zeros(seconds * RATE_HZ, np.int16), RATE_HZ)
    (tmp_path / "wavs.txt").write_text("".join(f"{seconds}.wav\n" for seconds in SECONDS))
    references = (" ".join(map(str, range(1, 2 * seconds + 1))) for seconds in SECONDS)
    (tmp_path / "refs.txt").write_text("".join(f"{text}\n" for text in references))
    return tmp_path


@pytest.fixture
def evaluate(test_set):
    async def evaluate(address, *arguments, command="evaluate"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "earvoice.cli", command, "--server", address),
            *("--source", test_set / "wavs.txt", "--target", test_set / "refs.txt"),
            *("--output", test_set / "run", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        return process.returncode, output.decode(), errors.decode()

    return evaluate


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_scores(path):
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    return {(metric, clock): float(value) for metric, clock, value, _ in rows}


async def test_a_test_set_becomes_logs_and_scores(evaluate, test_set):
    """Everything a scorer needs, in the order of the list, with scores that are known."""
    service = TalkingService()
    async with serve(service) as address:
        status, output, errors = await evaluate(address, "--streams", "3")
    assert (status, service.most_at_once) == (0, 3)
    assert "run: 4 of 4 recordings, 0.2 min of audio" in errors
    lines = read_lines(test_set / "run" / "instances.log")
    assert [line["prediction_length"] for line in lines] == [2, 4, 6, 8]
    assert lines[1]["delays"] == [500, 1000, 1500, 2000]
    assert lines[1]["elapsed"] == [600, 1200, 1800, 2400]
    scores = read_scores(test_set / "run" / "scores.tsv")
    assert scores["AL", "ideal"] == 500
    assert scores["AL", "true"] == pytest.approx(600)
    assert scores["word lag", "ideal"] == 500
    assert scores["RTF", ""] == pytest.approx(0.2)
    assert scores["length ratio", ""] == 1
    assert scores["BLEU", ""] == pytest.approx(100)
    assert "AL                        500.0000" in output


async def test_an_interrupted_run_goes_on(evaluate, test_set):
    """Only what is missing is translated again; the numbers are those of one run."""
    service = TalkingService()
    async with serve(service) as address:
        await evaluate(address)
        log = test_set / "run" / "instances.log"
        whole, scores = log.read_text(), (test_set / "run" / "scores.tsv").read_text()
        log.write_text("".join(whole.splitlines(keepends=True)[::2]) + '{"index": 3, "pre')
        service.session_count = 0
        status, _, _ = await evaluate(address)
    assert (status, service.session_count) == (0, 2)
    assert log.read_text() == whole
    assert (test_set / "run" / "scores.tsv").read_text() == scores


async def test_one_failed_recording_does_not_lose_the_run(evaluate, test_set):
    """It is told and counted, the others are scored, and the same command tries it again."""
    service = TalkingService()
    service.failing_samples = 2 * RATE_HZ
    service.failure = BackendUnavailableError("encoder")
    async with serve(service) as address:
        status, output, errors = await evaluate(address)
        assert status == 76
        assert "2.wav: " in errors
        assert "1 of 4 recordings failed: the scores are without them" in errors
        assert "instances 3, 0 without output" in output
        service.failure = None
        status, output, _ = await evaluate(address)
    assert status == 0
    assert "instances 4, 0 without output" in output


async def test_a_sweep_with_a_failed_recording_draws_nothing(evaluate, test_set):
    """It says what failed; the same command tries that again, and draws."""
    pytest.importorskip("matplotlib")
    service = TalkingService()
    service.failing_samples = 2 * RATE_HZ
    service.failure = BackendUnavailableError("encoder")
    sweep = "--sweep", "edatt:alpha=0.6/0.4", "--at", ""
    async with serve(service) as address:
        status, _, errors = await evaluate(address, *sweep, command="curves")
        assert status == 76
        assert "1 of 4 recordings failed" in errors
        assert not (test_set / "run" / "curves.tsv").exists()
        service.failure = None
        status, _, errors = await evaluate(address, *sweep, command="curves")
    assert (status, errors.count("failed")) == (0, 0)
    assert len((test_set / "run" / "curves.tsv").read_text().splitlines()) == 3


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("evaluate", ()), ("curves", ("--sweep", "edatt:alpha=0.6", "--at", ""))],
)
async def test_a_token_is_shown(evaluate, test_set, command, arguments):
    """Whoever scores a server that wants a token shows it in every session."""
    if command == "curves":
        pytest.importorskip("matplotlib")
    (test_set / "token").write_text("a-token-of-ours\n")
    service = TalkingService()
    async with serve(service) as address:
        token = "--token-file", test_set / "token"
        status, _, _ = await evaluate(address, *arguments, *token, command=command)
    assert status == 0
    assert service.shown_tokens == {"Bearer a-token-of-ours"}


# Stands for mweralign, and tells whose hands signals are in while it cuts.
RESEGMENTER = """\
import signal

def align_texts(reference, hypothesis):
    print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)])
    return hypothesis
"""


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("evaluate", ()), ("curves", ("--sweep", "edatt:alpha=0.6", "--at", ""))],
)
async def test_what_scoring_forks_ends_by_a_signal(
    evaluate, test_set, monkeypatch, command, arguments
):
    """OmniSTEval ends its processes so; with the event loop's handlers, they lived or ended us."""
    if command == "curves":
        pytest.importorskip("matplotlib")
    (test_set / "mweralign").mkdir()
    (test_set / "mweralign" / "__init__.py").touch()
    (test_set / "mweralign" / "mweralign.py").write_text(RESEGMENTER)
    (test_set / "mweralign-1.dist-info").mkdir()
    (test_set / "mweralign-1.dist-info" / "METADATA").write_text("Name: mweralign\nVersion: 1\n")
    monkeypatch.setenv("PYTHONPATH", str(test_set), prepend=os.pathsep)
    sentences = [{"wav": f"{name}.wav", "offset": 0, "duration": name} for name in SECONDS]
    (test_set / "segments.yaml").write_text(json.dumps(sentences))
    long_form = "--segmentation", test_set / "segments.yaml", "--resegmenter", "mweralign"
    async with serve(TalkingService()) as address:
        status, output, _ = await evaluate(address, *arguments, *long_form, command=command)
    assert status == 0
    told = {line for line in output.splitlines() if line.startswith("[")}
    assert told == {str([signal.default_int_handler, signal.SIG_DFL])}


async def test_what_is_refused_for_all_ends_the_run(evaluate, test_set):
    """A full server would refuse every recording: nobody has to watch each one fail."""
    service = TalkingService()
    service.refusal = SessionLimitError("1 of 1", retry_after_ms=2000)
    async with serve(service) as address:
        status, _, errors = await evaluate(address)
    assert status == 75
    assert "0 of 4" not in errors
    assert not (test_set / "run" / "scores.tsv").exists()


async def test_another_model_is_not_mixed_in(evaluate, test_set):
    """Half a run with one model and half with another is no result."""
    service = TalkingService()
    async with serve(service) as address:
        await evaluate(address)
        log = test_set / "run" / "instances.log"
        log.write_text(log.read_text().splitlines(keepends=True)[0])
        service.model_hash = "bad"
        status, _, errors = await evaluate(address)
    assert status == 2
    assert 'another session.model_hash: "f00" there, "bad" now' in errors


async def test_a_finished_run_is_not_taken_for_another_model_s(evaluate, test_set):
    """Nothing is missing, so nothing would be sent, and its scores would be told as the other's."""
    service = TalkingService()
    async with serve(service) as address:
        await evaluate(address)
        assert (await evaluate(address))[0] == 0
        service.model_hash = "bad"
        status, scores, errors = await evaluate(address)
    assert (status, scores) == (2, "")
    assert 'another session.model_hash: "f00" there, "bad" now' in errors


async def test_a_language_is_taken_by_its_region(evaluate):
    """As the services take it: a model of German writes for Austria."""
    async with serve(TalkingService()) as address:
        status, _, errors = await evaluate(address, "--to", "de-AT", "--from", "en-US")
    assert status == 0, errors


async def test_transcripts_are_not_added_to_a_run_without_them(evaluate):
    """Half a log with transcripts is none that can be judged by them."""
    async with serve(TalkingService()) as address:
        await evaluate(address)
        status, _, errors = await evaluate(address, "--transcript")
    assert status == 2
    assert "another options.transcript: false there, true now" in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--to", "fr"), "--to = 'fr' is not allowed; allowed: de"),
        (("--from", "de"), "--from = 'de' is not allowed; allowed: en"),
        (("--model", "x"), "model = 'x' is not served; served: m"),
        (("--policy", "edatt:alfa=1"), "edatt:alfa is not a parameter"),
        (("--streams", "0"), "must be 1 or more"),
        (("--catch-up", "merge"), "needs --live"),
        (("--segmentation", "nowhere.yaml"), "nowhere.yaml"),
    ],
)
async def test_bad_arguments_are_told_before_anything_runs(evaluate, arguments, message):
    """No recording is sent."""
    service = TalkingService()
    async with serve(service) as address:
        status, _, errors = await evaluate(address, *arguments)
    assert status in {1, 2, 3}
    assert message in errors
    assert service.session_count == 0


async def test_simuleval_prints_our_numbers(evaluate, test_set):
    """The tool itself scores the folder; it is no part of our environment."""
    simuleval = shutil.which("simuleval")
    if simuleval is None:
        pytest.skip("simuleval is not installed: make test-tools installs it")
    async with serve(TalkingService()) as address:
        await evaluate(address)
    scores = read_scores(test_set / "run" / "scores.tsv")
    # It prints no more columns than fit on a line.
    for metrics in (("AL", "LAAL", "AP"), ("DAL", "ATD"), ("StartOffset", "EndOffset")):
        for clock, flags in (("ideal", ()), ("simuleval", ("--computation-aware",))):
            process = await asyncio.create_subprocess_exec(
                *(simuleval, "--score-only", "--output", test_set / "run", *flags),
                *("--latency-metrics", *metrics),
                stdout=asyncio.subprocess.PIPE,
            )
            output, _ = await process.communicate()
            header, row = (line.split() for line in output.decode().splitlines()[-2:])
            # With the flag its plain columns repeat the computation-aware values.
            printed = dict(zip(header, map(float, row[1:]), strict=True))
            for metric in metrics:
                assert printed[metric] == pytest.approx(scores[metric, clock], abs=1e-3), metric
