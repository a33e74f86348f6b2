"""List everything that EarVoice needs at run time, with its licence: `make licences`.

Reads the installed packages. Exits with 1 if one does not state its licence.
"""

from __future__ import annotations

import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

# Everything that runs in production; not the development tools.
PRODUCT = "earvoice[policy,auth,gateway,encoder,decoder,hf,cli,lab]"
CLASSIFIER = "License :: "


def main() -> int:
    """Print a line a package; return the exit code."""
    packages = needed_by(PRODUCT)
    rows = [(item.name, item.version, licence_of(item)) for item in packages]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    for name, version, licence in rows:
        print(f"{name:{widths[0]}}  {version:{widths[1]}}  {licence or 'not said'}")
    unsaid = [name for name, _, licence in rows if not licence]
    if unsaid:
        print(f"these do not say their licence: {', '.join(unsaid)}", file=sys.stderr)
    return 1 if unsaid else 0


def needed_by(wanted: str) -> list[Distribution]:
    """Return the installed packages that a requirement needs, by name, without our own."""
    found: dict[str, Distribution] = {}
    seen: set[str] = set()
    left = [Requirement(wanted)]
    while left:
        requirement = left.pop()
        key = f"{canonicalize_name(requirement.name)}{sorted(requirement.extras)}"
        if key in seen:
            continue
        seen.add(key)
        try:
            item = distribution(requirement.name)
        except PackageNotFoundError:
            raise SystemExit(f"{requirement.name} is not installed: make setup") from None
        found[canonicalize_name(requirement.name)] = item
        extras = ["", *requirement.extras]
        for text in item.requires or ():
            needs = Requirement(text)
            if needs.marker is None or any(needs.marker.evaluate({"extra": e}) for e in extras):
                left.append(needs)
    del found["earvoice"]
    return [found[name] for name in sorted(found)]


def licence_of(item: Distribution) -> str:
    """Return what a package's metadata says: an SPDX expression, a name, or its classifiers."""
    metadata = item.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    told = [text for text in metadata.get_all("Classifier") or () if text.startswith(CLASSIFIER)]
    if told:
        return "; ".join(text.rpartition(" :: ")[2] for text in told)
    # Some packages put the whole licence text there.
    return (metadata.get("License") or "").strip().partition("\n")[0]


if __name__ == "__main__":
    sys.exit(main())
