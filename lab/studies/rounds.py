"""The parts of a round besides forward passes, and the cost of the lossless settings.

1. The table: rollback of four of five verified tokens, at contexts from 64 to 900: the call, and
   what it adds to the next forward pass, against the same pass with nothing rolled back.
2. Everything outside the models' runs, as a share of a speculative round, and its parts.
3. Milliseconds per token with the lossless settings and with the plugin's fastest, alternately.
4. Forward passes of 1 to 9 tokens, and what a pass takes longer after one of another size.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import chain
from time import perf_counter
from typing import TYPE_CHECKING, Any

from lab.answers import answered, both_modes
from lab.result import Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Drafted, Step
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.kv_cache.uncached import UNCACHED

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.runtime.sequence import OVCausalLM

_REPEATS = 15
CONTEXTS = (64, 256, 512, 900)
_K = 4
_TOKEN = 17  # any token: the time does not depend on it
_SAMPLED = {"temperature": 0.7, "top_p": 0.92}
_MAX_NEW_TOKENS = 40  # of the answers in the exact and in the fastest mode


# --- rollback -------------------------------------------------------------------------------------


def _rollback_costs(dolly: Dolly, kv_cache: str, repeats: int) -> list[Row]:
    """For each context, the milliseconds of a verification, and of rolling it back."""
    return [_rollback_cost(dolly, kv_cache, context, repeats) for context in CONTEXTS]


def _rollback_cost(dolly: Dolly, kv_cache: str, context: int, repeats: int) -> Row:
    sequence = dolly.models(kv_cache).target.sequence()
    plain, rolled, calls = list[float](), list[float](), list[float]()
    for turn in range(2 * repeats):
        rolls = (turn + turn // 2) % 2 == 0  # in the order ABBA, so that drift cancels
        _refill(sequence, context + _K * rolls)
        if rolls:
            start = perf_counter()
            sequence.rollback(context)
            calls.append(perf_counter() - start)
        (rolled if rolls else plain).append(sequence.time_forward(_K + 1))
    verification, call = statistics.median(plain), statistics.median(calls)
    added = max(0.0, statistics.median(rolled) - verification)
    return {
        "kv_cache": kv_cache,
        "context": context,
        "round_ms": 1e3 * verification,
        "call_ms": 1e3 * call,
        "added_ms": 1e3 * added,
        "rollback_ms": 1e3 * (call + added),
        "share": (call + added) / verification,
    }


def _refill(sequence: OVCausalLM, length: int) -> None:
    sequence.rollback(0)
    sequence.forward([_TOKEN] * (length - 1), logits_to_keep=0)
    # So that the next pass follows one of its own size, and not a prompt.
    sequence.forward([_TOKEN], logits_to_keep=1, pad_to=_K + 1)


def _compared(costs: Sequence[Row]) -> tuple[Row, ...]:
    """With what is saved over states that are trimmed."""
    trimmed = {row["context"]: row for row in costs if row["kv_cache"] == STATEFUL.name}
    return tuple(
        {**row, "saved_ms": trimmed[row["context"]]["rollback_ms"] - row["rollback_ms"]}
        for row in costs
    )


# --- what is outside of the models' runs ----------------------------------------------------------


def _outside_shares(dolly: Dolly, draft_length: int, **settings: Any) -> dict[str, float]:
    """Percent of a speculative round outside the models' runs, and of its parts: the inputs and
    outputs of the runs, what else is done to draft, and to accept and roll back. Medians.
    """
    shares: dict[str, list[float]] = {}
    drafter = (BLOCK if dolly.models().block_draft else MODEL).name
    for example in dolly.pair.examples:
        request = Request(example.instruction, example.context, **settings)
        spent: Counter[str] = Counter()  # seconds of the round
        whole = dolly.lanes(request)
        lanes = replace(
            whole,
            target=_timed(whole.target, spent, "passes"),
            draft=whole.draft and _timed(whole.draft, spent, "passes", "drafting"),
            block_draft=whole.block_draft
            and _timed(whole.block_draft, spent, "passes", "drafting"),
        )
        prompt = dolly.tokenizer.ask(request.instruction, request.context)
        sampling, budget = request.sampling, request.max_new_tokens
        for event in lanes.speculative(prompt, sampling, budget, drafter, draft_length):
            if isinstance(event, Step):
                parts = {
                    "outside": event.seconds - spent["runs"],
                    "inputs and outputs": spent["passes"] - spent["runs"],
                    "drafting": event.draft_s - spent["drafting"],
                    "accepting": event.other_s,
                }
                for name, seconds in parts.items():
                    shares.setdefault(name, []).append(100 * seconds / event.seconds)
            if not isinstance(event, Drafted):
                spent.clear()
    return {name: statistics.median(samples) for name, samples in shares.items()}


def _timed(new: Callable[..., Any], spent: Counter[str], *names: str) -> Callable[..., Any]:
    """Makes sequences whose forward passes add their seconds to these of `spent`, and the runs of
    their infer requests to "runs".
    """

    def timed(call: Callable[..., Any], *names: str) -> Callable[..., Any]:
        def calling(*arguments: Any, **named: Any) -> Any:
            start = perf_counter()
            value = call(*arguments, **named)
            spent.update(dict.fromkeys(names, perf_counter() - start))
            return value

        return calling

    def make(*prompt: Any) -> Any:
        made = new(*prompt)
        made.forward = timed(made.forward, *names)
        request = getattr(made, "_sequence", made)._request  # a block draft has a sequence
        for name in ("start_async", "wait"):
            setattr(request, name, timed(getattr(request, name), "runs"))
        return made

    return make


# --- measuring ------------------------------------------------------------------------------------


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from pipeline.dolly import Dolly

    dolly = yield from setup.pair()
    modes = {
        "lossless": dolly,
        "fastest": Dolly(setup.choice.pair, lossless=False, store=setup.choice.store),
    }
    repeats = setup.repeats or _REPEATS
    caches = [name for name, policy in POLICIES.items() if policy.exact and name != UNCACHED.name]
    ways: list[tuple[str, int, dict[str, float]]] = [
        (f"{name}, K = {length}", length, settings)
        for name, settings in (("greedy", {}), ("sampled", _SAMPLED))
        for length in (_K, MAX_DRAFT_LENGTH)
    ]
    result = Result(pair=dolly.about, planned=len(caches) + len(ways) + 2)

    costs: list[Row] = []
    for kv_cache in caches:
        costs += _rollback_costs(dolly, kv_cache, repeats)
        result = result.measured()
        yield result

    shares: dict[str, dict[str, float]] = {}
    for name, length, settings in ways:
        shares[name] = _outside_shares(dolly, length, **settings)
        result = result.measured()
        yield result

    conditions = [*chain.from_iterable(both_modes(*mode) for mode in modes.items())]
    requests = [
        Request(example.instruction, example.context, max_new_tokens=_MAX_NEW_TOKENS)
        for example in dolly.pair.examples
    ]
    for answers in answered(conditions, requests, repeats):  # noqa: B007  # used below
        yield result
    result = result.measured()
    yield result

    passes: dict[str, dict[str, Any]] = {}
    models = dolly.models()
    for name, model in (("target", models.target), ("draft", models.required_draft)):
        by_size = model.forward_times()
        run_ms = [1e3 * seconds for seconds in by_size.seconds]
        passes[name] = {"run_ms": run_ms, "switch_ms": 1e3 * by_size.switch}
    figures = {
        "outside_percent": shares,
        "ms_per_token": {
            each.name: statistics.median(
                1e3 * (lane.seconds_per_token or 0.0) for lane in answers.lanes(each.name)
            )
            for each in conditions
        },
        "widths": passes,
    }
    yield replace(result.measured(*_compared(costs)), figures=figures)


def _conclude(rows: Rows) -> str:
    longest = max(row["context"] for row in rows)
    last = {row["kv_cache"]: row["rollback_ms"] for row in rows if row["context"] == longest}
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
