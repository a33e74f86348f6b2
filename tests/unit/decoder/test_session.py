"""The protocol of one session, without network or gRPC."""

from dataclasses import replace

import pytest

from earvoice.api.v1 import decoder_service_pb2 as pb
from earvoice.api.v1 import types_pb2
from earvoice.decoder.generation import EndReason, Outbox
from earvoice.decoder.session import DecodeSession
from earvoice.decoder.strategy import BeamPlan
from earvoice.runtime.errors import (
    EarvoiceError,
    InvalidFieldError,
    LanguageNotSupportedError,
    ModelMismatchError,
    OutOfOrderError,
    StatesUnknownError,
    UnimplementedFieldError,
)
from tests.fakes import END_TOKEN, VOCABULARY_SIZE, NotingEngine, served_model
from tests.requests import generate, halt, opening, states


@pytest.fixture
def engine() -> NotingEngine:
    return NotingEngine()


@pytest.fixture
def session(engine: NotingEngine) -> DecodeSession:
    outbox = Outbox(8, engine.wake)
    return DecodeSession(served_model(), engine, outbox, max_states=10, max_tokens=20)


def apply(session: DecodeSession, *requests: pb.DecodeRequest) -> None:
    for request in requests:
        session.apply(request, read_at_s=0.0)


@pytest.fixture
def ready(session: DecodeSession) -> DecodeSession:
    apply(session, opening())
    apply(session, states())
    return session


def test_commands_before_open_are_out_of_order(session: DecodeSession) -> None:
    """Everything but open is refused first."""
    for request in (states(), generate(), halt(1)):
        with pytest.raises(OutOfOrderError, match="before open"):
            apply(session, request)


def test_second_open_is_out_of_order(session: DecodeSession) -> None:
    """A session is opened once."""
    apply(session, opening())
    with pytest.raises(OutOfOrderError, match="twice"):
        apply(session, opening())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model_hash": "cd"}, ModelMismatchError, "model_hash = 'cd'"),
        ({"target_language_code": "xx"}, LanguageNotSupportedError, "'xx'.*allowed: de, fr"),
        ({"target_language_code": ""}, LanguageNotSupportedError, "allowed: de, fr"),
        ({"attention_layer": 5}, InvalidFieldError, "attention_layer = 5.*1 to 4"),
        ({"attention_layer": -1}, InvalidFieldError, "attention_layer = -1"),
        ({"attention_heads": (0,)}, InvalidFieldError, r"open.attention_heads = \[0\].*1 to 2"),
        ({"attention_heads": (3,)}, InvalidFieldError, r"open.attention_heads = \[3\].*1 to 2"),
        ({"attention_heads": (2, 2)}, InvalidFieldError, r"= \[2, 2\].*each once"),
        ({"beam_size": 17}, InvalidFieldError, "open.beam_size = 17.*1 to 16"),
        ({"beam_size": -2}, InvalidFieldError, "open.beam_size = -2"),
    ],
)
def test_open_names_the_field_it_refuses(
    session: DecodeSession, changes: dict[str, object], error: type[EarvoiceError], message: str
) -> None:
    """A refused open says which field, which value and what is allowed."""
    with pytest.raises(error, match=message):
        apply(session, opening(**changes))


def test_a_model_that_decodes_greedily_alone_takes_no_beam(engine: NotingEngine) -> None:
    """Whichever command asks for it."""
    model = served_model()
    model.description.greedy_only = True
    session = DecodeSession(model, engine, Outbox(8, engine.wake), max_states=10, max_tokens=20)
    with pytest.raises(InvalidFieldError, match=r"open\.beam_size = 5 .*: 1 with this model"):
        apply(session, opening(beam_size=5))
    apply(session, opening(beam_size=1), states())
    with pytest.raises(InvalidFieldError, match=r"generate\.beam_size = 2"):
        apply(session, generate(beam_size=2))
    apply(session, generate())


