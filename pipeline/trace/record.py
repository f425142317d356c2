"""`trace@1`: the record from which everything shown or exported is derived.

It stores counts and seconds; rates are properties, or functions of `metrics`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import groupby, takewhile
from operator import attrgetter
from statistics import median
from typing import Any

from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, FinishReason, Origin, Round
from pipeline.environment import PoolUse
from pipeline.trace.cost import Cost, cost

SCHEMA = "trace@1"
COMPARABLE = 8  # tokens of a lane that has fewer say nothing about its speed

_DISTURBED = 3.0  # medians; a step that takes longer is the machine's doing, not the method's


@dataclass(frozen=True, slots=True)
class Token:
    """One emitted token. `time_s` is on its lane's own clock, from the start of prefill."""

    id: int
    text: str  # whole characters only; "" for the end key, or while a character is incomplete
    origin: Origin
    step: int
    time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(Round):
    """A round.

    Attributes:
        time_s: its lane's clock at its end.
        target_pool, draft_pool: the blocks of each model's caches after it, those of the other lane
            included; None where a cache has no blocks, and in older records.
    """

    time_s: float
    target_pool: PoolUse | None = None
    draft_pool: PoolUse | None = None

    @property
    def copied(self) -> bool:
        """Whether no model computed the draft; False where no likeliest tokens are recorded."""
        return bool(self.drafted and self.target_top and not self.draft_top)

    @property
    def certain(self) -> bool:
        """Whether the target's distribution had a single token at each place; False where that was
        not recorded.
        """
        tops = self.target_top
        return bool(tops) and all(top[:1] and top[0][1] == 1.0 for top in tops)

    def confidence(self, place: int) -> float | None:
        """The probability that the draft model gave a drafted token; None where no model drafted
        it, or it was not among the likeliest, which alone are recorded.
        """
        tops = self.draft_top[place : place + 1]
        return dict(tops[0]).get(self.drafted[place]) if tops else None

    @property
    def drafted_at_s(self) -> float:
        """The lane's clock at the end of drafting, when verification starts."""
        return self.time_s - self.verify_s - self.other_s


