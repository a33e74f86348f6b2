"""A disturbed stream beside the same recording undisturbed."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Any, Literal, TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import ConnectionClosed, WebSocketException

from earvoice.client import (
    AudioFormat,
    Committed,
    CommittedWord,
    EndOfUtterance,
    Reconnected,
    SegmentDone,
    Summary,
    Tentative,
    TranslationError,
    TranslationOptions,
    connect,
)
from earvoice.client.audio import FAST_CHUNK_MS, REALTIME_CHUNK_MS, pace, send_fast
from tests.e2e.calling import RATE_HERTZ, pieces

CatchUp = Literal["merge", "every-segment"]

AUDIO_FORMAT = AudioFormat("linear16", RATE_HERTZ, 1)
# Without any work done; how long a whole stream takes is up to the machine.
PATIENCE_S = 600
Event = TypeVar("Event", EndOfUtterance, Summary)
PROGRESS = (Committed, Tentative, SegmentDone, EndOfUtterance, Summary)


@dataclass
class Heard:
    """What came of one stream.

    Attributes:
        ends: of utterances, in order.
        reconnect_count: how often the client went elsewhere.
        progress_s: when the session began, and each event since that tells of work done.
    """

    words: list[CommittedWord] = field(default_factory=list)
    ends: list[EndOfUtterance] = field(default_factory=list)
    reconnect_count: int = 0
    progress_s: list[float] = field(default_factory=list)
    summary: Summary | None = None
    failure: str = ""

    @asynccontextmanager
    async def patiently(self) -> AsyncIterator[None]:
        """Fail what makes no progress."""
        try:
            async with asyncio.timeout(PATIENCE_S) as self._patience:
                yield
        except TimeoutError:
            self.failure = "it hung"

    def note_progress(self) -> None:
        now_s = asyncio.get_running_loop().time()
        self.progress_s.append(now_s)
        self._patience.reschedule(now_s + PATIENCE_S)

    @property
    def words_said(self) -> list[tuple[str, bool, int]]:
        """What must not depend on pace, load or faults."""
        return [(word.text, word.starts_word, word.utterance) for word in self.words]

    @property
    def longest_gap_s(self) -> float:
        """Longest time in which the client heard nothing."""
        gaps_s = (after - before for before, after in itertools.pairwise(self.progress_s))
        return max(gaps_s, default=float("inf"))


async def listen(address: str, audio: bytes, catch_up: CatchUp, *, paced: bool) -> Heard:
    """Send a recording and return what came, whatever came.

    Args:
        audio: LINEAR16 at `RATE_HERTZ`, mono.
        catch_up: what the server does when it is late.
    """
    heard = Heard()
    try:
        async with heard.patiently():
            await _listen(address, audio, catch_up, paced=paced, to=heard)
    except TranslationError as error:
        heard.failure = f"{error.code or type(error).__name__} {error.reason}: {error}"
    return heard


async def _listen(address: str, audio: bytes, catch_up: CatchUp, *, paced: bool, to: Heard) -> None:
    options = TranslationOptions(
        ("de",), AUDIO_FORMAT, catch_up=catch_up, paced=paced, reconnect_limit_s=PATIENCE_S
    )
    async with (
        connect(address) as client,
        aclosing(client.translate(_chunks(audio, paced=paced), options)) as events,
    ):
        async for event in events:
            if isinstance(event, PROGRESS) or not to.progress_s:
                to.note_progress()
            match event:
                case Committed():
                    to.words += event.words
                case EndOfUtterance():
                    to.ends.append(event)
                case Reconnected():
                    to.reconnect_count += 1
                case Summary():
                    to.summary = event


# A gateway that tells nothing has gone. A ping would wait behind audio that it is not ready for.
SILENCE_S = 30.0
CLOSE_S = 4.0
RETRY_S = 0.25
GATEWAY_PROGRESS = ("words", "tentative", "segment", "utterance_end", "summary")
GATEWAY_CATCH_UP = {"merge": "CATCH_UP_MERGE", "every-segment": "CATCH_UP_EVERY_SEGMENT"}


async def listen_by_gateway(
    address: str, audio: bytes, catch_up: CatchUp, *, paced: bool = True
) -> Heard:
    """As `listen`, through the gateway, which says in docs/gateway.md how a lost stream goes on."""
    heard = Heard()
    loop = asyncio.get_running_loop()
    begun_s, place = loop.time(), GatewayPlace()
    async with heard.patiently():
        while heard.summary is None and not heard.failure:
            with suppress(OSError, WebSocketException):
                async with connect_websocket(
                    f"ws://{address}/v1/translate",
                    max_size=None,
                    open_timeout=SILENCE_S,
                    ping_interval=None,
                    close_timeout=CLOSE_S,
                ) as websocket:
                    late_s = loop.time() - begun_s if paced else float("inf")
                    await _converse(websocket, audio, catch_up, late_s, place, heard)
            if heard.summary is None:
                heard.reconnect_count += 1
                await asyncio.sleep(RETRY_S)
    return heard


@dataclass
class GatewayPlace:
    """Where a stream goes on after a lost connection."""

    point: str = ""
    sample: int = 0


async def _converse(
    websocket: ClientConnection,
    audio: bytes,
    catch_up: CatchUp,
    late_s: float,
    place: GatewayPlace,
    heard: Heard,
) -> None:
    config = {
        "audioEncoding": "AUDIO_ENCODING_LINEAR16",
        "sampleRateHertz": RATE_HERTZ,
        "targetLanguageCodes": ["de"],
        "catchUp": GATEWAY_CATCH_UP[catch_up],
    }
    start = {"type": "start", "config": config}
    await websocket.send(
        json.dumps(start | ({"resume": {"de": place.point}} if place.point else {}))
    )
    rest = audio[place.sample * AUDIO_FORMAT.frame_bytes :]
    speaking = asyncio.create_task(_speak(websocket, rest, late_s - place.sample / RATE_HERTZ))
    try:
        while True:
            async with asyncio.timeout(SILENCE_S):
                message = await websocket.recv()
            _take(json.loads(message), place, heard)
    finally:
        speaking.cancel()
        await asyncio.wait({speaking})


async def _speak(websocket: ClientConnection, audio: bytes, late_s: float) -> None:
    """Send audio as it comes into being, what is already there at once."""
    loop = asyncio.get_running_loop()
    origin_s, sent_bytes = loop.time() - late_s, 0
    with suppress(ConnectionClosed):  # whoever reads sees it, too
        for chunk in pieces(audio, AUDIO_FORMAT.chunk_bytes(REALTIME_CHUNK_MS)):
            sent_bytes += len(chunk)
            due_s = origin_s + AUDIO_FORMAT.duration_ms(sent_bytes) / 1000
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            await websocket.send(chunk)
        await websocket.send(json.dumps({"type": "end"}))


def _take(message: dict[str, Any], place: GatewayPlace, heard: Heard) -> None:
    if message["type"] in GATEWAY_PROGRESS:
        heard.note_progress()
    if message.get("resume_point"):
        place.point, place.sample = message["resume_point"], message["acknowledged_samples"]
    match message["type"]:
        case "words":
            heard.words += [CommittedWord(**word) for word in message["words"]]
        case "utterance_end":
            heard.ends.append(_event(EndOfUtterance, message))
        case "summary":
            heard.summary = _event(Summary, message)
        case "error" if message["advice"] == "give up":
            heard.failure = f"{message['code']} {message['reason']}: {message['message']}"


def _event(kind: type[Event], message: dict[str, Any]) -> Event:
    names = {field.name for field in fields(kind)}
    return kind(**{name: value for name, value in message.items() if name in names})


def _chunks(audio: bytes, *, paced: bool) -> AsyncIterator[bytes]:
    size = AUDIO_FORMAT.chunk_bytes(REALTIME_CHUNK_MS if paced else FAST_CHUNK_MS)
    chunks = pieces(audio, size)
    return pace(chunks, AUDIO_FORMAT) if paced else send_fast(chunks)


# Shorter repeats are language: "sehr, sehr".
SHORTEST_REPEAT_WORDS = 3
# What is decided again, of other segments, is heard a few frames aside; nobody speaks as fast.
SHIFT_MS = 200.0


@dataclass(frozen=True)
class Comparison:
    """What a disturbance did to the words of a stream.

    Attributes:
        doubled: words that are there once too often, or that the undisturbed run never said.
        flaws: what else is wrong, in words for people.
    """

    lost: int
    doubled: int
    flaws: tuple[str, ...]


def compare(heard: Heard, reference: Heard, catch_up: CatchUp) -> Comparison:
    """Compare by the text where it is known: in EVERY_SEGMENT, and where nothing was merged."""
    unmerged = heard.summary is not None and heard.summary.merged_segments == 0
    if catch_up == "every-segment" or unmerged:
        return compare_texts(heard, reference)
    return compare_audio(heard, reference)


def compare_texts(heard: Heard, reference: Heard) -> Comparison:
    """Compare word for word."""
    said, expected = heard.words_said, reference.words_said
    matcher = SequenceMatcher(None, expected, said, autojunk=False)
    common = sum(block.size for block in matcher.get_matching_blocks())
    return Comparison(
        max(len(expected) - common, _untold(heard)), len(said) - common, find_flaws(heard)
    )


def compare_audio(heard: Heard, reference: Heard) -> Comparison:
    """Compare by what was decided: every sample in one utterance, no word again.

    Lost are the reference's words in audio that nobody decided, and words that the server counts
    and the client never got; doubled are words in audio that was decided twice, or said again of
    the same audio.
    """
    in_holes = sum(_decisions(word, heard.ends) == 0 for word in reference.words)
    decided_twice = sum(_decisions(word, heard.ends) > 1 for word in heard.words)
    repeated = count_repeated(heard.words) - count_repeated(reference.words)
    return Comparison(
        max(in_holes, _untold(heard)),
        max(decided_twice, repeated, -_untold(heard)),
        find_flaws(heard),
    )


def find_flaws(heard: Heard) -> tuple[str, ...]:
    """Say where utterances leave audio out or share it, and whether words come out of order."""
    delays_ms = [word.delay_ms for word in heard.words]
    backwards = [
        f"released at {b:.0f} ms after {a:.0f} ms" for a, b in pairwise(delays_ms) if a > b
    ]
    return (*_find_holes(heard), *backwards)


def _find_holes(heard: Heard) -> tuple[str, ...]:
    if heard.summary is None:
        return ()
    borders = [0.0, *(border for end in heard.ends for border in (end.start_ms, end.end_ms))]
    borders.append(heard.summary.audio_ms)
    joints = list(zip(borders[::2], borders[1::2], strict=True))
    return tuple(
        f"utterance to {left:.0f} ms, next from {right:.0f} ms"
        for left, right in joints
        if left != right
    )


def count_repeated(words: Sequence[CommittedWord]) -> int:
    """Count the words in runs that repeat the run right before them, of the same audio.

    What is merged is said otherwise, and a model may then say something twice for different audio.
    """
    repeated: set[int] = set()
    for size in range(SHORTEST_REPEAT_WORDS, len(words) // 2 + 1):
        # Of each word, whether it comes again so many words later.
        again = [*map(_is_again, words, words[size:])]
        for start in range(len(again) - size + 1):
            if all(again[start : start + size]):
                repeated |= set(range(start + size, start + 2 * size))
    return len(repeated)


def _is_again(word: CommittedWord, later: CommittedWord) -> bool:
    same_audio = (
        later.source_start_ms < word.source_end_ms + SHIFT_MS
        and word.source_start_ms < later.source_end_ms + SHIFT_MS
    )
    return word.text == later.text and same_audio


def _untold(heard: Heard) -> int:
    """Words that the server counts beyond those that came; negative where more came."""
    return heard.summary.item_count - len(heard.words) if heard.summary else 0


def _decisions(word: CommittedWord, ends: Sequence[EndOfUtterance]) -> int:
    middle_ms = (word.source_start_ms + word.source_end_ms) / 2
    return sum(end.start_ms <= middle_ms < end.end_ms for end in ends)