def test_open_takes_the_served_hash_and_any_case_of_the_language(session: DecodeSession) -> None:
    """The right hash is fine, and language tags have no case."""
    apply(
        session,
        opening(model_hash=served_model().description.hash, target_language_code="DE", beam_size=1),
    )
    assert session.session_id == "s"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"utterance": -1}, "utterance = -1"),
        ({"revision": 0}, "revision = 0"),
        ({"state_count": -1}, "state_count = -1"),
        ({"state_count": 11}, "state_count = 11.*0 to 10"),
        ({"dimension": 5}, "dimension = 5.*allowed: 4"),
        ({"data": bytes(31)}, "31 bytes.*32 bytes"),
        ({"element_type": types_pb2.ELEMENT_TYPE_FLOAT16}, "32 bytes.*16 bytes"),
    ],
)
def test_states_name_the_field_they_are_refused_for(
    session: DecodeSession, changes: dict[str, object], message: str
) -> None:
    """States of the wrong shape never reach the network."""
    apply(session, opening())
    with pytest.raises(InvalidFieldError, match=message):
        apply(session, states(**changes))


def test_what_was_written_of_an_utterance_is_known_to_its_next_states(
    ready: DecodeSession, engine: NotingEngine
) -> None:
    """Another utterance begins with nothing."""
    for number, (utterance, known) in enumerate([(0, []), (0, [7, 8]), (1, [])], start=1):
        apply(ready, states(utterance=utterance, revision=number))
        states_id = types_pb2.StatesId(utterance=utterance, revision=number)
        apply(ready, generate(number, states_id=states_id))
        block = engine.submitted[-1].states
        assert block.source_text == known
        block.source_text[:] = [7, 8]


def test_an_end_that_comes_first_is_to_be_likely_when_all_has_been_heard(
    engine: NotingEngine,
) -> None:
    """Not while more audio may come, nor after a prefix."""
    model = replace(served_model(), least_empty_probability=0.9)
    session = DecodeSession(model, engine, Outbox(8, engine.wake), max_states=10, max_tokens=20)
    apply(session, opening())
    for number, (final, prefix, least) in enumerate(
        [(False, (), 0.0), (True, (), 0.9), (True, (5,), 0.0)], start=1
    ):
        apply(session, states(revision=number, final=final))
        states_id = types_pb2.StatesId(utterance=0, revision=number)
        apply(session, generate(number, states_id=states_id, prefix=prefix))
        assert engine.submitted[-1].prompt.least_end_probability == least


def test_partial_states_are_not_implemented(session: DecodeSession) -> None:
    """first_changed is reserved."""
    apply(session, opening())
    with pytest.raises(UnimplementedFieldError, match="first_changed = 3"):
        apply(session, states(first_changed=3))


def test_generate_before_states_is_out_of_order(session: DecodeSession) -> None:
    """There is nothing to attend to."""
    apply(session, opening())
    with pytest.raises(OutOfOrderError, match="before states"):
        apply(session, generate())


def test_generate_on_zero_states_is_refused(session: DecodeSession) -> None:
    """Zero states may be sent, but not decoded."""
    apply(session, opening())
    apply(session, states(0))
    with pytest.raises(InvalidFieldError, match="0 states"):
        apply(session, generate())


def test_generate_on_other_states_is_refused(ready: DecodeSession) -> None:
    """Only the last states can be attended to."""
    apply(ready, states(revision=2))
    with pytest.raises(StatesUnknownError, match=r"0\.1.*allowed: 0\.2"):
        apply(ready, generate())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens = 0.*1 to 1024"),
        ({"max_new_tokens": 1025}, "max_new_tokens = 1025"),
        (
            {"prefix": (5, VOCABULARY_SIZE)},
            f"prefix = {VOCABULARY_SIZE}.*0 to {VOCABULARY_SIZE - 1}",
        ),
        ({"draft": (-1,)}, "draft = -1"),
        ({"prefix": (5,) * 20}, "20 tokens.*at most 19"),
        ({"draft": (5,) * 20}, "20 tokens.*at most 19"),
        ({"attention_layer": 5}, "generate.attention_layer = 5.*1 to 4"),
        ({"attention_layer": 1, "attention_heads": (3,)}, r"generate.attention_heads = \[3\]"),
        ({"attention_heads": (1,)}, r"heads = \[1\].*none without generate.attention_layer"),
        ({"beam_size": 17}, "generate.beam_size = 17.*1 to 16"),
    ],
)
def test_generate_names_the_field_it_refuses(
    ready: DecodeSession, changes: dict[str, object], message: str
) -> None:
    """A refused generate says which field, which value and what is allowed."""
    with pytest.raises(InvalidFieldError, match=message):
        apply(ready, generate(**changes))


