"""``earvoice latency``: where the time of released words went, from the services' spans."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from earvoice.cli.command import (
    Command,
    CommandError,
    ExitCode,
    Interruption,
    os_error_text,
    run_async,
)
from earvoice.latency.rendering import html_report, overview, record_of, text_report
from earvoice.latency.session_report import report_store
from earvoice.latency.span import SpanError, TraceStore, read_span_file
from earvoice.latency.span_receiver import receive_spans

REFRESH_S = 2.0
# However long a table takes to compute, nine tenths of the time remain for receiving spans.
PAUSE_PER_WORK = 9.0
# A few hours of one session, or a few minutes of ten: a segment's spans take some 15 kB.
MOST_TRACES = 10_000
_CLEAR_SCREEN = "\x1b[H\x1b[2J"


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", metavar="FILE", nargs="*", type=Path, help="OTLP/JSON lines, in any order"
    )
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="receive spans by OTLP/gRPC until Ctrl-C instead, and show a live table",
    )
    parser.add_argument("--html", metavar="FILE", type=Path, help="write one self-contained page")
    parser.add_argument("--format", choices=("text", "json"), default="text")


def _run(options: argparse.Namespace) -> int:
    if bool(options.files) == bool(options.listen):
        raise CommandError("give either span files or --listen HOST:PORT")
    if options.listen:
        return run_async(lambda interruption: _listen(options, interruption))
    store = TraceStore()
    for path in options.files:
        try:
            store.take(read_span_file(path))
        except SpanError as error:
            raise CommandError(str(error), ExitCode.INPUT) from error
        except OSError as error:
            raise CommandError(os_error_text(error), ExitCode.INPUT) from error
    if not store.span_count:
        raise CommandError("no span of a session or of a segment in these files", ExitCode.INPUT)
    _report(store, options)
    return ExitCode.DONE


async def _listen(options: argparse.Namespace, interruption: Interruption) -> int:
    store, ended = TraceStore(MOST_TRACES), asyncio.Event()
    interruption.call_instead(ended.set)
    async with receive_spans(options.listen, store.take) as port:
        host = options.listen.rpartition(":")[0]
        print(f"listening at {host}:{port} (Ctrl-C to end)", file=sys.stderr, flush=True)
        shown, pause_s = 0, REFRESH_S
        while not ended.is_set():
            if sys.stderr.isatty() and store.span_count != shown:
                shown, began_s = store.span_count, time.perf_counter()
                print(_CLEAR_SCREEN + _live_table(store), file=sys.stderr, flush=True)
                pause_s = max(REFRESH_S, PAUSE_PER_WORK * (time.perf_counter() - began_s))
            try:
                await asyncio.wait_for(ended.wait(), pause_s)
            except TimeoutError:
                continue
    _report(store, options)
    return ExitCode.DONE


def _live_table(store: TraceStore) -> str:
    reports, problems = report_store(store)
    return overview(reports, problems)


def _report(store: TraceStore, options: argparse.Namespace) -> None:
    reports, problems = report_store(store)
    if options.html is not None:
        options.html.write_text(html_report(reports, problems), encoding="utf8")
    if options.format == "json":
        print(json.dumps(record_of(reports, problems), ensure_ascii=False))
    else:
        print(text_report(reports, problems))


COMMAND = Command(
    _add_arguments, _run, "tell where the time of released words went, from the services' spans"
)
