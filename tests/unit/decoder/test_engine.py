"""Continuous batching, with a scripted strategy in the engine's real thread."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from earvoice.decoder.engine import DecoderEngine
from earvoice.decoder.generation import EndReason, Event, Generation, Outbox
from earvoice.decoder.strategy import BeamPlan, Prompt
from tests.fakes import END_TOKEN, VOCABULARY_SIZE, ScriptedStrategy, state_block

ENDLESS = [5] * 2000


@pytest.fixture
async def engines() -> AsyncIterator[list[DecoderEngine]]:
    """Engines that are closed after the test."""
    started: list[DecoderEngine] = []
    yield started
    for engine in started:
        await engine.close()


def start(engines: list[DecoderEngine], strategy: ScriptedStrategy) -> DecoderEngine:
    engine = DecoderEngine(strategy)
    engines.append(engine)
    engine.start()
    return engine


def generation(
    outbox: Outbox, revision: int = 1, draft: Sequence[int] = (), limit: int = 1000
) -> Generation:
    """A generation over the script of a revision, after a prefix of three."""
    prompt = Prompt((END_TOKEN, 7, 8, 9), tuple(draft), 3, forbid_end=False)
    states = state_block(revision=revision)
    return Generation(1, states, prompt, limit, END_TOKEN, outbox, prefix_length=3)


async def until_end(outbox: Outbox) -> list[Event]:
    events: list[Event] = []
    while not events or events[-1].progress is not None:
        event = await outbox.take()
        assert event is not None
        events.append(event)
    return events


def tokens_of(events: Sequence[Event]) -> list[int]:
    return [token.token for event in events if event.progress for token in event.progress.tokens]


def end_of(events: Sequence[Event]) -> Generation:
    """The generation that the last event, which must be an end, is of."""
    assert events[-1].progress is None
    return events[-1].generation


async def test_steps_come_one_by_one_until_the_end(engines: list[DecoderEngine]) -> None:
    """Each token is told once, numbered from the prefix on, and the end is the last."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, VOCABULARY_SIZE - 1, END_TOKEN]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox))
    events = await until_end(outbox)
    assert tokens_of(events) == [5, 6, VOCABULARY_SIZE - 1, END_TOKEN]
    assert [event.first_index for event in events if event.progress] == [3, 4, 5, 6]
    end = end_of(events)
    assert (end.end_reason, end.step_count, end.near_tie_count) == (EndReason.END_OF_SEQUENCE, 4, 1)
    assert not outbox.generating


async def test_accepted_draft_comes_in_one_message(engines: list[DecoderEngine]) -> None:
    """The agreeing part of the draft and the first own token are told together."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, 7, END_TOKEN]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox, draft=[5, 6, 9]))
    events = await until_end(outbox)
    first = events[0].progress
    assert first is not None
    assert [(c.token, c.from_draft) for c in first.tokens] == [(5, True), (6, True), (7, False)]
    assert end_of(events).draft_accepted_count == 2


@pytest.mark.parametrize("draft", [(), (5,), (5, 5), (5, 5, 5)])
async def test_limit_is_exact(engines: list[DecoderEngine], draft: tuple[int, ...]) -> None:
    """Drafts never push a hypothesis past its limit."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox, draft=draft, limit=3))
    events = await until_end(outbox)
    assert tokens_of(events) == [5, 5, 5]
    assert end_of(events).end_reason is EndReason.LIMIT


def beam_generation(outbox: Outbox, revision: int = 1, limit: int = 1000) -> Generation:
    """A beam search over the script of a revision, after a prefix of three."""
    prompt = Prompt(
        (END_TOKEN, 7, 8, 9),
        (),
        3,
        forbid_end=False,
        reported_prefix_tokens=3,
        beam=BeamPlan(2, limit),
    )
    states = state_block(revision=revision)
    return Generation(1, states, prompt, limit, END_TOKEN, outbox, prefix_length=3)


@pytest.mark.parametrize(
    ("limit", "tokens", "reason"),
    [(9, [5, 6, 7, END_TOKEN], EndReason.END_OF_SEQUENCE), (2, [5, 6], EndReason.LIMIT)],
)
async def test_beam_is_told_once(
    engines: list[DecoderEngine], limit: int, tokens: list[int], reason: EndReason
) -> None:
    """Nothing before the search is over; then all items, and why the best one ends."""
    engine = start(engines, ScriptedStrategy({1: [5, 6, 7, END_TOKEN]}))
    outbox = Outbox(16, engine.wake)
    engine.submit(beam_generation(outbox, limit=limit))
    events = await until_end(outbox)
    told, end = events[0].progress, end_of(events)
    assert told is not None
    assert len(events) == 2
    assert [token.token for token in told.beam[0].tokens] == tokens
    assert (len(told.beam), events[0].first_index, len(told.prefix_attention)) == (2, 3, 3)
    assert (end.end_reason, end.step_count) == (reason, len(tokens))
    assert end.near_tie_count == len(tokens) - 1


