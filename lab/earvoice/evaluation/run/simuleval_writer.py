"""``instances.log`` as SimulEval 1.1 writes and scores it, with what else we know.

SimulEval ignores the fields that it does not know; ``readers/simuleval_1_1`` reads them:
``elapsed_clock``, ``computation_ms``, ``target_language``, ``source_intervals``, ``utterances`` and
``segments`` (``merged_segments`` of a run at real time, from which no clock can be replayed).
"""

from __future__ import annotations

from typing import Any

from earvoice.evaluation.run.translated_recording import TranslatedRecording

# What SimulEval asks of config.yaml. It rewrites the file whenever it scores, so nothing else that
# must last can stand there.
CONFIG = "source_type: speech\ntarget_type: text\n"


def describe_instance(recording: TranslatedRecording) -> dict[str, Any]:
    """Return the line of a recording, numbers unrounded."""
    return {
        "index": recording.index,
        "prediction": recording.prediction,
        "delays": [unit.delay_ms for unit in recording.units],
        "elapsed": list(recording.elapsed_ms),
        "prediction_length": len(recording.units),
        "reference": recording.reference,
        "source": [recording.source],
        "source_length": recording.source_length_ms,
        "elapsed_clock": recording.elapsed_clock,
        "computation_ms": recording.computation_ms,
        "target_language": recording.target_language,
        "source_intervals": [
            [unit.source_start_ms, unit.source_end_ms] for unit in recording.units
        ],
        "utterances": _describe_utterances(recording),
        "segments" if recording.replayable else "merged_segments": [
            {
                "end_ms": segment.end_ms,
                "computation_ms": segment.computation_ms,
                "units": len(segment.offsets_ms),
                "offsets_ms": list(segment.offsets_ms),
            }
            for segment in recording.segments
        ],
    }


def _describe_utterances(recording: TranslatedRecording) -> list[dict[str, float]]:
    counts = [0] * len(recording.utterances)
    for unit in recording.units:
        if counts:
            counts[unit.utterance] += 1
    return [
        {"start_ms": border.start_ms, "end_ms": border.end_ms, "units": count}
        for border, count in zip(recording.utterances, counts, strict=True)
    ]
