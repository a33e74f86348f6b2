"""Small logs of every format."""

from __future__ import annotations

import json

from earvoice.evaluation.log import ReadingOptions, read_records
from earvoice.evaluation.log_formats import read_log

SIMULEVAL_1_1 = {
    "index": 0,
    "prediction": "ein Haus",
    "delays": [1000.0, 2000.0],
    "elapsed": [1100.0, 2400.0],
    "prediction_length": 2,
    "reference": "ein Haus",
    "source": ["a.wav"],
    "source_length": 2000.0,
}
SIMULEVAL_1_0 = {
    **SIMULEVAL_1_1,
    "prediction": "ein Haus </s>",
    "delays": [1000.0, 2000.0, 2000.0],
    "elapsed": [1100.0, 2400.0, 2500.0],
    "reference_length": 2,
    "metric": {"latency": {"AL": 1.0}},
}
OMNISTEVAL = {
    "index": 0,
    "docid": 0,
    "segid": 0,
    "prediction": "ein Haus",
    "reference": "ein Haus",
    "source_length": 2000.0,
    "emission_cu": [-500.0, 2500.0],
    "emission_ca": [-400.0, 2900.0],
    "time_to_recording_end": 9000.0,
}


def segment(audio_s, computation_s, generated=(), deleted=()):
    return {
        "id": 7,
        "total_audio_processed": audio_s,
        "computation_time": computation_s,
        "generated_tokens": list(generated),
        "deleted_tokens": list(deleted),
    }


def simulstream(*segments):
    header = [{"model_loading_time": 3.0}, {"id": 7, "metadata": {"wav_name": "talks/a.wav"}}]
    return [*header, *segments]


def item(text, delay_ms, elapsed_ms, *, starts_word=True, utterance=0, **more):
    return {
        "type": "word",
        "text": text,
        "starts_word": starts_word,
        "utterance": utterance,
        "source_start_ms": 0.0,
        "source_end_ms": delay_ms - 300.0,
        "delay_ms": delay_ms,
        "elapsed_ms": elapsed_ms,
        "target_language": "de",
        **more,
        "file": "a.wav",
    }


def utterance_end(utterance, start_ms, end_ms):
    return {
        "type": "utterance_end",
        "utterance": utterance,
        "cause": "pause",
        "source_start_ms": start_ms,
        "source_end_ms": end_ms,
        "file": "a.wav",
    }


def write(path, *lines):
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf8")
    return path


def read(path, *lines, **options):
    """Write a log and read it by whatever format it is found to be."""
    write(path, *lines)
    return read_log(path, read_records(path), ReadingOptions(**options))
