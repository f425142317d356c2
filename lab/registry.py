"""The registry of studies. To add one, write a file in `lab/studies/` and name it in `_NAMES`."""

from __future__ import annotations

from importlib import import_module

from lab.study import Study
from pipeline.errors import UserError

_NAMES = (  # in the order of the page
    *("request", "lengths", "drafters", "useless", "identical", "lossless", "sampled"),
    *("paper", "released", "precision", "ablation", "cost", "rounds", "memory"),
    *("cache", "compression", "window", "typical", "signatures", "widths", "larger"),
    *("ratio", "full_size", "batch", "peers", "spec_bench", "page_tax"),
)
STUDIES: dict[str, Study] = {name: import_module(f"lab.studies.{name}").STUDY for name in _NAMES}


def find_study(name: str) -> Study:
    """Returns the study of that name.

    Raises:
        UserError: there is none.
    """
    if name not in STUDIES:
        raise UserError("study", name, f"choose one of {', '.join(STUDIES)}")
    return STUDIES[name]
