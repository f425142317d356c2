"""Every draft length on one request, timed on the machine that serves the page."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from pipeline.decoding.events import FinishReason
from pipeline.request import Request
from pipeline.trace.record import Lane
from ui.plots.figure import Figure, Json, axes, bar_style, milliseconds
from ui.plots.plot import Plot
from ui.plots.table import Table
from ui.run.stream import Stream
from ui.run.turn import Turn
from ui.tabs.acceptance import LENGTHS as FIXED
from ui.tabs.tab import Tab

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly

REPEATS = 3
Length = int | Literal["auto"]
LENGTHS: tuple[Length, ...] = (*FIXED, "auto")  # 0 is autoregression


class Sweep:
    """Answers the request with each draft length, `REPEATS` times, in an order that turns with each
    repeat: what slows the machine for a while slows no length more than the others.

    Args:
        dolly, request: what to answer; its own draft length does not matter.
        turn: held by one answer at a time.
    """

    def __init__(self, dolly: Dolly, request: Request, turn: Turn) -> None:
        self.failure: Exception | None = None
        self.ended = False
        self._dolly, self._request, self._turn = dolly, request, turn
        self._lanes: dict[Length, list[Lane]] = {length: [] for length in LENGTHS}
        self._stream: Stream | None = None
        self._id = ""

    def __iter__(self) -> Iterator[None]:
        """Beats while it measures. Closing it cancels the answer under way.

        Raises:
            UserError: the prompt does not fit.
        """
        try:
            for repeat in range(REPEATS):
                for length in (*LENGTHS[3 * repeat :], *LENGTHS[: 3 * repeat]):
                    mode: Mode = "speculative" if length else "autoregressive"
                    request = replace(self._request, draft_length=length or 1)
                    run = self._dolly.start(request, mode)
                    with Stream(run, self._turn) as self._stream:
                        yield from self._stream.beats()
                    self.failure = self._stream.failure
                    trace = run.trace()
                    (lane,) = trace.lanes.values()
                    if self.failure or lane.finish is FinishReason.CANCELLED:
                        return
                    self._lanes[length].append(lane)
                    self._id = self._id or trace.created
        finally:
            self.ended = True

    def stop(self) -> None:
        """Cancels the answer under way and waits for its end."""
        if self._stream:
            self._stream.stop()
        self.ended = True  # its iteration may not have been closed yet

    @property
    def answers(self) -> int:
        """So many have been measured."""
        return sum(map(len, self._lanes.values()))

    @property
    def complete(self) -> bool:
        """Whether every length has been measured as often as it is to be."""
        return self.answers == REPEATS * len(LENGTHS)

    @property
    def figure(self) -> Figure:
        """Milliseconds a token by draft length, of what has been measured so far."""
        times = self._times()
        middle = {length: statistics.median(taken) for length, taken in times.items()}
        best = min(middle, key=middle.__getitem__, default=None)
        others = [length for length in middle if length != best]
        data: list[Json] = [
            {
                "type": "bar",
                "x": [_name(length) for length in lengths],
                "y": [middle[length] for length in lengths],
                "name": name,
                "text": [f"{middle[length]:.2f}" for length in lengths],
                "textposition": "inside",
                "insidetextanchor": "start",
                "textangle": 0,
                "textfont": {"color": "var(--ink)"},
                "marker": marker,
                "error_y": {
                    "type": "data",
                    "array": [max(times[length]) - middle[length] for length in lengths],
                    "arrayminus": [middle[length] - min(times[length]) for length in lengths],
                    "color": "var(--ink)",
                    "thickness": 1,
                },
                "hovertemplate": "%{x}<br>%{y:.2f} ms a token<extra></extra>",
            }
            for name, lengths, marker in (
                (
                    "fastest",
                    [] if best is None else [best],
                    bar_style("--accepted", "/", "--accepted-edge"),
                ),
                ("the others", others, bar_style("--soft", "", "--mute")),
            )
        ]
        layout = axes(
            self._id,
            "draft length K",
            "milliseconds a token",
            bargap=0.35,
            uniformtext={"minsize": 9, "mode": "hide"},  # on a narrow page there is no room
            xaxis={"type": "category", "categoryarray": [_name(length) for length in LENGTHS]},
        )
        if 0 in middle:
            across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": middle[0]}
            line = {"color": "var(--mute)", "width": 1, "dash": "dash"}
            layout["shapes"] = [across | {"y1": middle[0], "line": line}]
        return Figure(data, layout, self._table, self._note(middle))

    def _times(self) -> dict[Length, list[float]]:
        """Milliseconds a token of each answer."""
        times = {
            length: [
                milliseconds(lane.seconds_per_token) for lane in lanes if lane.seconds_per_token
            ]
            for length, lanes in self._lanes.items()
        }
        return {length: taken for length, taken in times.items() if taken}

    def _table(self) -> Table:
        times = self._times()
        slow = statistics.median(times[0]) if 0 in times else None
        rows = []
        for length, taken in times.items():
            lane, middle = self._lanes[length][-1], statistics.median(taken)
            rows.append(
                [
                    _name(length),
                    f"{middle:.3f}",
                    f"{min(taken):.3f}",
                    f"{max(taken):.3f}",
                    f"{slow / middle:.2f}" if slow else "",
                    "" if lane.acceptance_rate is None else f"{lane.acceptance_rate:.3f}",
                    "" if lane.block_efficiency is None else f"{lane.block_efficiency:.2f}",
                ]
            )
        columns = ("K", "Median ms a token", "Fastest", "Slowest", "Times autoregression")
        return Table((*columns, "Accepted of tested", "Tokens a target run"), rows)

    def _note(self, middle: dict[Length, float]) -> str:
        done, whole = self.answers, REPEATS * len(LENGTHS)
        if not self.ended:
            return f"Measuring: {done} of {whole} answers."
        if not middle or 0 not in middle:
            return f"Stopped after {done} of {whole} answers: not enough to compare."
        fixed = min((length for length in middle if length != "auto"), key=middle.__getitem__)
        said = f"Fastest with a fixed length: {_said(fixed)}, {middle[0] / middle[fixed]:.2f}×."
        if "auto" in middle:
            said += f" Chosen while decoding (auto): {middle[0] / middle['auto']:.2f}×."
        said += " Medians of answers in turns; whiskers reach from the fastest to the slowest."
        return said if self.complete else f"{said} Stopped after {done} of {whole} answers."


def _name(length: Length) -> str:
    return "none" if length == 0 else str(length)


def _said(length: Length) -> str:
    return f"K = {length}" if length else "none, so autoregression"


def _figure(sweep: Sweep) -> Figure:
    return sweep.figure


TAB = Tab(
    name="lengths",
    title="Draft lengths",
    plots=(
        Plot(
            name="lengths",
            heading="Milliseconds a token by draft length",
            sentence="Answers what the form asks with every draft length, three times each, on the "
            "machine that serves this page. The dashed line is autoregression.",
            draw=_figure,
        ),
    ),
)
