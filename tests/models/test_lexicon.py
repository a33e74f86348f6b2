"""Translations of rare words from a table, mixed into what the network would write."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from earvoice.decoder.search import SearchStrategy
from earvoice.decoder.strategy import BeamPlan, Hypothesis, PredictedToken, Prompt, block_of
from earvoice.models.checkpoint import Checkpoint, load_checkpoint, read_directory, save_checkpoint
from earvoice.models.decoding import CachedDecoder, Pivot
from earvoice.models.errors import CheckpointError, ModelError
from earvoice.models.frontend import FeatureNormalisation
from earvoice.models.lexicon import (
    AT_THE_START,
    Entry,
    Lexicon,
    Pending,
    Rest,
    SourceWords,
    mixtures_along,
    read_table,
    write_table,
)
from earvoice.models.vocabulary import EOS, Vocabulary
from tests.tiny_model import LIVELY_TEXT, train_sentencepiece, write_tiny_checkpoint

pytestmark = pytest.mark.torch

TABLE = {
    "fr": {
        "katze": Entry(1, (("Buch", 0.8), ("Lehrer", 0.2))),
        "haus": Entry(2, (("Katze", 1.0),)),
        "lehrer": Entry(1, (("Haus", 0.6), ("kleine", 0.4))),
    }
}
TEXTS = (LIVELY_TEXT[0], "heute sieht der Lehrer das Haus", "die Katze bringt das Haus")


def vocabulary() -> Vocabulary:
    return Vocabulary(train_sentencepiece(LIVELY_TEXT, 64), ["<lang:fr>"])


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A network that translates its own text into French, with the table."""
    write_tiny_checkpoint(tmp_path, translating=True)
    loaded = load_checkpoint(tmp_path)
    own = loaded.target_vocabulary
    loaded.network.transformer_decoder.lexicon = Lexicon(TABLE, own, {"fr": own.id_of("<lang:fr>")})
    return loaded


