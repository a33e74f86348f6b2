"""Print the size of the house: modules, lines and classes of the product, and of all Python.

`python3 tools/measure_house.py [--ref COMMIT]` counts the files that git tracks now, or tracked at
a commit.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("services", "clients", "lab")
SMALL_LINES = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ref", help="a commit to measure instead of the working tree")
    ref = parser.parse_args().ref
    totals: Counter[str] = Counter()
    areas: dict[str, Counter[str]] = {}
    for name in python_files(ref):
        counts = _count(read_file(name, ref))
        totals["all lines"] += counts["lines"]
        if not name.startswith(PRODUCT):
            continue
        is_module = not name.endswith("__init__.py")
        counts["modules"] = int(is_module)
        counts["small modules"] = int(is_module and counts["lines"] <= SMALL_LINES)
        area = "/".join(name.split("/")[:3]).replace("/earvoice/", " ")
        areas.setdefault(area, Counter()).update(counts)
        totals.update({key: value for key, value in counts.items() if key != "lines"})
        totals["lines"] += counts["lines"]
    columns = ("modules", "lines", "classes", "one public method", "docstring lines")
    print(f"{'':28}" + "".join(f"{column:>18}" for column in columns))
    for area, counts in sorted(areas.items()):
        print(f"{area:28}" + "".join(f"{counts[column]:>18,}" for column in columns))
    print(f"{'product':28}" + "".join(f"{totals[column]:>18,}" for column in columns))
    print(f"modules of at most {SMALL_LINES} lines: {totals['small modules']:,}")
    print(f"all Python, lines: {totals['all lines']:,}")


def python_files(ref: str | None) -> list[str]:
    command = ["git", "ls-tree", "-r", "--name-only", ref] if ref else ["git", "ls-files"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    found = (name for name in names.splitlines() if name.endswith(".py"))
    return [name for name in found if ref or (ROOT / name).exists()]


def read_file(name: str, ref: str | None) -> str:
    if ref is None:
        return (ROOT / name).read_text(encoding="utf8")
    command = ["git", "show", f"{ref}:{name}"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def _count(text: str) -> Counter[str]:
    counts = Counter({"lines": len(text.splitlines())})
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            functions = (ast.FunctionDef, ast.AsyncFunctionDef)
            methods = [child.name for child in node.body if isinstance(child, functions)]
            public = [name for name in methods if not name.startswith("_")]
            counts["classes"] += 1
            counts["one public method"] += len(public) == 1
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                counts["docstring lines"] += (first.end_lineno or 0) - first.lineno + 1
    return counts


if __name__ == "__main__":
    main()
