"""The decoder's events as messages."""

from __future__ import annotations

import time
from collections.abc import Sequence

from earvoice.api.v1 import decoder_service_pb2 as decoder_pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.event import Beamed, Ended, Event, Opened, Spent, Stepped
from earvoice.decoder.model import TokenTable
from earvoice.decoder.state_block import StatesId
from earvoice.decoder.strategies.base import Choice


def answer_of(
    event: Event, tokens: TokenTable, description: types_pb2.ModelDescription
) -> decoder_pb.DecodeResponse:
    """Return the message for an event.

    Args:
        event: what happened.
        tokens: what each token writes.
        description: the model served.
    """
    match event:
        case Opened():
            opened = decoder_pb.DecodeOpened(model=description)
            return decoder_pb.DecodeResponse(opened=opened)
        case Stepped():
            return decoder_pb.DecodeResponse(steps=_steps_of(event, tokens))
        case Beamed():
            return decoder_pb.DecodeResponse(beam=_beam_of(event, tokens))
        case Ended():
            return decoder_pb.DecodeResponse(done=_done_of(event))


def _steps_of(event: Stepped, tokens: TokenTable) -> decoder_pb.Steps:
    return decoder_pb.Steps(
        generation_id=event.generation_id,
        states_id=_states_id_of(event.states_id),
        steps=_step_list_of(event.choices, event.first_index, tokens),
        timings=_timings_of(event.spent),
        prefix_attention=_rows_of(event.prefix_attention),
    )


def _beam_of(event: Beamed, tokens: TokenTable) -> decoder_pb.Beam:
    hypotheses = [
        decoder_pb.Hypothesis(
            steps=_step_list_of(item.choices, event.first_index, tokens), score=item.score
        )
        for item in event.beam
    ]
    return decoder_pb.Beam(
        generation_id=event.generation_id,
        states_id=_states_id_of(event.states_id),
        hypotheses=hypotheses,
        timings=_timings_of(event.spent),
        prefix_attention=_rows_of(event.prefix_attention),
    )


def _step_list_of(
    choices: Sequence[Choice], first_index: int, tokens: TokenTable
) -> list[decoder_pb.Step]:
    return [
        decoder_pb.Step(
            index=index,
            token=choice.token,
            text=tokens.texts[choice.token],
            starts_word=tokens.starts_word[choice.token],
            log_probability=choice.log_probability,
            attention=choice.attention,
            end_of_sequence=choice.token == tokens.end_token,
            from_draft=choice.from_draft,
        )
        for index, choice in enumerate(choices, first_index)
    ]


def _rows_of(rows: Sequence[Sequence[float]]) -> list[decoder_pb.AttentionRow]:
    return [decoder_pb.AttentionRow(weights=row) for row in rows]


def _states_id_of(states_id: StatesId) -> types_pb2.StatesId:
    return types_pb2.StatesId(utterance=states_id.utterance, revision=states_id.revision)


def _done_of(event: Ended) -> decoder_pb.GenerationDone:
    return decoder_pb.GenerationDone(
        generation_id=event.generation_id,
        reason=decoder_pb.GenerationDone.Reason.ValueType(event.reason),
        step_count=event.step_count,
        draft_accepted_count=event.draft_accepted_count,
        timings=_timings_of(event.spent),
        near_tie_count=event.near_tie_count,
    )


def _timings_of(spent: Spent) -> types_pb2.Timings:
    return types_pb2.Timings(
        elapsed_ms=(time.monotonic() - spent.read_at_s) * 1000,
        queue_ms=spent.queue_ms,
        compute_ms=spent.compute_ms,
        batch_size=spent.batch_size,
    )
