"""The tabs below the answers, from left to right."""

from __future__ import annotations

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
RUN_TABS = {tab.name: tab for tab in TABS if isinstance(tab, RunTab)}


def run_values(trace: Trace) -> dict[str, str]:
    """The values of all tabs about a run, for a finished trace."""
    return {name: tab.value(trace) for name, tab in RUN_TABS.items()}
