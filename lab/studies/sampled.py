"""Checks that sampled text follows the target's distribution, whatever drafts it.

    python -m lab.studies.lossless --sampled [--contexts 200] [--draws 32]

Each context is the beginning of a text: a held-out question and a part of its answer. The exact
distribution of the next two tokens follows from the target's logits, computed token by token. Every
variant of decoding draws them many times, and chi-square gives a p-value for each context. If the
variant is lossless, these p-values are uniform, which the Kolmogorov–Smirnov test checks. A wrong
verifier is tested in the same way, and must be caught.

Drawing is affordable because models recall what they have computed (`lab.studies.recalled`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np

from lab.goodness import Outcome, histogram, p_value, uniformity
from lab.studies.recalled import recalled
from lab.training.corpus import Record
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import Event, Origin, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import Probs, Rows, SamplingParams, probabilities, sample
from pipeline.decoding.verification import VERIFIERS
from pipeline.decoding.verification.tokens import Verdict, Verify, verify
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.request import MAX_DRAFT_LENGTH, Request

DraftLength = Literal["fixed", "auto"]

# Of a fixed draft; each context has the next one. Long drafts repeat less, and take longer.
LENGTHS = (*4 * (1, 2, 3, 4), 5, 6, 7, 8)
TOKENS = 2  # of each text, whose joint distribution is tested
FALSE_ALARM = 0.01  # probability that any variant fails although all are lossless
# Assumed, so that `auto` drafts on any machine; for losslessness its lengths may be any.
_COSTS = Costs(
    0.15, tuple(1 + 0.1 * drafted for drafted in range(MAX_DRAFT_LENGTH + 1)), block_draft=0.3
)
_LONGEST = 256  # tokens of a context
_CERTAIN = 0.9  # probability of one outcome above which there is nothing to test
_TRIES = 3  # places in an answer
_BUDGET = TOKENS * (MAX_DRAFT_LENGTH + 1)  # tokens, so that no draft is cut short


@dataclass(frozen=True, slots=True)
class Context:
    """The beginning of a text, and what may follow it.

    Attributes:
        tokens: of the prompt and a part of an answer. The last two occurred before, so that a
            drafter that copies has something to copy.
        earlier: the prompt and the whole answer, for the memory.
        probs: of each outcome: the next two tokens, or one if it ends the text.
    """

    tokens: tuple[int, ...]
    earlier: tuple[int, ...]
    probs: dict[Outcome, float]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to decode. Without a drafter, it is autoregressive.

    Attributes:
        verify: how drafts are verified.
        verification: its name.
    """

    drafter: str = ""
    draft_length: DraftLength = "fixed"
    verification: str = "token"
    verify: Verify = verify


@dataclass(slots=True)
class Fit:
    """How well the texts of a variant follow the target.

    Attributes:
        p_values: of the contexts, in their order.
        rounds, drafted, tested, accepted: counted in all draws.
    """

    variant: Variant
    p_values: list[float] = field(default_factory=list)
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    @property
    def p(self) -> float:
        """Of the Kolmogorov–Smirnov test that the p-values are uniform."""
        return uniformity(self.p_values)[1]

    def count(self, step: Step) -> None:
        self.rounds += 1
        self.drafted += len(step.drafted)
        self.tested += step.tested
        self.accepted += step.accepted

    def describe(self) -> dict[str, Any]:
        """For a result file."""
        variant = asdict(self.variant)
        del variant["verify"]
        return variant | {
            "distance": round(uniformity(self.p_values)[0], 4),
            "p": self.p,
            "drafted_per_round": round(self.drafted / self.rounds, 2),
            "acceptance_rate": round(self.accepted / self.tested, 3) if self.tested else None,
            "histogram": histogram(self.p_values),
        }


def _variants() -> Iterator[Variant]:
    yield Variant()
    lengths: tuple[DraftLength, ...] = get_args(DraftLength)
    for name, drafter in DRAFTERS.items():
        samples = drafter.draft_model or drafter.block_draft
        for length in lengths:
            for verification, verifier in VERIFIERS.items():
                # A copy is verified token by token.
                if verifier.exact and (samples or verifier.verify is verify):
                    yield Variant(name, length, verification, verifier.verify)


def without_residual(
    target_probs: Rows,
    draft_probs: Probs | None,
    draft_tokens: Sequence[int],
    rng: np.random.Generator,
) -> Verdict:
    """A wrong verifier: after a rejection it samples from the target's distribution and not from
    the residual. Its texts read well, and likely tokens come too often.
    """
    verdict = verify(target_probs, draft_probs, draft_tokens, rng)
    if verdict.origin is not Origin.RESAMPLED:
        return verdict
    return replace(verdict, token=sample(target_probs[verdict.accepted], rng))


VARIANTS = tuple(_variants())
CONTROL = Variant("model", "fixed", "wrong: no residual", without_residual)


class _FixedCosts(AcceptanceStats):
    """Passes that are recalled take no time, so their cost is assumed and kept."""

    def update_draft_cost(self, drafted: int, draft_s: float, verify_s: float, pad_to: int) -> None:
        pass


