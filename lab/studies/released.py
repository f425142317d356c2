"""The paper's table on a pair whose weights were released: a draft model of the target's family,
both quantised, both with a KV cache.

Every way of decoding answers held-out records of Dolly and requests for code. An answer ends at its
end token or after 100 tokens; its first 40 are the answer to a smaller budget. Seconds include the
prompt, as in the paper (arXiv 2311.04951), and are taken per token, since sampled texts differ in
length. Each speedup is over autoregression with the same models and cache.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lab.answers import Answers, Condition, answered, seconds_of, tabulated, tests_at
from lab.corpus import held_out
from lab.draft_lengths import AUTO, NONE
from lab.prompts import CODE, add_records, evenly
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.studies.paper import PAPER
from lab.study import Setup, Study
from lab.weights import pair_in_precision
from pipeline.decoding.drafters.hybrid import HYBRID
from pipeline.decoding.drafters.model import MODEL
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.dolly import Dolly
    from pipeline.trace.record import Lane

BUDGETS = (*PAPER,)
HYBRID_AUTO = f"{HYBRID.name}, {AUTO}"
_LENGTHS = ("1", "2", "3", "4", "5", AUTO, HYBRID_AUTO)
_CACHES = ("paged", "stateful")
_SAMPLING: Mapping[str, Mapping[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.7, "top_p": 0.92},
}
_WEIGHTS = ("int8/int8", "int4/int4", "int8/int4")
_PLACES = range(1, 6)


@dataclass(frozen=True, slots=True)
class Case:
    """A way of decoding.

    Attributes:
        weights: of the target and of the draft.
        sampling: greedy, or sampled.
        cache: the kind of KV cache.
        drafts: tokens that the draft model drafts in a round; none, auto, or the hybrid drafter.
    """

    weights: str
    sampling: str
    cache: str
    drafts: str

    @property
    def kind(self) -> str:
        return f"{self.weights}, {self.sampling}, {self.cache}"

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.drafts}"

    @property
    def baseline(self) -> Case:
        return replace(self, drafts=NONE)

    def condition(self, dolly: Dolly) -> Condition:
        changes = {"kv_cache": self.cache, **_SAMPLING[self.sampling]}
        if self.drafts == NONE:
            return Condition(self.name, dolly, "autoregressive", changes)
        changes["drafter"] = (HYBRID if self.drafts == HYBRID_AUTO else MODEL).name
        length: Any = int(self.drafts) if self.drafts.isdigit() else AUTO
        return Condition(self.name, dolly, changes=changes | {"draft_length": length})


def cases(
    weights: Sequence[str], sampling: Sequence[str], lengths: Sequence[str], caches: Sequence[str]
) -> list[Case]:
    """Every combination with the first cache; greedily at the first weights, the others too."""
    first, *others = caches
    every = [Case(w, s, first, d) for w in weights for s in sampling for d in (NONE, *lengths)]
    drafts = (NONE, *lengths[:2])
    return every + [Case(weights[0], "greedy", cache, d) for cache in others for d in drafts]


def seconds_per_token(lanes: Sequence[Lane], budget: int) -> float:
    """Of the first `budget` tokens of each answer, their prompts included."""
    tokens = sum(min(len(lane.tokens), budget) for lane in lanes)
    return sum(lane.prefill_s + seconds_of(lane, budget) for lane in lanes) / tokens


def _measure(setup: Setup) -> Generator[Result, None, None]:
    options = setup.options
    dollies: dict[str, Dolly] = {}
    for weights in options.combinations:
        pair = yield from pair_in_precision(setup, *weights.split("/"))
        dollies[weights] = yield from setup.other(pair)
    records = evenly(held_out(options.data), options.count)
    questions = [(record.instruction, record.context) for record in records]
    prompts = questions + [(code, "") for code in evenly(CODE, options.code)]
    requests = [Request(*prompt, max_new_tokens=max(BUDGETS)) for prompt in prompts]
    every = cases(options.combinations, options.sampling, options.lengths, options.caches)
    conditions = [case.condition(dollies[case.weights]) for case in every]
    answers = answered(conditions, requests, setup.repeats or 1)
    about = dollies[options.combinations[0]].about
    yield from tabulated(answers, partial(rows_of, every, len(questions)), about)


def rows_of(every: Sequence[Case], questions: int, answers: Answers) -> Iterator[Row]:
    """A row for each case that has answered, over the requests that its baseline answered too.

    Args:
        questions: so many of the requests, the first, are questions; the others ask for code.
    """
    budget = max(BUDGETS)
    for case in every:
        both = ({a.request for a in answers.of(each.name)} for each in (case, case.baseline))
        requests = set.intersection(*both)
        if not requests:
            continue
        here, about_code = answers.within(requests), {r for r in requests if r >= questions}
        lanes = here.lanes(case.name)
        tests = {f"place{place}": tests_at(lanes, place) for place in _PLACES}
        greedy = case.sampling == "greedy"
        yield {
            "kind": case.kind,
            "drafts": case.drafts,
            "requests": len(requests),
            "ms": 1e3 * seconds_per_token(lanes, budget),
            **{f"x{each}": _speedup(here, case, each) for each in BUDGETS},
            "questions": _speedup(here.within(requests - about_code), case, budget),
            "code": _speedup(here.within(about_code), case, budget),
            "accepted": here.acceptance_rate(case.name),
            "yield": here.block_efficiency(case.name),
            **{
                f"place{p}": passed / count if count else None
                for p, (count, passed) in tests.items()
            },
            "same": here.identical(case.name, case.baseline.name) if greedy else None,
        }


def _speedup(answers: Answers, case: Case, budget: int) -> float | None:
    """Over the case's baseline, which has answered these requests too; None without any."""
    slow, fast = (answers.lanes(each.name) for each in (case.baseline, case))
    if not fast:
        return None
    return seconds_per_token(slow, budget) / seconds_per_token(fast, budget)


