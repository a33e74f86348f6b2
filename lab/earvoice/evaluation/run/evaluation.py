"""One evaluation: a test set, one choice of options, one folder."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from earvoice.evaluation.run.evaluation_run import EvaluationRun, RunPlan, describe_options
from earvoice.evaluation.run.run_folder import RunFolder
from earvoice.evaluation.run.run_progress import RunProgress
from earvoice.evaluation.run.score_table import SCORES_NAME, score_table
from earvoice.evaluation.scoring import score_log
from earvoice.evaluation.text_unit import default_unit

if TYPE_CHECKING:
    from earvoice.client.errors import TranslationError
    from earvoice.client.options import TranslationOptions
    from earvoice.client.translation_client import TranslationClient
    from earvoice.evaluation.report import Report
    from earvoice.evaluation.run.source_set import SourceSet


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation came to.

    Attributes:
        report: scores of what was translated; None where they would need what failed.
        failures: recordings that were not translated; running again tries them again.
    """

    report: Report | None
    failures: tuple[TranslationError, ...]


async def evaluate(
    client: TranslationClient, sources: SourceSet, options: TranslationOptions, path: Path
) -> EvaluationResult:
    """Translate what is not finished yet in a folder, then score everything in it.

    Args:
        client: connected to the services.
        sources: the test set.
        options: of every session.
        path: the folder.

    Raises:
        CommandError: the folder holds another run.
        TranslationError: the services refuse such sessions, or are not there.
        LogError: the folder's log was changed by hand.
    """
    unit = sources.scoring.unit or default_unit(options.target_languages[0])
    folder = RunFolder(path, {**sources.settings, "options": describe_options(options)})
    finished = folder.finished()
    missing = [one for one in sources.recordings if one.index not in finished]
    progress = RunProgress.on_stderr(path.name, len(sources.recordings), len(finished))
    plan = RunPlan(options, unit, sources.stream_count)
    with closing(progress):
        failures = await EvaluationRun(client, plan, folder, progress).translate(missing)
    folder.complete(unit)
    if len(failures) == len(sources.recordings) or (failures and not sources.partly_scorable):
        return EvaluationResult(None, tuple(failures))
    report = score_log(folder.log, sources.scoring).report
    (path / SCORES_NAME).write_text(score_table(report), encoding="utf8")
    return EvaluationResult(report, tuple(failures))