class Translator:
    """Translates texts that are given, as a decoder service does those that it has written."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.strategy = SearchStrategy(checkpoint.network.transformer_decoder)
        self.vocabulary = checkpoint.target_vocabulary
        self.opening = (EOS, self.vocabulary.id_of("<lang:fr>"))
        self._width = checkpoint.config.encoder.d_model

    @property
    def decoder(self) -> CachedDecoder:
        decoder = self.strategy._decoder
        assert isinstance(decoder, CachedDecoder)
        return decoder

    def begin(
        self,
        text: str,
        prefix: Sequence[int] = (),
        draft: Sequence[int] = (),
        beam: BeamPlan | None = None,
    ) -> tuple[object, list[PredictedToken], list[Hypothesis]]:
        pieces = [*self.vocabulary.encode(text), EOS]
        states = block_of(np.zeros((len(pieces), self._width), np.float32), final=True)
        forced = (*self.opening, *prefix)
        known, key = self.strategy._known(states, forced)
        known[key] = Pivot(pieces, [0.0] * len(pieces), torch.eye(len(pieces)))
        prompt = Prompt(forced, tuple(draft), 1, forbid_end=False, beam=beam)
        run, progress = self.strategy.begin(states, prompt)
        return run, progress.tokens, progress.beam

    def greedy(self, text: str, prefix: Sequence[int] = (), draft: Sequence[int] = ()) -> list[int]:
        run, tokens, _ = self.begin(text, prefix, draft)
        written = [token.token for token in tokens]
        while written[-1] != EOS and len(prefix) + len(written) < 30:
            (progress,) = self.strategy.step([run])  # type: ignore[list-item]
            written += [token.token for token in progress.tokens]
        return written

    def best_of_a_beam(self, text: str, size: int) -> list[PredictedToken]:
        run, _, found = self.begin(text, beam=BeamPlan(size, 12))
        while not found:
            (progress,) = self.strategy.step([run])  # type: ignore[list-item]
            found = progress.beam
        return found[0].tokens


@pytest.mark.parametrize("text", TEXTS)
def test_the_table_has_a_part_in_what_is_written(checkpoint: Checkpoint, text: str) -> None:
    translator = Translator(checkpoint)
    written = translator.greedy(text)
    translator.decoder.lexicon = None
    assert translator.greedy(text) != written


@pytest.mark.parametrize("text", TEXTS)
def test_a_draft_is_verified_with_the_table(checkpoint: Checkpoint, text: str) -> None:
    translator = Translator(checkpoint)
    written = translator.greedy(text)
    for count in range(1, len(written)):
        wrong = (written[count] + 1) % len(translator.vocabulary)
        for draft in (written[:count], [*written[:count], wrong]):
            assert translator.greedy(text, draft=draft) == written


@pytest.mark.parametrize("text", TEXTS)
def test_a_prefix_goes_on_as_if_it_had_just_been_written(checkpoint: Checkpoint, text: str) -> None:
    """In the middle of a word, too."""
    translator = Translator(checkpoint)
    written = translator.greedy(text)
    for count in range(1, len(written)):
        assert translator.greedy(text, prefix=written[:count]) == written[count:]


def test_searches_in_a_batch_do_not_disturb_each_other(checkpoint: Checkpoint) -> None:
    translator = Translator(checkpoint)
    alone = [translator.greedy(text) for text in TEXTS]
    runs, written = [], []
    for text in TEXTS:
        run, tokens, _ = translator.begin(text)
        runs.append(run)
        written.append([token.token for token in tokens])
    for _ in range(29):
        live = [index for index, own in enumerate(written) if own[-1] != EOS]
        if not live:
            break
        made = translator.strategy.step([runs[index] for index in live])  # type: ignore[misc]
        for index, progress in zip(live, made, strict=True):
            written[index] += [token.token for token in progress.tokens]
    assert written == alone


@pytest.mark.parametrize("text", TEXTS)
def test_a_beam_is_scored_with_the_table(checkpoint: Checkpoint, text: str) -> None:
    """Each of its tokens has the probability that mixing gives it along the hypothesis."""
    translator = Translator(checkpoint)
    found = translator.best_of_a_beam(text, 3)
    tokens = [token.token for token in found]
    run, _, _ = translator.begin(text)
    cache = run.cache.fresh()  # type: ignore[attr-defined]
    logits, _ = translator.decoder.prefill(
        [*translator.opening, *tokens[:-1]], cache, 1, first_logits=1
    )
    mixtures = mixtures_along(cache.pivot.words, logits, cache.alignment, tokens[:-1], AT_THE_START)
    for mixture, token in zip(mixtures, found, strict=True):
        assert float(mixture.scores[token.token]) == pytest.approx(token.log_probability, abs=1e-4)


def words_of(text: str) -> tuple[SourceWords, Vocabulary]:
    own = vocabulary()
    lexicon = Lexicon(TABLE, own, {"fr": own.id_of("<lang:fr>")})
    return lexicon.words_of([*own.encode(text), EOS], (EOS, own.id_of("<lang:fr>"))), own


@pytest.mark.parametrize("attended", [0.0, 0.3, 1.0])
def test_probabilities_add_up_to_one(attended: float) -> None:
    """Between words, within one and at its end; so does what may follow in the table's word."""
    words, own = words_of("die Katze")
    places, translations = words.found[0]
    attention = torch.zeros(len(own.encode("die Katze")) + 1)
    attention[places[0]], attention[-1] = attended, 1 - attended
    logits = torch.randn(len(own), generator=torch.Generator().manual_seed(2))
    pieces = translations[0][0]
    standings = [Pending(), Pending(written=frozenset({0}))]
    standings += [
        Pending(share, (Rest(0, pieces[cut:], 0.7), Rest(0, pieces[-1:], 0.3)))
        for share, cut in itertools.product((0.2, 1.0), range(1, len(pieces) + 1))
    ]
    for pending in standings:
        mixture = words.mixed(logits, attention, pending)
        assert float(mixture.scores.exp().sum()) == pytest.approx(1.0, abs=1e-4)
        for token in range(len(own)):
            after = mixture.after(token)
            assert 0 <= after.share <= 1
            assert sum(rest.weight for rest in after.rests) == pytest.approx(
                float(bool(after.rests))
            )


