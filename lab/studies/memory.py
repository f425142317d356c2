"""Measures the drafter that copies from earlier answers, on held-out Dolly instructions.

    python -m lab.studies.memory [--count 24]

1. Asked again: the speedup of a question that was answered before.
2. A follow-up: that of a summary of a passage about which something was asked before.
3. A first question: milliseconds per token with a memory of other answers, over those of the same
   drafter without one, alternately. It comes first, so that both have learned as much.

The bars: 4 and 2.5 times autoregression, and a loss of less than 1 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from lab.report import save
from lab.spread import Spread
from lab.table import table
from lab.training.corpus import DATA, held_out
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters.hybrid import HYBRID, MEMORY
from pipeline.decoding.race import Mode
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request
from pipeline.trace.record import Trace

_FOLLOW_UP = "Summarize the passage in two sentences."
_CONTEXT_CHARACTERS = 2_000  # of a passage at most


def ask(dolly: Dolly, request: Request, memory: AnswerMemory, mode: Mode = "race") -> Trace:
    """Answers a request and remembers the answer."""
    trace = dolly.start(request, mode, memory).finish()
    lane = trace.lanes["speculative"]
    memory.add([*trace.prompt_tokens, *(token.id for token in lane.tokens)])
    return trace


def asked_again(dolly: Dolly, requests: Sequence[Request]) -> list[Trace]:
    """The races of all requests, after all were answered once."""
    memory = AnswerMemory()
    for request in requests:
        ask(dolly, request, memory, "speculative")
    return [ask(dolly, request, memory) for request in requests]


def follow_ups(dolly: Dolly, requests: Sequence[Request]) -> list[Trace]:
    """The races of a follow-up to each request, with its context."""
    races = []
    for request in requests:
        memory = AnswerMemory()
        ask(dolly, request, memory, "speculative")
        races.append(ask(dolly, replace(request, instruction=_FOLLOW_UP), memory))
    return races


class FirstQuestion(NamedTuple):
    """Seconds per token of a question that was never asked: medians of its answers.

    Attributes:
        remembering: with a memory of other questions and their answers.
        without: of the same drafter without a memory.
    """

    remembering: float
    without: float


def first_questions(dolly: Dolly, requests: Sequence[Request], repeats: int) -> list[FirstQuestion]:
    """Each request but the first, with a memory of those before it and without, alternately."""
    memory, found = AnswerMemory(), []
    for number, request in enumerate(requests):
        both = (request, replace(request, drafter=HYBRID.name))
        seconds: dict[str, list[float]] = {one.drafter: [] for one in both}
        for repeat in range(repeats):
            for one in both[:: 1 if (number + repeat) % 2 else -1]:
                trace = dolly.start(one, "speculative", memory).finish()
                seconds[one.drafter].append(trace.lanes["speculative"].seconds_per_token or 0.0)
        if number:
            found.append(FirstQuestion(median(seconds[MEMORY.name]), median(seconds[HYBRID.name])))
        ask(dolly, request, memory, "speculative")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=3, help="of a first question")
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    settings: dict[str, Any] = {
        "drafter": MEMORY.name,
        "draft_length": "auto",
        "max_new_tokens": 100,
    }
    try:
        records = held_out(options.data)
        dolly = Dolly(options.pair)
        alone = [Request(r.instruction, **settings) for r in records if not r.context]
        passages = [
            Request(r.instruction, r.context, **settings)
            for r in records
            if 0 < len(r.context) <= _CONTEXT_CHARACTERS
        ]
        first = first_questions(dolly, alone[: options.count], options.repeats)
        again = asked_again(dolly, alone[: options.count])
        following = follow_ups(dolly, passages[: options.count])
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    rows = {"asked again": again, "a follow-up": following}
    figures = {name: _figures(traces) for name, traces in rows.items()}
    table(
        ("", "speedup", "tokens per pass", "remembered", "identical"),
        [
            [
                name,
                Spread(**row["speedup"]),
                Spread(**row["tokens_per_pass"]),
                f"{row['remembered']:.0%}",
                f"{row['identical']} of {row['races']}",
            ]
            for name, row in figures.items()
        ],
    )
    ratios = Spread.of([one.remembering / one.without for one in first])
    whole = sum(one.remembering for one in first) / sum(one.without for one in first)
    print(f"a first question: {ratios} × the time per token without a memory; of all, {whole:.3f}")
    save(
        "memory",
        pair=dolly.about,
        **settings,
        results=figures,
        first_question=asdict(ratios) | {"of_all": whole, "repeats": options.repeats},
    )
    return 0


def _figures(traces: Sequence[Trace]) -> dict[str, Any]:
    lanes = [trace.lanes["speculative"] for trace in traces]
    tokens = sum(len(lane.tokens) for lane in lanes)
    return {
        "races": len(traces),
        "identical": sum(trace.identical is True for trace in traces),
        "speedup": asdict(Spread.of([trace.speedup or 0.0 for trace in traces])),
        "tokens_per_pass": asdict(Spread.of([lane.block_efficiency or 0.0 for lane in lanes])),
        "remembered": sum(lane.remembered for lane in lanes) / tokens,
    }


if __name__ == "__main__":
    sys.exit(main())
