"""Runs on a small test set, as a sweep writes them."""

from __future__ import annotations

from tests.unit.evaluation.logs import write

REFERENCES = ["das ist ein altes Haus", "wir gehen heute nach Hause", "ich sehe den alten Mann"]


def write_run(folder, shift_ms, texts=tuple(REFERENCES)):
    """Write a run whose words leave in two halves, so much later."""
    folder.mkdir(parents=True)
    lines = []
    for index, (text, reference) in enumerate(zip(texts, REFERENCES, strict=True)):
        words = text.split()
        half = len(words) // 2
        delays = [1000.0 + shift_ms] * half + [2000.0 + shift_ms] * (len(words) - half)
        lines.append(
            {
                "index": index,
                "prediction": text,
                "delays": delays,
                "elapsed": [delay + 100.0 * (index + 1) for delay in delays],
                "prediction_length": len(words),
                "reference": reference,
                "source": [f"{index}.wav"],
                "source_length": 4000.0,
            }
        )
    write(folder / "instances.log", *lines)
    return folder


def write_sweep(folder):
    """Write a folder with two lines of two points; the later points are better."""
    worse = (REFERENCES[0], REFERENCES[1], "ich sehe alte Leute")
    write_run(folder / "edatt:alpha=0.6", 0.0, worse)
    write_run(folder / "edatt:alpha=0.1", 1000.0)
    write_run(folder / "local_agreement:n=2@segment=500", 0.0, worse)
    write_run(folder / "local_agreement:n=3@segment=500", 500.0)
    return folder
