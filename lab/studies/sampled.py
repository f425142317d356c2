"""Sampled text follows the target's distribution, whatever drafts it.

Each context is the beginning of a text: a held-out question and a part of its answer. The exact
distribution of the next two tokens follows from the target's logits, computed token by token. Every
variant of decoding draws them many times, and chi-square gives a p-value for each context. If the
variant is lossless, these p-values are uniform, which the Kolmogorov–Smirnov test checks. A wrong
verifier is tested in the same way, and must be caught.

Drawing is affordable because models recall what they have computed (`lab.studies.recalled`).
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from lab.corpus import DATA, Record, held_out
from lab.result import Chart, Column, Result, Row, Rows
from lab.studies.recalled import recalled
from lab.study import Setup, Study
from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.drafters import DRAFTERS
from pipeline.decoding.economics import AcceptanceStats, Costs
from pipeline.decoding.events import AUTOREGRESSIVE, Origin, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import CausalLM
from pipeline.decoding.sampling import Probs, SamplingParams, probabilities, sample
from pipeline.decoding.sampling import Rows as TargetRows
from pipeline.decoding.verification import VERIFIERS
from pipeline.decoding.verification.tokens import Verdict, Verify, verify
from pipeline.errors import UserError
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.runtime.kv_cache.registry import DEFAULT_POLICY, POLICIES

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

Outcome = tuple[int, ...]  # the first tokens of a text
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
BINS = 20  # of a histogram of p-values
_LEAST = 2.0  # expected draws of an outcome with a cell of its own; rarer ones share one
_SIMULATIONS = 999
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


@dataclass(slots=True)
class Variant:
    """A way to decode, and how well its texts follow the target.

    Attributes:
        drafter: "" is autoregressive.
        verification: the name of `verify`, which verifies drafts.
        p_values: of the contexts, in their order.
        rounds, drafted, tested, accepted: counted in all draws.
    """

    drafter: str = ""
    draft_length: DraftLength = "fixed"
    verification: str = "token"
    verify: Verify = verify
    p_values: list[float] = field(default_factory=list)
    rounds: int = 0
    drafted: int = 0
    tested: int = 0
    accepted: int = 0

    def count(self, step: Step) -> None:
        self.rounds += 1
        self.drafted += len(step.drafted)
        self.tested += step.tested
        self.accepted += step.accepted

    @property
    def row(self) -> Row:
        distance, p = uniformity(self.p_values)
        return {
            "variant": f"{self.drafter}, {self.draft_length}" if self.drafter else AUTOREGRESSIVE,
            "drafter": self.drafter,
            "draft_length": self.draft_length,
            "verification": self.verification,
            "acceptance": self.accepted / self.tested if self.tested else None,
            "drafted": self.drafted / self.rounds,
            "distance": distance,
            "p": p,
        }

    @property
    def histogram(self) -> list[int]:
        """How many p-values are in each of `BINS` equal parts of 0..1."""
        return [int(count) for count in np.histogram(self.p_values, BINS, (0.0, 1.0))[0]]


# --- goodness of fit ------------------------------------------------------------------------------


def p_value(
    counts: Mapping[Outcome, int], probs: Mapping[Outcome, float], rng: np.random.Generator
) -> float:
    """The p-value of chi-square for counts of outcomes against their probabilities.

    The statistic is compared with that of simulated draws, and a tie is broken at random. So the
    p-value of draws that follow `probs` is uniform however few they are, where the chi-square
    distribution is an approximation for many.

    Returns:
        In 0..1; 0 if an outcome was drawn that has no probability.
    """
    if any(not probs.get(outcome) for outcome in counts):
        return 0.0
    possible = [outcome for outcome, prob in probs.items() if prob]
    weights = np.array([probs[outcome] for outcome in possible], np.float64)
    weights /= weights.sum()
    drawn = np.array([counts.get(outcome, 0) for outcome in possible], np.int64)
    total = int(drawn.sum())
    draws = np.vstack([drawn, rng.multinomial(total, weights, size=_SIMULATIONS)])
    rare = weights * total < _LEAST
    expected, cells = weights[~rare] * total, draws[:, ~rare]
    if rare.any():
        expected = np.append(expected, weights[rare].sum() * total)
        cells = np.column_stack([cells, draws[:, rare].sum(axis=1)])
    statistics = ((cells - expected) ** 2 / expected).sum(axis=1).round(9)  # ties are equal
    above, ties = (statistics > statistics[0]).sum(), (statistics == statistics[0]).sum()
    return float((above + rng.random() * ties) / len(statistics))


def uniformity(p_values: Sequence[float]) -> tuple[float, float]:
    """The Kolmogorov–Smirnov test of p-values against the uniform distribution: the largest
    distance between both distribution functions, and its p-value.
    """
    from scipy.stats import kstest  # type: ignore[import-untyped]

    found = kstest(p_values, "uniform")
    return float(found.statistic), float(found.pvalue)


# --- what is compared -----------------------------------------------------------------------------


def variants() -> Iterator[Variant]:
    """All exact ways to decode, and last the wrong verifier."""
    yield Variant()
    lengths: tuple[DraftLength, ...] = get_args(DraftLength)
    for name, drafter in DRAFTERS.items():
        samples = drafter.draft_model or drafter.block_draft
        for length in lengths:
            for verification, verifier in VERIFIERS.items():
                # A copy is verified token by token.
                if verifier.exact and (samples or verifier.verify is verify):
                    yield Variant(name, length, verification, verifier.verify)
    yield Variant("model", "fixed", "wrong: no residual", without_residual)


def without_residual(
    target_probs: TargetRows,
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


class _FixedCosts(AcceptanceStats):
    """Passes that are recalled take no time, so their cost is assumed and kept."""

    def update_draft_cost(self, drafted: int, draft_s: float, verify_s: float, pad_to: int) -> None:
        pass


def certify(
    dolly: Dolly, records: Iterable[Record], request: Request, contexts: int, draws: int
) -> Generator[list[Variant], None, None]:
    """Yields the `variants` after each context. They are the same objects, which grow.

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
    found = [*variants()]
    every = find_contexts(dolly, records, whole, params, rng)
    for place, context in zip(range(contexts), every, strict=False):
        memory = AnswerMemory()
        memory.add(context.earlier)
        lanes = replace(
            recalled(whole, context.tokens),
            memory=memory,
            costs=lambda: _COSTS,
            stats=stats,
            candidates=0,
        )
        for variant in found:
            counts: Counter[Outcome] = Counter()
            for seed in rng.integers(2**32, size=draws).tolist():
                seeded, length = replace(params, seed=seed), LENGTHS[place % len(LENGTHS)]
                counts[_draw(lanes, context.tokens, seeded, length, variant)] += 1
            variant.p_values.append(p_value(counts, context.probs, rng))
        yield found
    if not found[0].p_values:
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


