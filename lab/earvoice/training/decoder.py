"""Teach the decoder: English from speech, the other languages from English by texts alone."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from earvoice.corpus.recipe import SOURCE_LANGUAGE, TARGET_LANGUAGES
from earvoice.corpus.states import COMPRESSION, mixed_precision, pretrained_part
from earvoice.models.ctc import compress, spelled
from earvoice.models.transformer import TransformerDecoder
from earvoice.models.vocabulary import EOS, PAD, WORD_START, Vocabulary
from earvoice.runtime.files import atomic_write
from earvoice.training.address import familiar
from earvoice.training.data import D_MODEL, JOIN, batches, digest_of
from earvoice.training.schedule import Trainer, without_attention_dropout
from earvoice.training.teacher import WHISPER_END, WHISPER_PROMPT
from earvoice.training.vocabulary import first_embeddings
from earvoice.training.wait_k_mask import wait_k_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from earvoice.corpus.texts import Pair
    from earvoice.models.config import ModelConfig
    from earvoice.models.whisper import WhisperEncoder
    from earvoice.training.data import Heard
    from earvoice.training.misheard import Misheard

OTHER_TAGS = tuple(f"<{tag}>" for tag in TARGET_LANGUAGES)
NOTHING_SHARE, JOINED_SHARE = 0.01, 0.2
"""Of the texts to translate: nothing at all, and (minus these) with those that follow."""
MOST_FOLLOWING, JOINED_ROOM = 5, 80
"""How many follow at most, and pieces of English then: an utterance of half a minute."""
PLAIN_SHARE, OPEN_SHARE = 0.1, 0.1
"""Of the texts to translate: without case and marks, and without the last mark."""
MISHEARD_SHARE = 0.3
"""Of the texts to translate: with words and commas as they may be misheard."""
RENAMED_SHARE = 0.5
"""Of the names that stand in a text and in its translation: another stands there instead."""
MOST_IN_LOWER_CASE = 0.05
"""How often a name is written small at most, beside the times it is not."""
LEAST_NAME_LETTERS, LEAST_KEPT_SHARE = 3, 0.8
_LETTERS = re.compile(r"[^\W\d_]+")
_UNHEARD = re.compile(r"[^\w\s'%$€£&@/+-]")
_PART = re.compile(r"^(own\.\d+|pivot)\.")
PART_ROOM = 1500
"""What is read and written, with padding, in the part of a step that is differentiated at once."""


def first_decoder(
    config: ModelConfig, vocabulary: Vocabulary, dropout: float = 0.0
) -> TransformerDecoder:
    """Whisper's decoder with our pieces; in English it writes at first what Whisper does."""
    given = pretrained_part("decoder")
    pretrained = given.pop("embed_tokens.weight")
    tags = [language.tag for language in config.target_languages]
    decoder = TransformerDecoder(config, dropout)
    positions = given["embed_positions.weight"]
    # Every hypothesis begins with the end token, where Whisper has a token of its own.
    positions[0] += pretrained[WHISPER_PROMPT[0]] - pretrained[WHISPER_END]
    given["embed_tokens.weight"] = first_embeddings(vocabulary, pretrained, tags)
    given["output_projection.weight"] = given["embed_tokens.weight"]
    decoder.load_state_dict(given)
    decoder.tie_embeddings()
    return decoder


def for_one_language(config: ModelConfig) -> ModelConfig:
    """The same with one stack of layers."""
    shape = replace(config.decoder, own_layers=(), pivot_layers=0, shortlist=False)
    return replace(config, decoder=shape)


def first_translator(
    config: ModelConfig, vocabulary: Vocabulary, dropout: float = 0.0
) -> TransformerDecoder:
    """Whisper's layers for everything: they know words, and nothing of other languages yet."""
    given = first_decoder(for_one_language(config), vocabulary).state_dict()
    decoder = TransformerDecoder(config, dropout)
    decoder.load_state_dict({name: given[_PART.sub("", name)] for name in decoder.state_dict()})
    decoder.tie_embeddings()
    return decoder


