"""A recorded run through the three services, one recording after the other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from earvoice.cli.local_services import ServiceChoices, run_services
from earvoice.cli.log_relay import LogFolder
from earvoice.client.options import TranslationOptions
from earvoice.client.pacing import send_fast
from earvoice.client.translation_client import TranslationClient, connect
from earvoice.evaluation.readers.log import LogError
from earvoice.evaluation.verification.joined_recording import JoinedRecording, read_recording
from earvoice.evaluation.verification.recorded_run import RecordedRun
from earvoice.evaluation.verification.released_agent import ReleasedAgent
from earvoice.evaluation.verification.run_comparison import (
    InstanceComparison,
    PlayedInstance,
    compare,
    played_instance,
)


@dataclass(frozen=True)
class ServedModel:
    """The checkpoint that the services load.

    Attributes:
        path: a directory of our format, or a ``.pt`` file.
        start_timeout_s: how long a service may take to load it.
        log_folder: for the services' logs; None keeps none.
    """

    path: Path
    start_timeout_s: float
    log_folder: Path | None = None


def find_checkpoint(folder: Path) -> Path:
    """Return the checkpoint in a folder: its only ``.pt`` file, or else the folder itself.

    Raises:
        LogError: there is no such folder, or it has several ``.pt`` files.
    """
    if folder.is_file():
        return folder
    if not folder.is_dir():
        raise LogError(str(folder), "no such folder")
    files = sorted(folder.glob("*.pt"))
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise LogError(str(folder), f"has several checkpoints ({names}): name one")
    return files[0] if files else folder


async def verify_run(
    run: RecordedRun, agent: ReleasedAgent, model: ServedModel, wav_folder: Path
) -> AsyncGenerator[InstanceComparison, None]:
    """Start the services, play every instance and yield what came of it.

    Raises:
        LogError: the run's audio is not there.
        ServiceStartError: a service did not come to serve.
        TranslationError: a session failed.
    """
    # What is missing is told before anything is started.
    recordings = [read_recording(instance, wav_folder) for instance in run.instances]
    settings = {"MODEL_PATH": str(model.path.resolve()), **agent.model_settings()}
    choices = ServiceChoices(backend_settings=settings, start_timeout_s=model.start_timeout_s)
    async with (
        run_services(choices, LogFolder(folder=model.log_folder)) as services,
        connect(services.addresses["policy"]) as client,
    ):
        target = (await client.list_models()).models[0].target_languages[0]
        for instance, recording in zip(run.instances, recordings, strict=True):
            options = agent.options(recording.audio, target)
            yield compare(instance, await _play(client, recording, options))


async def _play(
    client: TranslationClient, recording: JoinedRecording, options: TranslationOptions
) -> PlayedInstance:
    async with aclosing(client.translate(send_fast(recording.chunks), options)) as events:
        return played_instance([event async for event in events])


def summarize(comparisons: Sequence[InstanceComparison]) -> str:
    """Return one line with the counts."""
    differing = sum(bool(comparison.differences) for comparison in comparisons)
    return (
        f"{len(comparisons)} instances, "
        f"{sum(comparison.segment_count for comparison in comparisons)} segments "
        f"({sum(comparison.hypothesis_count for comparison in comparisons)} hypotheses), "
        f"{sum(comparison.word_count for comparison in comparisons)} words: "
        f"{differing} instances differ, "
        f"in {sum(len(comparison.differences) for comparison in comparisons)} places"
    )
