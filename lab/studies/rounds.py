"""Measures the parts of a round besides forward passes, and the cost of the lossless settings.

    python -m lab.studies.rounds

1. Rollback of four of five verified tokens, at contexts from 64 to 900: the call, and what it adds
   to the next forward pass, against the same pass with nothing rolled back.
2. Everything outside the models' runs, as a share of a speculative round, and its parts.
3. Milliseconds per token with the lossless settings and with the plugin's fastest, alternately.
4. Forward passes of 1 to 9 tokens, and what a pass takes longer after one of another size.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
import openvino as ov
from numpy.typing import NDArray

from lab.engines.wrapped import WrappedBlock, WrappedLM
from lab.report import save
from lab.spread import Spread
from lab.table import table
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Drafted, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.runtime.block import OVBlockDraft
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


@dataclass
class Spent:
    """Seconds of a round, added up: of the models' runs alone, and of whole forward passes."""

    runs: float = 0.0
    passes: float = 0.0
    drafting: float = 0.0  # of the draft's passes, a part of `passes`


class TimedRequest:
    """An infer request that adds up the seconds of its runs."""

    def __init__(self, request: ov.InferRequest, spent: Spent) -> None:
        self._request, self._spent, self._start = request, spent, 0.0

    def start_async(self) -> None:
        self._start = perf_counter()
        self._request.start_async()

    def wait(self) -> None:
        self._request.wait()
        self._spent.runs += perf_counter() - self._start

    def set_tensor(self, name: str, tensor: ov.Tensor) -> None:
        self._request.set_tensor(name, tensor)


def _time_runs(sequence: object, spent: Spent) -> None:
    assert isinstance(sequence, OVCausalLM)
    sequence._request = TimedRequest(sequence._request, spent)


class TimedLM(WrappedLM):
    """Adds up the seconds of its forward passes."""

    def __init__(self, model: CausalLM, spent: Spent) -> None:
        super().__init__(model)
        _time_runs(model, spent)
        self._spent = spent

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        start = perf_counter()
        output = super().forward(tokens, logits_to_keep, pad_to)
        self._spent.passes += perf_counter() - start
        return output


class TimedDraft(TimedLM):
    """A draft model, likewise."""

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        before = self._spent.passes
        output = super().forward(tokens, logits_to_keep, pad_to)
        self._spent.drafting += self._spent.passes - before
        return output


class TimedBlock(WrappedBlock):
    """A block draft, likewise."""

    def __init__(self, model: BlockDraft, spent: Spent) -> None:
        super().__init__(model)
        assert isinstance(model, OVBlockDraft)
        _time_runs(model._sequence, spent)
        self._spent = spent

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        start = perf_counter()
        logits = super().forward(tokens, hidden, length)
        seconds = perf_counter() - start
        self._spent.passes += seconds
        self._spent.drafting += seconds
        return logits


def _timed(lanes: Lanes, spent: Spent) -> Lanes:
    """The same lanes, whose models add up what they take."""
    target, draft, block = lanes.target, lanes.draft, lanes.block_draft
    return replace(
        lanes,
        target=lambda prompt: TimedLM(target(prompt), spent),
        draft=lambda prompt: TimedDraft(draft(prompt), spent),
        block_draft=(lambda: TimedBlock(block(), spent)) if block else None,
    )


def outside_shares(dolly: Dolly, draft_length: int, **settings: object) -> dict[str, Spread]:
    """Percent of a speculative round outside the models' runs, and of its parts: the inputs and
    outputs of the runs, what else is done to draft, and to accept and roll back.
    """
    shares: dict[str, list[float]] = {}
    drafter = (BLOCK if dolly.models().block_draft else MODEL).name
    for example in dolly.pair.examples:
        request = Request(example.instruction, example.context, **settings)  # type: ignore[arg-type]
        spent = Spent()
        lanes = _timed(dolly.lanes(request), spent)
        prompt = dolly.tokenizer.ask(request.instruction, request.context)
        sampling, budget = request.sampling, request.max_new_tokens
        for event in lanes.speculative(prompt, sampling, budget, drafter, draft_length):
            if isinstance(event, Step):
                parts = {
                    "outside": event.seconds - spent.runs,
                    "inputs and outputs": spent.passes - spent.runs,
                    "drafting": event.draft_s - spent.drafting,
                    "accepting": event.other_s,
                }
                for name, seconds in parts.items():
                    shares.setdefault(name, []).append(100 * seconds / event.seconds)
            if not isinstance(event, Drafted):
                spent.runs = spent.passes = spent.drafting = 0.0
    return {name: Spread.of(samples) for name, samples in shares.items()}


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
        if kv_cache != UNCACHED.name and POLICIES[kv_cache].exact
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

    sampled = {"temperature": 0.7, "top_p": 0.92}
    shares = {
        f"{name}, K = {length}": outside_shares(dolly, length, **settings)
        for name, settings in (("greedy", {}), ("sampled", sampled))
        for length in (_K, MAX_DRAFT_LENGTH)
    }
    parts = [*next(iter(shares.values()))]
    table(
        ("percent of a round", *parts),
        [[name, *(found[part] for part in parts)] for name, found in shares.items()],
    )

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
        by_size = model.forward_times()
        run_ms = [1e3 * seconds for seconds in by_size.seconds]
        passes[name] = {"run_ms": run_ms, "switch_ms": 1e3 * by_size.switch}
    table(
        ("ms of a pass of", *map(str, range(1, len(run_ms) + 1)), "another size"),
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
        outside_percent={
            name: {part: spread.median for part, spread in found.items()}
            for name, found in shares.items()
        },
        ms_per_token={name: spread.median for name, spread in spreads.items()},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