async def test_halted_beam_tells_nothing(engines: list[DecoderEngine]) -> None:
    """A search that is stopped has no result, only its end."""
    engine = start(engines, ScriptedStrategy({1: [5] * 10**5}))
    outbox = Outbox(16, engine.wake)
    running = beam_generation(outbox, limit=10**6)
    engine.submit(running)
    running.stop(EndReason.HALTED)
    events = await until_end(outbox)
    end = end_of(events)
    assert len(events) == 1
    assert (end.end_reason, end.step_count) == (EndReason.HALTED, 0)


async def test_beam_and_greedy_share_batches(engines: list[DecoderEngine]) -> None:
    """What each session's search is, the others need not know."""
    strategy = ScriptedStrategy({1: [*range(5, 45), END_TOKEN], 2: [*range(5, 45), END_TOKEN]})
    engine = DecoderEngine(strategy)
    engines.append(engine)
    greedy, beam = Outbox(100, engine.wake), Outbox(100, engine.wake)
    engine.submit(beam_generation(beam, 1))
    engine.submit(generation(greedy, 2))
    engine.start()
    assert tokens_of(await until_end(greedy)) == [*range(5, 45), END_TOKEN]
    found = (await until_end(beam))[0].progress
    assert found is not None
    assert [token.token for token in found.beam[0].tokens] == [*range(5, 45), END_TOKEN]
    assert max(strategy.batches) == 2


async def test_full_outbox_pauses_only_its_own_session(engines: list[DecoderEngine]) -> None:
    """Who does not read is not stepped; others are; reading goes on where it stopped."""
    strategy = ScriptedStrategy({1: ENDLESS, 2: [*range(5, 25), END_TOKEN]})
    engine = start(engines, strategy)
    slow, quick = Outbox(4, engine.wake), Outbox(100, engine.wake)
    engine.submit(generation(slow, 1, limit=50))
    engine.submit(generation(quick, 2))
    assert tokens_of(await until_end(quick)) == [*range(5, 25), END_TOKEN]
    assert slow.full
    assert slow.generating
    assert len(tokens_of(await until_end(slow))) == 50
    assert not slow.generating


async def test_running_generations_are_stepped_together(engines: list[DecoderEngine]) -> None:
    """Sessions share a batch as soon as they run at the same time."""
    strategy = ScriptedStrategy({1: ENDLESS})
    engine = start(engines, strategy)
    outboxes = [Outbox(4, engine.wake) for _ in range(3)]
    for outbox in outboxes:
        engine.submit(generation(outbox, limit=40))
    ends = [end_of(events) for events in await asyncio.gather(*map(until_end, outboxes))]
    assert [end.step_count for end in ends] == [40, 40, 40]
    assert max(strategy.batches) > 1


async def test_stop_ends_a_running_and_a_waiting_generation(engines: list[DecoderEngine]) -> None:
    """Each gets exactly one end with the reason it was stopped for."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(2, engine.wake)
    running, waiting = generation(outbox), generation(outbox)
    engine.submit(running)
    await outbox.take()
    running.stop(EndReason.HALTED)
    waiting.stop(EndReason.REPLACED)
    engine.submit(waiting)
    assert end_of(await until_end(outbox)).end_reason is EndReason.HALTED
    assert end_of(await until_end(outbox)).end_reason is EndReason.REPLACED
    await outbox.settled()


BROKEN = ValueError("broken")


@pytest.mark.parametrize(
    ("script", "first"),
    [
        ([BROKEN], {}),
        ([5, 6, BROKEN], {}),
        ([5, END_TOKEN], {1: [BROKEN], 2: [9] * 9}),
        ([5, END_TOKEN], {1: [9, 9, BROKEN], 2: [9] * 9}),
    ],
)
async def test_failure_ends_only_its_own_generation(
    engines: list[DecoderEngine],
    script: list[int | Exception],
    first: dict[int, list[int | Exception]],
) -> None:
    """Whether what is needed first, prefill or step fails, the other session's text is whole."""
    scripts = {1: script, 2: [*range(5, 25), END_TOKEN]}
    engine = start(engines, ScriptedStrategy(scripts, first))
    bad, good = Outbox(100, engine.wake), Outbox(100, engine.wake)
    engine.submit(generation(good, 2))
    engine.submit(generation(bad, 1))
    failed = end_of(await until_end(bad))
    assert failed.end_reason is EndReason.ERROR
    assert isinstance(failed.failure, ValueError)
    assert tokens_of(await until_end(good)) == [*range(5, 25), END_TOKEN]