def _draw(
    lanes: Lanes, prompt: Sequence[int], params: SamplingParams, fixed: int, variant: Variant
) -> Outcome:
    """The first tokens of a text.

    Args:
        fixed: the draft length, if it is.
    """
    lane = lanes.autoregressive(prompt, params, _BUDGET)
    if variant.drafter:
        length: int | Literal["auto"] = "auto" if variant.draft_length == "auto" else fixed
        own = replace(lanes, verify=variant.verify)
        lane = own.speculative(prompt, params, _BUDGET, variant.drafter, length)
    tokens: list[int] = []
    assert isinstance(lane, Generator)
    with closing(lane):
        for event in lane:
            if isinstance(event, Step):
                variant.count(event)
                tokens += event.tokens
            if len(tokens) >= TOKENS:
                break
    return tuple(tokens[:TOKENS])


# --- the study ------------------------------------------------------------------------------------


def loaded(setup: Setup) -> Generator[Result, None, Dolly]:
    """The pair; with `--lossy`, at the plugin's fastest settings."""
    if not setup.options.lossy:
        return (yield from setup.pair())
    from pipeline.dolly import Dolly

    yield Result(doing="compiling the models")
    return Dolly(setup.choice.pair, lossless=False, store=setup.choice.store)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    options = setup.options
    records = held_out(options.data)
    dolly = yield from loaded(setup)
    sampling = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k")}
    request = Request("any", kv_cache=options.kv_cache, **sampling)
    result = Result(pair=dolly.describe(dolly.models_for(request)), planned=options.contexts)
    for found in certify(dolly, records, request, options.contexts, options.draws):
        contexts = len(found[0].p_values)
        yield replace(result, done=contexts)
    figures = {
        **sampling,
        "kv_cache": options.kv_cache,
        "lossless": not options.lossy,
        "contexts": contexts,
        "draws": options.draws,
        "histograms": [each.histogram for each in found],  # of the rows, in their order
    }
    rows = tuple(each.row for each in found)
    yield replace(result, rows=rows, figures=figures, done=contexts, planned=contexts)


def limit(rows: Rows) -> float:
    """The p below which a variant is not lossless, or the wrong verifier is caught."""
    return FALSE_ALARM / (len(rows) - 1)


def _certified(rows: Rows) -> bool:
    """Whether no variant differs, and the wrong verifier, which is the last, does."""
    *variants, control = (float(row["p"]) for row in rows)
    return min(variants) >= limit(rows) > control


def _conclude(rows: Rows) -> str:
    *variants, control = (row["p"] for row in rows)
    return (
        f"The smallest p of {len(variants)} variants is {min(variants):.2g}, at a limit of "
        f"{limit(rows):.1g}; that of a wrong verifier is {control:.1g}."
    )


def add_arguments(parser: ArgumentParser) -> None:
    exact = [name for name, policy in POLICIES.items() if policy.exact]
    add = parser.add_argument
    add("--kv-cache", choices=exact, default=DEFAULT_POLICY)
    add("--data", type=Path, default=DATA, help="folder of Dolly's records")
    add("--lossy", action="store_true", help="the plugin's fastest settings")
    add("--contexts", type=int, default=200)
    add("--draws", type=int, default=32, help="of each variant, a context")
    add("--temperature", type=float, default=1.0)
    add("--top-p", type=float, default=0.95)
    add("--top-k", type=int, default=3, help="few, so that passes repeat")


STUDY = Study(
    name="sampled",
    title="Sampled text follows the target",
    question="Does sampled text have the target’s distribution, whatever drafts it?",
    needs="SciPy, and Dolly’s records (--data)",
    seconds=2160,
    columns=(
        Column("variant", "Decoding"),
        Column("drafter", "Drafter"),
        Column("draft_length", "Draft length"),
        Column("verification", "Verification"),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("drafted", "Drafted per round"),
        Column("distance", "Distance from uniform", digits=3),
        Column("p", "p", digits=4),
    ),
    chart=Chart(
        kind="bars",
        x="variant",
        y=("p",),
        series="verification",
        level=lambda rows: limit(rows) if rows else None,
        logarithmic=True,
        reading="Below the dashed line, texts of that kind would not follow the target. The wrong "
        "verifier is there to be caught. “How it works” shows how all p-values are spread.",
    ),
    measure=_measure,
    conclude=_conclude,
    holds=_certified,
    arguments=add_arguments,
)
