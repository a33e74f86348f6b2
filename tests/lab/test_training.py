"""Training: what is taught from which states, resumed runs, the vocabulary, the teacher."""

from __future__ import annotations

import dataclasses
import json
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from earvoice.corpus.clips import Clip
from earvoice.corpus.texts import Pair
from earvoice.models.assembly import build_network
from earvoice.models.checkpoint import read_directory
from earvoice.models.config import ModelConfig, TargetLanguage
from earvoice.models.ctc import spelled
from earvoice.models.errors import CheckpointError
from earvoice.models.lexicon import read_table
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import EOS, Vocabulary
from earvoice.models.whisper import CtcBranchConfig
from earvoice.runtime.settings import shipped_model_path
from earvoice.training import __main__ as training
from earvoice.training.address import familiar
from earvoice.training.ctc import UPPER_LAYERS, CtcTrainer, with_upper_layers
from earvoice.training.data import Heard, batches, read_clips
from earvoice.training.decoder import (
    PART_ROOM,
    DecoderTrainer,
    EnglishTrainer,
    Memory,
    PartlyTaught,
    Recipe,
    Row,
    TranslationTrainer,
    alike,
    as_heard,
    foretold,
    names_of,
    renamed,
    texts_of,
    unknown_pieces,
)
from earvoice.training.evaluate import first_words
from earvoice.training.export import (
    ATTUNED_SHARE,
    UPPER_SHARE,
    adopt,
    english_decoder,
    export,
    exported_decoder,
    exported_encoder,
    model_config,
    shortlist_of,
    trained_encoder,
    with_pivot,
)
from earvoice.training.greedy import greedy
from earvoice.training.misheard import Misheard, said_often
from earvoice.training.schedule import OtherBeginningError
from earvoice.training.scores import bleu
from earvoice.training.teacher import english_of, loops, recased
from earvoice.training.vocabulary import cut, new_merges, whisper_ranks
from tests.tiny_model import SOURCE_TEXT, TARGET_TEXT, tiny_config, train_sentencepiece

pytestmark = pytest.mark.torch
WIDTH = 384
TAGS = ("<en>", "<de>")


def source() -> Vocabulary:
    return Vocabulary(train_sentencepiece(SOURCE_TEXT))


def target() -> Vocabulary:
    return Vocabulary(train_sentencepiece(TARGET_TEXT), TAGS)


def config() -> ModelConfig:
    tiny = tiny_config(source().model, target().model)
    return dataclasses.replace(
        tiny,
        encoder=dataclasses.replace(tiny.encoder, d_model=WIDTH),
        decoder=dataclasses.replace(tiny.decoder, positions="learned", tied_embeddings=True),
        target_pieces=len(target()),
        target_languages=(TargetLanguage("en", "<en>"), TargetLanguage("de", "<de>")),
    )


def clip(
    key: str,
    texts: dict[str, str],
    *,
    condition: str = "",
    shard: np.ndarray | None = None,
    frames: int = 1,
) -> Heard:
    shard = np.zeros((0, WIDTH)) if shard is None else shard
    return Heard(key, "s", "train", condition=condition, texts=texts, shard=shard, begin=0,
                 states=len(shard), frames=frames)  # fmt: skip


def heard(count: int) -> tuple[list[Heard], Memory]:
    """Clips whose states say which sentence it is."""
    generator = torch.Generator().manual_seed(1)
    voice = torch.randn(len(SOURCE_TEXT), WIDTH, generator=generator)
    clips, states, labels, begins = [], [], [], [0]
    for index in range(count):
        sentence = index % len(SOURCE_TEXT)
        own = source().encode(SOURCE_TEXT[sentence])
        texts = {"en": TARGET_TEXT[sentence % len(TARGET_TEXT)], "de": TARGET_TEXT[0]}
        clips.append(clip(f"c{index}", texts, frames=len(own)))
        states.append(voice[sentence].expand(len(own), -1))
        labels.append(own)
        begins.append(begins[-1] + len(own))
    return clips, Memory(torch.cat(states).half(), begins, labels)


RECIPE = Recipe(peak_rate=2e-3, dropout=0.0, room=3000, negatives=0)


def english(recipe: Recipe = RECIPE) -> EnglishTrainer:
    torch.manual_seed(7)
    clips, memory = heard(12)
    decoder = TransformerDecoder(config(), recipe.dropout)
    return EnglishTrainer(decoder, clips, memory, source(), target(), recipe)


PAIRS = [
    Pair("s", text, "train", {"de": TARGET_TEXT[index % len(TARGET_TEXT)]})
    for index, text in enumerate(SOURCE_TEXT)
]


