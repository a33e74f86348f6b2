"""The policy that CONTRIBUTING shows, as one who reads it would write it."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

PAGE = Path(__file__).parents[1] / "CONTRIBUTING.md"


def shown_policy() -> str:
    section = PAGE.read_text(encoding="utf8").partition("## Adding a decision policy")[2]
    code = re.search(r"^   ```python\n(.*?)^   ```", section, re.DOTALL | re.MULTILINE)
    assert code is not None
    return textwrap.dedent(code[1])