def _conclude(rows: Rows) -> str:
    drafting = [row for row in rows if row["drafts"] not in (NONE, AUTO, HYBRID_AUTO)]
    best = max(drafting, key=lambda row: row[f"x{max(BUDGETS)}"])
    gains = " and ".join(f"{best[f'x{budget}']:.2f}×" for budget in BUDGETS)
    paper = " and ".join(f"{slow / fast:.2f}×" for slow, fast in PAPER.values())
    return (
        f"With a draft model and a fixed length, the paper’s way, the best of {len(drafting)} "
        f"({best['kind']}, K = {best['drafts']}) gains {gains} for 40 and 100 tokens; the paper’s "
        f"pair gained {paper}."
    )


def _exact(rows: Rows) -> bool:
    return all(row["same"] in (None, 1.0) for row in rows)


def _arguments(parser: ArgumentParser) -> None:
    def several(name: str, default: Sequence[str], help_: str) -> None:
        parser.add_argument(name, nargs="+", default=default, choices=default, help=help_)

    several("--combinations", _WEIGHTS, "weights of target/draft")
    several("--sampling", [*_SAMPLING], "greedy, sampled or both")
    several("--lengths", _LENGTHS, "draft lengths")
    several("--caches", _CACHES, "kinds of KV cache; those after the first greedily only")
    parser.add_argument("--code", type=int, default=len(CODE), help="requests for code")
    add_records(parser, 20, "held-out records")


STUDY = Study(
    name="released",
    title="A released pair",
    question="How much does the paper’s way gain with a draft model of the target’s family, both "
    "as they were released and quantised?",
    needs="a pair with a draft model, and Dolly’s records (--data)",
    usage="--pair qwen2.5-coder-1.5b --combinations int8/int4 --sampling greedy --caches paged "
    "--count 12 --code 6",
    seconds=840,
    columns=(
        Column("kind", "Weights, sampling, cache"),
        Column("drafts", "Drafts a round"),
        Column("requests", "Requests", digits=0),
        Column("ms", "Time per token, prompt included", "ms"),
        Column("x40", "Speedup, N = 40", "×"),
        Column("x100", "Speedup, N = 100", "×"),
        Column("questions", "… of questions", "×"),
        Column("code", "… of code", "×"),
        Column("accepted", "Accepted of tested", "%", 0),
        Column("yield", "Tokens per target pass"),
        *(Column(f"place{place}", f"Accepted at place {place}", "%", 0) for place in _PLACES),
        Column("same", "Text as autoregressive", "%", 0),
    ),
    chart=Chart(
        kind="bars",
        x="drafts",
        y=("x100",),
        series="kind",
        level=even,
        reading="Above the dashed line, drafting pays.",
    ),
    measure=_measure,
    conclude=_conclude,
    holds=_exact,
    arguments=_arguments,
)
