"""Runs a study: `python -m lab NAME`; `--list` names all of them, `NAME --help` its arguments."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.registry import STUDIES, find_study
from lab.result import Result
from lab.saved import save, saved
from lab.study import Setup, Study
from lab.table import table
from pipeline.convert import show
from pipeline.errors import UserError
from pipeline.models.choice import add_arguments, chosen
from pipeline.progress import Progress
from pipeline.request import Request

_LONGEST = 12  # values of a list that is printed


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix, 1 if what
    the study checks does not hold.
    """
    given = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help=", ".join(STUDIES))
    parser.add_argument("--list", action="store_true", help="list the studies and exit")
    parser.add_argument("--repeats", type=int, default=0, help="of each measurement")
    add_arguments(parser)
    named = STUDIES.get(given[0]) if given else None
    if named:
        named.arguments(parser)
    options = parser.parse_args(given)
    try:
        if options.list:
            _list()
            return 0
        study, choice = find_study(getattr(options, "study", options.name)), chosen(options)
        if options.repeats < 0:
            raise UserError("repeats", options.repeats, "choose 1 or more; 0 is the usual number")
        first = choice.pair.examples[0]
        request = Request(first.instruction, first.context, **choice.pair.settings)
        from pipeline.dolly import Dolly  # loads OpenVINO

        setup = Setup(
            choice=choice, request=request, load=Dolly.of, repeats=options.repeats, options=options
        )
        result, complete = _shown(study.measure(setup))
        _print(study, result)
        if not complete:
            print("interrupted, so not saved", file=sys.stderr)
            return 130
        print(f"\n{study.conclude(result.rows)}\n{save(study, result)}")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before the study began, or after it
        return 130
    return 0 if study.holds(result.rows) else 1


def _list() -> None:
    for study in STUDIES.values():
        print(f"{study.name}: {study.question}")
        print(f"    {study.takes}: {study.command}")
        if study.needs:
            print(f"    needs {study.needs}")
        last = saved(study.name)
        print(f"    {f'{last.sentence} ({last.badge})' if last else 'no result yet'}\n")


def _print(study: Study, result: Result) -> None:
    """The table, and the figures beside it."""
    table(
        [column.heading for column in study.columns],
        [[column.text(row.get(column.name)) for column in study.columns] for row in result.rows],
    )
    for name, value in _leaves(result.figures):
        print(f"{name}: {value}")


def _leaves(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Plain values by their path, but no long lists."""
    for key, value in figures.items():
        name = f"{before}, {key}" if before else key
        if isinstance(value, Mapping):
            yield from _leaves(value, name)
        elif not isinstance(value, list | tuple) or len(value) <= _LONGEST:
            yield name, value


def _shown(results: Iterator[Result]) -> tuple[Result, bool]:
    """Shows the progress; returns the last result, and whether nobody interrupted."""
    latest = Result()

    def progress() -> Iterator[Progress]:
        nonlocal latest
        before = None
        for latest in results:
            now = Progress(latest.doing)
            if latest.planned:
                now = Progress("measuring", latest.done, latest.planned)
            if now != before:
                yield now
            before = now

    try:
        show(progress())
    except KeyboardInterrupt:
        return latest, False
    return latest, True


if __name__ == "__main__":
    sys.exit(main())
