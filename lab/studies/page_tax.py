"""Measures what the page costs a race: the same race with and without it, alternately.

    python -m lab.studies.page_tax

The browser runs on the same machine, so it competes with the models for the cores.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from time import perf_counter, sleep
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import CDPSession, Page, sync_playwright

from lab.report import save
from lab.spread import Spread
from lab.table import table
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.models.store import Store
from pipeline.request import Request
from pipeline.run import Run
from pipeline.trace.record import Lane, Trace
from ui.page import Page as ServedPage
from ui.run import activity
from ui.run.loader import Loader

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


class _RecordingDolly(Dolly):
    """Keeps its last run."""

    last: Run

    def start(
        self, request: Request, mode: Mode = "race", memory: AnswerMemory | None = None
    ) -> Run:
        self.last = super().start(request, mode, memory)
        return self.last


@dataclass(frozen=True, slots=True)
class PageLoad:
    """Work of the page during one race."""

    seconds: float
    busy: float  # CPU time of the page's main thread, as a share of these
    updates: float  # drawn per second


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.studies.page_tax", description=__doc__)
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--period",
        type=float,
        default=activity.PERIOD,
        help="seconds between two updates (default: the page's own, %(default)s)",
    )
    options = parser.parse_args()
    activity.PERIOD = options.period

    dolly = _RecordingDolly(options.pair)
    dolly.tokenizer.end_ids = frozenset()  # every race has the same number of tokens
    loader = Loader(Choice(dolly.pair, Store()), lambda _: dolly)
    served = ServedPage(loader)
    asked = {name: value for name, value in asdict(_REQUEST).items() if value is not None}
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
            _report(dolly, options.repeats, _racer(page))
            browser.close()
    finally:
        served.close()


def _racer(page: Page) -> Callable[[], PageLoad]:
    """Returns a function that runs a race in the page."""
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def race() -> PageLoad:
        page.evaluate("window.updates = 0")
        start, busy = perf_counter(), _busy(metrics)
        page.get_by_test_id("run").click()
        page.wait_for_function(f"window.updates > 2 && {_ENDED}", polling=200)
        seconds = perf_counter() - start
        updates = page.evaluate("window.updates")
        return PageLoad(seconds, (_busy(metrics) - busy) / seconds, updates / seconds)

    return race


def _busy(metrics: CDPSession) -> float:
    """CPU seconds of the page's main thread so far. Wall-clock time would include waiting for the
    models, which use every core.
    """
    values = metrics.send("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in values if each["name"] == "TaskDuration")


def _alone(dolly: Dolly) -> Trace:
    return dolly.start(_REQUEST).finish()


def _report(dolly: _RecordingDolly, repeats: int, race: Callable[[], PageLoad]) -> None:
    """Runs the races, prints the table and saves the results."""
    loads: list[PageLoad] = []
    traces: dict[str, list[Trace]] = {"page": [], "alone": []}

    def in_page() -> None:
        sleep(_REST)
        loads.append(race())
        traces["page"].append(dolly.last.trace())

    def alone() -> None:
        sleep(_REST)
        traces["alone"].append(_alone(dolly))

    in_page()
    alone()
    loads.clear()  # the first of each is a warm-up
    for races in traces.values():
        races.clear()
    for repeat in range(repeats):
        for one in (in_page, alone) if repeat % 2 else (alone, in_page):
            one()

    rows: list[list[object]] = []
    results: dict[str, Any] = {}
    for lane in ("autoregressive", "speculative"):
        results[lane] = {}
        for key, title, of in (
            ("ms", "ms per token", _ms),
            ("prefill_ms", "prefill, ms", _prefill),
        ):
            ms = {
                name: [of(trace.lanes[lane]) for trace in races] for name, races in traces.items()
            }
            ratios = [one / other for one, other in zip(ms["page"], ms["alone"], strict=True)]
            rows.append([f"{lane}, {title}", *map(Spread.of, (ms["page"], ms["alone"], ratios))])
            results[lane][key] = ms | {"page_over_alone": asdict(Spread.of(ratios))}
    speedups = {name: [trace.speedup or 0 for trace in races] for name, races in traces.items()}
    ratios = [one / other for one, other in zip(*speedups.values(), strict=True)]
    rows.append(["speedup", *map(Spread.of, (*speedups.values(), ratios))])
    results["speedup"] = {**speedups, "page_over_alone": asdict(Spread.of(ratios))}
    table(("", "in the page", "alone", "ratio"), rows)
    tokens = [len(lane.tokens) for lane in traces["alone"][0].lanes.values()]
    print(
        f"\n{tokens} tokens, {median(each.seconds for each in loads):.1f} s in the page; "
        f"its main thread was busy {median(each.busy for each in loads):.0%} of it, and drew "
        f"{median(each.updates for each in loads):.1f} updates per second"
    )
    save(
        "page_tax",
        pair=dolly.pair.name,
        request=asdict(_REQUEST),
        repeats=repeats,
        period=activity.PERIOD,
        tokens=tokens,
        lanes=results,
        page=[asdict(each) for each in loads],
    )


def _ms(lane: Lane) -> float:
    return 1000 * (lane.seconds_per_token or 0)


def _prefill(lane: Lane) -> float:
    return 1000 * lane.prefill_s


if __name__ == "__main__":
    main()
