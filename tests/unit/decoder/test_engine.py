"""Continuous batching, with a scripted strategy in the engine's real thread."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.event import Beamed, Ended, EndReason, Event, Stepped
from earvoice.decoder.generation import Assignment, Generation
from earvoice.decoder.outbox import Outbox
from earvoice.decoder.strategies.base import BeamPlan, Opening
from tests.unit.decoder.scripted import END, SIZE, ScriptedRun, ScriptedStrategy, block

Engine = DecoderEngine[ScriptedRun]
ENDLESS = [5] * 2000


@pytest.fixture
async def engines() -> AsyncIterator[list[Engine]]:
    """Engines that are closed after the test."""
    started: list[Engine] = []
    yield started
    for engine in started:
        await engine.close()


def start(engines: list[Engine], strategy: ScriptedStrategy) -> Engine:
    """Start an engine that the fixture closes."""
    engine = Engine(strategy)
    engines.append(engine)
    engine.start()
    return engine


def generation(
    outbox: Outbox, revision: int = 1, draft: Sequence[int] = (), limit: int = 1000
) -> Generation:
    """A generation over the script of a revision, after a prefix of three."""
    opening = Opening((END, 7, 8, 9), tuple(draft), 3, forbid_end=False)
    return Generation(Assignment(1, block(revision=revision), opening, 3, limit, END, 0.0), outbox)


async def until_end(outbox: Outbox) -> list[Event]:
    """All events of one generation."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], Ended):
        event = await outbox.take()
        assert event is not None
        events.append(event)
    return events


def tokens_of(events: Sequence[Event]) -> list[int]:
    """The tokens that the events tell."""
    return [c.token for event in events if isinstance(event, Stepped) for c in event.choices]


def end_of(events: Sequence[Event]) -> Ended:
    """The last event, which must be an end."""
    assert isinstance(events[-1], Ended)
    return events[-1]


async def test_steps_come_one_by_one_until_the_end(engines: list[Engine]) -> None:
    """Each token is told once, numbered from the prefix on, and the end is the last."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, SIZE - 1, END]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox))
    events = await until_end(outbox)
    assert tokens_of(events) == [5, 6, SIZE - 1, END]
    assert [e.first_index for e in events if isinstance(e, Stepped)] == [3, 4, 5, 6]
    end = end_of(events)
    assert (end.reason, end.step_count, end.near_tie_count) == (EndReason.END_OF_SEQUENCE, 4, 1)
    assert not outbox.generating


async def test_accepted_draft_comes_in_one_message(engines: list[Engine]) -> None:
    """The agreeing part of the draft and the first own token are told together."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, 7, END]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox, draft=[5, 6, 9]))
    events = await until_end(outbox)
    first = events[0]
    assert isinstance(first, Stepped)
    assert [(c.token, c.from_draft) for c in first.choices] == [(5, True), (6, True), (7, False)]
    assert end_of(events).draft_accepted_count == 2


@pytest.mark.parametrize("draft", [(), (5,), (5, 5), (5, 5, 5)])
async def test_limit_is_exact(engines: list[Engine], draft: tuple[int, ...]) -> None:
    """Drafts never push a hypothesis past its limit."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox, draft=draft, limit=3))
    events = await until_end(outbox)
    assert tokens_of(events) == [5, 5, 5]
    assert end_of(events).reason is EndReason.LIMIT


def beam_generation(outbox: Outbox, revision: int = 1, limit: int = 1000) -> Generation:
    """A beam search over the script of a revision, after a prefix of three."""
    opening = Opening(
        (END, 7, 8, 9), (), 3, forbid_end=False, reported_prefix_tokens=3, beam=BeamPlan(2, limit)
    )
    return Generation(Assignment(1, block(revision=revision), opening, 3, limit, END, 0.0), outbox)


@pytest.mark.parametrize(
    ("limit", "tokens", "reason"),
    [(9, [5, 6, 7, END], EndReason.END_OF_SEQUENCE), (2, [5, 6], EndReason.LIMIT)],
)
async def test_beam_is_told_once(
    engines: list[Engine], limit: int, tokens: list[int], reason: EndReason
) -> None:
    """Nothing before the search is over; then all items, and why the best one ends."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, 7, END]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(beam_generation(outbox, limit=limit))
    beamed, end = await until_end(outbox)
    assert isinstance(beamed, Beamed)
    assert [choice.token for choice in beamed.beam[0].choices] == tokens
    assert (len(beamed.beam), beamed.first_index, len(beamed.prefix_attention)) == (2, 3, 3)
    assert isinstance(end, Ended)
    assert (end.reason, end.step_count) == (reason, len(tokens))
    assert end.near_tie_count == len(tokens) - 1


