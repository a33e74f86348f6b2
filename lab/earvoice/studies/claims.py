"""The papers' claims about decision policies, tested on a model's own logs.

Translations are judged by BLEU, captions by the percentage of words that are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import groupby, pairwise
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from earvoice.evaluation.bootstrap import Bootstrap, Estimate, Floats, estimate
from earvoice.evaluation.curves import CurvePoint, Measure, check_same_set, interpolate, read_point
from earvoice.evaluation.instance import Clock, primary_language
from earvoice.evaluation.log import LogError
from earvoice.evaluation.replay.setting import parse_settings
from earvoice.evaluation.run_folder import LOG_NAME
from earvoice.evaluation.score import ScoringOptions

SMALLEST_POINTS = 1.0
"""In BLEU, or in words per hundred; smaller differences are undecided."""
SMALLEST_LAG_MS = 100.0
SMALLEST_SHIFT_MS = 50.0
LARGEST_LOSS_POINTS = 0.5
PAPERS_SAVING = 0.3
"""Saving in overhead that EDAtt's authors found against LA-2; half of it is required."""
PAPERS_LAYER = 4 / 6
"""Papi 2023 took the fourth layer of six."""
LAMBDAS = (1, 2, 4)
LATENCIES_MS = (1000.0, 1500.0, 2000.0, 3000.0)
FOLLOWERS = ("AL", "LAAL", "YAAL", "DAL", "ATD")
FEWEST_SETTINGS = 10
STEPS = 41
"""Number of latencies at which the gap between two curves is measured."""
MISSING = "-"

AGREES, DISAGREES, UNDECIDED, NOT_TESTED = "agrees", "disagrees", "undecided", "not tested"

_ALPHAS = "edatt:alpha=0.6/0.4/0.2/0.1/0.03"
_FEW_ALPHAS = "edatt:alpha=0.4/0.1"
CURVES = {
    "EDAtt": (f"{_ALPHAS}@segment=800",),
    "AlignAtt": ("align_att:frames=1/4/8/16@segment=800",),
    "LA-2": ("local_agreement:n=2@segment=250/500/1000/2000",),
    "LA-2, first chunk 2 s": tuple(
        f"local_agreement:n=2@segment={chunk_ms},wait={2000 - chunk_ms}"
        for chunk_ms in (250, 500, 1000)
    ),
    "LA-3": ("local_agreement:n=3@segment=500/1000",),
    "LA-4": ("local_agreement:n=4@segment=500/1000",),
    # Hold-n releases early: only with long chunks is it as late as local agreement.
    "Hold-6": ("hold_n:n=6@segment=500/1000/2000/4000/8000",),
    "wait-k, adaptive": ("wait_k:k=3/7,detection=adaptive@segment=250",),
    "wait-k, fixed": ("wait_k:k=3/7/11,detection=fixed@segment=250",),
    "offline": ("offline@segment=2000",),
}
"""By their names in tables and figures; segments are multiples of 250 or 800 ms."""
_RELEASED = ",confidence=0.0"
"""Words are not held back for low confidence: the papers' policies do not do that."""
HELD = ("edatt", "align_att")


def families(layers: int, heads: int) -> dict[str, tuple[str, ...]]:
    """Return the names of all settings by family; families share some."""
    texts = dict(CURVES)
    texts["EDAtt, without drafts"] = (f"{_ALPHAS}@segment=800,drafts=false",)
    texts["LA-2, without drafts"] = (f"{CURVES['LA-2'][0]},drafts=false",)
    texts["last state dropped"] = (f"{_FEW_ALPHAS}@segment=800",)
    texts["last state kept"] = (f"{_FEW_ALPHAS}@segment=800,attention=with-the-last-state",)
    texts["mean of layers"] = (f"{_FEW_ALPHAS}@segment=800,attention=mean-over-layers",)
    for count in LAMBDAS:
        texts[f"lambda {count}"] = (f"{_FEW_ALPHAS},lambda_states={count}@segment=800",)
    for layer in range(1, layers + 1):
        texts[f"layer {layer}"] = (f"{_FEW_ALPHAS},attention_layer={layer}@segment=800",)
    for head in range(1, heads + 1):
        texts[f"head {head}"] = (f"{_FEW_ALPHAS},attention_heads={head}@segment=800",)
    for policy in HELD:
        texts[f"{policy}, lag held"] = (f"{policy}@segment=800,lag=1500/2000/3000",)
    return {
        family: tuple(s.name for text in own for s in parse_settings(f"{text}{_RELEASED}"))
        for family, own in texts.items()
    }


