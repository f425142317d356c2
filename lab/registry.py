"""The registry of experiments. To add one, write a module here and list it in `EXPERIMENTS`."""

from __future__ import annotations

from lab.studies import (
    ablation,
    batch,
    cache,
    compression,
    identical,
    larger,
    lengths,
    precision,
    ratio,
    request,
    signatures,
    typical,
    useless,
    widths,
    window,
)
from lab.study import Experiment
from pipeline.errors import UserError

# By name, in the order of the page.
EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        request.EXPERIMENT,
        lengths.EXPERIMENT,
        useless.EXPERIMENT,
        identical.EXPERIMENT,
        precision.EXPERIMENT,
        ablation.EXPERIMENT,
        cache.EXPERIMENT,
        compression.EXPERIMENT,
        window.EXPERIMENT,
        typical.EXPERIMENT,
        signatures.EXPERIMENT,
        widths.EXPERIMENT,
        larger.EXPERIMENT,
        ratio.EXPERIMENT,
        batch.EXPERIMENT,
    )
}


def find_experiment(name: str) -> Experiment:
    """Returns the experiment of that name.

    Raises:
        UserError: there is none.
    """
    if name not in EXPERIMENTS:
        raise UserError("experiment", name, f"choose one of {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
