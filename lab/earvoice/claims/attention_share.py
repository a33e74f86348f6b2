"""How much of each decoder layer's attention lies on the newest encoder states (Papi 2023, §5)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch

from earvoice.claims.plan import ATTENTION_SEGMENT_MS
from earvoice.evaluation.recording import Grid, RecordedInput, Recording, RecordingError
from earvoice.evaluation.replay.parallel_search import ParallelSearch
from earvoice.evaluation.replay.replay_model import load_replay_model
from earvoice.evaluation.replay.revision_table import RevisionTable
from earvoice.evaluation.replay.search import Search
from earvoice.evaluation.study.attention_share import mean_shares

MOST_TOKENS = 100
"""A hypothesis that has not ended by then repeats itself."""


def measure_attention(
    model: Path, recording: Recording, inputs: Sequence[RecordedInput], language: str, path: Path
) -> None:
    """Write each layer's shares, an entry an input.

    Each partial hypothesis is searched from its start, without a forced prefix; a share is the mean
    over its tokens, the layer's heads and the input's segments.

    Args:
        model: folder of the checkpoint.
        recording: with segments of 800 ms.
        inputs: of it.
        language: target, BCP-47.
        path: the JSON file.

    Raises:
        RecordingError: it was made with another model, is damaged, or has an input shorter than a
            segment.
    """
    loaded = load_replay_model(model, recording)
    search = ParallelSearch(loaded.decoder, loaded.opening(language))
    # Inputs by layers by the three shares.
    shares = torch.stack([_share(recording, one, search) for one in inputs])
    names = ("last_share", "previous_share", "even_share")
    layers = [
        {"layer": layer + 1}
        | {name: shares[:, layer, place].tolist() for place, name in enumerate(names)}
        for layer in range(shares.shape[1])
    ]
    path.write_text(json.dumps(layers) + "\n", encoding="utf8")


def _share(recording: Recording, recorded: RecordedInput, search: ParallelSearch) -> torch.Tensor:
    """[layers, 3]: on the last state, on the one before, and what an even share would be."""
    table = RevisionTable(recording, recorded, search.open_states)
    ends = Grid(ATTENTION_SEGMENT_MS).boundaries(recorded.sample_rate_hertz, recorded.sample_count)
    memories = [table.memory(table.revision(end, final=False)[0]) for end in ends]
    searches = [
        Search((), (), MOST_TOKENS, forbid_end=False, memory=memory)
        for memory in memories
        if memory[0].shape[2] > 1
    ]
    search.run(searches)
    shares = mean_shares([found.result().weights for found in searches])
    if shares is None:
        raise RecordingError(f"{recorded.source} is shorter than a segment")
    return shares