def shown_name(setting: str) -> str:
    return f"`{setting.removesuffix(_RELEASED)}`"


def shown(value: float | None, decimals: int) -> str:
    """Return a rounded number; a dash if it is unknown, never a negative zero."""
    if value is None or np.isnan(value):
        return MISSING
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def with_interval(number: Estimate, unit: str) -> str:
    decimals = {"BLEU": 1, "% right": 1, "ms": 0, "share": 3, "rho": 2}[unit]
    value, low, high = (shown(it, decimals) for it in (number.value, number.low, number.high))
    return value if MISSING in (value, low) else f"{value} [{low}, {high}]"


@dataclass(frozen=True)
class Finding:
    """One tested part of a claim; if it has no number, ``where`` says why."""

    text: str
    number: Estimate | None
    unit: str
    answer: str
    where: str = ""
    inputs_needed: int | None = None
    """How many inputs would decide it; None if it is decided, or if more would not help."""

    def __str__(self) -> str:
        if self.number is None:
            return f"{self.answer} {self.where or '(not run)'}"
        where = f" {self.where}" if self.where else ""
        unit = "" if self.unit == "rho" else f" {self.unit}"
        needed = f", {self.inputs_needed:,} inputs needed" if self.inputs_needed else ""
        return f"{with_interval(self.number, self.unit)}{unit}{where}: {self.answer}{needed}"


def above(number: Estimate, least: float = SMALLEST_POINTS) -> str:
    """Answer "this is above 0": the value is at least ``least`` and the interval excludes 0.

    The same below 0 disagrees; anything else is undecided.
    """
    if number.value >= least and number.low > 0:
        return AGREES
    return DISAGREES if number.value <= -least and number.high < 0 else UNDECIDED


def equal(number: Estimate, margin: float = SMALLEST_POINTS) -> str:
    """Answer "this is 0, give or take the margin": the interval must lie within.

    It disagrees when the value is outside the margin and the interval excludes 0.
    """
    if -margin <= number.low and number.high <= margin:
        return AGREES
    outside = abs(number.value) >= margin and not number.low <= 0 <= number.high
    return DISAGREES if outside else UNDECIDED


def at_most(number: Estimate, border: float) -> str:
    """Answer "this is not above a border": the interval must lie on one side."""
    if number.high <= border:
        return AGREES
    return DISAGREES if number.low > border else UNDECIDED


def together(answers: Sequence[str]) -> str:
    """Answer a claim of several parts: it agrees if all do, and disagrees if any does.

    Untested parts leave the claim undecided, or untested if there are no others.
    """
    if set(answers) <= {NOT_TESTED}:
        return NOT_TESTED
    if DISAGREES in answers:
        return DISAGREES
    return AGREES if set(answers) == {AGREES} else UNDECIDED


def inputs_needed(number: Estimate, least: float, inputs: int) -> int | None:
    """Return how many inputs shrink an interval to ``least`` on either side, to two digits.

    It shrinks with the square root of their number. None if it is that short already.
    """
    times = ((number.high - number.low) / 2 / least) ** 2 if least else 0.0
    if not times > 1:
        return None
    step: int = 10 ** max(0, len(str(int(times * inputs))) - 2)
    return ceil(times * inputs / step) * step


