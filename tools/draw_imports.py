"""Draw which module of a folder imports which, as an SVG: `python3 tools/draw_imports.py FILE.svg`.

Modules are boxes in their package's frame, as tall as they are long; an arrow goes from a module to
one that it imports. `--ref COMMIT` draws the files of a commit. Graphviz's `dot` lays it out.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
from collections import defaultdict
from pathlib import Path

from measure_house import python_files, read_file

LINES_PER_INCH = 500
HUES = ("#dbe9f6", "#e3f1dc", "#fbe6d4", "#ece2f0", "#fdf3c7", "#f7dbe3", "#ddeeee", "#eeeeee")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("svg", type=Path)
    parser.add_argument("--folder", default="services/earvoice", help="default: %(default)s")
    parser.add_argument("--ref", help="a commit to draw instead of the working tree")
    arguments = parser.parse_args()
    texts = {
        name: read_file(name, arguments.ref)
        for name in python_files(arguments.ref)
        if name.startswith(f"{arguments.folder}/") and not name.endswith("__init__.py")
    }
    lines = {_module(name): text.count("\n") for name, text in texts.items()}
    arrows = {
        (_module(name), imported)
        for name, text in texts.items()
        for imported in _imports(text, lines)
        if imported != _module(name)
    }
    drawing = _dot(lines, sorted(arrows))
    command = ["dot", "-Tsvg", "-o", str(arguments.svg)]
    subprocess.run(command, check=True, input=drawing, text=True)
    print(f"{arguments.svg}: {len(lines)} modules, {len(arrows)} arrows")


def _module(name: str) -> str:
    return name.removesuffix(".py").split("/", 1)[1].replace("/", ".")


def _imports(text: str, known: dict[str, int]) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names & known.keys()


def _dot(lines: dict[str, int], arrows: list[tuple[str, str]]) -> str:
    packages: dict[str, list[str]] = defaultdict(list)
    for module in sorted(lines):
        packages[module.rsplit(".", 1)[0]].append(module)
    rows = [
        "digraph imports {",
        'rankdir=LR; splines=line; ranksep=0.9; nodesep=0.08; fontname="Helvetica";',
        'node [shape=box, style="filled", fontname="Helvetica", fontsize=11, color="#777777"];',
        'edge [color="#33333344", arrowsize=0.5];',
    ]
    for number, (package, modules) in enumerate(sorted(packages.items())):
        fill = HUES[number % len(HUES)]
        rows.append(f'subgraph "cluster_{package}" {{ label="{package}"; color="#bbbbbb";')
        for module in modules:
            height = max(0.25, lines[module] / LINES_PER_INCH)
            label = module.rsplit(".", 1)[1]
            rows.append(f'"{module}" [label="{label}", height={height:.2f}, fillcolor="{fill}"];')
        rows.append("}")
    rows += [f'"{start}" -> "{end}";' for start, end in arrows]
    return "\n".join([*rows, "}"])


if __name__ == "__main__":
    main()
