"""Does the draft length that chooses itself choose well?

    python -m benchmarks.draft_length [--repeats 5]

Each prompt is answered autoregressively, with every fixed draft length, and with "auto", in an
order that turns with each repeat. The regret is what "auto" takes over the best fixed length of
that kind of prompt, found afterwards; zero tokens drafted is a fixed length too. Then "auto" gets a
draft with random weights, and the target itself as its draft: it should lose next to nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from benchmarks.prompts import KINDS
from benchmarks.report import save, table
from benchmarks.shapes import SHAPES, model_folder
from pipeline.decoding.drafters import DrafterKind
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED
from pipeline.request import MAX_DRAFT_LENGTH, Request

_AUTO = "auto"
_LENGTHS = (0, *range(1, MAX_DRAFT_LENGTH + 1), _AUTO)


def milliseconds(
    dolly: Dolly, prompt: tuple[str, str], length: int | str, settings: dict[str, Any]
) -> float:
    """A token's, decoding only."""
    mode: Mode = "speculative" if length else "autoregressive"
    wanted = settings | ({"draft_length": length} if length else {})
    (lane,) = dolly.start(Request(*prompt, **wanted), mode).finish().lanes.values()
    return 1e3 * (lane.seconds_per_token or 0)


def measure(
    dolly: Dolly,
    kind: str,
    repeats: int,
    settings: dict[str, Any],
    lengths: Sequence[int | str] = _LENGTHS,
) -> dict[str, Any]:
    """Every length on every prompt of a kind: a median of each prompt's repeats, then the mean."""
    samples: dict[str, list[list[float]]] = {str(k): [[] for _ in KINDS[kind]] for k in lengths}
    for turn in range(repeats):
        for length in (*lengths[turn % len(lengths) :], *lengths[: turn % len(lengths)]):
            for place, prompt in enumerate(KINDS[kind]):
                samples[str(length)][place].append(milliseconds(dolly, prompt, length, settings))
    taken = {
        length: statistics.mean(statistics.median(times) for times in prompts)
        for length, prompts in samples.items()
    }
    best = min((str(k) for k in lengths if k != _AUTO), key=taken.__getitem__)
    return {
        "kind": kind,
        "ms_per_token": taken,
        "best": best,
        "regret": taken[_AUTO] / taken[best] - 1,
        "over_autoregression": taken["0"] / taken[_AUTO],
    }


def with_draft(draft: Path, repeats: int, settings: dict[str, Any]) -> dict[str, Any]:
    """ "auto" against autoregression where the embedded target has another draft."""
    with tempfile.TemporaryDirectory() as made:
        for name, folder in (("target", EMBEDDED / "target"), ("draft", draft)):
            (Path(made) / name).symlink_to(folder)
        return measure(Dolly(made), "open question", 4 * repeats, settings, (0, _AUTO))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--drafter", choices=get_args(DrafterKind), default="model")
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
        ("ms a token", *_LENGTHS, "best", "regret", "× AR"),
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
        "draft_length" if options.drafter == "model" else f"draft_length-{options.drafter}",
        pair=dolly.about,
        repeats=options.repeats,
        **settings,
        results=results,
        bad_drafts=bad_drafts,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