def is_shared(name: str) -> bool:
    """Whether a decoder's tensor is the same for every language."""
    return name.startswith(("embed_", "output_projection."))


class PartlyTaught(nn.Module):
    """An embedding, and output projection, of which some rows learn and the rest stays.

    So the words that training never mentions keep what pretraining has taught.
    """

    kept: torch.Tensor
    """[V - taught, d]"""
    place: torch.Tensor
    """[V] int64: where a piece is when those that are taught come first."""

    def __init__(self, weight: torch.Tensor, taught: torch.Tensor) -> None:
        """Split what is to be taught, [V] bool, from the rest of `weight`, [V, d]."""
        super().__init__()
        order = torch.cat((taught.nonzero()[:, 0], (~taught).nonzero()[:, 0]))
        own = order[: int(taught.sum())]
        self.taught = nn.Parameter(weight.detach()[own].clone())
        self.register_buffer("kept", weight.detach()[order[len(own) :]].clone())
        self.register_buffer("place", order.argsort())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places, count = self.place[tokens], len(self.taught)
        if not count:
            return functional.embedding(places, self.kept)
        own = functional.embedding(places.clamp(max=count - 1), self.taught)
        if not len(self.kept):
            return own
        others = self.kept[(places - count).clamp(min=0)]
        return torch.where((places < count)[..., None], own, others)

    def whole(self, taught: torch.Tensor) -> torch.Tensor:
        """[V, d] with these rows of what is taught."""
        return torch.cat((taught.detach(), self.kept))[self.place]

    def loss(
        self,
        hidden: torch.Tensor,
        wanted: torch.Tensor,
        smoothing: float,
        negatives: int = 0,
        foretold: torch.Tensor | None = None,
        foretold_share: float = 0.0,
    ) -> torch.Tensor:
        """Summed cross-entropy of [n, d] with [n] pieces.

        Args:
            negatives: pieces drawn to stand for all that are not taught (importance sampling,
                Bengio 2008); 0 takes all.
            foretold: [n, d] of another decoder with these embeddings; for its share of the loss its
                distribution is wanted instead of the piece (Hinton 2015).
        """
        places, count = self.place[wanted], len(self.taught)
        rows, weights = self.kept, torch.zeros(())
        if 0 < negatives < len(rows):
            free = torch.ones(len(rows), dtype=torch.bool)
            free[places[places >= count] - count] = False
            needed = (~free).nonzero()[:, 0]
            drawn = free.nonzero()[:, 0][torch.randperm(len(rows) - len(needed))[:negatives]]
            chosen, order = torch.cat((needed, drawn)).sort()
            share = math.log((len(rows) - len(needed)) / len(drawn))
            weights = torch.where(order < len(needed), 0.0, share)
            found = count + torch.searchsorted(chosen, (places - count).clamp(min=0))
            places, rows = torch.where(places < count, places, found), rows[chosen]
        with mixed_precision():
            own, others = functional.linear(hidden, self.taught), functional.linear(hidden, rows)
        logits = torch.cat((own, others + weights), 1).float()
        loss = functional.cross_entropy(logits, places, label_smoothing=smoothing, reduction="sum")
        if foretold is None:
            return loss
        with torch.no_grad(), mixed_precision():
            own = functional.linear(foretold, self.taught)
            others = functional.linear(foretold, rows) + weights
        told = torch.cat((own, others), 1).float().softmax(1)
        soft = functional.cross_entropy(logits, told, reduction="sum")
        return torch.lerp(loss, soft, foretold_share)


def unknown_pieces(target: Vocabulary, pretrained: Collection[str]) -> torch.Tensor:
    """[V] bool: what English never uses: merges that Whisper has not, other languages' tags."""
    return torch.tensor(
        [
            len(piece.removeprefix(WORD_START)) > 1
            and piece not in pretrained
            and (piece in OTHER_TAGS or not piece.startswith("<"))
            for piece in target.pieces
        ]
    )


