"""Write the tables of `docs/policies.md` from the policies' declarations; `--check` only compares.

.venv/bin/python tools/document_policies.py
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path

from earvoice.policies import POLICIES
from earvoice.policies.registry import Policies
from earvoice.runtime.parameter import Parameter, format_value, parameters_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "policies.md"
MINUS = "\N{MINUS SIGN}"
_TABLE = re.compile(r"(<!-- parameters of (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def policies_page(page: str, policies: Policies = POLICIES) -> str:
    """Return the page with each policy's table as its parameters are declared now."""
    return _TABLE.sub(lambda found: f"{found[1]}{_table(policies[found[2]])}{found[3]}", page)


def _table(policy: type) -> str:
    lines = ["| parameter | range | default | meaning |", "|---|---|---|---|"]
    for declared in parameters_of(policy).values():
        if not declared.help:
            raise SystemExit(f"{policy.__name__}.{declared.name} has no help")
        cells = (f"`{declared.name}`", _range(declared), _default(declared), declared.help)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _range(declared: Parameter) -> str:
    if declared.choices:
        return ", ".join(f"`{choice}`" for choice in declared.choices)
    if declared.kind is bool:
        return ""
    bounds = {name: getattr(declared, name) for name in ("minimum", "maximum")}
    shown = {
        name: int(bound) if bound is not None and bound == int(bound) else bound
        for name, bound in bounds.items()
    }
    text = dataclasses.replace(declared, **shown).range.replace("-", MINUS)
    if "model_maximum" in declared.facts:
        _, counted, _ = declared.facts["model_maximum"].split("_")
        text = f"{shown['minimum']} to the model's {counted}s"
    once = ", each once" if declared.unique else ""
    return f"{text} {declared.unit}".rstrip() + once


def _default(declared: Parameter) -> str:
    if "default_text" in declared.facts:
        return str(declared.facts["default_text"])
    if "model" in declared.facts:
        return "model"
    if declared.facts.get("required"):
        return "required"
    value = declared.default
    if value is None:
        return ""
    return (
        f"`{value}`"
        if declared.choices
        else f"{value:g}"
        if type(value) is float
        else (format_value(value))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition(";")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if it is stale")
    checks = parser.parse_args().check
    now = PAGE.read_text(encoding="utf8")
    if now == policies_page(now):
        return 0
    if not checks:
        PAGE.write_text(policies_page(now), encoding="utf8")
        return 0
    print(f"{PAGE.relative_to(ROOT)} is stale: run tools/document_policies.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
