"""Replays of a recording, and what they need of the model."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from earvoice.decoder.search import Run, SearchStrategy
from earvoice.decoder.strategy import Progress, Prompt, StateBlock
from earvoice.evaluation.log import read_records
from earvoice.evaluation.recorder import record_inputs
from earvoice.evaluation.recording import Grid, Recording, RecordingError
from earvoice.evaluation.replay.decoding_cost import (
    TOKEN_COUNTS,
    DecodingCost,
    Plane,
    cost_book,
    measure_cost,
)
from earvoice.evaluation.replay.run import Replay
from earvoice.evaluation.replay.setting import ReplaySetting
from earvoice.evaluation.run_folder import RunProgress
from earvoice.evaluation.source_set import read_sources
from earvoice.models.checkpoint import load_checkpoint
from earvoice.policies import AlignAtt, Edatt, LocalAgreement, SharedPrefix
from tests.lab.evaluation.commands import run_command
from tests.own_policy import shown_policy
from tests.tiny_model import WIDTH, write_tiny_checkpoint

pytestmark = pytest.mark.torch

SETTINGS = (
    ReplaySetting(Edatt(alpha=0.4), 400),
    ReplaySetting(Edatt(alpha=0.4), 400, attention="mean-over-layers"),
    ReplaySetting(Edatt(alpha=0.4), 400, attention="with-the-last-state"),
    ReplaySetting(Edatt(alpha=0.6, attention_layer=1, attention_heads=(2, 3)), 400),
    ReplaySetting(AlignAtt(frames=2), 800),
    ReplaySetting(LocalAgreement(n=2), 400),
    ReplaySetting(SharedPrefix(n=2), 400, beam_size=3),
)


def translate(replay: Replay, *settings: ReplaySetting) -> list[list[tuple[str, float]]]:
    """What each setting makes of the second input: words and when they came."""
    found = asyncio.run(replay.translate(replay.inputs[1], settings))
    return [list(zip(line["prediction"].split(), line["delays"], strict=True)) for line, _ in found]


def test_company_changes_nothing(recording: Recording, model_path: Path):
    """A setting says the same alone and among others, whose hypotheses it shares."""
    replay = Replay(recording.folder, model_path, "de")
    together = translate(replay, *SETTINGS)
    assert together == [translate(replay, setting)[0] for setting in SETTINGS]
    assert len(set(map(str, together))) > 3


def test_kept_hypotheses_need_no_network(recording: Recording, model_path: Path, tmp_path: Path):
    """What was found once is found in any later replay; the checkpoint may even be gone."""
    folder = shutil.copytree(recording.folder, tmp_path / "copy")
    keeping = Replay(folder, model_path, "de", keeps_hypotheses=True)
    first = translate(keeping, *SETTINGS)
    assert keeping.tally["searched"]
    assert keeping.tally["beams searched"]
    later = Replay(folder, tmp_path / "nowhere", "de")
    assert translate(later, *SETTINGS) == first
    assert later.tally["searched"] == later.tally["beams searched"] == 0
    assert "decoder" not in vars(later)


def test_costs_are_measured_once(tmp_path: Path):
    """All replays of a recording count alike; a damaged file is told."""
    path, measured = tmp_path / "decoding_cost.json", []

    def measure(beam_size: int) -> DecodingCost:
        measured.append(beam_size)
        return DecodingCost(Plane(1.0, 0.5, 0.25), Plane(float(beam_size), 0.0, 0.0))

    costs = [cost_book(path, measure)(size) for size in (1, 5, 1)]
    assert measured == [1, 5]
    assert costs[0] == costs[2] != costs[1]
    assert costs[0].opening.at(4, 8) == 5.0
    path.write_text("{")
    with pytest.raises(RecordingError, match="cannot be read"):
        cost_book(path, measure)


@pytest.mark.parametrize("language", [(2,), (2, 0)])
def test_what_is_timed_is_the_work_of_a_language(tmp_path: Path, language: tuple[int, ...]):
    """A translation's opening reads a draft of its source text, the same each time; captions none.

    In the tiny model, hypotheses behind token 0 are captions.
    """
    write_tiny_checkpoint(tmp_path, translating=True)
    openings: list[tuple[int, ...]] = []
    drafts: dict[int, set[int]] = {}

    class Watched(SearchStrategy):
        def begin(self, states: StateBlock, prompt: Prompt) -> tuple[Run, Progress]:
            openings.append(prompt.forced)
            drafts.setdefault(states.message.state_count, set()).add(len(states.source_text))
            run, progress = super().begin(states, prompt)
            assert bool(progress.source) == (language == (2,))
            return run, progress

    strategy = Watched(load_checkpoint(tmp_path).network.transformer_decoder)
    measure_cost(strategy, language, WIDTH, 1)
    assert {len(forced) for forced in openings} == {*TOKEN_COUNTS}
    assert {forced[: len(language)] for forced in openings} == {language}
    assert drafts == {8: {1}, 40: {6}, 100: {16}}


def test_another_model_is_refused(recording: Recording, tmp_path: Path):
    """States of one model mean nothing to another."""
    with pytest.raises(RecordingError, match=str(tmp_path)):
        translate(Replay(recording.folder, tmp_path, "de"), SETTINGS[0])


def test_the_command_goes_on(recording: Recording, model_path: Path, tmp_path: Path):
    """Finished settings stay; the tables' reader finds each in a folder of its name."""
    arguments = (recording.folder, "--model", model_path, "--to", "de", "--output", tmp_path)
    for policies in (("edatt:alpha=0.4",), ("edatt:alpha=0.4", "local_agreement:n=2")):
        flags = [part for policy in policies for part in ("--policy", f"{policy}@segment=400")]
        run_command("replay", *arguments, *flags)
    logs = sorted(path.parent.name for path in tmp_path.glob("*/instances.log"))
    assert logs == ["edatt:alpha=0.4@segment=400", "local_agreement:n=2@segment=400"]
    assert (recording.folder / "decoding_cost.de.json").exists()


