"""Runs an experiment: `python -m lab NAME`; `--list` names all of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lab.registry import EXPERIMENTS, find_experiment
from lab.result import Result
from lab.saved import save, saved
from lab.study import Experiment, Setup
from lab.table import table
from pipeline.convert import show
from pipeline.errors import UserError
from pipeline.models.choice import Choice, add_arguments, chosen
from pipeline.models.pairs import find_pair
from pipeline.progress import Progress
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix."""
    parser = argparse.ArgumentParser(prog="python -m lab", description=__doc__)
    parser.add_argument("name", nargs="?", default="", help=", ".join(EXPERIMENTS))
    parser.add_argument("--list", action="store_true", help="list the experiments and exit")
    parser.add_argument("--repeats", type=int, default=0, help="of each measurement")
    parser.add_argument(
        "--also", action="append", default=[], metavar="PAIR", help="a further pair to compare"
    )
    add_arguments(parser)
    options = parser.parse_args(arguments)
    try:
        if options.list:
            _list()
            return 0
        experiment, choice = find_experiment(options.name), chosen(options)
        if options.repeats < 0:
            raise UserError("repeats", options.repeats, "choose 1 or more; 0 is the usual number")
        first = choice.pair.examples[0]
        request = Request(first.instruction, first.context, **choice.pair.settings)
        setup = Setup(
            choice=choice,
            request=request,
            load=_load,
            repeats=options.repeats,
            also=tuple(map(find_pair, options.also)),
        )
        result = _shown(experiment.measure(setup))
        table(
            [column.heading for column in experiment.columns],
            [
                [column.text(row.get(column.name)) for column in experiment.columns]
                for row in result.rows
            ],
        )
        print(f"\n{experiment.conclude(result.rows)}\n{save(experiment, result)}")
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _list() -> None:
    for experiment in EXPERIMENTS.values():
        print(f"{experiment.name}: {experiment.question}")
        print(f"    {experiment.takes}: {experiment.command}")
        if experiment.needs:
            print(f"    needs {experiment.needs}")
        print(f"    {_last(experiment)}\n")


def _last(experiment: Experiment) -> str:
    last = saved(experiment)
    return f"{last.sentence} ({last.badge})" if last else "no result yet"


def _load(choice: Choice) -> Dolly:
    from pipeline.dolly import Dolly

    return Dolly.of(choice)


def _shown(results: Iterator[Result]) -> Result:
    """Shows the progress; returns the last result."""
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

    show(progress())
    return latest


if __name__ == "__main__":
    sys.exit(main())
