"""Speculation changes no text: greedy texts are equal, token for token.

Held-out Dolly instructions are answered autoregressively, and with every drafter at every draft
length; the drafter that remembers has the answers before. A mismatch is reported with the gap
between the two largest logits at the first token that differs. Sampled texts are checked by
`lab.studies.sampled`, of which `--sampled` is another name here.
"""

from __future__ import annotations

import statistics
from argparse import ArgumentParser
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np

from lab.corpus import held_out
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.studies import sampled
from lab.study import Setup, Study
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import DRAFTERS
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.trace.record import Trace

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

Length = int | Literal["auto"]


@dataclass(slots=True)
class Way:
    """One way to draft, and its greedy texts beside the autoregressive ones.

    Attributes:
        races: how many were compared.
        tokens: of all their texts.
        speedups: of the races that were long enough.
        mismatches: by instruction, the index of the first token that differs, and the gap between
            the target's two largest logits there.
    """

    drafter: str
    draft_length: Length
    races: int = 0
    tokens: int = 0
    speedups: list[float] = field(default_factory=list)
    mismatches: dict[str, tuple[int, float]] = field(default_factory=dict)

    def race(self, dolly: Dolly, request: Request, alone: Trace, memory: AnswerMemory) -> None:
        """Answers a request that was answered autoregressively, and compares the texts."""
        own = replace(request, drafter=self.drafter, draft_length=self.draft_length)
        drafted = dolly.start(own, "speculative", memory).finish()
        trace = replace(drafted, lanes={**alone.lanes, **drafted.lanes})
        self.races += 1
        self.tokens += len(trace.lanes["autoregressive"].tokens)
        if not trace.identical:
            self.mismatches[request.instruction] = _mismatch(dolly, trace)
        if trace.speedup is not None:
            self.speedups.append(trace.speedup)

    @property
    def row(self) -> Row:
        return {
            "drafter": self.drafter,
            "draft_length": str(self.draft_length),
            "races": self.races,
            "tokens": self.tokens,
            "mismatches": len(self.mismatches),
            "speedup": statistics.median(self.speedups) if self.speedups else None,
        }


def races(dolly: Dolly, requests: Iterable[Request], ways: Sequence[Way]) -> Iterator[bool]:
    """Answers each request autoregressively and in all these ways, which grow; yields whether its
    prompt fits into the context.

    Raises:
        UserError: the pair has no such drafter.
    """
    memory = AnswerMemory()
    for request in requests:
        try:
            alone = dolly.start(request, "autoregressive").finish()
        except UserError:
            yield False
            continue
        for way in ways:
            way.race(dolly, request, alone, memory)
        (lane,) = alone.lanes.values()
        memory.add([*alone.prompt_tokens, *(token.id for token in lane.tokens)])
        yield True


def _mismatch(dolly: Dolly, trace: Trace) -> tuple[int, float]:
    place = trace.agreeing_tokens or 0
    agreed = [token.id for token in trace.lanes["autoregressive"].tokens[:place]]
    target = dolly.models(trace.request["kv_cache"]).target
    logits = target.sequence().forward([*trace.prompt_tokens, *agreed], logits_to_keep=1).logits[0]
    second, best = np.partition(logits, -2)[-2:]
    return place, float(best - second)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    options = setup.options
    records = held_out(options.data)[: options.count]
    dolly = yield from sampled.loaded(setup)
    settings = {"kv_cache": options.kv_cache, "max_new_tokens": options.max_new_tokens}
    asked = [Request(r.instruction, r.context, **settings) for r in records]
    ways = [Way(*each) for each in product(options.drafter, options.draft_length)]
    about = dolly.describe(dolly.models(options.kv_cache))
    result, refused = Result(pair=about, planned=len(asked)), 0
    for fits in races(dolly, asked, ways):
        refused += not fits
        result = replace(result.measured(), rows=tuple(way.row for way in ways))
        yield result
    figures = {
        **settings,
        "lossless": not options.lossy,
        "answered": len(asked) - refused,
        "refused": refused,
        "differ": {
            f"{way.drafter}, {way.draft_length}, {instruction}": mismatch
            for way in ways
            for instruction, mismatch in way.mismatches.items()
        },
    }
    yield replace(result, figures=figures)


def _same(rows: Rows) -> bool:
    return not any(row["mismatches"] for row in rows)


def _conclude(rows: Rows) -> str:
    texts, differ = (sum(row[name] for row in rows) for name in ("races", "mismatches"))
    answered = max(row["races"] for row in rows)
    found = "None" if not differ else f"{differ:,.0f}"
    return (
        f"{found} of {texts:,.0f} greedy texts {'differ' if differ > 1 else 'differs'} from "
        f"autoregression: {answered:,.0f} held-out instructions, each in {len(rows)} ways."
    )


def _length(text: str) -> Length:
    return "auto" if text == "auto" else int(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sampled",
        dest="study",
        action="store_const",
        const=sampled.STUDY.name,
        default="lossless",
        help="check sampled texts instead",
    )
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--drafter", nargs="+", choices=DRAFTERS, default=[*DRAFTERS])
    parser.add_argument(
        "--draft-length", nargs="+", type=_length, default=[4, "auto"], help="numbers, or auto"
    )
    parser.add_argument("--max-new-tokens", type=int, default=100)
    sampled.add_arguments(parser)


STUDY = Study(
    name="lossless",
    title="Greedy text is the same",
    question="Is every greedy text that of autoregression, whatever drafts it?",
    needs="Dolly’s records (--data)",
    seconds=1680,
    columns=(
        Column("drafter", "Drafter"),
        Column("draft_length", "K"),
        Column("races", "Texts", digits=0),
        Column("tokens", "Tokens", digits=0),
        Column("mismatches", "That differ", digits=0),
        Column("speedup", "Median speedup", "×"),
    ),
    chart=Chart(
        kind="bars",
        x="drafter",
        y=("speedup",),
        series="draft_length",
        level=even,
        reading="What it gains while the text stays the same. If other work ran beside, the "
        "speedups say little; the texts are compared all the same.",
    ),
    measure=_measure,
    conclude=_conclude,
    holds=_same,
    arguments=_arguments,
)