@dataclass(frozen=True)
class Study:
    """A model's results on one test set: points by setting, names of settings by family."""

    points: dict[str, CurvePoint]
    families: dict[str, tuple[str, ...]]
    name: str = ""
    measure: Measure = "BLEU"
    _cache: dict[tuple[str, str, str], Floats] = field(default_factory=dict, repr=False)

    @cached_property
    def first(self) -> CurvePoint:
        return next(iter(self.points.values()))

    @property
    def title(self) -> str:
        return f"{self.name}, {self.first.language}" if self.name else self.first.language

    @cached_property
    def bootstrap(self) -> Bootstrap:
        return Bootstrap(len(self.first.instances))

    def family(self, name: str) -> list[CurvePoint]:
        return [self.points[name] for name in self.families.get(name, ()) if name in self.points]

    def quality(self, point: CurvePoint) -> Floats:
        """Return quality in every draw, [R + 1]."""
        key = (point.name, self.measure, "")
        if key not in self._cache:
            self._cache[key] = point.quality(self.bootstrap, self.measure)
        return self._cache[key]

    def lag_ms(self, point: CurvePoint, metric: str = "LAAL", clock: Clock = "ideal") -> Floats:
        """Return a latency in every draw, [R + 1]."""
        key = (point.name, metric, clock)
        if key not in self._cache:
            self._cache[key] = self.bootstrap.mean(point.values(metric, clock))
        return self._cache[key]

    def curve(
        self, name: str, metric: str, clock: Clock = "ideal", *, of_overhead: bool = False
    ) -> tuple[Floats, Floats] | None:
        """Return latency and quality (or overhead on ``simuleval``) of a family, each [P, R + 1].

        None where fewer than 2 of its settings were run.
        """
        points = self.family(name)
        if len(points) < 2:  # noqa: PLR2004 - one point is no curve
            return None
        values = [
            self.lag_ms(point, "overhead", "simuleval") if of_overhead else self.quality(point)
            for point in points
        ]
        return np.stack([self.lag_ms(point, metric, clock) for point in points]), np.stack(values)

    @cached_property
    def distinct(self) -> list[CurvePoint]:
        """The points, without repeats that released the same words at the same times.

        A parameter's default may be among its studied values; drafts change only computation.
        """
        told = {
            tuple((instance.prediction, instance.delays_ms) for instance in point.instances): point
            for point in reversed(self.points.values())
        }
        return list(told.values())[::-1]

    def gain(
        self,
        first: str,
        second: str,
        metric: str = "LAAL",
        clock: Clock = "ideal",
        part: tuple[float, float] = (0.0, 1.0),
        ask: Callable[[Estimate, float], str] = above,
        text: str = "",
    ) -> Finding:
        """Judge the quality of the first curve minus the second, on a part of the common range."""
        axis = metric if clock == "ideal" else f"{metric} on `{clock}`"
        half = {(0.0, 0.5): ", lower half", (0.5, 1.0): ", upper half"}.get(part, "")
        text = f"{text or f'{first} minus {second}'}{half}, at equal {axis}"
        curves = self.curve(first, metric, clock), self.curve(second, metric, clock)
        if curves[0] is None or curves[1] is None:
            return Finding(text, None, "", NOT_TESTED)
        found = mean_values(curves[0], curves[1], part)
        if found is None:
            return Finding(text, None, "", NOT_TESTED, "(no latency in common)")
        means, where = found
        number = estimate(means[0] - means[1])
        answer = ask(number, SMALLEST_POINTS)
        return self.finding(text, number, self.measure, answer, SMALLEST_POINTS, where)

    def change(
        self,
        text: str,
        first: Sequence[str],
        second: Sequence[str],
        metric: str,
        ask: Callable[[Estimate, float], str],
        least: float = SMALLEST_POINTS,
    ) -> Finding:
        """Judge the mean difference in quality or latency of settings and their counterparts.

        Args:
            metric: a latency metric; empty for quality.
            least: how large a difference must be to count.
        """
        if not all(name in self.points for name in (*first, *second)):
            return Finding(text, None, "", NOT_TESTED)
        pairs = [[self.points[name] for name in pair] for pair in zip(first, second, strict=True)]
        of = partial(self.lag_ms, metric=metric) if metric else self.quality
        number = estimate(np.mean([of(one) - of(other) for one, other in pairs], axis=0))
        unit = "ms" if metric else self.measure
        return self.finding(text, number, unit, ask(number, least), least)

    def finding(
        self, text: str, number: Estimate, unit: str, answer: str, least: float, where: str = ""
    ) -> Finding:
        needed = inputs_needed(number, least, len(self.first.instances))
        return Finding(text, number, unit, answer, where, needed if answer == UNDECIDED else None)


