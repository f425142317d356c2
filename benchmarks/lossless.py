"""Checks that greedy speculative text equals greedy autoregressive text, token for token.

    python -m benchmarks.lossless [--count 500] [--drafter hybrid] [--draft-length 4]

Answers held-out Dolly instructions with both decoders. A mismatch is printed with the gap between
the two largest logits at the first token that differs, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks.report import save
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.drafters.hybrid import HYBRID
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.trace.record import Trace
from training.corpus import DATA, held_out


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
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--drafter", choices=DRAFTERS, default=HYBRID.name)
    parser.add_argument("--draft-length", type=_length, default=4, help="a number, or auto")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--kv-cache", choices=exact, default=DEFAULT_POLICY)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--lossy", action="store_true", help="the plugin's fastest settings")
    options = parser.parse_args()
    try:
        settings = {
            "drafter": options.drafter,
            "draft_length": options.draft_length,
            "kv_cache": options.kv_cache,
            "max_new_tokens": options.max_new_tokens,
        }
        records = held_out(options.data)[: options.count]
        asked = [Request(r.instruction, r.context, **settings) for r in records]
        dolly = Dolly(options.pair, lossless=not options.lossy)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2

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