@dataclass
class Memory:
    """What the decoder reads of the clips: states after compression, one after another."""

    states: torch.Tensor
    """[all, d] float16."""
    begins: list[int]
    labels: list[list[int]]
    """CTC labels of each clip's states."""

    def of(self, index: int) -> torch.Tensor:
        return self.states[self.begins[index] : self.begins[index + 1]].float()

    def length(self, index: int) -> int:
        return self.begins[index + 1] - self.begins[index]


@torch.inference_mode()
def compressed(clips: Sequence[Heard], encoder: WhisperEncoder, room: int = 6000) -> Memory:
    """Label and compress every clip as the encoder does when it serves."""
    order = sorted(range(len(clips)), key=lambda i: clips[i].joined)
    out: dict[int, tuple[torch.Tensor, list[int]]] = {}
    part: list[int] = []
    for index in [*order, -1]:
        if part and (index < 0 or clips[index].joined * (len(part) + 1) > room):
            joined = nn.utils.rnn.pad_sequence([clips[i].load() for i in part], batch_first=True)
            lengths = torch.tensor([clips[i].joined for i in part])
            frames = torch.tensor([clips[i].frames for i in part])
            with mixed_precision():
                log_probs = encoder.label(joined, lengths).float()
            most = int(frames.max())
            mean = joined.view(*joined.shape[:2], JOIN, D_MODEL).mean(2)
            made = compress(mean[:, :most], frames, log_probs[:, :most], COMPRESSION)
            for row, i in enumerate(part):
                count = int(made.lengths[row])
                out[i] = made.states[row, :count].half(), made.labels[row, :count].tolist()
            part = []
        part.append(index)
    begins = np.concatenate(([0], np.cumsum([len(out[i][0]) for i in range(len(clips))]))).tolist()
    return Memory(
        torch.cat([out[i][0] for i in range(len(clips))]),
        begins,
        [out[i][1] for i in range(len(clips))],
    )


def memory_of(clips: Sequence[Heard], encoder: WhisperEncoder, path: Path) -> Memory:
    """`compressed`, kept in a file for the next start with the same clips and encoder."""
    digest = digest_of(encoder.state_dict(), clips)
    if path.exists():
        kept = torch.load(path, weights_only=True)
        if kept.pop("digest") == digest:
            return Memory(**kept)
    memory = compressed(clips, encoder)
    with atomic_write(path) as partial:
        torch.save(vars(memory) | {"digest": digest}, partial)
    return memory


@torch.inference_mode()
def foretold(
    clips: Sequence[Heard],
    decoder: TransformerDecoder,
    vocabulary: Vocabulary,
    read: Callable[[int], torch.Tensor] | None = None,
    room: int = 20_000,
) -> list[torch.Tensor | None]:
    """A teacher's hidden states for each piece of a clip's English, as soft targets (Hinton 2015).

    The teacher reads the clean version of a worsened clip, where there is one.

    Args:
        decoder: Whisper's, `first_decoder`, or one that has learned.
        read: returns [S, d], what the decoder reads of the clip with an index; its states of 20 ms
            by default, as Whisper's does, and never more than these.
        room: states of a batch, padding included.

    Returns:
        For each clip that has English [pieces, d] float16 after the last LayerNorm. Not for the
        end: with so short a silence after the sound Whisper begins again instead.
    """
    read = read or (lambda index: clips[index].load().view(-1, D_MODEL))
    number = {clip.key: index for index, clip in enumerate(clips)}
    heard_best = [number.get(clip.recording, index) for index, clip in enumerate(clips)]
    chosen = sorted(
        {i for i in heard_best if clips[i].english is not None}, key=lambda i: clips[i].states
    )
    tag = vocabulary.id_of(f"<{SOURCE_LANGUAGE}>")
    out: dict[int, torch.Tensor] = {}
    part: list[int] = []
    for index in [*chosen, -1]:
        if part and (index < 0 or clips[index].states * (len(part) + 1) > room):
            states = [read(i) for i in part]
            texts = [vocabulary.encode(clips[i].english or "") for i in part]
            tokens, _ = read_and_wanted([(tag, pieces) for pieces in texts])
            with mixed_precision():
                hidden = decoder.hidden(
                    tokens,
                    nn.utils.rnn.pad_sequence(states, batch_first=True),
                    torch.tensor(list(map(len, states))),
                )
            for i, pieces, row in zip(part, texts, hidden, strict=True):
                out[i] = row[1 : len(pieces) + 1].half()
            part = []
        part.append(index)
    return [out.get(best) for best in heard_best]


