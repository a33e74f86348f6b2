"""What ``earvoice score`` prints: for people, or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from earvoice.evaluation.corpus_score import CorpusScore, Mean
from earvoice.evaluation.quality import Quality
from earvoice.evaluation.text_unit import Unit

_DECIMALS = 4
_MISSING = "-"


@dataclass(frozen=True)
class Report:
    """Scores, and everything that one must know to compare them.

    Attributes:
        version: of this tool.
        path: the log.
        format_name: whose log it is.
        unit: what the metrics count.
        reference_rule: how references were counted.
        word_rule: when a word counts as released.
        score: latency.
        quality: BLEU and chrF; None without references, or if a note says why not.
        notes: what else a reader must know.
    """

    version: str
    path: str
    format_name: str
    unit: Unit
    reference_rule: str
    word_rule: str
    score: CorpusScore
    quality: Quality | None
    notes: tuple[str, ...]

    def as_json(self) -> str:
        """Return one JSON object, numbers unrounded."""
        return json.dumps({"tool": "earvoice score", **asdict(self)}, ensure_ascii=False, indent=2)

    def as_text(self) -> str:
        """Return lines for people, numbers rounded."""
        score = self.score
        silent = f"{score.silent_count} without output, which latency skips"
        facts = {
            "tool": f"earvoice score {self.version}",
            "log": f"{self.path} ({self.format_name})",
            "instances": f"{score.instance_count}, {silent}",
            "unit": f"{self.unit}; references: {self.reference_rule}",
            "released": self.word_rule,
            "yaal": f"skips instances without a unit before the end: {self._yaal_skips()}",
        }
        lines = [f"{name:10}{fact}" for name, fact in facts.items()]
        blocks = [lines, self._table(), self._quality_lines(), self._note_lines()]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _yaal_skips(self) -> str:
        spoken = self.score.instance_count - self.score.silent_count
        means = self.score.rows["YAAL"]
        return ", ".join(f"{spoken - mean.count} on {clock}" for clock, mean in means.items())

    def _table(self) -> list[str]:
        rows = [
            _row("AP (no unit)" if name == "AP" else name, map(_render, means.values()))
            for name, means in self.score.rows.items()
            if any(mean.count for mean in means.values())
        ]
        return [
            _row("mean, ms", self.score.clocks),
            *rows,
            f"{_row('RTF', [_number(self.score.real_time_factor)])}  (computation / audio)",
            f"{_row('length ratio', [_number(self.score.length_ratio)])}  (units / reference's)",
        ]

    def _quality_lines(self) -> list[str]:
        if self.quality is None:
            return []
        return [
            f"{'BLEU':20}{self.quality.bleu:14.{_DECIMALS}f}  {self.quality.bleu_signature}",
            f"{'chrF':20}{self.quality.chrf:14.{_DECIMALS}f}  {self.quality.chrf_signature}",
        ]

    def _note_lines(self) -> list[str]:
        return [f"note: {note}" for note in self.notes]


def _render(mean: Mean) -> str:
    return _number(mean.value)


def _number(value: float | None) -> str:
    return _MISSING if value is None else f"{value:.{_DECIMALS}f}"


def _row(name: str, cells: Iterable[str]) -> str:
    return f"{name:20}" + "".join(f"{cell:>14}" for cell in cells)
