"""Published streams: one speaker, any number of readers; late ones get the last lines."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from earvoice.client import (
    Committed,
    CommittedWord,
    EndOfUtterance,
    ResumePoint,
    Started,
    Tentative,
    TranslationEvent,
    join_words,
)
from earvoice.client.captions import NO_MARKS, SHORTEST_MS, CaptionMarks, CaptionWriter, Cue
from earvoice.gateway.messages import describe_event, dump
from earvoice.runtime.errors import Code, InvalidFieldError, OutOfOrderError, SlowReaderError

WAITING_MESSAGES = 256
"""Per reader; one further behind is disconnected, and gets the last lines when it returns."""
READERS_AT_ONCE = 16
"""Readers woken together; between such groups the speaker gets a turn."""
LAST_LINES = 20
"""Lines sent to a reader that joins late."""
KEPT_PLACES = 1_000
"""Resume points kept per language: a speaker resumes from the newest one that reached it."""
LOST_S = 60.0
"""How long readers wait for a speaker whose connection was lost."""
_FOR_READERS = (Committed, Tentative, EndOfUtterance)


@dataclass
class Line:
    """What was said in one utterance, in one language; it only grows.

    Attributes:
        end_ms: where it ended, once it has.
    """

    language: str
    utterance: int
    words: list[CommittedWord] = field(default_factory=list)
    is_final: bool = False
    end_ms: float = 0.0

    @property
    def text(self) -> str:
        return join_words(self.words)

    def describe(self) -> dict[str, Any]:
        return {
            "language": self.language,
            "utterance": self.utterance,
            "text": self.text,
            "is_final": self.is_final,
            "start_ms": round(self.words[0].source_start_ms) if self.words else None,
            "end_ms": round(self.words[-1].source_end_ms) if self.words else None,
        }


class Captions:
    """The cues of one language; no new one begins before ``settled_ms``."""

    def __init__(self, kept_cues: int, marks: CaptionMarks) -> None:
        self._writer = CaptionWriter(marks=marks)
        self.cues: deque[Cue] = deque(maxlen=kept_cues)
        self.settled_ms = 0.0

    def add(self, word: CommittedWord) -> None:
        self._take(self._writer.add(word))

    def end_utterance(self, end: EndOfUtterance) -> None:
        self._take(self._writer.end_utterance(end.not_understood))
        self.settled_ms = max(self.settled_ms, end.end_ms)

    def close(self) -> None:
        """Show what is left: nothing more is said."""
        self._take(self._writer.end_utterance())

    def _take(self, cues: Sequence[Cue]) -> None:
        for cue in cues:
            # A word that came after all is shown when it can be.
            start_ms = max(cue.start_ms, math.ceil(self.settled_ms))
            shown = replace(cue, start_ms=start_ms, end_ms=max(cue.end_ms, start_ms + SHORTEST_MS))
            self.cues.append(shown)
            self.settled_ms = shown.end_ms


class _Told:
    """What readers have been sent in one language, so that nothing is sent twice.

    A speaker whose connection was lost resumes before the words that did not reach it, so these
    come again.
    """

    def __init__(self) -> None:
        self._word_count = 0
        self._repeated_words = 0
        self._ended_utterance = -1
        self._places: OrderedDict[bytes, int] = OrderedDict()

    def knows(self, point: ResumePoint) -> bool:
        return _digest(point.token) in self._places

    def go_on(self, point: ResumePoint | None) -> None:
        """Expect what follows a resume point; None means everything from the beginning."""
        counted = 0 if point is None else self._places.get(_digest(point.token))
        if counted is None:  # of another gateway, or too old
            counted, self._ended_utterance = self._word_count, -1
        self._repeated_words = self._word_count - counted

    def news(self, event: TranslationEvent) -> TranslationEvent | None:
        """Return the new part of an event; None if there is none."""
        match event:
            case Committed():
                known = min(self._repeated_words, len(event.words))
                self._repeated_words -= known
                self._word_count += len(event.words) - known
                self._keep(event.resume_token)
                words = event.words[known:]
                return replace(event, words=words) if words else None
            case EndOfUtterance():
                self._keep(event.resume_token)
                if event.utterance <= self._ended_utterance:
                    return None
                self._ended_utterance = event.utterance
            case Tentative() if self._repeated_words:
                return None
        return event

    def _keep(self, token: bytes) -> None:
        if token:
            self._places[_digest(token)] = self._word_count - self._repeated_words
            if len(self._places) > KEPT_PLACES:
                self._places.popitem(last=False)


def _digest(token: bytes) -> bytes:
    return hashlib.blake2b(token, digest_size=16).digest()


class StreamNotFoundError(InvalidFieldError):
    """No stream of this name is on."""

    code = Code.NOT_FOUND


class PublishedStream:
    """One stream's lines, and its readers.

    Args:
        kept_lines: in each language.
        marks: how its captions mark words that may be wrong.

    Attributes:
        languages: that a speaker asked for or that have begun; some may have no words yet.
        source_language: that is spoken; empty until the first has begun.
        publication: the current speaker's, if there is one.
    """

    def __init__(self, name: str, kept_lines: int, marks: CaptionMarks = NO_MARKS) -> None:
        self.name = name
        self._marks = marks
        self.languages: list[str] = []
        self.source_language = ""
        self.is_over = False
        self.ended_at_s: float | None = None
        self._kept_lines = kept_lines
        self._lines: dict[str, deque[Line]] = {}
        self._captions: dict[str, Captions] = {}
        self._told: dict[str, _Told] = {}
        self.publication: Publication | None = None
        self._readers: set[_Reader] = set()
        self._giving_up: asyncio.TimerHandle | None = None
        self._has_news = False
        self._waking: asyncio.Task[None] | None = None

    @property
    def reader_count(self) -> int:
        return len(self._readers)

    def captions(self, language: str) -> Captions:
        if language not in self._captions:
            raise InvalidFieldError("language", language, " or ".join(self.languages) or "none yet")
        return self._captions[language]

    def is_of(self, points: Mapping[str, ResumePoint]) -> bool:
        """Say whether one of these resume points was given to a speaker of this stream."""
        return any(
            language in self._told and self._told[language].knows(point)
            for language, point in points.items()
        )

    def check_languages(self, languages: Sequence[str]) -> None:
        """Refuse a reader who asks only for languages that nobody speaks here."""
        if languages and not set(languages) & set(self.languages):
            self.captions(languages[0])

    def begin(
        self, points: Mapping[str, ResumePoint], languages: Iterable[str] = ()
    ) -> Publication:
        """Return the publication of a new speaker; the one before is no longer valid.

        Args:
            points: by language, where the speaker resumes.
            languages: that the speaker has asked for.
        """
        self._stop_giving_up()
        self.is_over, self.ended_at_s = False, None
        for language, told in self._told.items():
            told.go_on(points.get(language))
        for language in languages:
            self._add(language)
        self.publication = Publication(self)
        return self.publication

    def publish(self, language: str, event: TranslationEvent) -> None:
        """Send an event to the readers, without waiting for any of them."""
        if isinstance(event, Started):
            self._add(language)
            self.source_language = event.source_language
        news = self._told[language].news(event)
        if news is None:
            return
        event = news
        if isinstance(event, Committed):
            captions = self._captions[language]
            for word in event.words:
                self._line(language, word.utterance).words.append(word)
                captions.add(word)
        if isinstance(event, EndOfUtterance):
            self._captions[language].end_utterance(event)
            lines = self._lines[language]
            # An utterance in which nothing was understood has no line.
            if lines and lines[-1].utterance == event.utterance:
                lines[-1].is_final, lines[-1].end_ms = True, event.end_ms
        if isinstance(event, _FOR_READERS):
            self._tell(language, dump(describe_event(language, event)))

    def _add(self, language: str) -> None:
        if language not in self._lines:
            self.languages.append(language)
            self._lines[language] = deque(maxlen=self._kept_lines)
            self._captions[language] = Captions(self._kept_lines, self._marks)
            self._told[language] = _Told()

    def lose(self, give_up: Callable[[], None]) -> None:
        """Note that the speaker's connection was lost; ``give_up`` unless it comes back in time."""
        self.publication = None
        self._giving_up = asyncio.get_running_loop().call_later(LOST_S, give_up)

    def _stop_giving_up(self) -> None:
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    def end(self, now_s: float) -> None:
        """Note that the speaker has ended: tell the readers and release them."""
        self._stop_giving_up()
        self.is_over, self.ended_at_s = True, now_s
        self.publication = None
        for captions in self._captions.values():
            captions.close()
        self._tell("", dump({"type": "end"}))
        for reader in self._readers:
            reader.is_over = True

    async def read(
        self, languages: frozenset[str] = frozenset(), heartbeat_s: float | None = None
    ) -> AsyncIterator[str]:
        """Yield messages: the last lines first, then what comes, until the stream is over.

        An empty message comes when there has been none for ``heartbeat_s``.

        Raises:
            SlowReaderError: the reader fell too far behind.
        """
        last = [line.describe() for line in self.lines_of(languages, LAST_LINES)]
        told = {"stream": self.name, "source_language": self.source_language, "lines": last}
        lines = dump({"type": "lines", **told})
        if self.is_over:
            yield lines
            yield dump({"type": "end"})
            return
        reader = _Reader(languages)
        # Registered before the lines are sent, so that what arrives meanwhile follows them.
        self._readers.add(reader)
        try:
            yield lines
            async for message in reader.messages(heartbeat_s):
                yield message
        finally:
            self._readers.discard(reader)

    def lines_of(self, languages: frozenset[str], most: int = 0) -> list[Line]:
        """Return each language's last lines, so many (0: all); of all languages for none."""
        return [
            line
            for language, lines in self._lines.items()
            if not languages or language in languages
            for line in list(lines)[-most:]
        ]

    def _line(self, language: str, utterance: int) -> Line:
        lines = self._lines[language]
        if not lines or lines[-1].utterance != utterance:
            lines.append(Line(language, utterance))
        return lines[-1]

    def _tell(self, language: str, message: str) -> None:
        for reader in self._readers:
            if not language or reader.wants(language):
                reader.tell(message)
        self._has_news = True
        if self._readers and (self._waking is None or self._waking.done()):
            self._waking = asyncio.create_task(self._wake_readers())

    async def _wake_readers(self) -> None:
        """Wake them in groups: a thousand writing at once would keep the speaker waiting."""
        while self._has_news:
            self._has_news = False
            for number, reader in enumerate(tuple(self._readers), 1):
                reader.news.set()
                if number % READERS_AT_ONCE == 0:
                    await asyncio.sleep(0)


