"""Typical acceptance, which is lossy: what it costs in total variation, and what it gains.

The cost is exact, not estimated from texts: wherever a drafted token is tested, both models'
distributions are there, and the distribution of the token that is emitted follows from them. Its
total variation from the target's is the largest difference that any event of that token can have.
Exact verification goes through the same computation, where the distance has to be 0.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lab.answers import Answers, Condition, answered, tabulated
from lab.prompts import FIRST
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.study import Setup, Study
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.hybrid import HYBRID
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import Step
from pipeline.decoding.sampling import Probs
from pipeline.decoding.sampling import Rows as TargetRows
from pipeline.decoding.verification import find_verifier
from pipeline.decoding.verification.tokens import Verdict, Verify, residual
from pipeline.decoding.verification.typical import threshold
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly

TEMPERATURES = (0.7, 1.0)
_LENGTH = 4  # drafted tokens
_MAX_NEW_TOKENS = 100
_SEEDS = 2  # answers to each prompt
_EXACT, _TYPICAL = "token", "typical"

Row64 = NDArray[np.float64]
Emitted = Callable[[Probs, "Probs | None", int], Row64]


def emitted_exactly(target: Probs, draft: Probs | None, token: int) -> Row64:
    """The distribution of the token that verification token by token emits where one is tested.

    Args:
        target: float32[vocab], the target's distribution.
        draft: float32[vocab], what the token was sampled from; None if it was certain.
        token: the drafted one, which matters only where it was certain.

    Returns:
        float64[vocab].
    """
    drafted, wanted = _drafted(target, draft, token), target.astype(np.float64)
    accepted = np.minimum(wanted, drafted)
    rest = residual(target, draft, token).astype(np.float64)
    emitted: Row64 = accepted + (1 - accepted.sum()) * rest / rest.sum()
    return emitted


def emitted_typically(target: Probs, draft: Probs | None, token: int) -> Row64:
    """The same of typical acceptance: a token that is not typical is replaced by one of the target,
    without that token.
    """
    drafted, wanted = _drafted(target, draft, token), target.astype(np.float64)
    passes = wanted > threshold(target)
    replaced = np.where(passes, 0.0, drafted)
    each = np.divide(replaced, 1 - wanted, out=np.zeros_like(wanted), where=~passes)
    emitted: Row64 = drafted * passes + wanted * (each.sum() - each)
    return emitted


def _drafted(target: Probs, draft: Probs | None, token: int) -> Row64:
    if draft is not None:
        return draft.astype(np.float64)
    certain = np.zeros(len(target))
    certain[token] = 1
    return certain


def distance(emitted: Row64, target: Probs) -> float:
    """The total variation between two distributions of a token, from 0 to 1."""
    return float(np.abs(emitted - target).sum() / 2)


_RULES: dict[str, Emitted] = {_EXACT: emitted_exactly, _TYPICAL: emitted_typically}


@dataclass(frozen=True, slots=True)
class Case:
    """One rule in a setting."""

    drafter: str
    temperature: float
    rule: str

    @property
    def setting(self) -> str:
        return f"{self.drafter}, T = {self.temperature:g}"

    @property
    def name(self) -> str:
        return f"{self.setting}, {self.rule}"

    @property
    def changes(self) -> dict[str, Any]:
        return {
            "drafter": self.drafter,
            "temperature": self.temperature,
            "verification": self.rule,
        }


@dataclass(slots=True)
class Cost:
    """The total variation of the tokens of some answers.

    Attributes:
        distances: where a drafted token was tested; elsewhere the token is the target's own.
        tokens: emitted in all.
    """

    distances: list[float] = field(default_factory=list)
    tokens: int = 0


def _measure(setup: Setup) -> Generator[Result, None, None]:
    dolly = yield from setup.pair()
    own = BLOCK if dolly.pair.block else MODEL
    cases = [Case(*each) for each in product((own.name, HYBRID.name), TEMPERATURES, _RULES)]
    requests = [
        Request(*prompt, max_new_tokens=_MAX_NEW_TOKENS, draft_length=_LENGTH, seed=seed)
        for prompt in FIRST
        for seed in range(_SEEDS)
    ]
    costs = {case: Cost() for case in cases}
    for case, request in product(cases, requests):
        yield Result(doing=f"distances, {case.name}", pair=dolly.about)
        _add(costs[case], dolly, replace(request, **case.changes))
    conditions = [Condition(case.name, dolly, changes=case.changes) for case in cases]
    answers = answered(conditions, requests, setup.repeats or 1)
    yield from tabulated(answers, partial(_rows, costs), dolly.about)


def _add(cost: Cost, dolly: Dolly, request: Request) -> None:
    """Answers a request; adds the distance of each tested token."""
    rule, emitted = find_verifier(request.verification).verify, _RULES[request.verification]
    lanes = replace(
        dolly.lanes(request), verify=_measuring(rule, emitted, cost.distances), candidates=0
    )
    prompt = dolly.tokenizer.ask(request.instruction, request.context)
    events = lanes.speculative(
        prompt, request.sampling, request.max_new_tokens, request.drafter, request.draft_length
    )
    cost.tokens += sum(len(event.tokens) for event in events if isinstance(event, Step))


def _measuring(rule: Verify, emitted: Emitted, found: list[float]) -> Verify:
    """The rule, which also adds the distance of each token that it tests to `found`."""

    def verify(
        target_probs: TargetRows,
        draft_probs: Probs | None,
        draft_tokens: Sequence[int],
        rng: np.random.Generator,
    ) -> Verdict:
        verdict = rule(target_probs, draft_probs, draft_tokens, rng)
        for place in range(min(verdict.accepted + 1, len(draft_tokens))):
            draft = None if draft_probs is None else draft_probs[place]
            row = emitted(target_probs[place], draft, draft_tokens[place])
            found.append(distance(row, target_probs[place]))
        return verdict

    return verify


def _rows(costs: Mapping[Case, Cost], answers: Answers) -> Iterator[Row]:
    for case, cost in costs.items():
        if cells := answers.cells(case.name, over=replace(case, rule=_EXACT).name):
            moved, tested = sum(cost.distances), len(cost.distances)
            yield {
                "setting": case.setting,
                "rule": case.rule,
                "tested": moved / tested if tested else None,
                "per_token": moved / cost.tokens,
                **cells,
            }


def _conclude(rows: Rows) -> str:
    lossy = [row for row in rows if row["rule"] == _TYPICAL]
    gains = [row["speedup"] for row in lossy]
    costs = [row["per_token"] for row in lossy]
    largest = max(row["per_token"] for row in rows if row["rule"] == _EXACT)
    return (
        f"Typical acceptance is {min(gains):.2f}× to {max(gains):.2f}× as fast as exact "
        f"verification, and moves the distribution of a token by {min(costs):.3f} to "
        f"{max(costs):.3f} in total variation; exact verification moves it by {largest:.0e}."
    )


STUDY = Study(
    name="typical",
    title="Typical acceptance, lossy",
    question="How far from the target’s distribution is the text if drafts pass that the target "
    "finds typical, and how much faster is it than exact verification?",
    seconds=80,
    columns=(
        Column("setting", "Drafter and temperature"),
        Column("rule", "Verification"),
        Column("tested", "Total variation where tested", "", 4),
        Column("per_token", "Total variation per token", "", 4),
        Column("acceptance", "Accepted of tested", "%", 0),
        Column("block", "Tokens per target pass"),
        Column("ms", "Time per token", "ms"),
        Column("speedup", "Speed over exact", "×"),
    ),
    chart=Chart(
        kind="bars",
        x="setting",
        y=("speedup",),
        series="rule",
        level=even,
        reading="The dashed line is exact verification, token by token. What is gained above it is "
        "paid with the total variation in the table.",
    ),
    measure=_measure,
    conclude=_conclude,
)