async def test_halted_beam_tells_nothing(engines: list[Engine]) -> None:
    """A search that is stopped has no result, only its end."""
    engine = start(engines, ScriptedStrategy({1: [5] * 10**5}))
    outbox = Outbox(16, engine.wake)
    running = beam_generation(outbox, limit=10**6)
    engine.submit(running)
    running.stop(EndReason.HALTED)
    (end,) = await until_end(outbox)
    assert isinstance(end, Ended)
    assert (end.reason, end.step_count) == (EndReason.HALTED, 0)


async def test_beam_and_greedy_share_batches(engines: list[Engine]) -> None:
    """What each session's search is, the others need not know."""
    strategy = ScriptedStrategy({1: [*range(5, 45), END], 2: [*range(5, 45), END]})
    engine = Engine(strategy)
    engines.append(engine)
    greedy, beam = Outbox(100, engine.wake), Outbox(100, engine.wake)
    engine.submit(beam_generation(beam, 1))
    engine.submit(generation(greedy, 2))
    engine.start()
    assert tokens_of(await until_end(greedy)) == [*range(5, 45), END]
    found, _ = await until_end(beam)
    assert isinstance(found, Beamed)
    assert [choice.token for choice in found.beam[0].choices] == [*range(5, 45), END]
    assert max(strategy.batches) == 2


async def test_full_outbox_pauses_only_its_own_session(engines: list[Engine]) -> None:
    """Who does not read is not stepped; others are; reading goes on where it stopped."""
    strategy = ScriptedStrategy({1: ENDLESS, 2: [*range(5, 25), END]})
    engine = start(engines, strategy)
    slow, quick = Outbox(4, engine.wake), Outbox(100, engine.wake)
    engine.submit(generation(slow, 1, limit=50))
    engine.submit(generation(quick, 2))
    assert tokens_of(await until_end(quick)) == [*range(5, 25), END]
    assert slow.full
    assert slow.generating
    assert len(tokens_of(await until_end(slow))) == 50
    assert not slow.generating


async def test_running_generations_are_stepped_together(engines: list[Engine]) -> None:
    """Sessions share a batch as soon as they run at the same time."""
    strategy = ScriptedStrategy({1: ENDLESS})
    engine = start(engines, strategy)
    outboxes = [Outbox(4, engine.wake) for _ in range(3)]
    for outbox in outboxes:
        engine.submit(generation(outbox, limit=40))
    ends = [end_of(events) for events in await asyncio.gather(*map(until_end, outboxes))]
    assert [end.step_count for end in ends] == [40, 40, 40]
    assert max(strategy.batches) > 1


async def test_stop_ends_a_running_and_a_waiting_generation(engines: list[Engine]) -> None:
    """Each gets exactly one end with the reason it was stopped for."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(2, engine.wake)
    running, waiting = generation(outbox), generation(outbox)
    engine.submit(running)
    await outbox.take()
    running.stop(EndReason.HALTED)
    waiting.stop(EndReason.REPLACED)
    engine.submit(waiting)
    assert end_of(await until_end(outbox)).reason is EndReason.HALTED
    assert end_of(await until_end(outbox)).reason is EndReason.REPLACED
    await outbox.settled()


@pytest.mark.parametrize("script", [[ValueError("broken")], [5, 6, ValueError("broken")]])
async def test_failure_ends_only_its_own_generation(
    engines: list[Engine], script: list[int | Exception]
) -> None:
    """Whether prefill or step fails, the other session's text is whole."""
    engine = start(engines, ScriptedStrategy({1: script, 2: [*range(5, 25), END]}))
    bad, good = Outbox(100, engine.wake), Outbox(100, engine.wake)
    engine.submit(generation(good, 2))
    engine.submit(generation(bad, 1))
    failed = end_of(await until_end(bad))
    assert failed.reason is EndReason.ERROR
    assert isinstance(failed.failure, ValueError)
    assert tokens_of(await until_end(good)) == [*range(5, 25), END]


async def test_close_ends_what_runs_and_what_comes_later(engines: list[Engine]) -> None:
    """Nobody waits for an engine that is gone."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(2, engine.wake)
    engine.submit(generation(outbox))
    await outbox.take()
    await engine.close()
    engine.submit(generation(outbox))
    await outbox.settled()
    assert end_of(await until_end(outbox)).reason is EndReason.CLOSED


async def test_parts_of_the_time_do_not_exceed_the_whole(engines: list[Engine]) -> None:
    """Queue and computation lie within the time since the command was read."""
    ticks = iter(range(10_000))
    engine = Engine(ScriptedStrategy({1: [5, 6, END]}), clock_s=lambda: next(ticks) / 1000)
    engines.append(engine)
    engine.start()
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox))
    spent = end_of(await until_end(outbox)).spent
    assert spent.compute_ms == pytest.approx(3.0)
    assert 0 <= spent.queue_ms <= next(ticks) - spent.compute_ms
