"""The progress line."""

import io

from earvoice.cli.progress import Progress
from earvoice.client.event import GoAway, SegmentDone


def show(duration_ms, *, enabled=True):
    """Return what a segment that ends at 2 s writes."""
    output = io.StringIO()
    progress = Progress(output, "a", duration_ms, enabled=enabled)
    progress.write(GoAway(b"", 0))
    progress.write(SegmentDone(0, 1, 2000.0, 1.0, 0.0, 0, 0))
    progress.close()
    return output.getvalue()


def test_it_counts_and_is_erased():
    """With the share when the length is known."""
    assert show(8000.0).startswith("\ra: 2.0 s of 8.0 s (25%)\r  ")
    assert show(None).startswith("\ra: 2.0 s\r")
    assert show(8000.0).endswith(" \r")


def test_it_is_silent_when_nobody_looks():
    """Logs and pipes get no control characters."""
    assert show(8000.0, enabled=False) == ""