async def test_what_is_written_first_shares_batches_and_is_not_told(
    engines: list[DecoderEngine],
) -> None:
    """Those that are prepared in the same step begin in the order they came in."""
    strategy = ScriptedStrategy(
        {key: [5, END_TOKEN] for key in (1, 2, 3)}, {1: [9] * 6, 2: [9] * 5, 3: [9] * 4}
    )
    engine = DecoderEngine(strategy)
    engines.append(engine)
    outboxes = [Outbox(100, engine.wake) for _ in range(3)]
    for revision, outbox in enumerate(outboxes, start=1):
        engine.submit(generation(outbox, revision, draft=[40 + revision]))
    engine.start()
    for outbox in outboxes:
        assert tokens_of(await until_end(outbox)) == [5, END_TOKEN]
    assert max(strategy.batches) == 3
    assert [prompt.draft for prompt in strategy.begun] == [(41,), (42,), (43,)]


@pytest.mark.parametrize("reason", [EndReason.HALTED, EndReason.REPLACED])
async def test_who_is_stopped_before_it_has_begun_ends(
    engines: list[DecoderEngine], reason: EndReason
) -> None:
    strategy = ScriptedStrategy({1: ENDLESS, 2: [5, END_TOKEN]}, {1: [9] * 1_000_000})
    engine = start(engines, strategy)
    stopped, other = Outbox(4, engine.wake), Outbox(100, engine.wake)
    running = generation(stopped)
    engine.submit(running)
    engine.submit(generation(other, 2))
    assert tokens_of(await until_end(other)) == [5, END_TOKEN]
    running.stop(reason)
    engine.wake()
    events = await until_end(stopped)
    assert tokens_of(events) == []
    assert end_of(events).end_reason is reason
    assert len(strategy.begun) == 1


async def test_a_caller_that_does_not_read_does_not_wait_for_the_engine(
    engines: list[DecoderEngine],
) -> None:
    """What its next generation needs first is not written meanwhile, and that is no queue."""
    now_s = [0.0]
    script = [5, END_TOKEN]
    strategy = ScriptedStrategy({1: ENDLESS, 2: script, 3: script}, {2: [9] * 3})
    engine = DecoderEngine(strategy, clock_s=lambda: now_s[0])
    engines.append(engine)
    engine.start()
    outbox, other = Outbox(1, engine.wake), Outbox(4, engine.wake)
    before, after = generation(outbox), generation(outbox, 2)
    for own in (before, after):
        engine.submit(own)
        # Another session's answer says that the engine has come by.
        engine.submit(generation(other, 3))
        await until_end(other)
        before.stop(EndReason.REPLACED)
    now_s[0] = 10.0
    assert end_of(await until_end(outbox)) is before
    events = await until_end(outbox)
    assert tokens_of(events) == script
    assert {event.queue_ms for event in events} == {0.0}


async def test_close_ends_what_runs_and_what_comes_later(engines: list[DecoderEngine]) -> None:
    """Nobody waits for an engine that is gone."""
    engine = start(engines, ScriptedStrategy({1: ENDLESS}))
    outbox = Outbox(2, engine.wake)
    engine.submit(generation(outbox))
    await outbox.take()
    await engine.close()
    engine.submit(generation(outbox))
    await outbox.settled()
    assert end_of(await until_end(outbox)).end_reason is EndReason.CLOSED


async def test_parts_of_the_time_do_not_exceed_the_whole(engines: list[DecoderEngine]) -> None:
    """Queue and computation lie within the time since the command was read."""
    ticks = iter(range(10_000))
    engine = DecoderEngine(
        ScriptedStrategy({1: [5, 6, END_TOKEN]}), clock_s=lambda: next(ticks) / 1000
    )
    engines.append(engine)
    engine.start()
    outbox = Outbox(16, engine.wake)
    engine.submit(generation(outbox))
    end = (await until_end(outbox))[-1]
    assert end.compute_ms == pytest.approx(3.0)
    assert 0 <= end.queue_ms <= next(ticks) - end.compute_ms
