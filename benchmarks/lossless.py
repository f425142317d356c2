"""Checks that speculation changes no text: greedy texts are equal, sampled ones alike.

    python -m benchmarks.lossless [--count 500] [--drafter hybrid] [--draft-length 4]
    python -m benchmarks.lossless --sampled [--contexts 200] [--draws 32]

The first command answers held-out Dolly instructions with both decoders. A mismatch is printed with
the gap between the two largest logits at the first token that differs. The second one compares
samples of every drafter with the target's exact distribution (`benchmarks.sampled`). If a check
fails, the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.report import save
from benchmarks.sampled import certify
from experiments.table import table
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.drafters.hybrid import HYBRID
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.trace.record import Trace
from training.corpus import DATA, Record, held_out


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


def compare(dolly: Dolly, request: Request) -> tuple[Trace, Mismatch | None]:
    """Answers `request` with both decoders."""
    trace = dolly.start(request).finish()
    if trace.identical:
        return trace, None
    place = trace.agreeing_tokens or 0
    return trace, Mismatch(request.instruction, place, _gap(dolly, trace, place))


def _gap(dolly: Dolly, trace: Trace, place: int) -> float:
    """Between the target's two largest logits, after the tokens on which both lanes agree."""
    agreed = [token.id for token in trace.lanes["autoregressive"].tokens[:place]]
    target = dolly.models(trace.request["kv_cache"]).target
    logits = target.sequence().forward([*trace.prompt_tokens, *agreed], logits_to_keep=1).logits[0]
    second, best = np.partition(logits, -2)[-2:]
    return float(best - second)


def _length(text: str) -> int | Literal["auto"]:
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
    greedy.add_argument("--drafter", choices=DRAFTERS, default=HYBRID.name)
    greedy.add_argument("--draft-length", type=_length, default=4, help="a number, or auto")
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
    settings = {
        "drafter": options.drafter,
        "draft_length": options.draft_length,
        "kv_cache": options.kv_cache,
        "max_new_tokens": options.max_new_tokens,
    }
    asked = [Request(r.instruction, r.context, **settings) for r in records[: options.count]]

    mismatches, refused, tokens, speedups = [], 0, 0, []
    for number, request in enumerate(asked, start=1):
        try:
            trace, mismatch = compare(dolly, request)
        except UserError:  # a context longer than the model's
            refused += 1
            continue
        tokens += len(trace.lanes["autoregressive"].tokens)
        speedups.append(trace.speedup)
        if mismatch:
            mismatches.append(mismatch)
            print(f"differs: {mismatch}")
        if number % 50 == 0:
            print(f"{number} of {len(asked)}, {len(mismatches)} differ", file=sys.stderr)
    compared = len(asked) - refused
    print(f"{compared - len(mismatches)} of {compared} answers identical, {tokens:,} tokens;")
    print(f"{refused} prompts do not fit the context of {dolly.context_length}.")
    save(
        "lossless",
        pair=dolly.describe(dolly.models(options.kv_cache)),
        lossless=not options.lossy,
        **settings,
        compared=compared,
        refused=refused,
        tokens=tokens,
        mismatches=len(mismatches),
        median_speedup=float(np.median([s for s in speedups if s])),
    )
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