def transcript_of(stream: PublishedStream, lines: Iterable[Line]) -> str:
    """Return lines in the order in which they were said, as JSON; may run in another thread."""
    described = sorted((line.describe() for line in lines), key=lambda line: line["start_ms"])
    return dump({"stream": stream.name, "is_over": stream.is_over, "lines": described})


class Publication:
    """A speaker's hold on a stream.

    Attributes:
        is_left: the speaker has gone, and what it has said is still being translated.
    """

    def __init__(self, stream: PublishedStream) -> None:
        self.stream = stream
        self.is_left = False

    def publish(self, language: str, event: TranslationEvent) -> None:
        """Send an event to the stream's readers.

        Raises:
            OutOfOrderError: the speaker has continued on another connection.
        """
        if self.stream.publication is not self:
            message = f"the stream {self.stream.name!r} goes on by another connection"
            raise OutOfOrderError(message)
        self.stream.publish(language, event)


class _Reader:
    """Messages on their way to one reader; all readers share each message's text."""

    def __init__(self, languages: frozenset[str]) -> None:
        self._languages = languages
        self._messages: deque[str] = deque()
        self._is_late = False
        self.is_over = False
        self.news = asyncio.Event()

    def wants(self, language: str) -> bool:
        return not self._languages or language in self._languages

    def tell(self, message: str) -> None:
        if len(self._messages) >= WAITING_MESSAGES:
            self._is_late = True
            self._messages.clear()
        if not self._is_late:
            self._messages.append(message)

    async def messages(self, heartbeat_s: float | None) -> AsyncIterator[str]:
        while True:
            try:
                async with asyncio.timeout(heartbeat_s):
                    await self.news.wait()
            except TimeoutError:
                yield ""
                continue
            self.news.clear()
            while self._messages:
                yield self._messages.popleft()
            if self._is_late:
                raise SlowReaderError(
                    f"{WAITING_MESSAGES} messages were not read; come again for the last lines"
                )
            if self.is_over:
                return