def texts_of(clips: Sequence[Heard], memory: Memory, source: Vocabulary) -> list[str | None]:
    """What is to be written of each clip in English; None where that is not known.

    Of one that is cut, the words that CTC hears in it as in the whole; it is left out where CTC
    hears another number of words in the whole than there are.
    """

    def ctc_words(index: int) -> list[str]:
        return source.decode(spelled(memory.labels[index], len(source))).split()

    number = {clip.key: index for index, clip in enumerate(clips)}
    texts: list[str | None] = []
    for index, clip in enumerate(clips):
        if not clip.is_cut:
            texts.append(clip.english)
            continue
        base, words = number.get(clip.recording), (clip.english or "").split()
        heard = [] if base is None else ctc_words(base)  # the whole may be too long
        if not words or len(heard) != len(words):
            texts.append(None)
            continue
        same = [a == b for a, b in zip(heard, ctc_words(index), strict=False)]
        texts.append(" ".join(words[: (*same, False).index(False)]))
    return texts


@dataclass(frozen=True)
class Recipe:
    """What a step is made of."""

    peak_rate: float
    dropout: float
    room: int
    """States, or pieces of English, in a step, padding included."""
    negatives: int
    """Of the pieces that are not taught, how many are drawn for each part of a step."""
    label_smoothing: float = 0.0
    foretold_share: float = 0.0
    """How much of the loss is what the pretrained decoder would write."""
    average: float = 0.996
    """Share that the average of all weights keeps at each step."""
    most_tokens: int = 110
    wait_k: int = 0
    """Words of the source that are heard before the first word is written; 0 for all of them."""


ENGLISH_RECIPE = Recipe(
    peak_rate=1.5e-4, dropout=0.05, room=5000, negatives=16_384, foretold_share=0.5
)
ATTUNING_RECIPE = replace(ENGLISH_RECIPE, peak_rate=1.2e-4)
TRANSLATION_RECIPE = Recipe(
    peak_rate=6e-4, dropout=0.0, room=1600, negatives=1024, label_smoothing=0.1, average=0.998
)


def read_and_wanted(
    texts: Sequence[tuple[int, Sequence[int]]],
) -> tuple[torch.Tensor, torch.Tensor]:
    """[B, L] int64 what a decoder reads, for each language token and text, and what is to follow.

    Nothing is wanted after the first token, nor where a text is padded: there it is `PAD`.
    """
    tokens = torch.full((len(texts), max(len(pieces) for _, pieces in texts) + 2), PAD)
    wanted = torch.full_like(tokens, PAD)
    for (tag, pieces), own, following in zip(texts, tokens, wanted, strict=True):
        own[: len(pieces) + 2] = torch.tensor([EOS, tag, *pieces])
        following[1 : len(pieces) + 2] = torch.tensor([*pieces, EOS])
    return tokens, wanted


