"""Compares the adaptive draft length, "auto", with every fixed one.

    python -m benchmarks.draft_length [--repeats 5]

Each prompt is answered autoregressively, with every fixed draft length, and with "auto", in an
order that rotates with each repeat. The regret is the relative extra time of "auto" over the best
fixed length for that kind of prompt, as found afterwards; 0, no drafting, is a fixed length too.
Then "auto" runs with two drafts that cannot help, a model with random weights and the target
itself, and should lose almost nothing against autoregression.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.prompts import KINDS
from benchmarks.report import save
from experiments.table import table
from experiments.shapes import SHAPES, model_folder
from experiments.draft_length import LENGTHS, Length, Sweep, sweep
from pipeline.decoding.drafters import DEFAULT_DRAFTER, DRAFTERS
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED
from pipeline.request import Request


def measure(
    dolly: Dolly,
    kind: str,
    repeats: int,
    settings: dict[str, Any],
    lengths: Sequence[Length] = LENGTHS,
) -> dict[str, Any]:
    """Measures every length on every prompt of a kind."""
    requests = [Request(*prompt, **settings) for prompt in KINDS[kind]]
    *_, result = sweep(dolly, requests, repeats, lengths)
    return {"kind": kind, **_figures(result)}


def _figures(result: Sweep) -> dict[str, Any]:
    times, best = result.seconds_per_token, result.best_fixed
    assert best is not None
    return {
        "ms_per_token": {str(length): 1e3 * seconds for length, seconds in times.items()},
        "best": str(best),
        "regret": times["auto"] / times[best] - 1,
        "over_autoregression": result.speedup("auto"),
    }


def with_draft(draft: Path, repeats: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Measures "auto" against autoregression, for the embedded target with another draft."""
    with tempfile.TemporaryDirectory() as pair:
        for name, folder in (("target", EMBEDDED / "target"), ("draft", draft)):
            (Path(pair) / name).symlink_to(folder)
        return measure(Dolly(pair), "open question", 4 * repeats, settings, (0, "auto"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--drafter", choices=DRAFTERS, default=DEFAULT_DRAFTER)
    options = parser.parse_args()
    settings = {
        "max_new_tokens": options.max_new_tokens,
        "temperature": options.temperature,
        "drafter": options.drafter,
    }
    try:
        dolly = Dolly(options.pair)
        results = [measure(dolly, kind, options.repeats, settings) for kind in KINDS]
        target = EMBEDDED / "target"
        random = model_folder(SHAPES["draft"], "int8", target / "tokenizer.json")
        bad_drafts = {
            name: with_draft(draft, options.repeats, settings)
            for name, draft in (("random weights", random), ("the target itself", target))
        }
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    table(
        ("ms per token", *map(str, LENGTHS), "best", "regret", "× AR"),
        [
            [
                row["kind"],
                *(f"{ms:.2f}" for ms in row["ms_per_token"].values()),
                row["best"],
                f"{row['regret']:+.1%}",
                f"{row['over_autoregression']:.2f}",
            ]
            for row in results
        ],
    )
    for name, row in bad_drafts.items():
        print(f"with a draft of {name}: {row['over_autoregression']:.3f} × autoregression")
    save(
        "draft_length" if options.drafter == DEFAULT_DRAFTER else f"draft_length-{options.drafter}",
        pair=dolly.about,
        repeats=options.repeats,
        **settings,
        results=results,
        bad_drafts=bad_drafts,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
