"""What the page says of one checkpoint, in tables."""

from __future__ import annotations

from collections.abc import Sequence

from earvoice.claims.curve import Curve
from earvoice.claims.experiment import Experiment
from earvoice.claims.family import FAMILIES
from earvoice.claims.lag_study import LagFollower, study_lags
from earvoice.claims.plan import LAG_HELD, OFFLINE
from earvoice.claims.setting_table import POINT_HEADER, describe_point
from earvoice.claims.table import MISSING, number, table, with_interval
from earvoice.evaluation.resampling import estimate

LATENCIES_MS = (1000, 1500, 2000, 3000)


def describe_latencies(experiment: Experiment) -> list[str]:
    """Return BLEU of each policy at given latencies."""
    rows = []
    for name, settings in FAMILIES.items():
        curve = experiment.curve(settings)
        if curve is not None:
            low, high = (value / 1000 for value in curve.range_ms)
            cells = [_bleu_at(curve, latency_ms) for latency_ms in LATENCIES_MS]
            rows.append((name, f"{low:.2f} to {high:.2f}", *cells))
    columns = [f"{latency_ms / 1000:g} s" for latency_ms in LATENCIES_MS]
    return [
        f"### BLEU at a LAAL: {experiment.label}",
        "",
        *table(("policy", "LAAL, s", *columns), rows),
    ]


def describe_points(experiment: Experiment) -> list[str]:
    """Return every policy's settings."""
    known = [
        (name, setting)
        for name, settings in {**FAMILIES, "offline": OFFLINE}.items()
        for setting in settings
        if experiment.has(setting)
    ]
    rows = [describe_point(experiment, setting, name) for name, setting in known]
    lines = [f"### Settings: {experiment.label}", "", *table(POINT_HEADER, rows)]
    left_out = [
        name for name, settings in FAMILIES.items() if not any(map(experiment.has, settings))
    ]
    return [*lines, "", f"Not run: {'; '.join(left_out)}."] if left_out else lines


def describe_held(experiment: Experiment) -> list[str]:
    """Return the word lags that were asked for and those that came; nothing if none was."""
    rows = []
    for name, settings in LAG_HELD.items():
        for setting in filter(experiment.has, settings):
            asked_ms = setting.target_lag_ms or 0
            held_ms = experiment.attended_lag_ms(setting)
            rows.append(
                (
                    name,
                    str(asked_ms),
                    with_interval(estimate(held_ms), "ms"),
                    f"{100 * (held_ms[0] / asked_ms - 1):+.0f} %",
                    number(float(experiment.latency_ms(setting)[0]), 0),
                    with_interval(estimate(experiment.bleu(setting)), "BLEU"),
                )
            )
    header = ("policy", "asked for, ms", "held, ms", "off by", "LAAL, ms", "BLEU")
    return [f"### Held: {experiment.label}", "", *table(header, rows)] if rows else []


def describe_lags(experiment: Experiment) -> list[str]:
    """Return how closely each metric follows the true lag."""
    followers = study_lags(experiment)
    rows = [
        (
            follower.metric,
            with_interval(follower.over_settings, "rho"),
            number(follower.over_inputs, 2),
            with_interval(follower.mean_error_ms, "ms"),
        )
        for follower in followers
    ]
    header = ("metric", "over settings", "over inputs", "error, ms")
    lines = [f"### Followers: {experiment.label}", "", *table(header, rows)]
    return [*lines, "", _name_closest(followers)] if followers else lines


def _bleu_at(curve: Curve, latency_ms: float) -> str:
    if not curve.reaches(latency_ms):
        return MISSING
    return with_interval(estimate(curve.at(latency_ms)), "BLEU")


def _name_closest(followers: Sequence[LagFollower]) -> str:
    best = max(followers, key=lambda it: it.over_settings.value)
    as_good = [it.metric for it in followers if it.over_settings.high >= best.over_settings.low]
    inputs = max(followers, key=lambda it: it.over_inputs)
    error = min(followers, key=lambda it: it.mean_error_ms.value)
    return (
        f"Over settings it is followed best by {best.metric} (intervals that meet its own: "
        f"{', '.join(as_good)}), over inputs by {inputs.metric}; {error.metric} is closest in ms."
    )
