"""What the page costs a race: the same race with and without it, alternately.

The browser runs on the same machine, so it competes with the models for the cores.
"""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from lab.answers import endless, turned
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE
from pipeline.request import Request
from pipeline.trace.record import Trace

if TYPE_CHECKING:
    from playwright.sync_api import CDPSession, Page

_REQUEST = Request(
    "Write a long story about a dog who finds a map.",
    max_new_tokens=256,
    temperature=1.0,
)
_ENDED = "document.querySelectorAll('.pane[data-end=length], .pane[data-end=stop]').length === 2"
_REST = 1.5  # seconds before each race, in which the page draws the plots of the last one
# The page draws the tokens of an update in one task, for which an observer is called once.
_COUNT = """() => {
    window.updates = 0;
    const count = () => window.updates++;
    const all = { childList: true, subtree: true };
    new MutationObserver(count).observe(document.querySelector(".panes"), all);
}"""
_REPEATS = 5


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from playwright.sync_api import sync_playwright

    from ui.page import Page as ServedPage
    from ui.run import activity
    from ui.run.loader import Loader

    activity.PERIOD = setup.options.period or activity.PERIOD
    dolly = endless((yield from setup.pair()))  # every race has the same number of tokens
    begun = []  # every run
    start = dolly.start

    def starting(*asked: Any) -> Any:
        begun.append(start(*asked))
        return begun[-1]

    dolly.start = starting  # type: ignore[assignment,method-assign]
    served = ServedPage(Loader(setup.choice, lambda _: dolly))
    asked = {name: value for name, value in asdict(_REQUEST).items() if value is not None}
    repeats = setup.repeats or _REPEATS
    figures = {"request": asdict(_REQUEST), "period": activity.PERIOD}
    result = Result(pair=dolly.about, figures=figures)
    loads: list[Mapping[str, float]] = []
    traces: dict[str, list[Trace]] = {"page": [], "alone": []}
    try:
        url = f"{served.serve()}?{urlencode(asked)}"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.goto(url)
            page.get_by_text("Ready", exact=True).wait_for()
            page.evaluate(_COUNT)
            metrics = page.context.new_cdp_session(page)
            metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
            for repeat in range(repeats + 1):  # the first of each is a warm-up
                for name in turned([*traces], repeat):
                    sleep(_REST)
                    if name == "page":
                        loads.append(_race(page, metrics))
                        traces[name].append(begun[-1].trace())
                    else:
                        traces[name].append(dolly.start(_REQUEST).finish())
                    if repeat:
                        result = replace(result.measured(), planned=2 * repeats)
                    else:
                        result = replace(result, doing="warming up")
                    yield result
            browser.close()
    finally:
        served.close()
    means = {name: median(load[name] for load in loads[1:]) for name in loads[0]}
    tokens = len(traces["alone"][0].lanes[SPECULATIVE].tokens)
    figures |= {"tokens": tokens, "page": means}
    measured = {name: races[1:] for name, races in traces.items()}
    yield replace(result, rows=tuple(_rows(measured)), figures=figures)


def _race(page: Page, metrics: CDPSession) -> Mapping[str, float]:
    """Runs a race in the page: its seconds, the CPU time of the page's main thread as a share of
    these, and the updates that were drawn per second.
    """
    page.evaluate("window.updates = 0")
    start, busy = perf_counter(), _busy(metrics)
    page.get_by_test_id("run").click()
    page.wait_for_function(f"window.updates > 2 && {_ENDED}", polling=200)
    seconds = perf_counter() - start
    updates = page.evaluate("window.updates")
    spent = (_busy(metrics) - busy) / seconds
    return {"seconds": seconds, "busy": spent, "updates": updates / seconds}


def _busy(metrics: CDPSession) -> float:
    """CPU seconds of the page's main thread so far. Wall-clock time would include waiting for the
    models, which use every core.
    """
    values = metrics.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in values if each["name"] == "TaskDuration")


def _rows(traces: Mapping[str, Sequence[Trace]]) -> Iterator[Row]:
    """In the page, alone, and the quartiles of the ratios, race by race."""
    page, alone = ([*map(_figures, races)] for races in traces.values())
    for name in page[0]:
        ratio = Spread.of([one[name] / other[name] for one, other in zip(page, alone, strict=True)])
        yield {
            "what": name,
            "page": median(each[name] for each in page),
            "alone": median(each[name] for each in alone),
            "ratio": ratio.median,
            "low": ratio.low,
            "high": ratio.high,
        }


def _figures(trace: Trace) -> dict[str, float]:
    found = {"speedup": trace.speedup or 0.0}
    for name in (AUTOREGRESSIVE, SPECULATIVE):
        lane = trace.lanes[name]
        found[f"{name}, ms per token"] = 1e3 * (lane.seconds_per_token or 0.0)
        found[f"{name}, prefill in ms"] = 1e3 * lane.prefill_s
    return found


def _conclude(rows: Rows) -> str:
    each = {str(row["what"]): row["ratio"] for row in rows}
    slow, fast = (each[f"{lane}, ms per token"] for lane in (AUTOREGRESSIVE, SPECULATIVE))
    return (
        f"In the page a token takes {slow:.2f} times as long as alone autoregressively, and "
        f"{fast:.2f} times speculatively; the speedup is {each['speedup']:.2f} times that alone."
    )


def _arguments(parser: ArgumentParser) -> None:
    help_ = "seconds between two updates (default: the page's own)"
    parser.add_argument("--period", type=float, default=0.0, help=help_)


STUDY = Study(
    name="page_tax",
    title="What the page costs",
    question="How much slower is a race in the page than the same race alone?",
    needs="Playwright and Chromium",
    seconds=120,
    columns=(
        Column("what", "Measured"),
        Column("page", "In the page"),
        Column("alone", "Alone"),
        Column("ratio", "In the page over alone", "×"),
        Column("low", "Lower quartile", "×"),
        Column("high", "Upper quartile", "×"),
    ),
    chart=Chart(
        kind="bars",
        x="what",
        y=("ratio",),
        whiskers=("low", "high"),
        level=even,
        reading="Medians of ratios, race by race; whiskers are quartiles. On the dashed line, the "
        "page would cost nothing.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