@dataclass(frozen=True)
class Row:
    """One text to write, and what it is written from."""

    source: torch.Tensor
    """[S, d] states, or [P] int64 pieces of English with the end."""
    tag: int
    pieces: list[int]
    labels: Sequence[int] = ()
    """The CTC label of each state."""
    foretold: torch.Tensor | None = None
    """See the function of that name."""


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """Parts of rows of like lengths, so that little of a batch is padding."""
    parts: list[list[Row]] = []
    read = written = 0
    for row in sorted(rows, key=lambda row: len(row.source) + len(row.pieces)):
        read, written = max(read, len(row.source)), max(written, len(row.pieces))
        if not parts or (read + written) * (len(parts[-1]) + 1) > PART_ROOM:
            parts.append([])
            read, written = len(row.source), len(row.pieces)
        parts[-1].append(row)
    return parts


class DecoderTrainer(Trainer["Sequence[list[Row]]"]):
    """Learns in steps of several parts, each of which is padded for itself.

    Args:
        decoder: to go on with; what does not require a gradient stays as it is.
        taught: [V] bool, pieces whose embeddings learn.
    """

    part = "decoder"

    def __init__(
        self, decoder: TransformerDecoder, taught: torch.Tensor, target: Vocabulary, recipe: Recipe
    ) -> None:
        self.target, self.recipe = target, recipe
        self.tags = {
            language.code: target.id_of(language.tag)
            for language in decoder.config.target_languages
        }
        self.decoder = decoder.train()
        without_attention_dropout(decoder)
        self.embedding = PartlyTaught(decoder.embed_tokens.weight, taught)
        decoder.register_module("embed_tokens", self.embedding)
        decoder.register_module("output_projection", None)
        learning = [p for p in decoder.parameters() if p.requires_grad]
        super().__init__(decoder, [(learning, recipe.peak_rate)], recipe.average)

    @abstractmethod
    def hidden(self, rows: Sequence[Row], tokens: torch.Tensor) -> torch.Tensor:
        """What the decoder makes of a part's sources and tokens [B, L], [B, L, d]."""

    def backward(self, drawn: Sequence[list[Row]]) -> np.ndarray:
        count = sum(len(row.pieces) + 1 for part in drawn for row in part)
        total = 0.0
        # The CPU's fused attention takes longer to differentiate than its parts.
        with sdpa_kernel(SDPBackend.MATH):
            for part in drawn:
                loss = self.loss(part) / count
                torch.autograd.backward(loss)
                total += loss.item()
        return np.array([total])

    def loss(self, rows: Sequence[Row]) -> torch.Tensor:
        """Summed over the pieces and the ends."""
        tokens, wanted = read_and_wanted([(row.tag, row.pieces) for row in rows])
        with mixed_precision():
            hidden = self.hidden(rows, tokens)
        told = [row.foretold for row in rows if row.foretold is not None]
        is_told = torch.tensor([row.foretold is not None for row in rows])[:, None]
        is_told = is_told & (wanted != PAD) & (wanted != EOS)
        total: torch.Tensor = hidden.new_zeros(())
        for taken, foretold in (
            (is_told, torch.cat(told).float() if told else None),
            ((wanted != PAD) & ~is_told, None),
        ):
            if taken.any():
                total = total + self.embedding.loss(
                    hidden[taken],
                    wanted[taken],
                    self.recipe.label_smoothing,
                    self.recipe.negatives,
                    foretold,
                    self.recipe.foretold_share,
                )
        return total

    def _whole(self, parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The state of a decoder that has these parameters."""
        given = {name: parameter.detach() for name, parameter in parameters.items()}
        weight = self.embedding.whole(given.pop("embed_tokens.taught"))
        return given | {"embed_tokens.weight": weight, "output_projection.weight": weight}

    def state(self) -> dict[str, Any]:
        own = self._whole(dict(self.decoder.named_parameters()))
        return {self.part: own, "average": self._whole(self.average)}

    def restore(self, state: dict[str, Any]) -> None:
        order, count = self.embedding.place.argsort(), len(self.embedding.taught)
        taught = order[:count]
        self.embedding.kept.copy_(state[self.part]["embed_tokens.weight"][order[count:]])
        for own, name in (
            (dict(self.decoder.named_parameters()), self.part),
            (self.average, "average"),
        ):
            given = state[name] | {
                "embed_tokens.taught": state[name]["embed_tokens.weight"][taught]
            }
            for each, value in own.items():
                value.detach().copy_(given[each])


class EnglishTrainer(DecoderTrainer):
    """What is said, from states; the embeddings stay as they were pretrained.

    Args:
        clips: with their states.
        memory: the same clips as the decoder reads them.
        foretold: see the function of that name.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        clips: Sequence[Heard],
        memory: Memory,
        source: Vocabulary,
        target: Vocabulary,
        recipe: Recipe,
        foretold: Sequence[torch.Tensor | None] = (),
    ) -> None:
        decoder.embed_positions.requires_grad_(requires_grad=False)
        super().__init__(decoder, torch.zeros(len(target), dtype=torch.bool), target, recipe)
        self.clips, self.memory = clips, memory
        self.foretold = foretold or [None] * len(clips)
        texts = texts_of(clips, memory, source)
        self._pieces = [None if text is None else target.encode(text) for text in texts]
        self._mask = wait_k_mask(recipe.wait_k, source, target) if recipe.wait_k else None
        self._spoken = [
            index
            for index, pieces in enumerate(self._pieces)
            if pieces is not None and memory.length(index) and len(pieces) <= recipe.most_tokens
        ]

    def steps(self, generator: np.random.Generator) -> Iterator[Sequence[list[Row]]]:
        lengths = [self.memory.length(index) for index in self._spoken]
        for part in batches(lengths, self.recipe.room, generator):
            yield alike([self._row(self._spoken[place]) for place in part])

    def _row(self, index: int) -> Row:
        return Row(
            self.memory.of(index),
            self.tags[SOURCE_LANGUAGE],
            self._pieces[index] or [],
            self.memory.labels[index],
            None if self.clips[index].is_cut else self.foretold[index],
        )

    def hidden(self, rows: Sequence[Row], tokens: torch.Tensor) -> torch.Tensor:
        memory = nn.utils.rnn.pad_sequence([row.source for row in rows], batch_first=True)
        lengths, visible = torch.tensor([len(row.source) for row in rows]), None
        if self._mask is not None:
            labels = [torch.tensor(row.labels) for row in rows]
            visible = self._mask(
                nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-1), tokens
            )
        return self.decoder.hidden(tokens, memory, lengths, visible)