@pytest.mark.parametrize(
    ("changes", "layer", "heads", "beam"),
    [
        ({}, 2, (2,), 4),
        ({"beam_size": 1}, 2, (2,), None),
        ({"beam_size": 7}, 2, (2,), 7),
        ({"attention_layer": 4}, 4, (), 4),
        ({"attention_layer": 4, "attention_heads": (1, 2)}, 4, (1, 2), 4),
    ],
)
def test_generate_replaces_the_terms_of_open(
    session: DecodeSession,
    engine: NotingEngine,
    changes: dict[str, object],
    layer: int,
    heads: tuple[int, ...],
    beam: int | None,
) -> None:
    """Beam size, and layer with heads, are as opened unless the generation has its own."""
    apply(session, opening(attention_layer=2, attention_heads=(2,), beam_size=4))
    apply(session, states())
    apply(session, generate(**changes))
    found = engine.submitted[0].prompt
    assert (found.attention_layer, found.attention_heads) == (layer, heads)
    assert (found.beam.size if found.beam else None) == beam


def test_beam_is_asked_for_within_the_limits(session: DecodeSession, engine: NotingEngine) -> None:
    """The search knows its limit, how much to tell, and whose prefix rows are wanted."""
    apply(session, opening(target_language_code="fr"))
    apply(session, states())
    wanted = {"beam_size": 3, "all_hypotheses": True, "prefix_attention": True}
    apply(session, generate(prefix=(5,) * 15, max_new_tokens=100, **wanted))
    found = engine.submitted[0].prompt
    assert found.beam == BeamPlan(3, max_new_tokens=5, all_hypotheses=True)
    assert found.reported_prefix_tokens == 15


def test_generation_ids_grow(ready: DecodeSession) -> None:
    """An id that was used, or a smaller one, is refused."""
    apply(ready, generate(7))
    with pytest.raises(InvalidFieldError, match=r"generation_id = 7.*more than 7"):
        apply(ready, generate(7))


def test_language_and_prefix_are_forced_after_the_start(
    session: DecodeSession, engine: NotingEngine
) -> None:
    """The tokens forced are start, language tag, prefix; indices count the prefix only."""
    apply(session, opening(target_language_code="fr"))
    apply(session, states())
    apply(session, generate(prefix=(7, 8), draft=(9, 10), max_new_tokens=1))
    generation = engine.submitted[0]
    assert generation.prompt.forced == (END_TOKEN, 49, 7, 8)
    assert generation.prompt.draft == (9,)
    assert generation.prompt.attention_layer == served_model().description.default_attention_layer
    assert generation.prefix_length == 2


def test_length_limit_counts_the_prefix(ready: DecodeSession, engine: NotingEngine) -> None:
    """A hypothesis never grows past the absolute limit."""
    apply(ready, generate(prefix=(5,) * 15, max_new_tokens=100))
    assert engine.submitted[0].max_new_tokens == 5


def test_new_generation_replaces_the_old(ready: DecodeSession, engine: NotingEngine) -> None:
    """The old generation is asked to stop before the new one is submitted."""
    apply(ready, generate(1))
    apply(ready, generate(2))
    assert [item.stop_reason for item in engine.submitted] == [EndReason.REPLACED, None]


def test_new_states_replace_the_generation(ready: DecodeSession, engine: NotingEngine) -> None:
    """What attends to old states ends."""
    apply(ready, generate(1))
    apply(ready, states(revision=2))
    assert engine.submitted[0].stop_reason is EndReason.REPLACED


def test_halt_stops_its_generation_only(ready: DecodeSession, engine: NotingEngine) -> None:
    """Unknown ids are ignored; the first reason to stop counts."""
    apply(ready, generate(4))
    apply(ready, halt(3))
    assert engine.submitted[0].stop_reason is None
    apply(ready, halt(4))
    ready.close()
    assert engine.submitted[0].stop_reason is EndReason.HALTED
    assert engine.wakes == 2
