"""Reproduces the paper's table with other models: seconds for N new tokens with both decoders.

    python -m benchmarks.paper [--target DIR --draft DIR] [--repeats 5]

The paper (arXiv 2311.04951) ran Dolly v2 12B with 3B as its draft on a server. Seconds of different
machines and models cannot be compared; speedups can.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.engines import DRAFT_LENGTH, Answer, Models, ours
from benchmarks.report import save
from experiments.prompts import KINDS
from experiments.table import table
from pipeline.decoding.drafters import DEFAULT_DRAFTER
from pipeline.errors import UserError
from pipeline.models.pairs import EMBEDDED
from pipeline.text.prompt import format_prompt
from pipeline.text.tokenizer import Tokenizer

PAPER = {40: (19.87, 13.61), 100: (44.25, 26.97)}  # N: autoregressive, speculative seconds


def seconds(answer: Answer, prompt: list[int], count: int) -> float:
    """Wall-clock seconds of one answer, prefill included."""
    start = perf_counter()
    answer(prompt, count, lambda made: None)
    return perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=EMBEDDED / "target")
    parser.add_argument("--draft", type=Path, default=EMBEDDED / "draft")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    embedded = options.target == EMBEDDED / "target"
    models = Models(options.target, options.draft, EMBEDDED / "block" if embedded else None)
    try:
        tokenizer = Tokenizer(models.target)
        answers = [
            ours(models),
            ours(models, DEFAULT_DRAFTER),
            ours(models, DEFAULT_DRAFTER, "auto"),
        ]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    prompts = [
        tokenizer.encode(format_prompt(*prompt)) for kind in KINDS.values() for prompt in kind
    ]

    rows, results = [], []
    for count, (paper_slow, paper_fast) in PAPER.items():
        taken: list[list[float]] = [[] for _ in answers]
        for turn in range(options.repeats):
            for prompt in prompts:
                for place in (turn % 3, (turn + 1) % 3, (turn + 2) % 3):
                    taken[place].append(seconds(answers[place], prompt, count))
        slow, fast, auto = (statistics.mean(times) for times in taken)
        results.append(
            {
                "new_tokens": count,
                "autoregressive_s": slow,
                "speculative_s": fast,
                "auto_s": auto,
                "ratio": slow / fast,
                "paper": {
                    "autoregressive_s": paper_slow,
                    "speculative_s": paper_fast,
                    "ratio": paper_slow / paper_fast,
                },
            }
        )
        rows.append(
            [
                str(count),
                *(f"{seconds:.2f}" for seconds in (paper_slow, paper_fast)),
                f"{paper_slow / paper_fast:.2f}×",
                *(f"{seconds:.3f}" for seconds in (slow, fast, auto)),
                *(f"{slow / seconds:.2f}×" for seconds in (fast, auto)),
            ]
        )
    table(
        ("N", "paper AR s", "spec. s", "ratio", "our AR s", "K=4 s", "auto s", "K=4", "auto"), rows
    )
    save("paper", draft_length=DRAFT_LENGTH, pair=options.target.name, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