MISHEARD = Misheard({"the": 3, "they": 1, "sea": 2}, (("D", "@"), ("D", "eI"), ("s", "i:")))


def translations(recipe: Recipe = RECIPE, pairs: Sequence[Pair] = PAIRS) -> TranslationTrainer:
    """Every second piece learns."""
    torch.manual_seed(7)
    decoder = TransformerDecoder(with_pivot(config(), target()), recipe.dropout)
    taught = torch.arange(len(target())) % 2 == 0
    return TranslationTrainer(
        decoder, taught, pairs, {"s": 2}, {"de": 2}, MISHEARD, target(), recipe
    )


@pytest.mark.parametrize("made", [english, translations])
def test_the_loss_falls_and_a_run_goes_on(
    made: Callable[[], DecoderTrainer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was learned is there at the next start, the average of weights as well."""
    first = made()
    first.embedding.kept += 1  # as of another start
    untaught = first.learn(next(first.steps(np.random.default_rng(1))), 0.0)
    first.train(tmp_path / "state.pt", seconds=first.used_s + 2.0)
    again = made()
    again.train(tmp_path / "state.pt", seconds=0.0)
    assert again.step == first.step > 1
    for name, value in first.decoder.state_dict().items():
        assert torch.equal(value, again.decoder.state_dict()[name])
    assert again.learn(next(again.steps(np.random.default_rng(1))), 1.0) < untaught


def test_a_step_does_not_go_on_from_what_has_changed(tmp_path: Path) -> None:
    """Its weights belong to other pieces, or to another encoder's states."""
    path = tmp_path / "state.pt"
    translations().train(path, seconds=0.0, begun_from="these texts")
    translations().train(path, seconds=0.0, begun_from="these texts")
    with pytest.raises(OtherBeginningError, match="was begun from other weights"):
        translations().train(path, seconds=0.0, begun_from="others")


def test_a_step_is_told_by_the_steps_that_it_begins_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not read may have gone on."""
    monkeypatch.setattr(training, "vocabularies", lambda _: (target(), target()))

    def begun_from(step: str, seed: int = 1) -> tuple[str, str]:
        told: list[tuple[str, str]] = []

        class Telling:
            def train(self, path: Path, _seconds: float, _seed: int, digest: str) -> None:
                told.append((path.name, digest))

        training.train(
            Telling(),  # type: ignore[arg-type]
            Namespace(step=step, run=tmp_path, corpus=tmp_path, seed=seed, wait_k=0, minutes=1.0),
        )
        return told[0]

    def keep(file: str, weight: float) -> None:
        torch.save({"average": {"weight": torch.tensor([weight])}}, tmp_path / file)

    keep("ctc.pt", 1.0)
    keep("upper.pt", 1.0)
    before = [begun_from("attune"), begun_from("english"), begun_from("translations")]
    keep("upper.pt", 2.0)
    assert [begun_from("attune"), begun_from("english"), begun_from("translations")] == before
    keep("ctc.pt", 2.0)
    after = [begun_from("attune"), begun_from("english"), begun_from("translations")]
    assert [a == b for a, b in zip(after, before, strict=True)] == [False, False, True]
    assert [name for name, _ in after] == ["attuned.pt", "english.pt", "translations.pt"]
    assert begun_from("translations", seed=2) != before[2]


@pytest.mark.parametrize("made", [english, translations])
def test_only_what_other_languages_do_not_read_is_taught(
    made: Callable[[], DecoderTrainer], tmp_path: Path
) -> None:
    learner = made()
    taught = torch.zeros(len(target()), dtype=torch.bool)
    if isinstance(learner, TranslationTrainer):
        taught = torch.arange(len(target())) % 2 == 0
    before = learner._whole(dict(learner.decoder.named_parameters()))
    before = {name: tensor.clone() for name, tensor in before.items()}
    learner.train(tmp_path / "state.pt", seconds=1.0)
    for kind in ("decoder", "average"):
        after = torch.load(tmp_path / "state.pt", weights_only=True)[kind]
        assert after.keys() == before.keys()
        same = {name for name in after if torch.equal(after[name], before[name])}
        assert same - {"layers.0.self_attn.k_proj.bias"} <= {
            "embed_positions.weight", "embed_tokens.weight", "output_projection.weight"
        }  # fmt: skip
        assert "embed_positions.weight" in same
        rows = [own["embed_tokens.weight"] for own in (before, after)]
        changed = (rows[0] != rows[1]).any(1)
        assert not changed[~taught].any()
        assert changed.any() == taught.any()


def test_what_is_learned_is_how_the_decoder_writes(tmp_path: Path) -> None:
    """The loss of a text is that of the logits that the decoder gives when it serves."""
    pieces, states = target().encode(TARGET_TEXT[0]), torch.randn(9, WIDTH)
    read = torch.tensor([*target().encode("The cat"), EOS])
    for learner, tag, given in ((english(), "<en>", states), (translations(), "<de>", read)):
        with torch.no_grad():
            learner.decoder.layer_norm.weight.uniform_(0.5, 4.0)
            learner.decoder.layer_norm.bias.uniform_(-1.0, 1.0)
        learner.train(tmp_path / f"{tag}.pt", seconds=0.0)
        state = torch.load(tmp_path / f"{tag}.pt", weights_only=True)["decoder"]
        decoder = TransformerDecoder(learner.decoder.config).eval()
        decoder.load_state_dict(state, strict=tag == "<en>")
        language, memory = target().id_of(tag), given[None]
        with torch.no_grad():
            if tag == "<de>":
                memory = decoder.read_pivot(memory)
            logits = decoder(
                torch.tensor([[EOS, language, *pieces]]), memory, torch.tensor([len(given)])
            )
        wanted = torch.tensor([*pieces, EOS])
        expected = torch.nn.functional.cross_entropy(logits[0, 1:], wanted, reduction="sum")
        learned = learner.loss([Row(given, language, pieces)])
        assert learned.item() == pytest.approx(expected.item(), rel=0.02)


def test_words_are_misheard_as_what_sounds_nearly_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names stay, and so does what sounds like nothing else; frequent words are heard oftener."""
    texts = ["Go there, Will!", "will they hear, or won't they?", "the sea", "Will the will"]
    assert said_often(texts * 3) == {
        "hear": 3, "or": 3, "sea": 3, "the": 6, "there": 3, "they": 3, "will": 6, "won't": 3
    }  # fmt: skip
    sounds = {"here": "hI3", "hear": "hI3", "fear": "fI3", "or": "O", "will": "wIl"}
    misheard = Misheard(
        {"here": 90, "hear": 1, "fear": 10, "or": 5, "will": 5}, map(tuple, sounds.values())
    )
    generator = np.random.default_rng(1)
    monkeypatch.setattr("earvoice.training.misheard.WORD_SHARE", 1.0)
    monkeypatch.setattr("earvoice.training.misheard.COMMA_SHARE", 0.0)
    drawn = Counter(misheard.heard("Here, will we hear or not", generator) for _ in range(300))
    assert [text for text, _ in drawn.most_common()] == [
        "Here, will we here or not",
        "Here, will we fear or not",
    ]
    monkeypatch.setattr("earvoice.training.misheard.WORD_SHARE", 0.0)
    monkeypatch.setattr("earvoice.training.misheard.COMMA_SHARE", 1.0)
    assert {misheard.heard("Yes, we do, 5,000", generator) for _ in range(100)} == {
        "Yes we do 5,000", "Yes. We do 5,000", "Yes we do. 5,000", "Yes. We do. 5,000"
    }  # fmt: skip


def test_names_are_others_in_a_text_and_its_translation_alike() -> None:
    """A name is kept by translations and has a capital wherever it stands in English."""
    pairs = [
        Pair("s", "So Tom met Ana in May.", "train", {"de": "So traf Tom im Mai Ana."}),
        Pair("s", "I am so glad, Oslo.", "train", {"de": "Ich bin froh, Oslo."}),
    ]
    names = names_of(pairs, "de")
    assert names == ["Ana", "Oslo", "Tom"]
    assert names_of(pairs, "es") == []
    generator = np.random.default_rng(1)
    given = pairs[0].english, pairs[0].translations["de"]
    drawn = {renamed(*given, names, generator) for _ in range(200)}
    assert drawn == {
        (f"So {a} met {b} in May.", f"So traf {a} im Mai {b}.") for a in names for b in names
    }
    for same in (("So it is.", "So ist es."), ("Tom's son is Tom.", "Toms Sohn ist Tom.")):
        assert {renamed(*same, names, generator) for _ in range(20)} == {same}


def test_a_text_to_translate_is_as_it_may_be_heard() -> None:
    """Now and then without case and marks or its end, with the next, or nothing at all."""
    generator = np.random.default_rng(1)
    drawn = {as_heard("Well, it's $5.50, sir.", generator) for _ in range(100)}
    assert drawn == {
        "Well, it's $5.50, sir.", "Well, it's $5.50, sir", "well it's $5 50 sir",
    }  # fmt: skip
    learner = translations()
    steps = learner.steps(generator)
    rows = [row for _ in range(200) for part in next(steps) for row in part]
    texts = [(learner.target.decode(row.source[:-1].tolist()), row.pieces) for row in rows]
    assert {tuple(pieces) for text, pieces in texts if not text} == {()}
    first, second = (target().encode(TARGET_TEXT[index]) for index in range(2))
    both = target().encode(f"{TARGET_TEXT[0]} {TARGET_TEXT[1]}")
    assert {tuple(first), tuple(second), tuple(both)} <= {tuple(pieces) for _, pieces in texts}
    assert all(row.source[-1] == EOS for row in rows)


def test_a_translation_to_a_friend_is_told_from_others() -> None:
    """By its pronouns, and by verbs that stand where English says "you"."""

    def places(tag: str, *texts: tuple[str, str]) -> list[int]:
        pairs = [Pair("s", english, "train", {tag: text}) for english, text in texts]
        return sorted(familiar(pairs, tag))

    you = "Where do you live?"
    assert places("de", (you, "Wo wohnst du?"), (you, "Wo wohnen Sie?"), ("Durst?", "Durst?")) == [
        0
    ]
    spanish = (
        (you, "¿Dónde vives?"),
        (you, "¿Y tú dónde vives?"),
        (you, "¿Dónde vive usted estos días?"),
        ("We live with cats.", "Vivimos con gatos."),
        ("You like cats.", "Le gustan los gatos."),
        ("Your cats?", "¿Los gatos?"),
        ("The life of the rich is long.", "La vida de los ricos es larga."),
    )
    assert places("es", *spanish) == [0, 1]
    assert places("es", spanish[0]) == []
    assert places("fr", (you, "Où habites-tu ?")) == []


def test_english_is_marked_where_its_translation_is_familiar() -> None:
    pairs = [
        dataclasses.replace(pair, translations={"de": text})
        for pair, text in zip(PAIRS, ("du bist da", *TARGET_TEXT), strict=False)
    ]
    learner = translations(pairs=pairs)
    mark, known = target().id_of("<en>"), target().encode("du bist da")
    steps = learner.steps(np.random.default_rng(1))
    rows = [row for _ in range(100) for part in next(steps) for row in part]
    for row in rows:
        begins_familiar = row.pieces[: len(known)] == known
        assert (row.source[-2:-1].tolist() == [mark]) == begins_familiar
    assert any(row.pieces == known for row in rows)


def test_with_wait_k_a_word_is_written_from_the_first_words_alone() -> None:
    """States beyond do not change the loss; without the mask they do."""
    for k, equal in ((1, True), (0, False)):
        learner = english(dataclasses.replace(RECIPE, wait_k=k))
        learner.decoder.eval()
        labels = source().encode(SOURCE_TEXT[0])
        pieces = target().encode(TARGET_TEXT[0].split()[0])
        states = torch.randn(len(labels), WIDTH)
        begun = np.cumsum([source().starts_word(each) for each in labels])
        # The first word is written from one word, the end from two.
        changed = states.clone()
        changed[torch.from_numpy(begun > 2)] = 9.0
        tag = learner.tags["en"]
        before, after = (
            learner.loss([Row(each, tag, pieces, labels)]).item() for each in (states, changed)
        )
        assert (before == pytest.approx(after)) is equal


def test_a_clip_that_ends_in_the_middle_has_the_words_that_are_heard_in_both() -> None:
    """A word of which CTC hears a part, or something else, is not written yet."""
    said = "The small cat, sees the old house."
    words = SOURCE_TEXT[0].split()
    clips = [
        clip(key, {"en": english}, condition=condition)
        for key, condition, english in (
            ("a", "", said),
            ("a/cut", "cut", said),
            ("b", "", "Too few words."),
            ("b/cut", "cut", "Too few words."),
        )
    ]
    for count in range(len(words)):
        whole = source().encode(SOURCE_TEXT[0])
        begun = source().encode(" ".join([*words[:count], "teacher"]))
        memory = Memory(torch.empty(0), [], [whole, begun, whole, begun])
        a, a_cut, b, b_cut = texts_of(clips, memory, source())
        assert a == said
        assert a_cut == " ".join(said.split()[:count])
        assert b == "Too few words."
        assert b_cut is None


def test_batches_hold_every_clip_once_a_pass_within_their_room() -> None:
    sizes = [3, 9, 4, 4, 8, 2, 7]
    made = batches(sizes, 12, np.random.default_rng(1))
    seen: Counter[int] = Counter()
    while sum(seen.values()) < 2 * len(sizes):
        part = next(made)
        assert len(part) == 1 or len(part) * max(sizes[i] for i in part) <= 12
        seen.update(part)
    assert set(seen.values()) == {2}


def test_the_merges_that_english_has_not_are_taught() -> None:
    pieces = [*"▁e", "▁", "the", "▁the", "▁über", "ung", "<0x41>", "<en>", "<de>", "ü"]
    model = SimpleNamespace(pieces=pieces)
    learn = unknown_pieces(cast("Vocabulary", model), {"the", "▁the"})
    assert [piece for piece, each in zip(pieces, learn, strict=True) if each] == [
        "▁über",
        "ung",
        "<de>",
    ]


def test_a_step_is_cut_into_parts_of_like_lengths() -> None:
    lengths = np.random.default_rng(1).integers(1, 90, 200).tolist()
    rows = [Row(torch.zeros(length, 4), 5, [length]) for length in lengths]
    parts = alike(rows)
    assert sorted(row.pieces[0] for part in parts for row in part) == sorted(lengths)
    padded = [len(part) * max(len(row.source) for row in part) for part in parts]
    assert max(padded) <= PART_ROOM
    assert sum(padded) < 1.3 * sum(lengths)


def test_greedy_writes_what_the_whole_pass_says() -> None:
    """A padded batch with kept keys gives the tokens of one hypothesis read as a whole."""
    torch.manual_seed(3)
    decoder = TransformerDecoder(config()).eval()
    memory, lengths = torch.randn(3, 9, WIDTH), torch.tensor([9, 4, 6])
    texts, scores = greedy(decoder, memory, lengths, [(EOS, 5)] * 3, EOS, most_tokens=12)
    for row, tokens in enumerate(texts):
        states = memory[row : row + 1, : lengths[row]]
        read = torch.tensor([[EOS, 5, *tokens]])
        logits = decoder(read, states, lengths[row : row + 1])[0, 1:]
        best = logits.argmax(-1)[: len(tokens)].tolist()
        assert best == tokens
        assert len(scores[row]) == len(tokens) + (len(tokens) < 12)


def test_greedy_ends_with_the_decoders_positions() -> None:
    """A decoder that finds no end, as after minutes of training, writes what it has room for."""
    torch.manual_seed(3)
    plain = config()
    shape = dataclasses.replace(plain.decoder, max_tokens=16)
    decoder = TransformerDecoder(dataclasses.replace(plain, decoder=shape)).eval()
    memory, lengths = torch.randn(1, 9, WIDTH), torch.tensor([9])
    no_end = torch.arange(decoder.embed_tokens.num_embeddings) != EOS
    texts, _ = greedy(decoder, memory, lengths, [(EOS, 5)], EOS, 150, no_end)
    assert len(texts[0]) == shape.max_new_tokens == 16 - 2


def test_merges_follow_their_ranks() -> None:
    """Byte-pair encoding: the pair of the lowest rank first, whatever stands further left."""
    ranks = {"he": 0, "▁t": 1, "the": 2, "▁the": 3, "er": 4}
    assert cut("there", ranks) == ["▁the", "r", "e"]
    assert cut("there", {**ranks, "re": 5}) == ["▁the", "re"]


def test_what_is_not_taught_stays_and_counts_in_the_loss() -> None:
    """With all pieces, the loss is that of a plain embedding; drawn ones estimate it."""
    torch.manual_seed(5)
    weight = torch.randn(400, 8)
    taught = torch.arange(400) % 4 == 0
    split = PartlyTaught(weight, taught)
    tokens = torch.tensor([[0, 1, 4, 399]])
    assert torch.equal(split(tokens), weight[tokens])
    hidden, wanted = torch.randn(64, 8) / 8, torch.randint(400, (64,))
    whole = torch.nn.functional.cross_entropy(hidden @ weight.T, wanted, reduction="sum").item()
    assert split.loss(hidden, wanted, 0.0).item() == pytest.approx(whole, rel=0.01)
    drawn = [split.loss(hidden, wanted, 0.0, negatives=100).item() for _ in range(20)]
    assert float(np.mean(drawn)) == pytest.approx(whole, rel=0.03)
    with torch.no_grad():
        split.taught += 1
    given = split.whole(split.taught)
    assert torch.equal(given[~taught], weight[~taught])
    assert torch.equal(given[taught], weight[taught] + 1)


def test_who_writes_as_was_foretold_has_nothing_to_learn() -> None:
    """The gradient of that part of the loss is zero at the teacher's own states, and only there."""
    torch.manual_seed(6)
    split = PartlyTaught(torch.randn(60, 8), torch.arange(60) % 3 == 0)
    told, wanted = torch.randn(20, 8), torch.randint(60, (20,))
    slopes = []
    for away in (0.0, 0.5):
        hidden = (told + away).requires_grad_()
        loss = split.loss(hidden, wanted, 0.0, foretold=told, foretold_share=1.0)
        slopes.append(float(torch.autograd.grad(loss, hidden)[0].abs().max()))
    assert slopes[0] < 1e-2 < slopes[1]


def test_the_end_is_taught_by_the_text_alone() -> None:
    """Whisper would begin again: what it foretells is for pieces, and no piece is left out."""
    learner = english(dataclasses.replace(RECIPE, foretold_share=1.0))
    learner.decoder.eval()
    pieces = target().encode(TARGET_TEXT[0])
    rows = [
        Row(torch.randn(9, WIDTH), learner.tags["en"], pieces, foretold=told)
        for told in (None, torch.zeros(len(pieces), WIDTH))
    ]
    alone = learner.loss(rows[:1]).item()
    assert learner.loss(rows).item() > alone
    rows[1] = dataclasses.replace(rows[1], foretold=torch.zeros(len(pieces) + 1, WIDTH))
    with pytest.raises(ValueError, match=r"size"):
        learner.loss(rows)


def test_a_worse_recording_is_foretold_what_is_heard_in_the_good_one() -> None:
    torch.manual_seed(8)
    decoder = TransformerDecoder(config()).eval()
    torch.nn.init.uniform_(decoder.layer_norm.weight, 0.5, 4.0)
    sounds = np.random.default_rng(2).normal(size=(2, 10, 384)).astype(np.float16)
    clips = [
        clip(key, texts, shard=sound, frames=5)
        for key, texts, sound in (
            ("a", {"en": TARGET_TEXT[0]}, sounds[0]),
            ("a/worse", {"en": TARGET_TEXT[0]}, sounds[1]),
            ("b", {"de": TARGET_TEXT[0]}, sounds[1]),
        )
    ]
    good, worse, other = foretold(clips, decoder, target())
    assert good is not None
    assert good is worse
    pieces = target().encode(TARGET_TEXT[0])
    assert len(good) == len(pieces)
    assert other is None
    read = torch.tensor([[EOS, target().id_of("<en>"), *pieces]])
    states = clips[0].load().view(1, -1, WIDTH)
    logits = decoder(read, states, torch.tensor([states.shape[1]]))[0, 1:-1]
    assert torch.allclose(decoder.logits(good.float()), logits, atol=0.1)


def test_new_merges_are_the_most_frequent_and_never_join_a_comma() -> None:
    words = Counter({"aber": 50, "aber,": 30, "abend": 20})
    made = new_merges(words, {}, 8)
    assert set(made[:2]) < {"▁a", "ab", "be", "▁ab", "abe"}
    assert "▁aber" in made
    assert not any("," in piece and len(piece.strip("▁")) > 1 for piece in made)


@pytest.mark.parametrize(
    ("transcript", "heard_text", "written"),
    [
        ("i said john come here", "I said, John, come here.", "I said, John, come here."),
        ("he saw mister quilter", "He saw Mr. Quilter.", "He saw mister Quilter."),
        ("i know", "Unrelated words altogether here.", "I know."),
        ("where are the bells from", "Where are the bells from,", "Where are the bells from?"),
        ("It is written.", "it was written", "It is written."),
    ],
)
def test_case_and_commas_come_from_the_teacher_words_from_the_transcript(
    transcript: str, heard_text: str, written: str
) -> None:
    assert english_of(transcript, heard_text, -0.1) == written


def test_without_a_transcript_only_what_is_sure_is_taken() -> None:
    assert english_of("", "Well, that is clear.", -0.1) == "Well, that is clear."
    assert english_of("", "Well, that is clear.", -2.0) is None
    assert english_of("", "So it is. So it is. So it is.", -0.1) is None
    assert loops("no no no")
    assert loops("Well, do it now. Do it now! Do it now, please.")
    assert not loops("no, no")
    assert not loops(
        "Ask not what your country can do for you, ask what you can do for your country."
    )
    assert recased("", "") == ""


def test_scores() -> None:
    assert (
        bleu(["Guten Morgen zusammen, liebe Leute."], ["Guten Morgen zusammen, liebe Leute."]) > 99
    )
    assert spelled([9, 1, 1, 9, 1, 2], blank=9) == (1, 1, 2)


def write_shard(corpus: Path, name: str, *clips: Clip) -> None:
    """A shard whose clips all have the same four states."""
    folder = corpus / "states"
    folder.mkdir(exist_ok=True)
    place = {"begin": 0, "states": 4, "frames": 2, "first_sample": 0, "samples": 0}
    lines = [json.dumps(asdict(clip) | place) + "\n" for clip in clips]
    (folder / f"{name}.jsonl").write_text("".join(lines))
    np.save(folder / f"{name}.npy", np.zeros((4, WIDTH), np.float16))


def test_clips_get_their_english_from_the_teacher(tmp_path: Path) -> None:
    """A worsened clip as well; a split holds its own clips alone."""
    train = Clip("a/worse", "s", "train", transcript="hello there")
    write_shard(tmp_path, "x", train, Clip("b", "s", "dev", transcript="hello"))
    (tmp_path / "heard.tsv").write_text("a\t-0.1\tHello, there!\n")
    (read,) = read_clips(tmp_path, "train")
    assert read.texts == {"en": "Hello, there!"}
    assert read.said == "hello there"
    assert read.load().shape == (2, 2 * WIDTH)


def test_what_the_corpus_has_is_heard_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what was left out of it, nor what is written with case and commas already."""
    given = [
        (Clip("a", "s", "train", transcript="hello there"), Path("a.wav")),
        (Clip("b", "s", "train", transcript="Hello, there!"), Path("b.wav")),
        (Clip("c", "s", "train"), Path("c.wav")),
        (Clip("d", "s", "dev"), Path("d.wav")),
    ]
    first, second, _, last = (clip for clip, _ in given)
    write_shard(tmp_path, "real-000", first, second)
    write_shard(tmp_path, "worse-000", first.worsened(), second.worsened())
    write_shard(tmp_path, "dev-000", last)
    monkeypatch.setattr(training, "read_people", lambda _: given)
    monkeypatch.setattr(training.soundfile, "info", lambda _: SimpleNamespace(duration=1.0))
    heard: list[str] = []
    monkeypatch.setattr(training, "hear", lambda items, _: heard.extend(c.key for c, _ in items))
    training.run_hear(Namespace(corpus=tmp_path, data=tmp_path))
    assert heard == ["a", "d"]


def test_a_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The shipped model's vocabularies and weights are where a run looks for its own."""
    run, made = tmp_path / "run", tmp_path / "made"
    run.mkdir()
    adopt(shipped_model_path(), tmp_path, run)
    shipped = read_directory(shipped_model_path())
    given = (tmp_path / "vocabulary" / "target.model").read_bytes()
    assert given == shipped.target_vocabulary.model
    texts = 3 * [Pair("made up", "Cats.", "train", {"de": "Katzen."})]
    export(run, shipped.source_vocabulary, shipped.target_vocabulary, [], texts, made)
    exported = read_directory(made)
    assert exported.lexicon is not None
    assert read_table(exported.lexicon)["de"].keys() == {"cats"}
    assert exported.tensors.keys() == shipped.tensors.keys()
    for name in exported.tensors.keys() - {"decoder.shortlist"}:
        assert torch.equal(exported.tensors[name], shipped.tensors[name]), name
    assert exported.tensors["decoder.shortlist"].sum() < shipped.tensors["decoder.shortlist"].sum()


@pytest.mark.parametrize("file", ["ctc.pt", "attuned.pt"])
def test_a_run_that_has_begun_adopts_no_checkpoint(tmp_path: Path, file: str) -> None:
    """Whichever step has trained something: it would be lost."""
    (tmp_path / file).touch()
    with pytest.raises(FileExistsError, match=rf"{file} is there"):
        training.run_adopt(Namespace(model=shipped_model_path(), corpus=tmp_path, run=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_translations_are_the_mean_of_several_runs(tmp_path: Path) -> None:
    """English is the first one's, as it is."""
    runs = tmp_path / "a", tmp_path / "b"
    for run in runs:
        run.mkdir()
        adopt(shipped_model_path(), tmp_path, run)
    path = runs[1] / "translations.pt"
    state = torch.load(path, weights_only=True)
    changed = "layers.0.fc1.bias"
    state["average"][changed] = state["average"][changed] + 2.0
    torch.save(state, path)
    (runs[1] / "english.pt").unlink()
    shipped = read_directory(shipped_model_path())
    config = model_config(shipped.config.source_pieces, shipped.config.target_pieces)
    config = with_pivot(config, shipped.target_vocabulary)
    mean = exported_decoder(runs[0], shipped.target_vocabulary, config, runs[1:]).state_dict()
    given = build_network(shipped.config, shipped.tensors).decoder.state_dict()
    for name, tensor in mean.items():
        difference = 1.0 if name == changed else 0.0
        assert torch.allclose(tensor, given[name] + difference, atol=1e-6), name


def test_english_is_partly_what_the_taught_encoder_has_taught_it(tmp_path: Path) -> None:
    """Not where the encoder that it reads is the pretrained one."""
    run, changed = tmp_path / "run", "layers.0.fc1.bias"
    run.mkdir()
    adopt(shipped_model_path(), tmp_path, run)
    state = torch.load(run / "english.pt", weights_only=True)["average"]
    attuned = state | {changed: state[changed] + 2.0}
    torch.save({"average": attuned}, run / "attuned.pt")
    shipped = read_directory(shipped_model_path())
    config = model_config(shipped.config.source_pieces, shipped.config.target_pieces)
    for share, difference in ((ATTUNED_SHARE, 2.0 * ATTUNED_SHARE), (0.0, 0.0)):
        decoder = english_decoder(run, shipped.target_vocabulary, config, share).state_dict()
        for name, tensor in state.items():
            moved = difference if name == changed else 0.0
            assert torch.allclose(decoder[name], tensor + moved, atol=1e-6), name


def test_the_branch_is_partly_what_upper_layers_of_its_own_have_taught_it(tmp_path: Path) -> None:
    """They begin as the encoder's, which stay as they are."""
    run, changed = tmp_path / "run", "upper.0.fc1.bias"
    run.mkdir()
    adopt(shipped_model_path(), tmp_path, run)
    vocabulary = read_directory(shipped_model_path()).source_vocabulary
    (run / "upper.pt").unlink()
    before = exported_encoder(run, vocabulary)
    for own, copied in zip(before.layers[-UPPER_LAYERS:], before.ctc.upper, strict=True):
        assert all(map(torch.equal, own.parameters(), copied.parameters()))
    learned = before.ctc.state_dict()
    learned[changed] = learned[changed] + 2.0
    torch.save({"average": learned, "step": 5}, run / "upper.pt")
    after = exported_encoder(run, vocabulary).state_dict()
    for name, tensor in before.state_dict().items():
        moved = 2.0 * UPPER_SHARE if name == f"ctc.{changed}" else 0.0
        assert torch.allclose(after[name], tensor + moved, atol=1e-6), name


def test_what_is_trained_after_a_checkpoint_was_adopted_is_exported(tmp_path: Path) -> None:
    """The branch that `labels` trains, with upper layers as they were until `upper` trains both."""
    run, changed = tmp_path / "run", "head.bias"
    run.mkdir()
    adopt(shipped_model_path(), tmp_path, run)
    vocabulary = read_directory(shipped_model_path()).source_vocabulary
    before = exported_encoder(run, vocabulary).ctc.state_dict()
    learned = torch.load(run / "ctc.pt", weights_only=True)["average"]
    learned[changed] = learned[changed] + 2.0
    torch.save({"branch": learned, "average": learned, "step": 5, "used": 1.0}, run / "labels.pt")
    after = exported_encoder(run, vocabulary).ctc.state_dict()
    encoder = with_upper_layers(trained_encoder(run, vocabulary))
    CtcTrainer(encoder, []).train(run / "upper.pt", seconds=0.0)
    begun = torch.load(run / "upper.pt", weights_only=True)["average"]
    for name, tensor in before.items():
        moved = 2.0 if name == changed else 0.0
        assert torch.equal(after[name], tensor + moved), name
        assert torch.equal(begun[name], tensor + moved), name


def test_a_run_does_not_go_on_from_another_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("earvoice.training.export.BRANCH", CtcBranchConfig(layers=3))
    with pytest.raises(CheckpointError, match=r"layers=4.*allowed: .*layers=3"):
        adopt(shipped_model_path(), tmp_path, tmp_path / "run")


def test_a_shortlist_has_what_texts_are_made_of_and_the_end() -> None:
    """For English also what Whisper may write."""
    english, german = TARGET_TEXT[1], TARGET_TEXT[0]
    pair = Pair("made up", english, "train", {"de": german})
    own, translated = shortlist_of([pair], target())
    listed = {target().pieces[piece] for piece in translated.nonzero()[:, 0].tolist()}
    assert listed == {*(target().pieces[piece] for piece in target().encode(german)), "</s>"}
    listed = {target().pieces[piece] for piece in own.nonzero()[:, 0].tolist()}
    expected = {*(target().pieces[piece] for piece in target().encode(english)), "</s>"}
    assert listed == expected | {piece for piece in target().pieces if piece in whisper_ranks()}


def test_a_first_word_is_misread_or_missing() -> None:
    """Of what is left out nothing is begun; another word in its place is begun, and not right."""
    said = ["What do I care?", "They stand unmoved.", "Linnell's pictures", "Yes"]
    written = ["What do I care", "stand unmoved", "Linux pictures", ""]
    assert first_words(written, said) == (50.0, 25.0)