@dataclass(slots=True)
class Certificate:
    """The fits so far, of every variant and of the wrong verifier."""

    fits: list[Fit]
    control: Fit

    @property
    def contexts(self) -> int:
        return len(self.control.p_values)

    @property
    def limit(self) -> float:
        """The p below which a variant is not lossless, or the control is caught."""
        return FALSE_ALARM / len(self.fits)

    @property
    def worst(self) -> Fit:
        """The variant with the least p."""
        return min(self.fits, key=lambda fit: fit.p)

    @property
    def lossless(self) -> bool:
        """Whether no variant differs from the target's distribution."""
        return self.worst.p >= self.limit

    @property
    def caught(self) -> bool:
        """Whether the wrong verifier was."""
        return self.control.p < self.limit

    def __str__(self) -> str:
        kept = f"smallest p of {len(self.fits)} variants {self.worst.p:.2g}"
        return f"{self.contexts} contexts: {kept}, of a wrong verifier {self.control.p:.1g}"


def certify(
    dolly: Dolly, records: Iterable[Record], request: Request, contexts: int, draws: int
) -> Generator[Certificate, None, None]:
    """Yields the certificate after each context; it is one object, which grows.

    Args:
        dolly: the pair.
        records: what the contexts are from.
        request: how tokens are sampled; its seed is that of the whole certificate.
        contexts: at most.
        draws: by each variant after each context.

    Raises:
        UserError: no context was found, or any token of the vocabulary may follow one.
    """
    params, rng = request.sampling, np.random.default_rng(request.seed)
    if not params.top_k:
        raise UserError("top_k", 0, "choose at least 1; the target reads every possible token")
    whole = dolly.lanes(request)
    stats: dict[str, AcceptanceStats] = {
        name: _FixedCosts(spec.costs(_COSTS)) for name, spec in DRAFTERS.items()
    }
    result = Certificate([Fit(variant) for variant in VARIANTS], Fit(CONTROL))
    found = find_contexts(dolly, records, whole, params, rng)
    for number, context in zip(range(contexts), found, strict=False):
        recalling = recalled(whole, context.tokens, params.top_k)
        lanes = replace(
            recalling.lanes,
            memory=_memory(recalling.numbers.of(context.earlier)),
            costs=lambda: _COSTS,
            stats=stats,
            candidates=0,
        )
        for fit in (*result.fits, result.control):
            variant = fit.variant
            length: int | Literal["auto"] = LENGTHS[number % len(LENGTHS)]
            if variant.draft_length == "auto":
                length = "auto"
            own = replace(lanes, verify=variant.verify)
            counts: Counter[Outcome] = Counter()
            for seed in rng.integers(2**32, size=draws).tolist():
                seeded = replace(params, seed=seed)
                drawn = _draw(own, variant, recalling.prompt, seeded, length, fit)
                counts[tuple(recalling.numbers.tokens(drawn))] += 1
            fit.p_values.append(p_value(counts, context.probs, rng))
        yield result
    if not result.contexts:
        remedy = "none was found; choose at least 1, more records, or a higher temperature"
        raise UserError("contexts", contexts, remedy)


def find_contexts(
    dolly: Dolly,
    records: Iterable[Record],
    lanes: Lanes,
    params: SamplingParams,
    rng: np.random.Generator,
) -> Iterator[Context]:
    """A context of each record that has one."""
    for record in records:
        prompt = dolly.tokenizer.ask(record.instruction, record.context)
        text = [*prompt, *dolly.tokenizer.encode(record.response)]
        for cut in rng.permutation(_repeats(text[:_LONGEST], len(prompt)))[:_TRIES].tolist():
            probs = joint(lanes.target(()), text[:cut], params, lanes.end_ids)
            if max(probs.values()) < _CERTAIN:
                yield Context(tuple(text[:cut]), tuple(text), probs)
                break


def joint(
    target: CausalLM, context: Sequence[int], params: SamplingParams, end_ids: frozenset[int]
) -> dict[Outcome, float]:
    """The probability of each outcome of the next two tokens.

    Args:
        target: a new sequence of the target.
        context: at least one token.
    """
    target.forward(context[:-1], logits_to_keep=0)
    outcomes: dict[Outcome, float] = {}
    for first, prob in _next(target, context[-1], params):
        if first in end_ids:
            outcomes[first,] = prob
            continue
        for second, after in _next(target, first, params):
            outcomes[first, second] = prob * after
        target.rollback(len(context))
    return outcomes


def _next(target: CausalLM, token: int, params: SamplingParams) -> list[tuple[int, float]]:
    """The possible tokens after `token`, and their probabilities."""
    (row,) = probabilities(target.forward([token], logits_to_keep=1).logits, params)
    return [(int(token), float(row[token])) for token in np.flatnonzero(row)]


def _repeats(text: Sequence[int], begin: int) -> list[int]:
    """The places after `begin` before which two tokens stand that stood together before."""
    seen: set[tuple[int, int]] = set()
    found = []
    for at in range(2, len(text)):
        pair = (text[at - 2], text[at - 1])
        if pair in seen and at > begin:
            found.append(at)
        seen.add(pair)
    return found


def _memory(text: Sequence[int]) -> AnswerMemory:
    memory = AnswerMemory()
    memory.add(text)
    return memory


def _draw(
    lanes: Lanes,
    variant: Variant,
    prompt: Sequence[int],
    params: SamplingParams,
    length: int | Literal["auto"],
    fit: Fit,
) -> Outcome:
    """The first tokens of a text."""
    drafter = variant.drafter
    lane: Iterator[Event] = lanes.autoregressive(prompt, params, _BUDGET)
    if drafter:
        lane = lanes.speculative(prompt, params, _BUDGET, drafter, length)
    tokens: list[int] = []
    assert isinstance(lane, Generator)
    with closing(lane):
        for event in lane:
            if isinstance(event, Step):
                fit.count(event)
                tokens += event.tokens
            if len(tokens) >= TOKENS:
                break
    return tuple(tokens[:TOKENS])
