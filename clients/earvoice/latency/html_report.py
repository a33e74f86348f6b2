"""One page that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from earvoice.latency.report_record import record_of
from earvoice.latency.session_report import SessionReport

_SCRIPTS = ("drawing", "stage", "lag_band", "lag_curve", "waterfall", "slow_word", "page")


def html_report(reports: Sequence[SessionReport], problems: Sequence[str]) -> str:
    """Return the page.

    Args:
        reports: a session each; the page shows one at a time.
        problems: what was left out.
    """
    folder = files("earvoice.latency") / "page"
    text = (folder / "page.html").read_text(encoding="utf8")
    style = (folder / "page.css").read_text(encoding="utf8")
    script = "\n".join(
        (folder / f"{name}.js").read_text(encoding="utf8").strip() for name in _SCRIPTS
    )
    # "</" would end the element; in JSON the escaped form means the same.
    data = json.dumps(record_of(reports, problems), ensure_ascii=False).replace("</", "<\\/")
    parts = {"STYLE": style, "SCRIPT": script, "DATA": data}
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text
