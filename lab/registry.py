"""The registry of studies. To add one, write a file in `lab/studies/` and list it in `STUDIES`."""

from __future__ import annotations

from lab.studies import (
    ablation,
    batch,
    cache,
    compression,
    cost,
    drafters,
    full_size,
    identical,
    larger,
    lengths,
    lossless,
    memory,
    page_tax,
    paper,
    peers,
    precision,
    ratio,
    released,
    request,
    rounds,
    sampled,
    signatures,
    spec_bench,
    typical,
    useless,
    widths,
    window,
)
from lab.study import Study
from pipeline.errors import UserError

# By name, in the order of the page.
STUDIES: dict[str, Study] = {
    module.STUDY.name: module.STUDY
    for module in (
        request,
        lengths,
        drafters,
        useless,
        identical,
        lossless,
        sampled,
        paper,
        released,
        precision,
        ablation,
        cost,
        rounds,
        memory,
        cache,
        compression,
        window,
        typical,
        signatures,
        widths,
        larger,
        ratio,
        full_size,
        batch,
        peers,
        spec_bench,
        page_tax,
    )
}


def find_study(name: str) -> Study:
    """Returns the study of that name.

    Raises:
        UserError: there is none.
    """
    if name not in STUDIES:
        raise UserError("study", name, f"choose one of {', '.join(STUDIES)}")
    return STUDIES[name]