def test_a_word_that_the_network_does_not_know_is_written_to_its_end_and_once() -> None:
    """The network would write anything else; the table's word follows where it is attended to."""
    words, own = words_of("das Haus")
    expected = [*own.encode("Katze")]
    assert len(expected) > 1
    logits = torch.zeros(len(own))
    attention = torch.zeros(len(own.encode("das Haus")) + 1)
    attention[words.found[0][0][0]] = 1.0
    pending, written = AT_THE_START, []
    for _ in expected:
        mixture = words.mixed(logits, attention, pending)
        written.append(int(mixture.scores.argmax()))
        pending = mixture.after(written[-1])
    assert written == expected
    mixture = words.mixed(logits, attention, pending)
    assert int(mixture.scores.argmax()) != expected[0]
    assert not words.lexicon.continues[int(mixture.scores.argmax())], "a whole word goes on"
    ended = mixture.after(EOS)
    assert ended.written == {0}
    assert not ended.rests
    again = words.mixed(logits, attention, ended).scores
    torch.testing.assert_close(again, logits.log_softmax(-1))


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", "Bringt"), ("das", "bringt"), ("das.", "Bringt"), ("das,", "bringt"), ("das?", "Bringt")],
)
def test_a_sentence_begins_with_a_capital(before: str, expected: str) -> None:
    """At the start, and after a mark that ends one."""
    own = Vocabulary(train_sentencepiece((*LIVELY_TEXT, "Bringt das, das? Das."), 64), ["<fr>"])
    table = {"fr": {"haus": Entry(1, (("bringt", 1.0),))}}
    opening = (EOS, own.id_of("<fr>"))
    source = [*own.encode("Haus"), EOS]
    words = Lexicon(table, own, {"fr": opening[1]}).words_of(source, opening)
    forced = [*opening, *own.encode(before)]
    place, pending = words.last_word(forced)
    attention = torch.eye(len(source))[0].expand(len(forced) - place + 1, -1)
    logits = torch.zeros(len(attention), len(own))
    mixture = mixtures_along(words, logits, attention, forced[place:], pending)[-1]
    assert int(mixture.scores.argmax()) == own.encode(expected)[0]


def test_the_rarer_a_word_is_the_more_the_table_is_trusted() -> None:
    trusts = [Entry(times, (("x", 1.0),)).trust for times in (1, 30, 1000)]
    assert trusts == sorted(trusts, reverse=True)
    assert trusts[0] < 1
    assert trusts[1] == pytest.approx(trusts[0] / 2, rel=0.05)


@pytest.mark.parametrize(
    ("given", "begun", "written"),
    [
        ("", 0, set()),
        ("das", 0, set()),
        ("das Katze", 1, set()),
        ("das Katze bringt", 2, {0}),
        ("Katze, das", 1, {0}),
        ("Katzekleine das", 1, set()),
    ],
)
def test_the_last_word_of_a_prefix_is_where_the_table_may_go_on(
    given: str, begun: int, written: set[int]
) -> None:
    """Before it, whole words that are in the table are not translated again."""
    words, own = words_of("das Haus")
    opening = [EOS, own.id_of("<lang:fr>")]
    pieces = own.encode(given)
    starts = [i for i, piece in enumerate(pieces) if words.lexicon.starts_word[piece]]
    place, pending = words.last_word([*opening, *pieces])
    assert place == len(opening) + (starts[begun] if starts else 0)
    assert pending == Pending(written=frozenset(written), is_first=not begun)


def test_a_word_with_a_hyphen_goes_on_after_a_prefix_and_is_written_once() -> None:
    """So does one with an apostrophe: it begins where a piece says so, not at the hyphen."""
    own = Vocabulary(train_sentencepiece((*LIVELY_TEXT, "die E-Mail, aujourd'hui"), 64), ["<fr>"])
    table = {
        "fr": {"haus": Entry(1, (("E-Mail", 1.0),)), "katze": Entry(1, (("aujourd'hui", 1.0),))}
    }
    opening = (EOS, own.id_of("<fr>"))
    source = [*own.encode("Haus Katze"), EOS]
    words = Lexicon(table, own, {"fr": opening[1]}).words_of(source, opening)
    for text, word in (("E-Mail", 0), ("aujourd'hui", 1)):
        pieces = own.encode(text)
        for count in range(1, len(pieces) + 1):
            assert words.last_word([*opening, *own.encode("die"), *pieces[:count]]) == (
                len(opening) + len(own.encode("die")),
                Pending(),
            )
        place, pending = words.last_word([*opening, *pieces, *own.encode("die")])
        assert (place, pending) == (len(opening) + len(pieces), Pending(written=frozenset({word})))


def test_a_word_that_is_said_twice_is_translated_twice() -> None:
    words, own = words_of("das Haus sieht das Haus")
    opening = [EOS, own.id_of("<lang:fr>")]
    for text, written in (("Katze sieht", {0}), ("Katze sieht Katze das", {0, 1})):
        _, pending = words.last_word([*opening, *own.encode(text)])
        assert pending.written == written


