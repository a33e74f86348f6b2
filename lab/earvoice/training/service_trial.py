"""A model as users have it: what the services say with it to test sets, and without speech."""

from __future__ import annotations

import csv
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from earvoice.cli.local_services import ServiceChoices, run_services
from earvoice.cli.log_relay import ServiceLogs
from earvoice.client import AudioFormat, Summary, TranslationOptions, connect
from earvoice.client.audio import send_fast
from earvoice.client.options import Endpointing
from earvoice.evaluation.evaluate import evaluate
from earvoice.evaluation.score import ScoringOptions
from earvoice.evaluation.source_set import SourceSet, read_lines, read_sources
from earvoice.policies import Offline

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from numpy.typing import NDArray

    from earvoice.client import TranslationClient

_RATE_HZ = 16_000
_INT16_SCALE = 32_767
_STREAMS = 2


@dataclass(frozen=True)
class Translated:
    """A test set's scores: sacreBLEU, 0 to 100, and mean LAAL on the ideal clock, in ms."""

    bleu: float
    laal_ms: float

    def __str__(self) -> str:
        """One line for people."""
        return f"BLEU {self.bleu:.1f}, LAAL {self.laal_ms:.0f} ms"


@dataclass(frozen=True)
class ServiceTrial:
    """Services that run with the model.

    Attributes:
        client: connected to them.
        folder: where logs of test sets are written.
    """

    client: TranslationClient
    folder: Path

    async def translate(
        self, test_set: Path, domain: str, language: str, limit: int
    ) -> tuple[Translated, Translated]:
        """Translate a test set with the model's own policy, and offline, both greedy.

        A recording is one utterance, as in the papers.

        Args:
            test_set: folder with ``wavs.txt``, ``inputs.tsv`` and ``refs.LANGUAGE.txt``.
            domain: of the inputs that are translated.
            language: target, BCP-47.
            limit: most inputs.

        Raises:
            CommandError: a file of the test set cannot be used.
            TranslationError: an input was not translated.
        """
        sources = read_inputs(test_set, domain, language, limit)
        own = TranslationOptions(
            (language,), catch_up="every-segment", endpointing=Endpointing(disabled=True)
        )
        return (
            await self._score(sources, own, f"{test_set.name}-own"),
            await self._score(sources, replace(own, policy=Offline()), f"{test_set.name}-offline"),
        )

    async def count_words(self, samples: NDArray[np.float32], language: str) -> int:
        """Return how many words are committed, with voice activity, endpoints and guards.

        Args:
            samples: [n] from -1 to 1, at 16 kHz.
            language: target, BCP-47.

        Raises:
            TranslationError: the session failed.
        """
        pcm = (np.clip(samples, -1.0, 1.0) * _INT16_SCALE).astype("<i2").tobytes()
        chunks = (pcm[start : start + _RATE_HZ] for start in range(0, len(pcm), _RATE_HZ))
        audio = AudioFormat("linear16", _RATE_HZ, 1)
        options = TranslationOptions((language,), audio, catch_up="every-segment")
        count = 0
        async with aclosing(self.client.translate(send_fast(chunks), options)) as events:
            async for event in events:
                if isinstance(event, Summary):
                    count = event.word_count
        return count

    async def _score(
        self, sources: SourceSet, options: TranslationOptions, name: str
    ) -> Translated:
        result = await evaluate(self.client, sources, options, self.folder / name)
        if result.failures:
            raise result.failures[0]
        report = result.report
        laal = None if report is None else report.score.rows["LAAL"]["ideal"].value
        if report is None or report.quality is None or laal is None:
            raise ValueError(f"{name}: no input gave a score")
        return Translated(report.quality.bleu, laal)


@asynccontextmanager
async def run_trial(model: Path, folder: Path) -> AsyncIterator[ServiceTrial]:
    """Run the services with a model.

    Args:
        model: absolute path of the checkpoint's folder.
        folder: for logs; those of another model there are refused.

    Raises:
        CommandError: what a service needs is not installed.
        ServiceStartError: a service did not come to serve.
    """
    choices = ServiceChoices(backend_settings={"MODEL_PATH": str(model)})
    async with (
        run_services(choices, ServiceLogs(folder=folder / "services")) as services,
        connect(services.addresses["policy"]) as client,
    ):
        yield ServiceTrial(client, folder)


def read_inputs(test_set: Path, domain: str, language: str, limit: int) -> SourceSet:
    """Return the inputs of one domain.

    Raises:
        CommandError: a file of the test set cannot be used.
    """
    references = read_lines(test_set / f"refs.{language}.txt")
    recordings = read_sources(test_set / "wavs.txt", references)
    with (test_set / "inputs.tsv").open(encoding="utf-8", newline="") as stream:
        domains = [row["domain"] for row in csv.DictReader(stream, delimiter="\t")]
    pairs = zip(recordings, domains, strict=True)
    chosen = [recording for recording, its_domain in pairs if its_domain == domain][:limit]
    return SourceSet(
        recordings=tuple(replace(one, index=index) for index, one in enumerate(chosen)),
        settings={"recordings": [one.path.name for one in chosen]},
        scoring=ScoringOptions(language=language),
        stream_count=_STREAMS,
        live=False,
    )
