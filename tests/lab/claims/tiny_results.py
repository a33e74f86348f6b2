"""A test set of made-up words, and policies whose quality and lag are chosen."""

from __future__ import annotations

import json
import random
from pathlib import Path

from earvoice.claims.experiment import Experiment
from earvoice.claims.facts import Facts
from earvoice.claims.plan import plan
from earvoice.claims.result import measure
from earvoice.evaluation.instance import Instance

WORD_MS = 400.0
VOCABULARY = [f"wort{number}" for number in range(50)]
LAYERS = 3
HEADS = 2


def references(count, seed=1):
    draw = random.Random(seed)
    return [draw.choices(VOCABULARY, k=draw.randint(12, 18)) for _ in range(count)]


def translate(words, share_right, seed):
    """Return the words with only a share of them right; more of them are right in higher shares."""
    draw = random.Random(f"{seed} {' '.join(words)}")
    return [word if draw.random() < share_right else "falsch" for word in words]


def delays_ms(words, lag_ms, step_ms=200.0):
    """Return delays of about a lag, on a grid, never past the end."""
    end_ms = len(words) * WORD_MS
    return tuple(
        min(end_ms, -(-(index * WORD_MS + lag_ms) // step_ms) * step_ms)
        for index in range(len(words))
    )


def instance(words, share_right=1.0, lag_ms=1000.0, step_ms=200.0, seed=0):
    times_ms = delays_ms(words, lag_ms, step_ms)
    return Instance(
        name="made up",
        unit="word",
        source_length_ms=len(words) * WORD_MS,
        delays_ms=times_ms,
        elapsed_ms={
            "simuleval": tuple(time_ms + 100 for time_ms in times_ms),
            "true": tuple(time_ms + 50 for time_ms in times_ms),
        },
        prediction=" ".join(translate(words, share_right, seed)),
        reference=" ".join(words),
        reference_units=len(words),
        spoken_ends_ms=tuple((index + 1) * WORD_MS for index in range(len(words))),
        computation_ms=300.0,
    )


def result(setting, texts, share_right, lag_ms, step_ms=200.0):
    translated = [instance(words, share_right, lag_ms, step_ms) for words in texts]
    return measure(setting, translated, "de")


def experiment(chosen, inputs=40, **more):
    """Return an experiment.

    Args:
        chosen: share of right words and lag in ms by setting.
        inputs: size of the test set.
        more: other parts of the experiment.
    """
    texts = references(inputs)
    results = {setting: result(setting, texts, *choice) for setting, choice in chosen.items()}
    return Experiment("made up", results, LAYERS, HEADS, **more)


def write_folder(folder: Path, label: str, inputs: int = 6, settings=None) -> None:
    """Write the results of every setting of the plan, or of those that are given."""
    texts = references(inputs)
    settings = settings or plan(LAYERS, HEADS)
    for place, setting in enumerate(settings):
        path = folder / "settings" / setting.name
        path.mkdir(parents=True)
        lines = [
            json.dumps(_record(index, words, place / len(settings)))
            for index, words in enumerate(texts)
        ]
        (path / "instances.log").write_text("\n".join(lines) + "\n", encoding="utf8")
    audio_s = sum(map(len, texts)) * WORD_MS / 1000
    Facts(
        label=label,
        model_name="made-up",
        model_hash="0123456789abcdef",
        policy_defaults={"alpha": 0.3},
        layers=LAYERS,
        heads=HEADS,
        target_language="de",
        inputs=inputs,
        audio_s=audio_s,
        versions={"earvoice": "0"},
        processor="none",
    ).write(folder)
    lines = [
        json.dumps(
            [
                {"word": word, "start_ms": index * WORD_MS, "end_ms": (index + 1) * WORD_MS}
                for index, word in enumerate(words)
            ]
        )
        for words in texts
    ]
    (folder / "words.jsonl").write_text("\n".join(lines) + "\n", encoding="utf8")


def _record(index, words, share):
    times_ms = delays_ms(words, 500 + 2000 * share)
    ends_ms = sorted(set(times_ms))
    return {
        "index": index,
        "prediction": " ".join(translate(words, 0.5 + share / 2, 0)),
        "delays": times_ms,
        "elapsed": [],
        "prediction_length": len(words),
        "reference": " ".join(words),
        "source": [f"{index}.wav"],
        "source_length": len(words) * WORD_MS,
        "source_intervals": [
            [place * WORD_MS, (place + 1) * WORD_MS] for place in range(len(words))
        ],
        "segments": [
            {"end_ms": end_ms, "computation_ms": 20.0, "units": times_ms.count(end_ms)}
            for end_ms in ends_ms
        ],
    }