def test_a_network_that_is_sure_leaves_probabilities_that_add_up() -> None:
    """Even if it would go on with a word of the table that is complete."""
    words, own = words_of("die Katze, das Haus")
    logits = torch.zeros(len(own))
    logits[words.lexicon.continues.index(True)] = 12.0
    attention = torch.zeros(len(own.encode("die Katze, das Haus")) + 1)
    attention[words.found[1][0][0]] = 1.0
    pending = Pending(0.999, (Rest(0, (), 1.0),))
    mixture = words.mixed(logits, attention, pending)
    assert float(mixture.scores.exp().sum()) == pytest.approx(1.0, abs=1e-3)


def test_words_are_looked_up_in_any_case() -> None:
    text = "Haus katze und katzen"
    words, own = words_of(text)
    pieces = own.encode(text)
    found = [own.decode(pieces[place] for place in places) for places, _ in words.found]
    assert found == ["Haus", "katze"]
    lexicon = Lexicon(TABLE, own, {"fr": own.id_of("<lang:fr>")})
    assert not lexicon.words_of(pieces, (EOS, EOS)).found
    assert not lexicon.words_of(pieces, (EOS,)).found


def test_a_table_is_read_as_it_was_written() -> None:
    assert read_table(write_table(TABLE)) == TABLE
    assert read_table(b"") == {}


@pytest.mark.parametrize(
    "line",
    ["fr\tkatze", "fr\tkatze\t1", "fr\tkatze\t1\tBuch", "fr\tkatze\tmany\tBuch\t1",
     "fr\tkatze\t0\tBuch\t1", "fr\tkatze\t1\tBuch\t0", "fr\tkatze\t1\tBuch\t0.8\tHaus\t0.8",
     "fr\tkatze\t1\t\t1", "fr\tkatze\t1\tBuch\tnan", "fr\tkatze\t1\tBuch\t1\tHaus\t-0.5"],
)  # fmt: skip
def test_a_line_of_another_kind_is_refused(line: str) -> None:
    good = write_table({"fr": {"a": Entry(1, (("b", 1.0),))}})
    with pytest.raises(ModelError, match=r"line 2 of the lexicon is .*; allowed, with tabs: lang"):
        read_table(good + line.encode())
    with pytest.raises(ModelError, match="line 1 of the lexicon is"):
        read_table(b"fr\tkatze\t1\t\xff\t1")


def test_a_checkpoint_keeps_its_lexicon(tmp_path: Path) -> None:
    """Verified as the other files are; the encoder does without."""
    write_tiny_checkpoint(tmp_path / "without", translating=True)
    given = load_checkpoint(tmp_path / "without")
    assert given.network.transformer_decoder.lexicon is None
    made = tmp_path / "with"
    save_with_lexicon(made, tmp_path / "without", write_table(TABLE))
    lexicon = load_checkpoint(made).network.transformer_decoder.lexicon
    assert lexicon is not None
    own = given.target_vocabulary
    found = lexicon.words_of(own.encode("Haus"), (EOS, own.id_of("<lang:fr>"))).found
    assert [len(translations) for _, translations in found] == [1]
    load_checkpoint(made, without="decoder")
    (made / "lexicon.tsv").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"lexicon\.tsv has SHA-256"):
        load_checkpoint(made)
    (made / "lexicon.tsv").unlink()
    with pytest.raises(CheckpointError, match=r"lexicon\.tsv"):
        load_checkpoint(made)


@pytest.mark.parametrize(("language", "translating"), [("de", True), ("pl", True), ("fr", False)])
def test_a_lexicon_that_nothing_reads_is_refused(
    tmp_path: Path, language: str, translating: bool
) -> None:
    """German has no tag here, Polish is not written, and the last model translates no text."""
    write_tiny_checkpoint(tmp_path / "without", translating=translating)
    table = write_table({language: TABLE["fr"]})
    with pytest.raises(CheckpointError, match=rf"\['{language}'\]; allowed: some of \['fr'\], in"):
        save_with_lexicon(tmp_path / "with", tmp_path / "without", table)


def save_with_lexicon(directory: Path, given: Path, lexicon: bytes) -> None:
    parts = read_directory(given)
    save_checkpoint(
        directory,
        parts.config,
        parts.tensors,
        normalisation=FeatureNormalisation.identity(),
        source_model=parts.source_vocabulary.model,
        target_model=parts.target_vocabulary.model,
        lexicon=lexicon,
    )
