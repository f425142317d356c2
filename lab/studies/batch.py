"""Several sequences at once: where does speculation stop paying?

A pass that verifies drafts is nearly free where it waits for the weights to be read. A batch reads
them once for all its sequences, and computes for each: the more sequences, the less is free.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from lab.answers import turned
from lab.imposed import Imposed, accepted_counts
from lab.prompts import KINDS
from lab.result import Chart, Column, Result, Row, Rows, even, number
from lab.studies.batch_decoding import BatchRound, Writing, autoregressive, speculative
from lab.study import Setup, Study
from pipeline.decoding.events import Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.decoding.verification.tokens import Verify, verify
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from lab.batch import OVBatch
    from pipeline.dolly import Dolly
    from pipeline.runtime.model import OVModel

SIZES = (1, 2, 3, 4, 6, 8)
_PROMPTS = [prompt for prompts in KINDS.values() for prompt in prompts]
_MAX_NEW_TOKENS = 40
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Method:
    """A way to decode a batch.

    Attributes:
        length: K; 0 is autoregressive decoding.
        acceptance: imposed; None for the pair's own.
    """

    length: int = 0
    acceptance: float | None = None

    @property
    def name(self) -> str:
        if not self.length:
            return "autoregressive"
        imposed = "own acceptance"
        if self.acceptance is not None:
            imposed = f"{percent(self.acceptance)} accepted, imposed"
        return f"K = {self.length}, {imposed}"


AUTOREGRESSIVE = Method()
METHODS = (AUTOREGRESSIVE, *(Method(*each) for each in product((2, 4), (None, 0.8))))


@dataclass(frozen=True, slots=True)
class Measured:
    """The rounds of a batch in which all sequences went on, but for the first.

    Attributes:
        rounds: at least one.
        texts: all tokens that each sequence emitted.
    """

    size: int
    method: Method
    rounds: tuple[BatchRound, ...]
    texts: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        return sum(len(emitted) for each in self.rounds for emitted in each.tokens)

    @property
    def seconds_per_token(self) -> float:
        """Wall-clock time over the tokens of all sequences, if every round took the median."""
        usual = statistics.median(each.seconds for each in self.rounds)
        return usual * len(self.rounds) / self.tokens


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    yield from measured(dolly, SIZES, METHODS, _MAX_NEW_TOKENS, setup.repeats or _REPEATS)


def measured(
    dolly: Dolly,
    sizes: Sequence[int],
    methods: Sequence[Method],
    max_new_tokens: int,
    repeats: int,
) -> Generator[Result, None, None]:
    """Measures batches of these sizes with each method, in an order that turns."""
    planned = repeats * len(sizes) * len(methods)
    made, result = list[Measured](), Result(pair=dolly.about, planned=planned)
    yield replace(result, planned=0, doing="decoding each text alone")
    alone = [_alone(dolly, prompt, max_new_tokens) for prompt in _prompts(dolly, max(sizes))]
    for repeat, size in product(range(repeats), sizes):
        for method in turned(methods, repeat):
            made.append(decoded(dolly, size, method, max_new_tokens))
            result = replace(result, rows=tuple(rows_of(made, alone)), done=len(made))
            yield result


def decoded(dolly: Dolly, size: int, method: Method, max_new_tokens: int) -> Measured:
    """Decodes that many prompts at once. No text ends before its budget is used up."""
    from lab.batch import OVBatch

    models, prompts = dolly.models(), _prompts(dolly, size)
    writing = Writing(prompts, max_new_tokens, frozenset())

    def batch(model: OVModel) -> OVBatch:
        sequences = [model.sequence(dolly.tokenizer.size, prompt) for prompt in prompts]
        for sequence, prompt in zip(sequences, prompts, strict=True):
            sequence.forward(prompt[len(sequence) : -1], logits_to_keep=0)
        return OVBatch(model.compiled, sequences)

    if method.length:
        accept = _accept(method, size * max_new_tokens)
        drafted = batch(models.required_draft)
        rounds = [*speculative(batch(models.target), drafted, writing, method.length, accept)]
    else:
        rounds = [*autoregressive(batch(models.target), writing)]
    emitted = zip(writing.texts, prompts, strict=True)
    return Measured(
        size,
        method,
        # The first round is left out: the plugin prepares passes of its size.
        tuple(each for each in rounds[1:] if all(each.tokens)),
        tuple(tuple(text[len(prompt) :]) for text, prompt in emitted),
    )


def _prompts(dolly: Dolly, size: int) -> list[list[int]]:
    return [dolly.tokenizer.ask(*prompt) for prompt in _PROMPTS[:size]]


def _accept(method: Method, drafts: int) -> Verify:
    """How so many drafts, at most, are verified."""
    if method.acceptance is None:
        return verify
    rng = np.random.default_rng(0)
    return Imposed(accepted_counts(method.acceptance, method.length, drafts, rng))


def _alone(dolly: Dolly, prompt: list[int], max_new_tokens: int) -> tuple[int, ...]:
    """The greedy text of a single sequence, as the page writes it."""
    lanes = Lanes(target=partial(dolly.models().target.sequence, dolly.tokenizer.size))
    lane = lanes.autoregressive(prompt, SamplingParams(), max_new_tokens)
    return tuple(token for step in lane if isinstance(step, Step) for token in step.tokens)


def rows_of(made: Sequence[Measured], alone: Sequence[tuple[int, ...]]) -> Iterator[Row]:
    """A row for each size and method.

    Args:
        alone: each text as a single sequence.
    """
    groups: dict[tuple[int, Method], list[Measured]] = {}
    for each in made:
        groups.setdefault((each.size, each.method), []).append(each)
    seconds = {
        key: statistics.median(each.seconds_per_token for each in group)
        for key, group in groups.items()
    }
    for (size, method), group in sorted(groups.items(), key=_place):
        rounds = [one for each in group for one in each.rounds]
        tested = sum(each.tested for each in rounds)
        slow = seconds.get((size, AUTOREGRESSIVE))
        texts = [text == alone[at] for each in group for at, text in enumerate(each.texts)]
        yield {
            "sequences": size,
            "method": method.name,
            "rate": 1 / seconds[size, method],
            "ms": 1e3 * seconds[size, method],
            "speedup": slow / seconds[size, method] if slow else None,
            "acceptance": sum(each.accepted for each in rounds) / tested if tested else None,
            "block": sum(each.tokens for each in group) / size / len(rounds),
            "identical": None if method.acceptance is not None else statistics.mean(texts),
        }


def _place(group: tuple[tuple[int, Method], list[Measured]]) -> tuple[int, int]:
    """In the table: by method, then by size."""
    (size, method), _ = group
    return METHODS.index(method), size


def break_even(rows: Rows, method: str) -> float | None:
    """The least number of sequences at which a method is slower than autoregressive decoding."""
    slower = (row["sequences"] for row in rows if row["method"] == method and _slower(row))
    return min(map(number, slower), default=None)


def _slower(row: Row) -> bool:
    return number(row["speedup"]) < 1


def _conclude(rows: Rows) -> str:
    sizes = [number(row["sequences"]) for row in rows]
    few, many = min(sizes), max(sizes)
    each = {(row["method"], row["sequences"]): row for row in rows}
    slow = [each[AUTOREGRESSIVE.name, size] for size in (few, many)]
    gain = number(slow[1]["rate"]) / number(slow[0]["rate"])
    said = []
    for method in METHODS[1:]:
        ends = (number(each[method.name, size]["speedup"]) for size in (few, many))
        at = break_even(rows, method.name)
        stops = f"stops paying at {at:g}" if at else f"pays up to {many:g}"
        if at == few:
            stops = "never pays"
        said.append(f"{method.name}: {stops} ({' to '.join(f'{end:.2f}×' for end in ends)})")
    return (
        f"{many:g} sequences at once make {gain:.1f} times as many tokens per second as one, "
        f"autoregressively. Speculation from {few:g} sequence to {many:g}: {'; '.join(said)}."
    )


STUDY = Study(
    name="batch",
    title="Several sequences at once",
    question="At how many sequences in a batch does speculation stop paying?",
    seconds=70,
    columns=(
        Column("method", "Method"),
        Column("sequences", "Sequences", digits=0),
        Column("rate", "Tokens per second", digits=1),
        Column("ms", "Time per token of all", "ms"),
        Column("speedup", "Over autoregressive", "×"),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("block", "Tokens per pass and sequence"),
        Column("identical", "Texts as alone", "%", 1),
    ),
    chart=Chart(
        kind="lines",
        x="sequences",
        y=("speedup",),
        series="method",
        level=even,
        reading="Over autoregressive decoding of as many sequences. Below the dashed line, "
        "speculation no longer pays. Where it says so, the acceptance is imposed.",
    ),
    measure=_measure,
    conclude=_conclude,
)
