"""Where `CI=true`, whatever a test needs can be had: one skipped for want of it has failed."""

from __future__ import annotations

import os

import pytest

# What no set-up brings: data that is not ours to ship, and another kind of machine.
NOT_TO_BE_INSTALLED = (
    "EARVOICE_SHARED_DATA",
    "this machine has a GPU",
    "this machine has no GPU",
    "this system has no IPv6",
    "Linux's",
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Of a test."""
    del item, call
    return without_absence((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Of a module that skips itself."""
    del collector
    return without_absence((yield))


def without_absence(report):
    """The report; failed where it is skipped for something that can be installed."""
    if os.environ.get("CI") != "true" or not report.skipped or hasattr(report, "wasxfail"):
        return report
    *_, reason = report.longrepr
    if not any(words in reason for words in NOT_TO_BE_INSTALLED):
        report.outcome = "failed"
        report.longrepr = f"{reason}: with CI=true everything that can be installed must be there"
    return report