def test_a_file_s_policy_is_replayed(recording: Recording, model_path: Path, tmp_path: Path):
    """As the services run it, and as any of ours: it commits, and its parameters count."""
    policy = tmp_path / "share.py"
    policy.write_text(shown_policy(), encoding="utf8")
    arguments = (recording.folder, "--model", model_path, "--to", "de", "--output", tmp_path)
    run_command(
        "replay", *arguments, "--policy", f"{policy}:Share:share=0.2/0.9@segment=400,guards=false"
    )
    said = {
        share: (tmp_path / f"share:share={share}@segment=400,guards=false" / "instances.log")
        for share in ("0.2", "0.9")
    }
    delays = [record.numbers("delays") for share in said.values() for record in read_records(share)]
    assert sum(map(sum, delays[:2])) > sum(map(sum, delays[2:])) > 0


def test_a_file_s_policy_with_the_name_of_one_of_ours_is_refused(
    recording: Recording, model_path: Path, tmp_path: Path
):
    """The services would refuse it, too."""
    policy = tmp_path / "mine.py"
    policy.write_text(shown_policy().replace('"share"', '"edatt"'), encoding="utf8")
    with pytest.raises(SystemExit, match=r"Share: name = 'edatt' is not allowed; .*Edatt's"):
        run_command(
            "replay",
            *(recording.folder, "--model", model_path, "--output", tmp_path),
            *("--policy", f"{policy}:Share@segment=400"),
        )


def test_replays_of_another_test_set_are_not_gone_on_with(
    recording: Recording, model_path: Path, tmp_path: Path
):
    """What is finished was of other recordings: it would be told as theirs."""
    flags = ("--model", model_path, "--policy", "edatt:alpha=0.4@segment=400", "--limit", 1)
    run_command("replay", recording.folder, *flags, "--output", tmp_path / "replays")
    other = Recording(shutil.copytree(recording.folder, tmp_path / "other"))
    inputs = other.folder / "inputs.jsonl"
    inputs.write_text(inputs.read_text().replace("Sie sagte", "Er sagte"))
    with pytest.raises(SystemExit, match="of another test set: recording 0"):
        run_command("replay", other.folder, *flags, "--output", tmp_path / "replays")


def test_a_recording_goes_on_with_its_own_test_set_and_model(
    recording: Recording, model_path: Path, test_set: Path
):
    """Inputs of two test sets, or of two models, must not be mixed."""
    progress = RunProgress("record", 2, 2)
    sources = read_sources(test_set / "wavs.txt", ["Sie sagte, dass", "etwas anderes"])
    with pytest.raises(RecordingError, match="of another test set: input 1"):
        record_inputs(model_path, sources, [Grid(400)], recording, progress)
    new = Recording(recording.folder / "new")
    with pytest.raises(RecordingError, match="must name the model served"):
        record_inputs(model_path, sources, [Grid(400)], new, progress, "f00")
    assert not new.folder.exists()


def test_another_familys_model_is_not_recorded(tmp_path: Path, test_set: Path):
    """Replays decode with our own search: it is told in a line, before anything is encoded."""
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    sources = read_sources(test_set / "wavs.txt", ["Sie sagte, dass", "etwas anderes"])
    new, progress = Recording(tmp_path / "new"), RunProgress("record", 2, 2)
    with pytest.raises(RecordingError, match="recordings take our own networks"):
        record_inputs(tmp_path, sources, [Grid(400)], new, progress)
    assert not new.folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no setting was given"),
        (("--policy", "edatt:alpha=2"), "alpha"),
        (("--policy", "edatt@segment=300"), "nothing was recorded at 300 ms"),
        (
            ("--policy", "edatt@segment=400", "--to", "xx"),
            "--to = 'xx' is not allowed; allowed: de",
        ),
        (("--policy", "edatt:alpha=0.1@tempo=3"), "tempo is not a parameter; allowed: segment"),
        (("--policy", "edatt@segment=400", "--limit", "0"), "--limit 0 is not allowed"),
    ],
)
def test_bad_input_is_told(
    recording: Recording, model_path: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
):
    """The message says what is wrong, and the command fails."""
    with pytest.raises(SystemExit, match=message):
        run_command(
            "replay", recording.folder, "--model", model_path, "--output", tmp_path, *arguments
        )