class TranslationTrainer(DecoderTrainer):
    """The other languages, from texts alone: English as it may be heard.

    Of the embeddings, which English reads as well, those of the merges learn that it never uses.

    Args:
        decoder: with a pivot; its layers for English are taken out.
        taught: see `unknown_pieces`.
        weights: how often a pass reads each text of a source; others once.
        language_weights: the same by language; they are multiplied.
        misheard: what is heard instead of some words.
    """

    def __init__(
        self,
        decoder: TransformerDecoder,
        taught: torch.Tensor,
        pairs: Sequence[Pair],
        weights: Mapping[str, int],
        language_weights: Mapping[str, int],
        misheard: Misheard,
        target: Vocabulary,
        recipe: Recipe,
    ) -> None:
        decoder.own = nn.ModuleDict()
        decoder.embed_positions.requires_grad_(requires_grad=False)
        super().__init__(decoder, taught, target, recipe)
        self.pairs = pairs
        self._texts = [
            (index, tag)
            for index, pair in enumerate(pairs)
            for tag in pair.translations
            for _ in range(weights.get(pair.source, 1) * language_weights.get(tag, 1))
        ]
        written = {tag for _, tag in self._texts}
        self._familiar = {tag: familiar(pairs, tag) for tag in written}
        self._names = {tag: names_of(pairs, tag) for tag in written}
        self._misheard = misheard
        self._counts = [len(target.encode(pair.english)) + 1 for pair in pairs]
        self._lengths = [self._counts[index] for index, _ in self._texts]

    def steps(self, generator: np.random.Generator) -> Iterator[Sequence[list[Row]]]:
        for part in batches(self._lengths, self.recipe.room, generator):
            rows = [self._row(*self._texts[place], generator) for place in part]
            most = self.recipe.most_tokens
            yield alike([r for r in rows if max(len(r.source), len(r.pieces)) <= most])

    def _row(self, index: int, tag: str, generator: np.random.Generator) -> Row:
        pair, taken = self.pairs[index], {index}
        english, text = pair.english, pair.translations[tag]
        drawn = generator.random()
        if drawn < NOTHING_SHARE:
            english = text = ""
            taken.clear()
        elif drawn < JOINED_SHARE:
            most = int(generator.integers(1, MOST_FOLLOWING + 1))
            room = JOINED_ROOM - self._counts[index]
            for place in range(index + 1, min(index + 1 + most, len(self.pairs))):
                following, room = self.pairs[place], room - self._counts[place]
                if room < 0 or tag not in following.translations:
                    break
                english = f"{english} {following.english}"
                text = f"{text} {following.translations[tag]}"
                taken.add(place)
        english, text = renamed(english, text, self._names[tag], generator)
        if generator.random() < MISHEARD_SHARE:
            english = self._misheard.heard(english, generator)
        pieces = self.target.encode(as_heard(english, generator))
        if taken & self._familiar[tag]:
            pieces.append(self.tags[SOURCE_LANGUAGE])  # a text never has it
        return Row(torch.tensor([*pieces, EOS]), self.tags[tag], self.target.encode(text))

    def hidden(self, rows: Sequence[Row], tokens: torch.Tensor) -> torch.Tensor:
        texts = [row.source for row in rows]
        lengths = torch.tensor(list(map(len, texts)))
        padded = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD)
        return self.decoder.hidden(tokens, self.decoder.read_pivot(padded, lengths), lengths)