def mean_values(
    first: tuple[Floats, Floats], second: tuple[Floats, Floats], part: tuple[float, float]
) -> tuple[tuple[Floats, Floats], str] | None:
    """Return each curve's mean value over a part of the latencies common to both, [R + 1]."""
    low = max(lags_ms[:, 0].min() for lags_ms, _ in (first, second))
    high = min(lags_ms[:, 0].max() for lags_ms, _ in (first, second))
    if low >= high:
        return None
    low, high = low + part[0] * (high - low), low + part[1] * (high - low)
    wanted_ms = np.linspace(low, high, STEPS)
    values = [interpolate(*curve, wanted_ms) for curve in (first, second)]
    known = ~np.isnan(values[0] + values[1])
    counts = known.sum(1)
    with np.errstate(invalid="ignore"):
        means = [np.where(known, value, 0.0).sum(1) / counts for value in values]
    return (means[0], means[1]), f"over {low / 1000:.1f} to {high / 1000:.1f} s"


def _gains(*comparisons: tuple[Any, ...]) -> Callable[[Study], list[Finding]]:
    return lambda study: [study.gain(*comparison) for comparison in comparisons]


def judge_chunk_size(study: Study) -> list[Finding]:
    smallest, _, middle, largest = study.families["LA-2"]
    lag = "LAAL of LA-2 at 2000 ms minus at 250 ms"
    return [
        study.change("LA-2 at 1000 ms minus at 250 ms", [middle], [smallest], "", above),
        study.change(lag, [largest], [smallest], "LAAL", above, SMALLEST_LAG_MS),
    ]


def judge_depth(study: Study) -> list[Finding]:
    pairs = (("LA-3", "LA-2"), ("LA-4", "LA-2"), ("LA-4", "LA-3"))
    return [study.gain(*pair, ask=equal) for pair in pairs]


def judge_initial_wait(study: Study) -> list[Finding]:
    findings = []
    pairs = zip(study.families["LA-2"], study.families["LA-2, first chunk 2 s"], strict=False)
    for plain, waited in pairs:
        text = f"{shown_name(plain)} with a first chunk of 2 s minus without"
        findings += [
            study.change(text, [waited], [plain], "", equal),
            study.change(f"{text}: AL", [waited], [plain], "AL", above, SMALLEST_LAG_MS),
        ]
    return findings


def judge_over_generation(study: Study) -> list[Finding]:
    points = list(study.points.values())
    als_ms = np.concatenate([point.values("AL", "ideal") for point in points])
    laals_ms = np.concatenate([point.values("LAAL", "ideal") for point in points])
    longer = np.array(
        [one.unit_count > one.target_units for point in points for one in point.instances]
    )
    gap_ms = float(np.nanmin(laals_ms - als_ms))
    negative = als_ms < 0
    count, over = int(negative.sum()), int((negative & longer).sum())
    text = "of translated inputs with AL below 0, the share that is longer than the reference"
    share = over / count if count else 0.0
    return [
        Finding(
            "lowest LAAL minus AL",
            Estimate(gap_ms, gap_ms, gap_ms),
            "ms",
            AGREES if gap_ms >= 0 else DISAGREES,
            f"over {np.isfinite(laals_ms).sum()} translated inputs",
        ),
        Finding(
            text,
            Estimate(share, share, share),
            "share",
            AGREES if share > 0.5 else DISAGREES,  # noqa: PLR2004 - most of them
            f"of {count}",
        )
        if count
        else Finding(text, None, "", UNDECIDED, "(there are none)"),
    ]


def judge_agreement(study: Study) -> list[Finding]:
    findings = [study.gain("EDAtt", "LA-2", "AL"), study.gain("EDAtt", "LA-2", "AL", "simuleval")]
    for drafts in ("", ", without drafts"):
        text = f"overhead that EDAtt saves of LA-2's{drafts or ', with drafts'}, at equal AL"
        names = f"EDAtt{drafts}", f"LA-2{drafts}"
        curves = [study.curve(name, "AL", of_overhead=True) for name in names]
        found = mean_values(curves[0], curves[1], (0, 1)) if curves[0] and curves[1] else None
        if found is None:
            findings.append(Finding(text, None, "", NOT_TESTED))
            continue
        (ours, theirs), where = found
        saved = estimate(1 - ours / theirs)
        least = PAPERS_SAVING / 2
        answer = at_most(Estimate(-saved.value, -saved.high, -saved.low), -least)
        findings.append(study.finding(text, saved, "share", answer, least, where))
    return findings


