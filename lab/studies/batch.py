"""Several sequences at once: where does speculation stop paying?

A pass that verifies drafts is nearly free where it waits for the weights to be read. A batch reads
them once for all its sequences, and computes for each: the more sequences, the less is free.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from lab.answers import turned
from lab.imposed import Imposed, accepted_counts
from lab.prompts import EVERY
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from pipeline.decoding.events import Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import Distributions, SamplingParams
from pipeline.decoding.verification.tokens import Verify, verify
from pipeline.words import percent

if TYPE_CHECKING:  # importing it loads OpenVINO
    from lab.batch import OVBatch
    from pipeline.dolly import Dolly
    from pipeline.runtime.model import OVModel

SIZES = (1, 2, 3, 4, 6, 8)
_MAX_NEW_TOKENS = 40
_REPEATS = 3
_GREEDY = SamplingParams()


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
class Round:
    """One forward pass of the target, with the drafts before it.

    Attributes:
        tokens: that each text emitted; none if it had ended before.
        seconds: the round's whole cost.
        tested, accepted: drafted tokens of all texts.
    """

    tokens: tuple[tuple[int, ...], ...]
    seconds: float
    tested: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """A batch.

    Attributes:
        rounds: in which all sequences went on, but for the first; at least one.
        texts: all tokens that each sequence emitted.
    """

    size: int
    method: Method
    rounds: tuple[Round, ...]
    texts: tuple[tuple[int, ...], ...]

    @property
    def tokens(self) -> int:
        return sum(len(emitted) for each in self.rounds for emitted in each.tokens)

    @property
    def seconds_per_token(self) -> float:
        """Wall-clock time over the tokens of all sequences, if every round took the median."""
        usual = statistics.median(each.seconds for each in self.rounds)
        return usual * len(self.rounds) / self.tokens


# --- decoding -------------------------------------------------------------------------------------


def decode(
    target: OVBatch,
    draft: OVBatch | None,
    prompts: Sequence[Sequence[int]],
    max_new_tokens: int,
    draft_length: int = 0,
    verify: Verify = verify,
) -> Iterator[Round]:
    """Writes several texts at once, greedily, each to its budget.

    The algorithm is that of `pipeline.decoding.decoders`, for a batch: a forward pass extends every
    text that goes on. Each text has its own drafts, its own verdict and its own rollback.

    Args:
        draft: None for autoregressive decoding.
        prompts: at least one token each, all but the last in the models' caches.
        max_new_tokens: the budget of each.
    """
    rng = np.random.default_rng(0)  # greedy decoding draws nothing
    texts, left = [[*prompt] for prompt in prompts], [max_new_tokens] * len(prompts)
    while ongoing := [place for place, count in enumerate(left) if count]:
        start = perf_counter()
        # A round emits one token more than it drafts, and must not pass the budget.
        lengths = [max(0, min(draft_length, count - 1)) for count in left]
        drafts: list[list[int]] = [[] for _ in texts]
        if draft:
            drafts = _drafted(draft, texts, lengths, pad_to=2 * len(ongoing))

        # Every pass of as many texts has one size: another costs more the first time.
        pending = [
            [*text[length:], *drafted] if count else []
            for text, length, drafted, count in zip(
                texts, target.lengths, drafts, left, strict=True
            )
        ]
        outputs = target.forward(pending, pad_to=(draft_length + 1) * len(ongoing))

        tokens: list[tuple[int, ...]] = [()] * len(texts)
        accepted = tested = 0
        for place in ongoing:
            drafted = drafts[place]
            probs = Distributions(outputs[place].logits[-len(drafted) - 1 :], _GREEDY)
            verdict = verify(probs, None, drafted, rng)
            tokens[place] = (*drafted[: verdict.accepted], verdict.token)
            texts[place] += tokens[place]
            left[place] -= len(tokens[place])
            accepted += verdict.accepted
            tested += min(verdict.accepted + 1, len(drafted))

        for batch in (target, draft):
            if batch:
                ends = zip(batch.lengths, texts, strict=True)
                batch.rollback([min(length, len(text) - 1) for length, text in ends])
        yield Round(tuple(tokens), perf_counter() - start, tested, accepted)


def _drafted(
    draft: OVBatch, texts: Sequence[list[int]], lengths: Sequence[int], pad_to: int
) -> list[list[int]]:
    """The draft of each text, of so many tokens."""
    drafts: list[list[int]] = [[] for _ in texts]
    wanted = zip(texts, draft.lengths, lengths, strict=True)
    pending = [text[read:] if length else [] for text, read, length in wanted]
    while any(pending):
        for drafted, (logits, _) in zip(drafts, draft.forward(pending, pad_to), strict=True):
            if len(logits):
                best = int(logits[-1].argmax())
                drafted.append(best if draft.token_ids is None else int(draft.token_ids[best]))
        pending = [
            drafted[-1:] if len(drafted) < length else []
            for drafted, length in zip(drafts, lengths, strict=True)
        ]
    return drafts


# --- measuring ------------------------------------------------------------------------------------


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    yield from measured(dolly, SIZES, _MAX_NEW_TOKENS, setup.repeats or _REPEATS)


def measured(
    dolly: Dolly, sizes: Sequence[int], max_new_tokens: int, repeats: int
) -> Generator[Result, None, None]:
    """Measures batches of these sizes with each method, in an order that turns."""
    made, result = list[Measured](), Result(pair=dolly.about)
    yield replace(result, doing="decoding each text alone")
    prompts = [dolly.tokenizer.ask(*prompt) for prompt in EVERY[: max(sizes)]]
    alone = [_alone(dolly, prompt, max_new_tokens) for prompt in prompts]
    result = replace(result, planned=repeats * len(sizes) * len(METHODS))
    for repeat, size in product(range(repeats), sizes):
        for method in turned(METHODS, repeat):
            made.append(_decoded(dolly, prompts[:size], method, max_new_tokens))
            result = replace(result, rows=tuple(rows_of(made, alone)), done=len(made))
            yield result


def _decoded(
    dolly: Dolly, prompts: Sequence[list[int]], method: Method, max_new_tokens: int
) -> Measured:
    from lab.batch import OVBatch

    def batch(model: OVModel) -> OVBatch:
        sequences = [model.sequence(dolly.tokenizer.size, prompt) for prompt in prompts]
        for sequence, prompt in zip(sequences, prompts, strict=True):
            sequence.forward(prompt[len(sequence) : -1], logits_to_keep=0)
        return OVBatch(model.compiled, sequences)

    models, accept = dolly.models(), verify
    if method.acceptance is not None:
        drafts, rng = len(prompts) * max_new_tokens, np.random.default_rng(0)
        accept = Imposed(accepted_counts(method.acceptance, method.length, drafts, rng))
    draft = batch(models.required_draft) if method.length else None
    rounds = [*decode(batch(models.target), draft, prompts, max_new_tokens, method.length, accept)]
    emitted = zip(*(each.tokens for each in rounds), strict=True)
    return Measured(
        len(prompts),
        method,
        # The first round is left out: the plugin prepares passes of its size.
        tuple(each for each in rounds[1:] if all(each.tokens)),
        tuple(tuple(chain.from_iterable(each)) for each in emitted),
    )


def _alone(dolly: Dolly, prompt: list[int], max_new_tokens: int) -> tuple[int, ...]:
    """The greedy text of a single sequence, as the page writes it."""
    lanes = Lanes(target=partial(dolly.models().target.sequence, dolly.tokenizer.size))
    lane = lanes.autoregressive(prompt, _GREEDY, max_new_tokens)
    return tuple(token for step in lane if isinstance(step, Step) for token in step.tokens)


def rows_of(made: Sequence[Measured], alone: Sequence[tuple[int, ...]]) -> Iterator[Row]:
    """A row for each method and size.

    Args:
        alone: each text as a single sequence.
    """
    sizes = sorted({each.size for each in made})
    slow: dict[int, float] = {}
    for method, size in product(METHODS, sizes):
        group = [each for each in made if (each.method, each.size) == (method, size)]
        if not group:
            continue
        seconds = statistics.median(each.seconds_per_token for each in group)
        if method == AUTOREGRESSIVE:
            slow[size] = seconds
        rounds = [one for each in group for one in each.rounds]
        tested = sum(each.tested for each in rounds)
        texts = [text == alone[at] for each in group for at, text in enumerate(each.texts)]
        yield {
            "sequences": size,
            "method": method.name,
            "rate": 1 / seconds,
            "ms": 1e3 * seconds,
            "speedup": slow[size] / seconds if size in slow else None,
            "acceptance": sum(each.accepted for each in rounds) / tested if tested else None,
            "block": sum(each.tokens for each in group) / size / len(rounds),
            "identical": None if method.acceptance is not None else statistics.mean(texts),
        }


def break_even(rows: Rows, method: str) -> float | None:
    """The least number of sequences at which a method is slower than autoregressive decoding."""
    slower = (row for row in rows if row["method"] == method and row["speedup"] < 1)
    return min((row["sequences"] for row in slower), default=None)


def _conclude(rows: Rows) -> str:
    sizes = [row["sequences"] for row in rows]
    few, many = min(sizes), max(sizes)
    each = {(row["method"], row["sequences"]): row for row in rows}
    slow = [each[AUTOREGRESSIVE.name, size] for size in (few, many)]
    gain = slow[1]["rate"] / slow[0]["rate"]
    said = []
    for method in METHODS[1:]:
        ends = (each[method.name, size]["speedup"] for size in (few, many))
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