def names_of(pairs: Sequence[Pair], tag: str) -> list[str]:
    """Words that translations into a language keep, and that English writes with a capital."""
    every, stand, kept = Counter[str](), Counter[str](), Counter[str]()
    for pair in pairs:
        words = _LETTERS.findall(pair.english)
        every.update(words)
        if tag in pair.translations:
            stand.update({*words})
            kept.update({*words}.intersection(_LETTERS.findall(pair.translations[tag])))
    return sorted(
        word
        for word, count in kept.items()
        if word.istitle()
        and len(word) >= LEAST_NAME_LETTERS
        and count >= LEAST_KEPT_SHARE * stand[word]
        and every[word.lower()] <= MOST_IN_LOWER_CASE * every[word]
    )


def renamed(
    english: str, text: str, names: Sequence[str], generator: np.random.Generator
) -> tuple[str, str]:
    """A text and its translation with other names in half of the places.

    Names are to be kept, known or not.

    Args:
        names: sorted; see `names_of`.
    """
    here, there = (Counter(_LETTERS.findall(each)) for each in (english, text))
    chosen: dict[str, str] = {}
    for word, count in here.items():
        place = bisect_left(names, word)
        is_name = place < len(names) and names[place] == word
        if is_name and there[word] == count and generator.random() < RENAMED_SHARE:
            chosen[word] = names[int(generator.integers(len(names)))]

    def other(match: re.Match[str]) -> str:
        name: str = match[0]
        return chosen.get(name, name)

    return _LETTERS.sub(other, english), _LETTERS.sub(other, text)


def as_heard(english: str, generator: np.random.Generator) -> str:
    """The text as a caption may have it: now and then without case and commas, or not yet ended."""
    drawn = generator.random()
    if drawn < PLAIN_SHARE:
        return " ".join(_UNHEARD.sub(" ", english.lower()).split())
    return english.rstrip(".!?") if drawn < PLAIN_SHARE + OPEN_SHARE else english
