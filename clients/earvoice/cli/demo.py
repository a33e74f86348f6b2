"""``earvoice demo``: a recording in real time, its words, and where the time goes."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import AsyncIterable, Sequence
from contextlib import aclosing
from pathlib import Path
from statistics import fmean

from earvoice.cli.audio_input import AudioInput, open_recording
from earvoice.cli.command import Command, CommandError, ExitCode, run_async
from earvoice.cli.server_choice import add_server_arguments, choose_server, open_client
from earvoice.cli.translate_arguments import (
    add_language_arguments,
    add_policy_arguments,
    add_stream_arguments,
    read_policy,
    read_translation_options,
)
from earvoice.client.event import (
    Committed,
    CommittedWord,
    ElapsedClock,
    EndOfUtterance,
    Started,
    Summary,
    TranslationEvent,
    join_words,
)
from earvoice.latency.rendering import html_report
from earvoice.latency.session_report import report_store
from earvoice.latency.span import TraceStore, read_span_file
from earvoice.latency.stage import HOLD, SEGMENT_STAGES

RECORDING = "inaugural_1961.wav"
_WIDTH = 34


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--audio", type=Path, help=f"recording to translate ({RECORDING})")
    add_language_arguments(parser, target="de")
    add_policy_arguments(parser)
    add_stream_arguments(parser)
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write a page about where the time went"
    )
    add_server_arguments(parser)
    parser.set_defaults(interim=False, transcript=True, stage_timings=True)


def _run(options: argparse.Namespace) -> int:
    read_policy(options)
    if options.html and options.server:
        raise CommandError("--html is made from the services' spans: it cannot go with --server")
    with open_recording(options.audio or find_recording(), "realtime") as recording:
        return run_async(lambda _: _show(recording, options))


def find_recording() -> Path:
    here = Path(__file__).resolve()
    # In a checkout it is at the root, in an installed wheel beside this package.
    for folder in (here.parents[3] / "demo", here.parents[1] / "demo"):
        if (folder / RECORDING).is_file():
            return folder / RECORDING
    raise CommandError(f"{RECORDING} is not part of this installation: give --audio")


async def _show(recording: AudioInput, options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="earvoice-spans-") as folder:
        await _translate(recording, options, Path(folder) if options.html else None)
        # The services have stopped, so all their spans are written.
        if options.html:
            _write_page(options.html, Path(folder))
    return ExitCode.DONE


async def _translate(
    recording: AudioInput, options: argparse.Namespace, trace_folder: Path | None
) -> None:
    seconds = (recording.duration_ms or 0) / 1000
    print(f"{recording.name}: {seconds:.1f} s of audio, translated to {options.to} as it plays")
    began_s = time.monotonic()
    async with (
        choose_server(options, trace_folder) as address,
        open_client(address, options) as client,
    ):
        print(f"services at {address} after {time.monotonic() - began_s:.1f} s")
        choices = read_translation_options(options, recording.audio, options.to, paced=True)
        async with aclosing(client.translate(recording.chunks(), choices)) as events:
            await _show_events(events)


def _write_page(page: Path, trace_folder: Path) -> None:
    store = TraceStore()
    for path in sorted(trace_folder.iterdir()):
        store.take(read_span_file(path))
    if not store.span_count:
        raise CommandError("the services wrote no spans: is OTEL_EXPORTER_OTLP_ENDPOINT set?")
    page.write_text(html_report(*report_store(store)), encoding="utf8")
    print(f"where the time went, segment by segment: {page}")


async def _show_events(events: AsyncIterable[TranslationEvent]) -> None:
    words: list[CommittedWord] = []
    clock: ElapsedClock = "live"
    async for event in events:
        match event:
            case Started():
                clock = event.elapsed_clock
                print(f"model {event.model.name} {event.model.version}, policy {event.policy_name}")
                print(f"\n{'released at':>11}  {'audio':>15}  {'lag':>7}  word")
            case Committed():
                words += event.words
                for word in event.words:
                    print(_word_line(word))
            case EndOfUtterance():
                heard = event.source_transcript or "(nothing understood)"
                print(f"{'':11}  {'':15}  {'':7}  < {heard}\n")
            case Summary() if words:
                print(f"{join_words(words)}\n\n{stage_table(words, clock)}")
                print(computation_line(event))
            case Summary():
                print("no words were released: the model understood nothing in this recording")
                print(computation_line(event))
        sys.stdout.flush()


def _word_line(word: CommittedWord) -> str:
    audio = f"{word.source_start_ms / 1000:.2f}-{word.source_end_ms / 1000:.2f} s"
    joint = "" if word.starts_word else "+"
    lag = f"{word.live_lag_ms / 1000:.2f} s"
    return f"{word.received_ms / 1000:9.2f} s  {audio:>15}  {lag:>7}  {joint}{word.text}"


def stage_table(words: Sequence[CommittedWord], clock: ElapsedClock) -> str:
    """Return the table: mean and maximum of each stage over the words, in milliseconds."""
    timings = [word.stage_timings for word in words if word.stage_timings is not None]
    # A later piece of a word has its own times, but is not another word.
    count = sum(word.starts_word for word in words)
    lines = [f"{f'where the time of {count} words went':{_WIDTH}}  mean ms   max ms"]
    for stage in (*SEGMENT_STAGES, HOLD):
        times_ms = [getattr(timing, f"{stage.name}_ms") for timing in timings]
        lines.append(_row(f"  {stage.label}", times_ms))
    lines.append(_row("in the services", [timing.total_ms for timing in timings]))
    if clock == "live":
        lines.append(_row("client network", [word.client_network_ms for word in words]))
    lines.append(_row("audio wait (the policy's choice)", [t.audio_wait_ms for t in timings]))
    if clock == "live":
        lines.append(_row("lag behind the speaker", [word.live_lag_ms for word in words]))
    return "\n".join(lines)


def computation_line(summary: Summary) -> str:
    """Return the computation of all services and the real-time factor (computation / audio)."""
    factor = summary.computation_ms / summary.audio_ms if summary.audio_ms else 0.0
    return (
        f"computation of all services: {summary.computation_ms:.0f} ms "
        f"for {summary.audio_ms:.0f} ms of audio, real-time factor {factor:.3f}"
    )


def _row(name: str, values_ms: Sequence[float]) -> str:
    return f"{name:{_WIDTH}}{fmean(values_ms):9.1f}{max(values_ms):9.1f}"


COMMAND = Command(
    _add_arguments, _run, "translate a recording as it plays, and show where the time goes"
)
