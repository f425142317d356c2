"""Simulates visitors who wait for a replica, and compares the formula of queues.

    python -m lab.load.simulate

A visitor is one race: who races five times counts five times. Visitors come at random, and wait in
one queue without a limit. The seconds of a race are drawn from those of `lab.load.service`. The
result is `lab/results/simulation.json`, and the tables those of `docs/hosting.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from lab.load.queueing import Queue, waits
from lab.load.service import Service, services
from lab.saved import save_figures
from lab.table import markdown_table
from pipeline.models.pairs import DEFAULT_PAIR

REPLICAS = (1, 2, 4, 8, 16, 32, 64)
STEPS = (  # visitors a minute; also × 10 and × 100
    *(10, 11, 12, 13, 15, 16, 18, 20, 22, 24, 27, 30),
    *(33, 36, 39, 43, 47, 51, 56, 62, 68, 75, 82, 91),
)
RATES = tuple(step * power for power in (1, 10, 100) for step in STEPS)
SHOWN = (10, 33, 100, 330, 1000, 2700)  # columns of the table
BUSY = (0.1, 0.95)  # utilisation: below, nobody waits; above, a simulation takes too long
PER_HOUR, PATIENCE = 1000, 10.0  # visitors; seconds that 95 % of them wait at most
VISITORS, WARM_UP, BATCHES = 200_000, 0.1, 20
NOTICED = 0.05  # seconds of mean wait, from which formula and simulation are compared


def simulated(queue: Queue, races: Sequence[float]) -> dict[str, float]:
    """The waits of visitors at random, after a warm-up. Each call draws the same random numbers.

    Args:
        queue: its replicas and its rate; the formula is not used.
        races: seconds, equally likely.

    Returns:
        Seconds: mean, median, 95 % quantile, and the standard error of the mean, from batches of
        successive visitors; and the share that waits at all.
    """
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / queue.rate, VISITORS))
    waited = waits(arrivals, rng.choice(np.asarray(races), VISITORS), queue.replicas)
    waited = waited[int(WARM_UP * VISITORS) :]
    means = [batch.mean() for batch in np.array_split(waited, BATCHES)]
    return {
        "waiting": float((waited > 0).mean()),
        "mean": float(waited.mean()),
        "median": float(np.quantile(waited, 0.5)),
        "p95": float(np.quantile(waited, 0.95)),
        "error": float(np.std(means, ddof=1) / math.sqrt(BATCHES)),
    }


def row(service: Service, replicas: int, rate: float) -> dict[str, Any]:
    """How long visitors wait for replicas of this kind.

    Args:
        rate: visitors a second.
    """
    queue = Queue(replicas, rate, service.mean, service.variation)
    return {
        "pair": service.pair,
        "cores": service.cores,
        "replicas": replicas,
        "utilisation": queue.utilisation,
        "simulated": simulated(queue, service.seconds),
        "formula": {
            "waiting": queue.waiting,
            "mean": queue.mean_wait,
            "median": queue.quantile(0.5),
            "p95": queue.quantile(0.95),
        },
    }


def grid(service: Service) -> Iterator[dict[str, Any]]:
    """A row for each number of replicas and each rate that they can bear."""
    for replicas in REPLICAS:
        for rate in RATES:
            if BUSY[0] <= rate / 60 * service.mean / replicas <= BUSY[1]:
                yield row(service, replicas, rate / 60) | {"visitors_per_minute": rate}


def need(service: Service) -> dict[str, Any]:
    """The fewest replicas for `PER_HOUR` visitors, of whom 95 % wait at most `PATIENCE`."""
    rate = PER_HOUR / 3600
    rows = (row(service, replicas, rate) for replicas in count(math.floor(rate * service.mean) + 1))
    enough = next(each for each in rows if each["simulated"]["p95"] <= PATIENCE)
    return enough | {
        "basis": service.basis,
        "race_s": service.mean,
        "variation": service.variation,
        "replica_bytes": service.memory_bytes,
        "all_cores": enough["replicas"] * service.cores,
        "all_bytes": enough["replicas"] * service.memory_bytes,
    }


def tables(result: Mapping[str, Any]) -> tuple[str, ...]:
    """In Markdown: what visitors need; how long they wait, with two cores a replica and with one;
    and how far the formula is from the simulation.
    """
    return _needs(result), _waits(result, 2), _waits(result, 1), _agreement(result)


def _needs(result: Mapping[str, Any]) -> str:
    header = (
        *("pair", "cores a replica", "a race", "replicas", "cores", "memory"),
        *("waits: median, 95 %", "by the formula"),
    )
    rows = [
        (
            f"`{row['pair']}`, {row['basis']}",
            row["cores"],
            f"{row['race_s']:.1f} s",
            row["replicas"],
            row["all_cores"],
            f"{row['all_bytes'] / 1e9:.{0 if row['all_bytes'] > 1e10 else 1}f} GB",
            f"{_cell(row['simulated'])} s",
            f"{_cell(row['formula'])} s",
        )
        for row in result["needs"]
    ]
    return markdown_table(header, rows)


def _waits(result: Mapping[str, Any], cores: int) -> str:
    """Median and 95 % by replicas and visitors a minute."""
    rows = {
        (row["replicas"], row["visitors_per_minute"]): _cell(row["simulated"])
        for row in result["rows"]
        if row["cores"] == cores
    }
    asked = (DEFAULT_PAIR, cores)
    mean = next(row["race_s"] for row in result["needs"] if (row["pair"], row["cores"]) == asked)

    def cell(replicas: int, rate: int) -> str:
        nobody = rate / 60 * mean < BUSY[0] * replicas
        return rows.get((replicas, rate), "0, 0" if nobody else "–")

    named = "a core" if cores == 1 else f"{cores} cores"
    return markdown_table(
        (f"replicas of {named}", *(f"{rate:,} a minute" for rate in SHOWN)),
        [[replicas, *(cell(replicas, rate) for rate in SHOWN)] for replicas in REPLICAS],
    )


def _agreement(result: Mapping[str, Any]) -> str:
    """The mean wait, simulated over by the formula, where it is noticed."""
    noticed = [row for row in result["rows"] if row["formula"]["mean"] >= NOTICED]
    ratios = [row["simulated"]["mean"] / row["formula"]["mean"] for row in noticed]
    header = (
        *("settings", f"with a mean wait of {NOTICED} s or more"),
        *("mean wait, simulated over formula: median", "least", "most"),
    )
    shown = (f"{ratio:.2f}" for ratio in (statistics.median(ratios), min(ratios), max(ratios)))
    return markdown_table(header, [(len(result["rows"]), len(noticed), *shown)])


def _cell(waited: Mapping[str, float]) -> str:
    """Median and 95 %."""
    seconds = (waited["median"], waited["p95"])
    return ", ".join(f"{each:.1f}" if each >= 0.05 else "0" for each in seconds)


def rounded(value: Any) -> Any:
    """The value with numbers of a few digits, at any depth."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.4g}"))


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m lab.load.simulate", description=__doc__.splitlines()[0]
    ).parse_args()
    known = services()
    embedded = [service for service in known if service.pair == DEFAULT_PAIR]
    result = rounded(
        {
            "visitors": VISITORS,
            "per_hour": PER_HOUR,
            "patience_s": PATIENCE,
            "needs": [need(service) for service in known],
            "rows": [row for service in embedded for row in grid(service)],
        }
    )
    print(*tables(result), sep="\n\n")
    save_figures("simulation", **result)


if __name__ == "__main__":
    main()
