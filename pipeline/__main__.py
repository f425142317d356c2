"""The race in a terminal: `python -m pipeline "instruction"`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from pipeline.convert import show
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Origin
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.environment import MemoryUse
from pipeline.errors import UserError
from pipeline.models.choice import LISTING_NOTE, Parser, add_arguments, chosen, listing
from pipeline.models.pairs import Pair
from pipeline.models.store import Store
from pipeline.progress import Progress
from pipeline.request import DEFAULTS, FORM_FIELDS, SETTINGS, Request
from pipeline.run import Run
from pipeline.trace.cost import figures
from pipeline.trace.metrics import more_cpu, not_compared, outcome
from pipeline.trace.record import Lane, Token, Trace
from pipeline.trace.signatures import signatures
from pipeline.words import counted, percent

_COLOURS = {  # blue, cyan, orange and magenta; underline and bold tell them apart without colour
    Origin.TARGET: "",
    Origin.ACCEPTED: "\033[4;34m",
    Origin.REMEMBERED: "\033[4;36m",
    Origin.RESAMPLED: "\033[1;33m",
    Origin.BONUS: "\033[3;35m",
}
_RESET = "\033[0m"
_OUTCOMES = {
    "win": "faster",
    "even": "— no difference here",
    "loss": "— speculation loses here",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix."""
    try:
        options = _parser().parse_args(arguments)
        if options.list_pairs:
            _list_pairs(Store(options.cache_dir))
            return 0
        if options.json and (Path(options.json).is_dir() or not Path(options.json).parent.is_dir()):
            raise UserError("json", options.json, "choose a file in a folder that exists")
        choice = chosen(options)
        request = _request(options, choice.pair)
        show(choice.obtain())
        _report(Progress("compiling"))
        dolly = Dolly.of(choice)
        run = dolly.start(request, options.mode)
        try:
            _show(run, options.mode, dolly.memory_uses)
        finally:  # what there is of an answer that failed or was interrupted, too
            if options.json:
                _write(Path(options.json), run.trace())
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m pipeline",
        description="Dolly answers an instruction autoregressively and speculatively.",
    )
    parser.add_argument("instruction", nargs="?", default="", help="what Dolly should do")
    parser.add_argument("--list-pairs", action="store_true", help="list the pairs and exit")
    parser.add_argument(
        "--mode", choices=get_args(Mode), default="race", help="sequential: one after the other"
    )
    add_arguments(parser)
    for name in FORM_FIELDS[1:]:
        _add_flag(parser, name)
    parser.add_argument("--json", metavar="FILE", help="write the trace to FILE")
    return parser


def _add_flag(parser: Parser, name: str) -> None:
    """Adds the flag of a request's field. One that is left out is not among the options."""
    setting, default = SETTINGS[name], DEFAULTS[name]
    choices = [each for each in setting.choices if each is not None]
    about, numbers = setting.help, setting.high is not None
    if numbers:
        about = about or " or ".join([f"{setting.low:g} to {setting.high:,}", *choices])
    elif choices:
        about = about or "; ".join(setting.choices.values())
    begins = "as the page" if setting.group == "drafting" else default
    parser.add_argument(
        f"--{name.replace('_', '-')}",
        type=partial(_number, kind=type(default)) if numbers else str,
        choices=None if numbers else choices or None,
        metavar=setting.name.split()[-1].upper() if numbers else None,
        default=argparse.SUPPRESS,
        help=about if begins in (None, "") else f"{about} (default: {begins})",
    )


def _number(text: str, kind: type[int] | type[float]) -> int | float | str:
    """A number, or else the text, which `Request` validates."""
    try:
        return kind(text)
    except ValueError:
        return text


def _request(options: argparse.Namespace, pair: Pair) -> Request:
    """What the flags ask for; of those that are left out, what the page begins with."""
    given = {name: value for name, value in vars(options).items() if name in FORM_FIELDS}
    return Request(**{**pair.settings, **given})


def _list_pairs(store: Store) -> None:
    rows = [*listing(store)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
    print(f"\n{LISTING_NOTE}")


def _show(run: Run, mode: Mode, memory: Callable[[], Iterable[MemoryUse]]) -> None:
    """Runs it, and prints each lane and the verdict, or as much as there is before an error.

    A terminal can stream one lane only: the speculative one, if it runs.
    """
    colour = sys.stdout.isatty()
    live = mode if mode == AUTOREGRESSIVE else SPECULATIVE
    print(_heading(live))
    try:
        for update in run:
            if isinstance(update, Progress):
                _report(update)
            elif update.lane == live:
                print("".join(_paint(t, colour) for t in update.tokens), end="", flush=True)
    finally:
        print()
        _summarise(run.trace(), mode, memory())


def _report(progress: Progress) -> None:
    """Shows progress in a terminal; a log does not need it."""
    if sys.stderr.isatty():
        show([progress])


def _summarise(trace: Trace, mode: Mode, memory: Iterable[MemoryUse]) -> None:
    """Prints the other lane's text, the figures of each lane and the verdict."""
    if mode in ("race", "sequential") and trace.autoregressive:
        print(f"\n{_heading('autoregressive')}\n{_safe(trace.autoregressive.text)}")
    print()
    for name, lane in trace.lanes.items():
        cost = figures([trace.costs[name]])
        print(f"{name:>14}  {_figures(name, lane)}{cost and f'; per token {cost}'}")
    missing = not_compared(trace)
    if trace.speedup and not missing:
        print(f"{'speedup':>14}  {trace.speedup:.2f}× {_OUTCOMES[outcome(trace.speedup)]}")
    elif len(trace.lanes) > 1:
        print(f"{'not compared':>14}  {missing}")
    if ratio := more_cpu(trace):
        print(f"{'CPU time':>14}  {ratio:.2f}× — speculation costs more")
    if trace.identical is not None:
        same = "identical text" if trace.identical else "TEXTS DIFFER"
        print(f"{'greedy':>14}  {same}, agreeing tokens: {trace.agreeing_tokens}")
    if trace.lossy and trace.speculative:
        print(f"{'lossy':>14}  typical acceptance: not the target's distribution")
    if trace.pair["note"]:
        print(f"{'note':>14}  {trace.pair['note']}")
    for found in signatures(trace, memory):
        print(f"{'warning':>14}  {found.title}: {found.finding}. {found.remedy}.")


def _heading(lane: str) -> str:
    return f"── {lane} " + "─" * (60 - len(lane))


def _figures(name: str, lane: Lane) -> str:
    parts = [counted(len(lane.tokens), "token"), f"prefill {lane.prefill_s * 1e3:.0f} ms"]
    if lane.tokens_per_second:
        parts.append(f"{lane.tokens_per_second:.1f} tok/s")
    if lane.acceptance_rate is not None and lane.block_efficiency is not None:
        parts.append(f"{percent(lane.acceptance_rate)} accepted ({lane.accepted} of {lane.tested})")
        parts.append(f"{lane.block_efficiency:.2f} tokens per target pass")
    if name == SPECULATIVE and lane.undrafted > 1:
        parts.append(f"nothing drafted in {lane.undrafted} of {len(lane.steps)} rounds")
    return ", ".join(parts)


def _paint(token: Token, colour: bool) -> str:
    start = _COLOURS[token.origin] if colour and token.text else ""
    return f"{start}{_safe(token.text)}{_RESET if start else ''}"


def _safe(text: str) -> str:
    """Model text without control characters, which a terminal would interpret."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def _write(path: Path, trace: Trace) -> None:
    try:
        path.write_text(trace.to_json(), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            "json", str(path), f"choose a file that can be written ({reason})"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