@dataclass(frozen=True, slots=True)
class Lane:
    """The record of one decoder. The texts of `tokens`, joined, are `text`."""

    prefill_s: float
    finish: FinishReason | None  # None while it runs
    text: str
    tokens: tuple[Token, ...]
    steps: tuple[StepRecord, ...]

    @property
    def emitted(self) -> list[tuple[Token, ...]]:
        """The tokens of each step."""
        by_step = {at: tuple(made) for at, made in groupby(self.tokens, attrgetter("step"))}
        return [by_step.get(step.index, ()) for step in self.steps]

    @property
    def decode_s(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def undisturbed(self) -> list[float]:
        """Seconds of each step. One that took over three medians of those that drafted as many
        tokens counts as one median: on a shared machine such a step was interrupted.
        """
        alike: dict[int, list[float]] = {}
        for step in self.steps:
            alike.setdefault(len(step.drafted), []).append(step.seconds)
        medians = {drafted: median(seconds) for drafted, seconds in alike.items()}
        usual = [medians[len(step.drafted)] for step in self.steps]
        return [
            middle if step.seconds > _DISTURBED * middle else step.seconds
            for step, middle in zip(self.steps, usual, strict=True)
        ]

    @property
    def disturbed(self) -> int:
        """Steps that `undisturbed` counts as a median."""
        kept = zip(self.steps, self.undisturbed, strict=True)
        return sum(step.seconds != seconds for step, seconds in kept)

    @property
    def total_s(self) -> float:
        """Prefill and decoding."""
        return self.prefill_s + self.decode_s

    @property
    def first_token_s(self) -> float | None:
        """Seconds from the start of prefill to the first token."""
        return self.tokens[0].time_s if self.tokens else None

    @property
    def median_step_s(self) -> float | None:
        return median(step.seconds for step in self.steps) if self.steps else None

    @property
    def seconds_per_token(self) -> float | None:
        """Decoding only, prefill apart, of `undisturbed` steps."""
        return sum(self.undisturbed) / len(self.tokens) if self.tokens else None

    @property
    def tokens_per_second(self) -> float | None:
        each = self.seconds_per_token
        return 1 / each if each else None

    @property
    def drafted(self) -> int:
        return sum(len(step.drafted) for step in self.steps)

    @property
    def tested(self) -> int:
        return sum(step.tested for step in self.steps)

    @property
    def accepted(self) -> int:
        return sum(step.accepted for step in self.steps)

    @property
    def remembered(self) -> int:
        """Accepted tokens that were copied from an earlier text."""
        return sum(token.origin is Origin.REMEMBERED for token in self.tokens)

    @property
    def undrafted(self) -> int:
        """Rounds in which nothing was drafted."""
        return sum(not step.drafted for step in self.steps)

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / tested."""
        return self.accepted / self.tested if self.tested else None

    @property
    def drafted_yield(self) -> float | None:
        """Accepted / drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def metrics(self) -> dict[str, Any]:
        """The figures of its drafts by the names and definitions of vLLM's logs; None where nothing
        was drafted.

        num_drafts: rounds that drafted. num_draft_tokens, num_accepted_tokens: in all, and for each
        forward pass of the target (`_per_step`). mean_acceptance_length: 1 + accepted / drafts.
        draft_acceptance_rate: accepted / drafted tokens. per_position_acceptance_rate: drafts
        accepted up to each position / drafts.
        """
        drafts = [step for step in self.steps if step.drafted]
        longest = max((len(step.drafted) for step in drafts), default=0)
        return {
            "num_drafts": len(drafts),
            "num_draft_tokens": self.drafted,
            "num_accepted_tokens": self.accepted,
            "mean_acceptance_length": 1 + self.accepted / len(drafts) if drafts else None,
            "draft_acceptance_rate": self.drafted_yield,
            "per_position_acceptance_rate": [
                sum(step.accepted > place for step in drafts) / len(drafts)
                for place in range(longest)
            ],
            "num_draft_tokens_per_step": [len(step.drafted) for step in self.steps],
            "num_accepted_tokens_per_step": [step.accepted for step in self.steps],
        }

    @property
    def block_efficiency(self) -> float | None:
        """Tokens emitted per forward pass of the target in decoding."""
        return len(self.tokens) / len(self.steps) if self.steps else None


@dataclass(frozen=True, slots=True)
class Trace:
    """One request, answered. `environment`, `pair` and `request` are plain JSON objects.

    `pieces` are the texts, each on its own, of all token ids that the steps name.
    """

    created: str
    environment: dict[str, Any]
    pair: dict[str, Any]
    request: dict[str, Any]
    prompt_tokens: tuple[int, ...]
    lanes: dict[str, Lane]
    pieces: dict[int, str] = field(default_factory=dict)

    @property
    def autoregressive(self) -> Lane | None:
        return self.lanes.get(AUTOREGRESSIVE)

    @property
    def speculative(self) -> Lane | None:
        return self.lanes.get(SPECULATIVE)

    @property
    def kv_cache(self) -> str:
        """The effective cache policy, which may differ from the requested one."""
        return str(self.pair.get("kv_cache", self.request["kv_cache"]))

    @property
    def forgets(self) -> bool:
        """Whether a token may not attend to all tokens before it, so that no two texts are claimed
        to agree.
        """
        return bool(self.pair.get("forgets", self.pair.get("exact") is False))  # older: the latter

    @property
    def drafts_blocks(self) -> bool:
        """Whether a model's draft comes from one forward pass, however many tokens it has."""
        return bool(self.pair.get("block") and self.request.get("at_once"))

    @property
    def draft_model(self) -> dict[str, Any]:
        """What is known of the model that drafts; empty without one."""
        return self.pair.get("block" if self.drafts_blocks else "draft") or {}

    @property
    def verifies_blocks(self) -> bool:
        """Whether the tokens of a sampled draft are tested together."""
        return not self.greedy and bool(self.request.get("jointly"))

    @property
    def lossy(self) -> bool:
        """Whether verification may change the distribution of the text: then no two texts are
        claimed to agree, not even where this run's do.
        """
        return self.request.get("exact") is False

    @property
    def greedy(self) -> bool:
        return bool(self.request["temperature"] == 0)

    @property
    def deterministic(self) -> bool:
        """Whether chance has no part in the texts: greedy, or the settings left a single possible
        token at every place so far, as a top-k of 1 does.
        """
        if self.greedy or self.request["top_k"] == 1:
            return True
        steps = [step for lane in self.lanes.values() for step in lane.steps]
        return bool(steps) and all(step.certain for step in steps)

    @property
    def share_emitted(self) -> float:
        """Tokens emitted so far, as a share of the budgets of all lanes."""
        emitted = sum(len(lane.tokens) for lane in self.lanes.values())
        return emitted / (int(self.request["max_new_tokens"]) * len(self.lanes))

    @property
    def finished(self) -> bool:
        """Whether every lane has ended by itself: none was cancelled and none failed."""
        ends = (FinishReason.STOP, FinishReason.LENGTH)
        return bool(self.lanes) and all(lane.finish in ends for lane in self.lanes.values())

    @property
    def speedup(self) -> float | None:
        """Autoregressive over speculative seconds per decoded token, prefill apart; no more than
        the tokens per target pass, since a pass takes no less than a step. None where a lane is
        missing or has fewer than `COMPARABLE` tokens.
        """
        slow, fast = self.autoregressive, self.speculative
        if not (slow and fast) or self.comparable_tokens < COMPARABLE:
            return None
        if not (slow.seconds_per_token and fast.seconds_per_token and fast.block_efficiency):
            return None
        return min(slow.seconds_per_token / fast.seconds_per_token, fast.block_efficiency)

    @property
    def agreeing_tokens(self) -> int | None:
        """Tokens from the start in which both lanes agree; None without both lanes."""
        if not (self.autoregressive and self.speculative):
            return None
        pairs = zip(self.autoregressive.tokens, self.speculative.tokens, strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0].id == pair[1].id, pairs))

    @property
    def comparable_tokens(self) -> int:
        """Tokens that the shortest lane has emitted."""
        return min((len(lane.tokens) for lane in self.lanes.values()), default=0)

    @property
    def identical(self) -> bool | None:
        """Whether both finished lanes have the same tokens; None unless both decode greedily,
        drafts are verified exactly, and caches forget nothing.
        """
        if self.lossy or self.forgets or not (self.finished and self.greedy):
            return None
        if not (self.autoregressive and self.speculative):
            return None
        made = len(self.autoregressive.tokens)
        return made == len(self.speculative.tokens) == self.agreeing_tokens

    @property
    def costs(self) -> dict[str, Cost]:
        """What a token of each lane costs beside time."""
        return {name: cost(self, lane) for name, lane in self.lanes.items()}

    def to_dict(self) -> dict[str, Any]:
        """The JSON object; its `metrics` and `costs` follow from the rest, and a reader ignores
        them.
        """
        pieces = {str(token): piece for token, piece in self.pieces.items()}
        metrics = {name: lane.metrics for name, lane in self.lanes.items()}
        costs = {name: asdict(each) for name, each in self.costs.items()}
        derived = {"metrics": metrics, "costs": costs}
        return {"schema": SCHEMA, **asdict(self), "pieces": pieces, **derived}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False)