class StreamDirectory:
    """The published streams by name; one that is over can be read a while longer.

    Args:
        kept_lines: of each stream, in each language.
        linger_s: how long a stream is kept after its end.
    """

    def __init__(
        self, kept_lines: int, linger_s: float, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._kept_lines = kept_lines
        self._linger_s = linger_s
        self._now_s = now_s
        self._streams: dict[str, PublishedStream] = {}

    @property
    def reader_count(self) -> int:
        # The metrics thread asks, too, while streams open and end.
        return sum(stream.reader_count for stream in tuple(self._streams.values()))

    def open(
        self,
        name: str,
        marks: CaptionMarks = NO_MARKS,
        points: Mapping[str, ResumePoint] = MappingProxyType({}),
        languages: Iterable[str] = (),
    ) -> Publication:
        """Return a publication to speak into a stream.

        Args:
            marks: for the captions of a new stream.
            points: by language, where a speaker resumes: kept lines stay, and this takes over from
                a connection whose loss has not been noticed yet.
            languages: that the speaker has asked for.
        """
        self._forget_old()
        known = self._streams.get(name)
        if known is not None and (known.is_of(points) or (known.is_over and points)):
            return known.begin(points, languages)
        if known is not None and known.publication and not known.publication.is_left:
            raise InvalidFieldError("publish", name, "a name under which nobody speaks")
        if known is not None and not known.is_over:
            known.end(self._now_s())  # its former speaker has not come back
        self._streams[name] = PublishedStream(name, self._kept_lines, marks)
        return self._streams[name].begin({}, languages)

    def find(self, name: str) -> PublishedStream:
        self._forget_old()
        if name not in self._streams:
            raise StreamNotFoundError(
                "stream", name, "the name of a stream that is on at this gateway"
            )
        return self._streams[name]

    def close(self, publication: Publication, *, lost: bool) -> None:
        """End a stream, unless its speaker has continued on another connection.

        Args:
            lost: the connection was lost, so the speaker may yet do that.
        """
        stream = publication.stream
        if stream.publication is not publication:
            return
        if lost:
            stream.lose(lambda: stream.end(self._now_s()))
        else:
            stream.end(self._now_s())

    def _forget_old(self) -> None:
        now_s = self._now_s()
        self._streams = {
            name: stream
            for name, stream in self._streams.items()
            if stream.ended_at_s is None or now_s - stream.ended_at_s < self._linger_s
        }