def judge_lambda(study: Study) -> list[Finding]:
    findings = []
    for small, large in pairwise(LAMBDAS):
        names = f"lambda {large}", f"lambda {small}"
        text = f"LAAL of lambda {large} minus lambda {small} at the same alphas"
        settings = study.families[names[0]], study.families[names[1]]
        findings += [
            study.change(text, *settings, "LAAL", above, SMALLEST_SHIFT_MS),
            study.gain(*names, ask=_no_better),
        ]
    return findings


def _no_better(number: Estimate, least: float) -> str:
    if number.high < least:
        return AGREES
    return DISAGREES if above(number, least) == AGREES else UNDECIDED


def judge_layers(study: Study) -> list[Finding]:
    layers = sum(name.startswith("layer ") for name in study.families)
    middle, last = f"layer {round(layers * PAPERS_LAYER)}", f"layer {layers}"
    text = "LAAL of the last layer minus that of the middle one, largest alpha"
    slow, fast = study.families[last][:1], study.families[middle][:1]
    return [
        study.gain(middle, "layer 1", text="middle layer minus first"),
        study.gain(middle, last, text="middle layer minus last"),
        study.gain(middle, "mean of layers", text="middle layer minus mean of layers"),
        study.change(text, slow, fast, "LAAL", above, SMALLEST_SHIFT_MS),
    ]


def judge_heads(study: Study) -> list[Finding]:
    mean = "last state dropped"
    heads = [name for name in study.families if name.startswith("head ")]
    return [study.gain(mean, head, text=f"mean of heads minus {head}") for head in heads]


def judge_ceiling(study: Study) -> list[Finding]:
    offline = study.families["offline"]
    return [
        study.change(
            f"offline minus {shown_name(slow)}", offline, [slow], "", at_most, LARGEST_LOSS_POINTS
        )
        for slow in (study.families["LA-2"][-1], study.families["EDAtt"][-1])
    ]


def judge_differentiable(study: Study) -> list[Finding]:
    points = study.distinct
    texts = {
        name: f"rank correlation of words a release with (rank by DAL minus rank by {name})"
        for name in ("AL", "LAAL")
    }
    if len(points) < FEWEST_SETTINGS:
        return [Finding(text, None, "", NOT_TESTED, "(too few)") for text in texts.values()]
    words = np.stack([_words_at_once(study, point) for point in points], axis=-1)
    ranks = {name: mean_ranks(lags_ms(study, points, name)) for name in ("DAL", "AL", "LAAL")}
    findings = []
    for name, text in texts.items():
        rho = estimate(rank_correlation(words, ranks["DAL"] - ranks[name]))
        answer = above(rho, least=0.0)
        findings.append(Finding(text, rho, "rho", answer, f"over {len(points)} settings"))
    return findings


def _words_at_once(study: Study, point: CurvePoint) -> Floats:
    words = np.array([instance.unit_count for instance in point.instances], np.float64)
    releases = [len(list(groupby(instance.delays_ms))) for instance in point.instances]
    return study.bootstrap.ratio(words, np.array(releases, np.float64))


def lags_ms(study: Study, points: Iterable[CurvePoint], metric: str) -> Floats:
    return np.stack([study.lag_ms(point, metric) for point in points], axis=-1)


def rank_correlation(first: Floats, second: Floats) -> Floats:
    """Return Spearman's correlation over the last axis [..., P] → [...]; nan for a constant."""
    centred = [ranks - ranks.mean(-1, keepdims=True) for ranks in map(mean_ranks, (first, second))]
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Floats = (centred[0] * centred[1]).sum(-1) / np.sqrt(
            (centred[0] ** 2).sum(-1) * (centred[1] ** 2).sum(-1)
        )
    return correlation


def mean_ranks(values: Floats) -> Floats:
    """Return ranks from 0 over the last axis; ties share their mean rank."""
    rows = values.reshape(-1, values.shape[-1])
    ranks = np.empty_like(rows)
    for place, row in enumerate(rows):
        ordered = np.sort(row)
        below = np.searchsorted(ordered, row, "left")
        ranks[place] = (below + np.searchsorted(ordered, row, "right") - 1) / 2
    return ranks.reshape(values.shape)


@dataclass(frozen=True)
class Claim:
    """A claim of a paper; ``rule`` says when the answer is "agrees"."""

    statement: str
    source: str
    rule: str
    judge: Callable[[Study], list[Finding]]


