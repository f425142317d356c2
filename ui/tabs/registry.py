"""The tabs below the answers, from left to right. To add one, write a module here, which declares
what visitors can start from it too, and list it in `TABS`.
"""

from __future__ import annotations

from pipeline.engine import Engine
from pipeline.trace.record import Trace
from ui.tabs import (
    acceptance,
    beyond_text,
    cache,
    experiments,
    how,
    steps,
    timings,
    trace_api,
    what_if,
)
from ui.tabs.tab import RunTab, Tab
from ui.timeline import TIMELINE

TABS: tuple[Tab, ...] = (
    timings.TAB,
    steps.TAB,
    acceptance.TAB,
    what_if.TAB,
    cache.TAB,
    how.TAB,
    *([experiments.TAB] if experiments.VIEWS else []),
    beyond_text.TAB,
    trace_api.TAB,
)
RUN_TABS = {tab.name: tab for tab in (TIMELINE, *TABS) if isinstance(tab, RunTab)}


def run_values(trace: Trace) -> dict[str, str]:
    """The values of all views about a finished run."""
    return {
        name: value for tab in (TIMELINE, *TABS) for name, value in tab.run_values(trace).items()
    }


def pair_values(engine: Engine | None) -> dict[str, str]:
    """The values of all lines about the loaded pair, if there is one."""
    return {tab.line: tab.about_pair(engine) for tab in TABS if tab.about_pair}
