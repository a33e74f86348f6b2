"""Training computes on the device that it is given, and nowhere else."""

import sys
from pathlib import Path

import pytest
import torch
from torch import multiprocessing
from torch.nn.attention import SDPBackend, sdpa_kernel

from earvoice.models.precision import DeviceError
from earvoice.models.vocabulary import Vocabulary
from earvoice.training.__main__ import main
from earvoice.training.budget import Budget
from earvoice.training.dev_set import DevClip, score
from earvoice.training.device import CPU, step_clock, training_device
from earvoice.training.distillation import translate_rows
from earvoice.training.normalisation import measure_normalisation
from earvoice.training.recipe import HEARD_EXACTLY, TeacherRecipe, TrainingRecipe
from earvoice.training.run_state import RunFolder
from earvoice.training.target_text import TargetText
from earvoice.training.teacher import TextTeacher
from earvoice.training.teacher_run import TeacherRun
from earvoice.training.text_data import TextData
from earvoice.training.wait_k_mask import WaitKMask
from tests.lab.other_device import MixedDevicesError, OtherDevice, register_other_device
from tests.lab.test_trainer import InterruptionError, make_trainer
from tests.lab.tiny_corpus import make_sentence, tiny_model, write_corpus

pytestmark = pytest.mark.torch
BUDGET = Budget(steps=6, save_every_s=0.0, measure_every_s=0.0)
NEVER = 10_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny corpus with statistics."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder)
    measure_normalisation(folder, TrainingRecipe()).write(folder)
    return folder


def vocabularies(corpus: Path) -> tuple[Vocabulary, TargetText]:
    """Source and target of the tiny corpus."""
    target = TargetText(Vocabulary.from_file(corpus / "target.model"), {"de": ""})
    return Vocabulary.from_file(corpus / "source.model"), target


def train(corpus: Path, run: Path, device: torch.device, calls: int = NEVER) -> None:
    """Train in both phases, with a mask; killed before the `calls`-th measurement."""
    source, target = vocabularies(corpus)
    mask = WaitKMask(2, source, target.vocabulary)
    trainer = make_trainer(corpus, run, calls, budget=BUDGET, mask=mask, dropout=0.0, device=device)
    if calls != NEVER:
        with pytest.raises(InterruptionError):
            trainer.run()
        return
    trainer.run()
    assert {tensor.device.type for tensor in trainer.network.parameters()} == {device.type}
    clips = [DevClip(torch.ones(90, 80), make_sentence(index)) for index in range(2)]
    torch.save(str(score("test", clips, trainer.network.eval(), source, target)), run / "score.pt")


def train_on_both(_: int, corpus: Path, out: Path) -> None:
    """One run on the CPU alone, and two that change from one device to the other."""
    other = register_other_device()
    # In 32 bits, wherever this test runs: the other device has nothing else.
    torch.cpu._is_avx512_bf16_supported = bool
    with OtherDevice(), sdpa_kernel(SDPBackend.MATH):
        train(corpus, out / "whole", CPU)
        for name, first, second in (("leaves", other, CPU), ("arrives", CPU, other)):
            train(corpus, out / name, first, calls=4)
            train(corpus, out / name, second)


def test_a_run_changes_devices(corpus: Path, tmp_path: Path) -> None:
    """Begun on either and continued on the other it ends as on one, but for rounding."""
    multiprocessing.spawn(train_on_both, args=(corpus, tmp_path))
    whole = RunFolder(tmp_path / "whole").load()
    assert whole is not None
    assert whole["state"]["together"] is True
    for name in ("leaves", "arrives"):
        changed = RunFolder(tmp_path / name).load()
        assert changed is not None
        for key, value in whole["network"].items():
            torch.testing.assert_close(value, changed["network"][key], rtol=0.0, atol=1e-3)
        scores = [torch.load(tmp_path / run / "score.pt") for run in ("whole", name)]
        assert scores[0] == scores[1]


def teach_elsewhere(_: int, corpus: Path, out: Path) -> None:
    """A teacher's steps, on the other device and then on the CPU, and its translations."""
    other = register_other_device()
    recipe = TeacherRecipe(width=32, heads=2, encoder_layers=1, decoder_layers=1)
    source, target = vocabularies(corpus)
    text = TextData(corpus, HEARD_EXACTLY, source, target)
    with OtherDevice():
        for steps, device in ((2, other), (3, CPU), (4, other)):
            teacher = TextTeacher(tiny_model(len(source), len(target.vocabulary)), recipe)
            run = TeacherRun(
                teacher.to(device), text, recipe, Budget(steps=steps), out / "teacher.pt"
            )
            run.run()
            assert run.step == steps
            rows = translate_rows([make_sentence(0)], teacher.eval(), source, target)
            assert len(rows) == 1


def test_a_teacher_changes_devices(corpus: Path, tmp_path: Path) -> None:
    """Its file goes on elsewhere, and its translations come from where it is."""
    multiprocessing.spawn(teach_elsewhere, args=(corpus, tmp_path))
    assert torch.load(tmp_path / "teacher.pt", weights_only=True)["step"] == 4


def mix(_: int) -> None:
    """Add what lies on two devices."""
    other = register_other_device()
    with OtherDevice():
        there = torch.ones(2, device=other)
        assert (there + there).sum().item() == 4.0
        with pytest.raises(MixedDevicesError):
            there + torch.ones(2)


def test_the_other_device_is_none_of_the_cpu() -> None:
    """The double that these tests stand on raises where a GPU would."""
    multiprocessing.spawn(mix)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("step", ["train", "teach", "distil"])
def test_a_gpu_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, step: str
) -> None:
    """The command line names the option, its value and what is allowed."""
    command = ["training", step, "--corpus", str(tmp_path), "--device", "cuda"]
    if step != "train":
        command += ["--teacher", str(tmp_path / "teacher.pt")]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit):
        main()
    message = capsys.readouterr().err
    assert "--device = 'cuda': torch sees no GPU; allowed here: 'cpu', 'auto'" in message


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_auto_is_the_cpu_without_a_gpu() -> None:
    """There, and where the CPU is asked for, processor time is what a budget counts."""
    assert training_device("auto") == training_device("cpu") == CPU
    with pytest.raises(DeviceError):
        training_device("cuda")
    assert step_clock(CPU) is not step_clock(torch.device("cuda"))
