"""`python -m earvoice.systems SYSTEM`: train one of the papers' systems small, and print its rows.

The rows of the results page, as SYSTEM.tsv, and checkpoints for the services go to the work folder.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

import torch

from earvoice.cli.command import number_from
from earvoice.corpus.synthesizer import MissingEngineError
from earvoice.evaluation.script import run_script
from earvoice.runtime.settings import shipped_model_path

SYSTEMS = ("caat", "cascade", "han", "meta", "nguyen", "papi")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m earvoice.systems", description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--data", type=Path, required=True, help="texts and recordings")
    parser.add_argument("--work", type=Path, required=True, help="where rows and checkpoints go")
    parser.add_argument(
        "--model",
        type=Path,
        default=shipped_model_path(),
        help="whose encoder hears (the shipped model's)",
    )
    parser.add_argument(
        "--teacher",
        type=Path,
        help="papi: a text model of transformers, whose translations are learned beside ours",
    )
    parser.add_argument(
        "--teacher-languages",
        nargs=2,
        metavar=("SOURCE", "TARGET"),
        help="in its tokenizer's own codes, where it writes several languages",
    )
    parser.add_argument("--threads", type=number_from(1, 256, int), default=1)
    options = parser.parse_args()
    if options.teacher and options.system != "papi":
        parser.error("--teacher is for papi")
    if options.teacher_languages and not options.teacher:
        parser.error("--teacher-languages are a --teacher's")
    torch.set_num_threads(options.threads)
    import_module(f"earvoice.systems.{options.system}").run(options)


if __name__ == "__main__":
    run_script(main, MissingEngineError)
