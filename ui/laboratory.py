"""The laboratory, as far as the page uses it. Nothing else of the page imports `lab`.

Where the folder `lab` is not there, there are no studies and no committed results: the tab
Experiments is absent, and so is what other tabs show of results.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lab.saved import Saved
    from lab.study import Setup, Study

try:
    from lab import registry, saved, study
except ImportError as error:
    if error.name != "lab":  # of something else, or in it
        raise
    STUDIES: Mapping[str, Study] = {}
else:
    STUDIES = registry.STUDIES


@cache
def last_result(name: str) -> Saved | None:
    """The committed result of the study of that name; None without one."""
    return saved.saved(name) if STUDIES else None


def new_setup(**what: Any) -> Setup:
    """What a study is run on; the attributes of `lab.study.Setup`."""
    return study.Setup(**what)