_HIGHER = "at least 1 point higher, and 0 outside the interval"
_EQUAL = "the interval lies within 1 point of 0"

CLAIMS = (
    Claim(
        "The chunk size rules LA-2: 250 ms is far below 1000 ms.",
        "Polák 2022",
        f"quality {_HIGHER}; LAAL rises by 100 ms or more",
        judge_chunk_size,
    ),
    Claim("LA-2, LA-3 and LA-4 lie on one curve.", "Polák 2022", _EQUAL, judge_depth),
    Claim("LA-2 is above Hold-6.", "Polák 2022", _HIGHER, _gains(("LA-2", "Hold-6"))),
    Claim(
        "A first chunk of 2 s brings little BLEU and more AL.",
        "Polák 2022",
        f"quality: {_EQUAL}; AL: 100 ms or more later",
        judge_initial_wait,
    ),
    Claim(
        "Over-generation makes AL negative; LAAL is never below AL.",
        "Papi 2022, Polák 2022",
        "LAAL ≥ AL without exception; AL is sometimes below 0, mostly where the output is too long",
        judge_over_generation,
    ),
    Claim(
        "EDAtt is above adaptive wait-k by 1 to 2.5 BLEU at equal AL and AL_CA.",
        "Papi 2023",
        _HIGHER,
        _gains(
            ("EDAtt", "wait-k, adaptive", "AL"),
            ("EDAtt", "wait-k, adaptive", "AL", "simuleval"),
            ("EDAtt", "wait-k, adaptive"),
        ),
    ),
    Claim(
        "EDAtt is above LA-2 at equal AL, with 30 % less overhead.",
        "Papi 2023",
        f"{_HIGHER}; at least half of the 30 % is saved",
        judge_agreement,
    ),
    Claim(
        "Dropping the last encoder state, on which attention piles up, matters.",
        "Papi 2023",
        _HIGHER,
        _gains(("last state dropped", "last state kept")),
    ),
    Claim(
        "A larger lambda moves the curve to the right and brings no quality.",
        "Papi 2023",
        "50 ms or more later at the same alphas; the quality interval is below 1 point",
        judge_lambda,
    ),
    Claim(
        "First layers are worse, the last is never fast, the middle is best, the mean is worse.",
        "Papi 2023",
        f"{_HIGHER}; the last layer's LAAL is 50 ms or more higher",
        judge_layers,
    ),
    Claim("The mean of the heads is above every head.", "Papi 2023", _HIGHER, judge_heads),
    Claim(
        "Fixed detection is better at low latency, adaptive at high.",
        "Papi 2022",
        f"in the lower and the upper half of the common LAAL range: {_HIGHER}",
        _gains(
            ("wait-k, fixed", "wait-k, adaptive", "LAAL", "ideal", (0.0, 0.5)),
            ("wait-k, adaptive", "wait-k, fixed", "LAAL", "ideal", (0.5, 1.0)),
        ),
    ),
    Claim(
        "At high latency online reaches offline.",
        "Polák 2022, Papi 2023",
        "the interval reaches at most 0.5 points below offline",
        judge_ceiling,
    ),
    Claim(
        "DAL ranks policies that release several words at once worse than AL and LAAL do.",
        "Papi 2023",
        "the correlation is above 0",
        judge_differentiable,
    ),
    Claim("AlignAtt is above EDAtt.", "Papi 2023b", _HIGHER, _gains(("AlignAtt", "EDAtt"))),
)


def read_study(
    folder: Path,
    layers: int,
    heads: int,
    options: ScoringOptions,
    name: str = "",
    source_language: str = "",
) -> Study:
    """Read the settings' results from a folder of replays.

    Args:
        source_language: outputs in this language are captions.
    """
    names = families(layers, heads)
    wanted = dict.fromkeys(name for own in names.values() for name in own)
    points = {
        name: read_point(folder / name, options)
        for name in wanted
        if (folder / name / LOG_NAME).exists()
    }
    if not points:
        raise LogError(str(folder), "holds none of the settings that are tested")
    check_same_set(list(points.values()))
    written = next(iter(points.values())).language
    is_captions = primary_language(written) == primary_language(source_language) != ""
    return Study(points, names, name, "% right" if is_captions else "BLEU")
