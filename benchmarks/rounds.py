"""Measures the parts of a round besides forward passes, and the cost of the lossless settings.

    python -m benchmarks.rounds

1. Rollback of four of five verified tokens, at contexts from 64 to 900: the call, and what it adds
   to the next forward pass, against the same pass with nothing rolled back.
2. Everything outside forward passes, as a share of a speculative round.
3. Milliseconds per token with the lossless settings and with the plugin's fastest, alternately.
4. Forward passes of 1 to 9 tokens, and what a pass takes longer after one of another size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from benchmarks.report import save
from benchmarks.wrapped import WrappedLM
from experiments.spread import Spread
from experiments.table import table
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Drafted, Step
from pipeline.decoding.lanes import NewSequence
from pipeline.decoding.lm import Output
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import Request
from pipeline.runtime.kv_cache.registry import POLICIES
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.kv_cache.uncached import UNCACHED
from pipeline.runtime.sequence import OVCausalLM
from pipeline.trace.record import Lane

CONTEXTS = (64, 256, 512, 900)
_K = 4
_TOKEN = 17  # any token: the time does not depend on it


def rollback_costs(dolly: Dolly, kv_cache: str, repeats: int) -> list[dict[str, Any]]:
    """For each context, the milliseconds of a verification, and of rolling it back."""
    results: list[dict[str, Any]] = []
    target = dolly.models(kv_cache).target
    for context in CONTEXTS:
        sequence = target.sequence()
        plain: list[float] = []
        rolled: list[float] = []
        calls: list[float] = []
        for turn in range(2 * repeats):
            rolls = (turn + turn // 2) % 2 == 0  # in the order ABBA, so that drift cancels
            _refill(sequence, context + _K * rolls)
            if rolls:
                start = perf_counter()
                sequence.rollback(context)
                calls.append(perf_counter() - start)
            (rolled if rolls else plain).append(sequence.time_forward(_K + 1))
        call = statistics.median(calls)
        added = max(0.0, statistics.median(rolled) - statistics.median(plain))
        results.append(
            {
                "kv_cache": kv_cache,
                "context": context,
                "round_ms": 1e3 * statistics.median(plain),
                "call_ms": 1e3 * call,
                "added_ms": 1e3 * added,
                "rollback_ms": 1e3 * (call + added),
                "call_share": call / statistics.median(plain),
                "share": (call + added) / statistics.median(plain),
            }
        )
    return results


def _refill(sequence: OVCausalLM, length: int) -> None:
    sequence.rollback(0)
    sequence.forward([_TOKEN] * (length - 1), logits_to_keep=0)
    # So that the next pass follows one of its own size, and not a prompt.
    sequence.forward([_TOKEN], logits_to_keep=1, pad_to=_K + 1)


def answers(dolly: Dolly, **settings: object) -> list[Lane]:
    """Both lanes of a race on each of the pair's examples."""
    lanes: list[Lane] = []
    for example in dolly.pair.examples:
        request = Request(example.instruction, example.context, **settings)  # type: ignore[arg-type]
        lanes += dolly.start(request).finish().lanes.values()
    return lanes


class TimedLM(WrappedLM):
    """Adds up the seconds of its forward passes."""

    seconds = 0.0

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        start = perf_counter()
        output = super().forward(tokens, logits_to_keep, pad_to)
        self.seconds += perf_counter() - start
        return output


def _timed(new: NewSequence, made: list[TimedLM]) -> NewSequence:
    """Wraps `new`, so that its sequences are timed and added to `made`."""

    def sequence(prompt: Sequence[int]) -> TimedLM:
        made.append(TimedLM(new(prompt)))
        return made[-1]

    return sequence


def outside_share(dolly: Dolly, **settings: object) -> Spread:
    """Percent of a speculative round outside forward passes; the draft's sampling is among it."""
    shares: list[float] = []
    for example in dolly.pair.examples:
        request = Request(example.instruction, example.context, **settings)  # type: ignore[arg-type]
        timed: list[TimedLM] = []
        lanes = dolly.lanes(request)
        lanes = replace(lanes, target=_timed(lanes.target, timed), draft=_timed(lanes.draft, timed))
        prompt = dolly.tokenizer.ask(request.instruction, request.context)
        sampling, budget = request.sampling, request.max_new_tokens
        for event in lanes.speculative(prompt, sampling, budget, MODEL.name, _K):
            if isinstance(event, Step):
                inside = sum(model.seconds for model in timed)
                shares.append(100 * (event.seconds - inside) / event.seconds)
            if not isinstance(event, Drafted):
                for model in timed:
                    model.seconds = 0.0
    return Spread.of(shares)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    try:
        dolly, lossy = Dolly(options.pair), Dolly(options.pair, lossless=False)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2

    costs = [
        row
        for kv_cache in POLICIES
        if kv_cache != UNCACHED.name
        for row in rollback_costs(dolly, kv_cache, options.repeats)
    ]
    trimmed = {
        row["context"]: row["rollback_ms"] for row in costs if row["kv_cache"] == STATEFUL.name
    }
    for row in costs:
        row["saved_ms"] = trimmed[row["context"]] - row["rollback_ms"]
    names = ("context", "round_ms", "call_ms", "added_ms", "saved_ms")
    table(
        ("cache", *names, "share"),
        [[r["kv_cache"], *(f"{r[n]:.4g}" for n in names), f"{r['share']:.1%}"] for r in costs],
    )

    shares = {
        "greedy": outside_share(dolly),
        "sampled": outside_share(dolly, temperature=0.7, top_p=0.92),
    }
    table(("outside forward passes", "percent of a round"), list(shares.items()))

    times: dict[str, list[float]] = {}
    for turn in range(options.repeats):
        both = [("lossless", dolly), ("fastest", lossy)]
        for name, pair in both[:: 1 if turn % 2 else -1]:
            for place, lane in enumerate(answers(pair, max_new_tokens=40)):
                lane_name = f"{name} {('autoregressive', 'speculative')[place % 2]}"
                times.setdefault(lane_name, []).append(1e3 * (lane.seconds_per_token or 0))
    spreads = {name: Spread.of(samples) for name, samples in sorted(times.items())}
    table(("settings", "ms per token"), list(spreads.items()))
    passes: dict[str, dict[str, Any]] = {}
    models = dolly.models()
    for name, model in (("target", models.target), ("draft", models.draft)):
        by_size, switch = model.forward_times()
        passes[name] = {"run_ms": [1e3 * s for s in by_size], "switch_ms": 1e3 * switch}
    table(
        ("ms of a pass of", *map(str, range(1, len(by_size) + 1)), "another size"),
        [
            [
                name,
                *(f"{ms:.2f}" for ms in model_times["run_ms"]),
                f"+{model_times['switch_ms']:.2f}",
            ]
            for name, model_times in passes.items()
        ],
    )
    save(
        "rounds",
        widths=passes,
        pair=dolly.about,
        rollback=costs,
        outside_percent={name: spread.median for name, spread in shares.items()},
        ms_per_token={name: spread.median for name, spread in spreads.items()},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
