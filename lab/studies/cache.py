"""The KV cache by context, precision and kind: what it takes, and what it saves.

A step is a forward pass of one token, as in autoregressive decoding; a verification one of five, as
in speculative decoding with four drafted tokens. Passes follow each other as in decoding, so none
includes a rollback: that of four tokens is timed by itself, with what it adds to the next
verification. A draft that was accepted in full leaves the draft model one token behind; to catch
up, its next pass has two tokens.

Blocks that are allocated and pools that are copied to larger tensors are counted over all of a
row's passes, those that fill the caches included. OpenVINO does not report how often it allocates
states; for every kind, the memory of the process is read before and after.

OpenVINO 2026.4 also names bf16 and u3. Its paged attention refuses bf16 beside f32 inference; u3 is
not offered here. States in u4 cannot be trimmed: reading them corrupts the process's memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from lab.result import Cell, Chart, Column, Result, Row, Rows
from lab.study import Setup, Study
from pipeline.environment import process_memory
from pipeline.runtime.kv_cache.masked import MASKED
from pipeline.runtime.kv_cache.paged import PAGED, PagedKVCache
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.kv_cache.stateful import STATEFUL
from pipeline.runtime.kv_cache.uncached import UNCACHED

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.kv_cache.block_pool import BlockPool
    from pipeline.runtime.model import OVModel
    from pipeline.runtime.sequence import OVCausalLM

CONTEXTS = (64, 512, 2048, 8192)  # tokens
_CACHED = (PAGED, STATEFUL, MASKED)
CASES: tuple[tuple[str, KVPrecision], ...] = (
    *((policy.name, precision) for policy in _CACHED for precision in policy.precisions),
    (UNCACHED.name, "f32"),
)
_LONGEST_UNCACHED = 512  # a pass that reads more takes seconds
_DRAFTED = 4
_REPEATS = 8
_CHUNK = 128  # tokens of a pass that fills the cache

Load = Callable[[str, KVPrecision], tuple["OVModel", "OVModel"]]  # the target and the draft


def contexts_of(context_length: int, repeats: int, kind: str) -> list[int]:
    """The contexts that a pair has room for, with the passes that are measured there."""
    longest = context_length - (repeats + 1) * (_DRAFTED + 1)
    if kind == UNCACHED.name:
        longest = min(longest, _LONGEST_UNCACHED)
    return sorted({min(context, longest) for context in CONTEXTS})


def measured(
    load: Load, context_length: int, repeats: int, result: Result
) -> Generator[Result, None, None]:
    """Measures every kind and precision at every context.

    Args:
        load: compiles both models for a kind of cache and a precision.
        context_length: tokens that both can attend to.
        repeats: of each pass.
        result: what is known before.
    """
    cases = [(*case, contexts_of(context_length, repeats, case[0])) for case in CASES]
    result = replace(result, planned=sum(len(contexts) for *_, contexts in cases))
    for kind, precision, contexts in cases:
        name = f"{kind}, {precision}"
        yield replace(result, doing=f"compiling for {name}")
        models = load(kind, precision)
        for context in contexts:
            chunk = context if kind == UNCACHED.name else _CHUNK
            cells = yield from _cells(models, context, chunk, repeats, result)
            result = result.measured({"cache": name, "context": context, **cells})
            yield result


def _cells(
    models: tuple[OVModel, OVModel], context: int, chunk: int, repeats: int, so_far: Result
) -> Generator[Result, None, dict[str, Cell]]:
    """Measures sequences of both models, which end with it."""
    target, draft = (model.sequence() for model in models)
    caches = target.cache, draft.cache
    pools = [cache.pool for cache in caches if isinstance(cache, PagedKVCache)]
    for pool in pools:
        pool.trim()  # what earlier sequences held
    before = _allocated(pools)
    for sequence in (target, draft):
        for _ in _filling(sequence, context, chunk):
            yield so_far
    cells = _row(target, draft, context, repeats)
    for (name, old), new in zip(before.items(), _allocated(pools).values(), strict=True):
        cells[name] = None if old is None or new is None else new - old
    return cells


def _allocated(pools: Sequence[BlockPool]) -> dict[str, float | None]:
    """What caches have allocated so far; None for what those of this kind do not report."""
    resident = [use.used / 1e6 for use in process_memory()]
    return {
        "allocated": sum(pool.allocated for pool in pools) if pools else None,
        "resized": sum(pool.resized for pool in pools) if pools else None,
        "grown": resident[0] if resident else None,
    }


def _filling(sequence: OVCausalLM, length: int, chunk: int) -> Iterator[None]:
    """Feeds random tokens, chunk by chunk."""
    tokens = np.random.default_rng(0).integers(0, sequence.vocab_size, length).tolist()
    for at in range(0, length, chunk):
        sequence.forward(tokens[at : at + chunk], logits_to_keep=0)
        yield


def _row(target: OVCausalLM, draft: OVCausalLM, context: int, repeats: int) -> dict[str, Cell]:
    sizes = [sequence.kv_bytes / 1e6 for sequence in (target, draft)]
    verified = _DRAFTED + 1
    step, _ = _passes(target, context, 1, repeats)
    verification, _ = _passes(target, context, verified, repeats)
    after_rollback, rollback = _passes(target, context, verified, repeats, _DRAFTED)
    (one, _), (two, _) = (_passes(draft, context, count, repeats) for count in (1, 2))
    return {
        "step": 1e3 * step,
        "verification": 1e3 * verification,
        "rollback": 1e3 * (rollback + max(0.0, after_rollback - verification)),
        "catch_up": 1e3 * max(0.0, two - one),
        "target": sizes[0],
        "both": sum(sizes),
    }


def _passes(
    sequence: OVCausalLM, context: int, count: int, repeats: int, rolled_back: int = 0
) -> tuple[float, float]:
    """Times passes of so many tokens, each after one of its own size.

    Returns:
        The median seconds of a pass, and of the call that rolls tokens back before it.
    """
    sequence.rollback(context)
    tokens = [0] * count
    sequence.forward(tokens, count)
    passes, calls = [], []
    for _ in range(repeats):
        start = perf_counter()
        if rolled_back:
            sequence.rollback(len(sequence) - rolled_back)
        called = perf_counter()
        sequence.forward(tokens, count)
        passes.append(perf_counter() - called)
        calls.append(called - start)
    return statistics.median(passes), statistics.median(calls)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()

    def load(kind: str, precision: KVPrecision) -> tuple[OVModel, OVModel]:
        pair = setup.choice.pair
        target, draft = (
            setup.compiled(model, kind, precision) for model in (pair.target, pair.required_draft)
        )
        return target, draft

    repeats = setup.repeats or _REPEATS
    yield from measured(load, dolly.context_length, repeats, Result(pair=dolly.about))


def _conclude(rows: Rows) -> str:
    longest = max(row["context"] for row in rows)
    last = {str(row["cache"]): row for row in rows if row["context"] == longest}
    paged = [last[f"{PAGED.name}, {precision}"] for precision in ("f16", "u8", "u4")]
    trimmed = last[f"{STATEFUL.name}, f32"]
    return (
        f"At {longest:,.0f} tokens, the paged cache takes {_each(paged, 'target', 0)} MB in f16, "
        f"u8 and u4, a step {_each(paged, 'step', 1)} ms and the verification of four drafted "
        f"tokens {_each(paged, 'verification', 1)} ms; rolling them back adds "
        f"{paged[0]['rollback']:.2f} ms, and {trimmed['rollback']:.0f} ms where "
        "states are trimmed."
    )


def _each(rows: Sequence[Row], name: str, digits: int) -> str:
    first, second, last = (f"{row[name]:.{digits}f}" for row in rows)
    return f"{first}, {second} and {last}"


STUDY = Study(
    name="cache",
    title="The KV cache by context",
    question="What do a step, a verification, a rollback and the cache’s memory cost, by context, "
    "precision and kind of cache?",
    needs="3 GB of memory for a context of 8,192 tokens in f32",
    seconds=900,
    columns=(
        Column("cache", "Cache"),
        Column("context", "Context", "tokens", 0),
        Column("step", "Step", "ms"),
        Column("verification", "Verification of 4 drafts", "ms"),
        Column("rollback", "Rollback of 4", "ms"),
        Column("catch_up", "Catch-up of the draft", "ms"),
        Column("target", "Autoregressive cache", "MB"),
        Column("both", "Speculative caches", "MB"),
        Column("allocated", "Blocks allocated", digits=0),
        Column("resized", "Pools copied to larger ones", digits=0),
        Column("grown", "Growth of the process", "MB"),
    ),
    chart=Chart(
        kind="lines",
        x="context",
        y=("verification",),
        series="cache",
        logarithmic=True,
        reading="The longest context is what the pair allows, less the passes measured there. "
        "Without a cache only short contexts are measured. Quantised states are read out and "
        "quantised again when they are trimmed. Allocations are those of both models, filling the "
        "caches included; states are OpenVINO’s, which does not report theirs. The process may "
        "grow by less than the caches, if it has memory left of an earlier row.",
    ),
    measure=_measure,
    conclude=_conclude,
)
