"""The page of `earvoice latency` in a real browser: light and dark, narrow and wide."""

import json
import re

import pytest

from earvoice.latency.rendering import html_report
from earvoice.latency.session_report import report_store
from earvoice.latency.span import TraceStore, spans_of_line
from tests.deploy.tool import node_package, output_of, program
from tests.integration.latency.sdk_span import session_spans
from tests.unit.latency.traced import line

CHECK = __file__.replace("test_page.py", "page_check.mjs")
# WCAG 2: for text of any size.
LEAST_CONTRAST = 7.0


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """What a reader meets in each of the four."""
    chromium, playwright = program("chromium"), node_package("playwright-core") / "index.mjs"
    store = TraceStore()
    store.take(spans_of_line(line(session_spans("seen"))))
    page = tmp_path_factory.mktemp("page") / "page.html"
    page.write_text(html_report(*report_store(store)), encoding="utf8")
    return json.loads(output_of(program("node"), CHECK, playwright, chromium, page))


@pytest.mark.timeout(300)
def test_nothing_goes_wrong_and_nothing_is_loaded(views):
    """No message on the console, no request but for the page itself."""
    assert [view["problems"] for view in views] == [[]] * 4


def test_it_fits_every_width(views):
    """Nobody scrolls sideways."""
    assert [view["overflow"] for view in views] == [0] * 4


def test_everything_is_drawn(views):
    """A dot for each word, a row for each segment, the stages that took time."""
    for view in views:
        assert (view["dots"], view["rows"], view["slowest"]) == (2, 2, 2)
        assert {"Audio wait", "Encoder computation", "Word lag"} <= set(view["stages"])
        assert "Encoder queue" not in view["stages"]
        assert len(view["figures"]) == 5
        assert view["figures"][0] == "0.35s"


def test_text_is_readable_in_light_and_dark(views):
    """Ink on page, by WCAG's contrast; and dark is dark."""
    for view in views:
        ink, page = luminance(view["ink"]), luminance(view["background"])
        assert (max(ink, page) + 0.05) / (min(ink, page) + 0.05) >= LEAST_CONTRAST
        assert (page < ink) == (view["colorScheme"] == "dark")


def luminance(colour: str) -> float:
    """Relative luminance of rgb(r, g, b), 0 to 1 (WCAG 2)."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
