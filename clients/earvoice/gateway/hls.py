"""Live captions beside a video: HLS playlists of WebVTT segments (RFC 8216 §3.5).

A segment is listed once no cue can begin in it any more, and never changes after that.
"""

from __future__ import annotations

from collections.abc import Sequence

from earvoice.client.captions import VTT_HEADER, Cue, vtt_block
from earvoice.runtime.errors import Code, InvalidFieldError

SEGMENT_MS = 6_000
LISTED_SEGMENTS = 30
"""Three minutes: what has left a playlist must not come back (RFC 8216 §6.2.2)."""
_HIGHEST_TICKS = 1 << 33


def master_playlist(video: str, languages: Sequence[str], bandwidth: int, query: str) -> str:
    """Return a playlist that pairs a video's playlist with the captions in every language.

    Args:
        video: address of the video's media playlist.
        languages: BCP-47 tags; the first is shown unless the viewer chooses another.
        bandwidth: of the video, in bits a second.
    """
    lines = ["#EXTM3U"]
    for index, language in enumerate(languages):
        chosen = "YES" if index == 0 else "NO"
        lines.append(
            f'#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID="captions",NAME="{language}",'
            f'LANGUAGE="{language}",DEFAULT={chosen},AUTOSELECT=YES,FORCED=NO,'
            f'URI="{language}/index.m3u8{query}"'
        )
    lines += [f'#EXT-X-STREAM-INF:BANDWIDTH={bandwidth},SUBTITLES="captions"', video]
    return "\n".join(lines) + "\n"


def caption_playlist(settled_ms: float, query: str, *, is_over: bool) -> str:
    """Return the playlist of the caption segments so far.

    Args:
        settled_ms: no new cue begins before this.
        is_over: the stream has ended.
    """
    count = _segment_count(settled_ms, is_over=is_over)
    first = max(0, count - LISTED_SEGMENTS)
    lines = [
        "#EXTM3U",
        "#EXT-X-VERSION:3",
        f"#EXT-X-TARGETDURATION:{SEGMENT_MS // 1000}",
        f"#EXT-X-MEDIA-SEQUENCE:{first}",
    ]
    for number in range(first, count):
        lines += [f"#EXTINF:{SEGMENT_MS / 1000:.3f},", f"{number}.vtt{query}"]
    return "\n".join([*lines, "#EXT-X-ENDLIST"] if is_over else lines) + "\n"


def caption_segment(
    number: int, cues: Sequence[Cue], settled_ms: float, first_ticks: int, *, is_over: bool
) -> str:
    """Return a segment: every cue shown during it.

    Args:
        settled_ms: no new cue begins before this.
        first_ticks: the video's time, at 90 kHz, at which the stream's audio began.
        is_over: the stream has ended.
    """
    count = _segment_count(settled_ms, is_over=is_over)
    if number >= count:
        error = InvalidFieldError("segment", number, f"0 to {count - 1}" if count else "none yet")
        error.code = Code.NOT_FOUND
        raise error
    begin_ms, end_ms = number * SEGMENT_MS, (number + 1) * SEGMENT_MS
    shown = [vtt_block(cue) for cue in cues if cue.start_ms < end_ms and cue.end_ms > begin_ms]
    ticks = first_ticks % _HIGHEST_TICKS
    stamp = f"X-TIMESTAMP-MAP=MPEGTS:{ticks},LOCAL:00:00:00.000\n\n"
    return VTT_HEADER.rstrip("\n") + "\n" + stamp + "".join(shown)


def _segment_count(settled_ms: float, *, is_over: bool) -> int:
    whole = int(settled_ms // SEGMENT_MS)
    return whole + (1 if is_over and settled_ms > whole * SEGMENT_MS else 0)
