"""The parts of a round besides forward passes, and the cost of the lossless settings.

1. The table: rollback of four of five verified tokens, at contexts from 64 to 900: the call, and
   what it adds to the next forward pass, against the same pass with nothing rolled back.
2. Everything outside the models' runs, as a share of a speculative round, and its parts.
3. Milliseconds per token with the lossless settings and with the plugin's fastest, alternately.
4. Forward passes of 1 to 9 tokens, and what a pass takes longer after one of another size.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lab.result import Cell, Chart, Column, Result, Rows, number
from lab.spread import Spread
from lab.study import Setup, Study
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Drafted, Step
from pipeline.decoding.lanes import Lanes
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.kv_cache.uncached import UNCACHED
from pipeline.trace.record import Lane

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.runtime.sequence import OVCausalLM

_REPEATS = 15
CONTEXTS = (64, 256, 512, 900)
_K = 4
_TOKEN = 17  # any token: the time does not depend on it


def _rollback_costs(dolly: Dolly, kv_cache: str, repeats: int) -> list[dict[str, Cell]]:
    """For each context, the milliseconds of a verification, and of rolling it back."""
    results: list[dict[str, Cell]] = []
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
                "share": (call + added) / statistics.median(plain),
            }
        )
    return results


def _refill(sequence: OVCausalLM, length: int) -> None:
    sequence.rollback(0)
    sequence.forward([_TOKEN] * (length - 1), logits_to_keep=0)
    # So that the next pass follows one of its own size, and not a prompt.
    sequence.forward([_TOKEN], logits_to_keep=1, pad_to=_K + 1)


def _answers(dolly: Dolly, **settings: object) -> list[Lane]:
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

    def __init__(self, request: Any, spent: Spent) -> None:
        self._request, self._spent, self._start = request, spent, 0.0

    def start_async(self) -> None:
        self._start = perf_counter()
        self._request.start_async()

    def wait(self) -> None:
        self._request.wait()
        self._spent.runs += perf_counter() - self._start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._request, name)


class TimedModel:
    """A model whose forward passes add up their seconds; all else is the model's.

    Args:
        sequence: that runs its infer request.
    """

    def __init__(self, model: Any, sequence: Any, spent: Spent, drafts: bool) -> None:
        self._model, self._spent, self._drafts = model, spent, drafts
        sequence._request = TimedRequest(sequence._request, spent)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        start = perf_counter()
        output = self._model.forward(*arguments, **named)
        seconds = perf_counter() - start
        self._spent.passes += seconds
        self._spent.drafting += seconds * self._drafts
        return output

    def __len__(self) -> int:
        return len(self._model)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _timed(lanes: Lanes, spent: Spent) -> Lanes:
    """The same lanes, whose models add up what they take."""

    def model(new: Callable[..., Any], drafts: bool) -> Callable[..., Any]:
        def timed(*prompt: Any) -> TimedModel:
            made = new(*prompt)
            return TimedModel(made, getattr(made, "_sequence", made), spent, drafts)

        return timed

    return replace(
        lanes,
        target=model(lanes.target, False),
        draft=model(lanes.draft, True) if lanes.draft else None,
        block_draft=model(lanes.block_draft, True) if lanes.block_draft else None,
    )


def _outside_shares(dolly: Dolly, draft_length: int, **settings: object) -> dict[str, Spread]:
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


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from pipeline.dolly import Dolly

    dolly = yield from setup.pair()
    lossy = Dolly(setup.choice.pair, lossless=False, store=setup.choice.store)
    repeats = setup.repeats or _REPEATS
    caches = [name for name, policy in POLICIES.items() if policy.exact and name != UNCACHED.name]
    sampled = {"temperature": 0.7, "top_p": 0.92}
    ways = [
        (f"{name}, K = {length}", length, settings)
        for name, settings in (("greedy", {}), ("sampled", sampled))
        for length in (_K, MAX_DRAFT_LENGTH)
    ]
    result = Result(pair=dolly.about, planned=len(caches) + len(ways) + repeats + 1)

    def one_more() -> Result:
        nonlocal result
        result = replace(result, done=result.done + 1)
        return result

    costs: list[dict[str, Cell]] = []
    for kv_cache in caches:
        costs += _rollback_costs(dolly, kv_cache, repeats)
        yield one_more()
    trimmed = {row["context"]: row for row in costs if row["kv_cache"] == STATEFUL.name}
    for row in costs:
        row["saved_ms"] = number(trimmed[row["context"]]["rollback_ms"]) - number(
            row["rollback_ms"]
        )
    shares: dict[str, dict[str, float]] = {}
    for name, length, settings in ways:
        found = _outside_shares(dolly, length, **settings)
        shares[name] = {part: spread.median for part, spread in found.items()}
        yield one_more()
    times: dict[str, list[float]] = {}
    for turn in range(repeats):
        both = [("lossless", dolly), ("fastest", lossy)]
        for name, pair in both[:: 1 if turn % 2 else -1]:
            for place, lane in enumerate(_answers(pair, max_new_tokens=40)):
                lane_name = f"{name} {('autoregressive', 'speculative')[place % 2]}"
                times.setdefault(lane_name, []).append(1e3 * (lane.seconds_per_token or 0))
        yield one_more()
    passes: dict[str, dict[str, Any]] = {}
    models = dolly.models()
    for name, model in (("target", models.target), ("draft", models.required_draft)):
        by_size = model.forward_times()
        run_ms = [1e3 * seconds for seconds in by_size.seconds]
        passes[name] = {"run_ms": run_ms, "switch_ms": 1e3 * by_size.switch}
    figures = {
        "outside_percent": shares,
        "ms_per_token": {name: statistics.median(each) for name, each in sorted(times.items())},
        "widths": passes,
    }
    yield replace(one_more(), rows=tuple(costs), figures=figures)


def _conclude(rows: Rows) -> str:
    longest = max(number(row["context"]) for row in rows)
    last = {
        row["kv_cache"]: number(row["rollback_ms"]) for row in rows if row["context"] == longest
    }
    others = ", ".join(
        f"{ms:.1f} ms ({name})" for name, ms in last.items() if name != DEFAULT_POLICY
    )
    return (
        f"At {longest:g} tokens, rolling back four of five verified tokens costs "
        f"{last[DEFAULT_POLICY]:.2f} ms with the {DEFAULT_POLICY} cache, and {others} with others."
    )


STUDY = Study(
    name="rounds",
    title="Rollback and exactness",
    question="What does a round cost beside the forward passes: rollback, Python, exactness?",
    seconds=180,
    columns=(
        Column("kv_cache", "KV cache"),
        Column("context", "Context", "tokens", 0),
        Column("round_ms", "Verification", "ms"),
        Column("call_ms", "Rollback, the call", "ms", 3),
        Column("added_ms", "Added to the next pass", "ms"),
        Column("rollback_ms", "Rollback", "ms"),
        Column("share", "Of the verification", "%", 1),
        Column("saved_ms", "Saved over trimmed states", "ms"),
    ),
    chart=Chart(
        kind="lines",
        x="context",
        y=("rollback_ms",),
        series="kv_cache",
        reading="The call, and what it adds to the next forward pass.",
    ),
    measure=_measure,
    conclude=_conclude,
)
