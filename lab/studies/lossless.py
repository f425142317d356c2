"""Checks that speculation changes no text: greedy texts are equal, sampled ones alike.

    python -m lab.studies.lossless [--count 500] [--drafter hybrid ...] [--draft-length 4 auto ...]
    python -m lab.studies.lossless --sampled [--contexts 200] [--draws 32]

The first command answers held-out Dolly instructions autoregressively, and with every drafter at
every draft length; the drafter that remembers has the answers before. A mismatch is printed with
the gap between the two largest logits at the first token that differs. The second one compares
samples of every drafter with the target's exact distribution (`lab.studies.sampled`). If a check
fails, the exit status is 1.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lab.report import save
from lab.studies.sampled import certify
from lab.table import table
from lab.training.corpus import DATA, Record, held_out
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import DRAFTERS
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.trace.record import Trace

Length = int | Literal["auto"]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first token at which two texts differ.

    Attributes:
        place: its index in the answer.
        gap: between the target's two largest logits there.
    """

    instruction: str
    place: int
    gap: float


@dataclass(slots=True)
class Greedy:
    """The texts of one way to draft beside the autoregressive ones.

    Attributes:
        races: how many were compared.
        tokens: of all their texts.
        speedups: of the races that were long enough.
    """

    drafter: str
    draft_length: Length
    races: int = 0
    tokens: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)
    speedups: list[float] = field(default_factory=list)

    def add(self, trace: Trace, mismatch: Mismatch | None) -> None:
        self.races += 1
        self.tokens += len(trace.lanes["autoregressive"].tokens)
        if mismatch:
            self.mismatches.append(mismatch)
        if trace.speedup is not None:
            self.speedups.append(trace.speedup)

    def describe(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "draft_length": self.draft_length,
            "races": self.races,
            "tokens": self.tokens,
            "mismatches": len(self.mismatches),
            "median_speedup": statistics.median(self.speedups) if self.speedups else None,
        }


def races(dolly: Dolly, requests: Iterable[Request], ways: Sequence[Greedy]) -> Iterator[bool]:
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
            own = replace(request, drafter=way.drafter, draft_length=way.draft_length)
            drafted = dolly.start(own, "speculative", memory).finish()
            trace = replace(drafted, lanes={**alone.lanes, **drafted.lanes})
            way.add(trace, None if trace.identical else _mismatch(dolly, trace))
        (lane,) = alone.lanes.values()
        memory.add([*alone.prompt_tokens, *(token.id for token in lane.tokens)])
        yield True


def _mismatch(dolly: Dolly, trace: Trace) -> Mismatch:
    place = trace.agreeing_tokens or 0
    agreed = [token.id for token in trace.lanes["autoregressive"].tokens[:place]]
    target = dolly.models(trace.request["kv_cache"]).target
    logits = target.sequence().forward([*trace.prompt_tokens, *agreed], logits_to_keep=1).logits[0]
    second, best = np.partition(logits, -2)[-2:]
    return Mismatch(trace.request["instruction"], place, float(best - second))


def _length(text: str) -> Length:
    return "auto" if text == "auto" else int(text)


def main() -> int:
    exact = [name for name, policy in POLICIES.items() if policy.exact]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--kv-cache", choices=exact, default=DEFAULT_POLICY)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--lossy", action="store_true", help="the plugin's fastest settings")
    greedy = parser.add_argument_group("greedy")
    greedy.add_argument("--count", type=int, default=500)
    greedy.add_argument("--drafter", nargs="+", choices=DRAFTERS, default=[*DRAFTERS])
    greedy.add_argument(
        "--draft-length", nargs="+", type=_length, default=[4, "auto"], help="numbers, or auto"
    )
    greedy.add_argument("--max-new-tokens", type=int, default=100)
    sampling = parser.add_argument_group("sampled")
    sampling.add_argument("--sampled", action="store_true")
    sampling.add_argument("--contexts", type=int, default=200)
    sampling.add_argument("--draws", type=int, default=32, help="of each variant, a context")
    sampling.add_argument("--temperature", type=float, default=1.0)
    sampling.add_argument("--top-p", type=float, default=0.95)
    sampling.add_argument("--top-k", type=int, default=3, help="few, so that passes repeat")
    options = parser.parse_args()
    try:
        records = held_out(options.data)
        check = _sampled if options.sampled else _greedy
        return check(options, records, Dolly(options.pair, lossless=not options.lossy))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2


def _sampled(options: argparse.Namespace, records: list[Record], dolly: Dolly) -> int:
    """Returns the exit status."""
    request = Request(
        "any",
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        kv_cache=options.kv_cache,
    )
    for certificate in certify(dolly, records, request, options.contexts, options.draws):
        if certificate.contexts % 20 == 0:
            print(certificate, file=sys.stderr)
    fits = [fit.describe() for fit in (*certificate.fits, certificate.control)]
    columns = ("drafter", "draft_length", "verification", "acceptance_rate", "distance")
    rows = [[*(fit[column] or "" for column in columns), f"{fit['p']:.2g}"] for fit in fits]
    table((*columns, "p"), rows)
    print(certificate)
    save(
        "lossless-sampled",
        pair=dolly.describe(dolly.models_for(request)),
        lossless=not options.lossy,
        kv_cache=options.kv_cache,
        temperature=options.temperature,
        top_p=options.top_p,
        top_k=options.top_k,
        contexts=certificate.contexts,
        draws=options.draws,
        limit=certificate.limit,
        variants=fits[:-1],
        control=fits[-1],
    )
    return 0 if certificate.lossless and certificate.caught else 1


def _greedy(options: argparse.Namespace, records: list[Record], dolly: Dolly) -> int:
    """Returns the exit status."""
    settings = {"kv_cache": options.kv_cache, "max_new_tokens": options.max_new_tokens}
    asked = [Request(r.instruction, r.context, **settings) for r in records[: options.count]]
    ways = [Greedy(*each) for each in product(options.drafter, options.draft_length)]
    refused = 0
    for number, fits in enumerate(races(dolly, asked, ways), start=1):
        refused += not fits
        if number % 20 == 0:
            differ = sum(len(way.mismatches) for way in ways)
            print(f"{number} of {len(asked)}, {differ} texts differ", file=sys.stderr)
    for way in ways:
        for mismatch in way.mismatches:
            print(f"differs: {way.drafter}, {way.draft_length}, {mismatch}")
    results = [way.describe() for way in ways]
    columns = ("drafter", "draft_length", "races", "tokens", "mismatches")
    table(
        (*columns, "median speedup"),
        [[*(row[c] for c in columns), f"{row['median_speedup'] or 0:.2f}"] for row in results],
    )
    print(f"{refused} prompts do not fit the context of {dolly.context_length}.")
    save(
        "lossless",
        pair=dolly.describe(dolly.models(options.kv_cache)),
        lossless=not options.lossy,
        **settings,
        answered=len(asked) - refused,
        refused=refused,
        results=results,
    )
    return 1 if any(way.mismatches for way in ways) else 0


if __name__ == "__main__":
    sys.exit(main())
