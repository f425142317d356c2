"""Compares the adaptive draft length, "auto", with TapOut, the baseline that needs no tuning.

    python -m lab.studies.tapout [--repeats 3] [--drafter block]

TapOut (Sridhar et al. 2025, arXiv 2511.02017): in each round a bandit selects one of several rules
that end a draft early, by the rewards of the rounds before. None of them knows what drafting and
verifying cost. Here the bandit is UCB1 (Auer et al. 2002), the rules are five, each with one
threshold, and the reward of a round is half its accepted tokens over the longest draft, half over
the tokens that it drafted. It runs in two forms: the target's pass holds what was drafted, or is
always padded for the longest draft.

Each prompt is answered with every candidate, in an order that rotates with each repeat. The rules
read the draft's logits, which the product does not show to a draft length; a wrapper does.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.engines.wrapped import WrappedBlock, WrappedLM
from lab.prompts import KINDS
from lab.report import save
from lab.table import table
from pipeline.decoding.decoders import Speculative
from pipeline.decoding.draft_length import Auto, DraftLength, Fixed, Forecast
from pipeline.decoding.drafters import DrafterSetup, find_drafter
from pipeline.decoding.drafters.block import BLOCK
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import AcceptanceStats
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import BlockDraft, CausalLM, Hidden, Output
from pipeline.decoding.sampling import Logits
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.trace.record import Lane
from pipeline.trace.recording import LaneRecording

FIXED = (1, 2, 4, 8)  # draft lengths to compare with


# --- what the rules read --------------------------------------------------------------------------


class Seen:
    """The logits of the token that was drafted last, and what the rules derive from them."""

    logits: Logits

    @property
    def entropy(self) -> float:
        """In nats."""
        shifted = self.logits - self.logits.max()
        weights = np.exp(shifted)
        total = float(weights.sum())
        return math.log(total) - float(weights @ shifted) / total

    @property
    def margin(self) -> float:
        """Between the probabilities of the two likeliest tokens."""
        second, first = np.sort(np.partition(self.logits, -2)[-2:])
        total = float(np.exp(self.logits - first).sum())
        return (1 - math.exp(second - first)) / total


class WatchedLM(WrappedLM):
    """A draft model that shows its latest logits."""

    def __init__(self, model: CausalLM, seen: Seen) -> None:
        super().__init__(model)
        self._seen = seen

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        output = super().forward(tokens, logits_to_keep, pad_to)
        if logits_to_keep:
            self._seen.logits = output.logits[-1]
        return output


class WatchedBlock(WrappedBlock):
    """A block draft that shows the logits of the token that is drawn next."""

    def __init__(self, model: BlockDraft, seen: Seen) -> None:
        super().__init__(model)
        self._seen = seen

    def forward(self, tokens: Sequence[int], hidden: Hidden, length: int) -> NDArray[np.float32]:
        logits = super().forward(tokens, hidden, length)
        if length:
            self._seen.logits = logits[0]
        return logits

    def after(self, logits: NDArray[np.float32], previous: int) -> NDArray[np.float32]:
        self._seen.logits = super().after(logits, previous)
        return self._seen.logits


# --- the rules ------------------------------------------------------------------------------------


class Rule(ABC):
    """Ends a draft by the token that was drafted last."""

    @abstractmethod
    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        """Whether that token is the draft's last.

        Args:
            seen: the token's logits.
            confidence: the probability of the likeliest token.
            drafted: tokens of this draft so far.
        """

    def observe(self, step: Step) -> None:  # noqa: B027, most have nothing to learn
        """Receives the outcome of a draft that it ended."""


class MaxConfidence(Rule):
    """Stops where the likeliest token is not likely."""

    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        return confidence < 0.8


class SVIP(Rule):
    """Stops where the entropy is high (Zhang et al. 2024, arXiv 2411.18462)."""

    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        return math.sqrt(seen.entropy) > 0.6


class SVIPDifference(Rule):
    """Stops where the entropy rises."""

    _before = math.inf

    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        before, self._before = self._before, math.sqrt(seen.entropy)
        return drafted > 1 and self._before - before > 0.2


class LogitMargin(Rule):
    """Stops where two tokens are about equally likely."""

    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        return seen.margin < 0.2


class AdaEDL(Rule):
    """Stops where a bound of the acceptance rate, by the entropy, is below a threshold that follows
    the acceptance (Agrawal et al. 2024, arXiv 2410.18351).
    """

    _threshold, _acceptance = 0.4, 0.9

    def stops(self, seen: Seen, confidence: float, drafted: int) -> bool:
        return 1 - math.sqrt(0.2 * seen.entropy) < self._threshold

    def observe(self, step: Step) -> None:
        self._acceptance = 0.5 * self._acceptance + 0.5 * step.accepted / len(step.drafted)
        towards = self._threshold + math.copysign(0.01, 0.9 - self._acceptance)
        self._threshold = 0.9 * self._threshold + 0.1 * towards


RULES: tuple[Callable[[], Rule], ...] = (MaxConfidence, SVIP, AdaEDL, SVIPDifference, LogitMargin)


# --- the bandit -----------------------------------------------------------------------------------


class UCB1:
    """Selects the arm with the highest upper confidence bound of its mean reward, in 0..1."""

    def __init__(self, arms: int) -> None:
        self.pulls, self._rewards = [0] * arms, [0.0] * arms

    def select(self) -> int:
        if 0 in self.pulls:
            return self.pulls.index(0)
        logarithm = 2 * math.log(sum(self.pulls))
        bounds = [
            reward / pulls + math.sqrt(logarithm / pulls)
            for reward, pulls in zip(self._rewards, self.pulls, strict=True)
        ]
        return bounds.index(max(bounds))

    def update(self, arm: int, reward: float) -> None:
        self.pulls[arm] += 1
        self._rewards[arm] += reward


class TapOut:
    """The draft length by TapOut.

    Args:
        bandit: kept across generations, as its rules are.
        rules: one for each arm.
        seen: of the draft.
        padded: whether each verifying pass is padded for the longest draft.
    """

    def __init__(self, bandit: UCB1, rules: Sequence[Rule], seen: Seen, padded: bool) -> None:
        self._bandit, self._rules, self._seen, self._padded = bandit, rules, seen, padded
        self._arm, self._drafted = 0, 0

    def max_tokens(self, budget: int, forecast: Forecast) -> int:
        self._arm, self._drafted = self._bandit.select(), 0
        return min(budget, MAX_DRAFT_LENGTH)

    def should_continue(self, confidence: float) -> bool:
        self._drafted += 1
        return not self._rules[self._arm].stops(self._seen, confidence, self._drafted)

    def pad_to(self, drafted: int) -> int:
        return (MAX_DRAFT_LENGTH if self._padded else drafted) + 1

    def observe(self, step: Step, from_model: bool) -> None:
        drafted = len(step.drafted)
        if drafted:
            reward = (step.accepted / MAX_DRAFT_LENGTH + step.accepted / drafted) / 2
            self._bandit.update(self._arm, reward)
            self._rules[self._arm].observe(step)


# --- the comparison -------------------------------------------------------------------------------

Policy = Callable[[], DraftLength]  # a new one for each generation


def speculative(
    lanes: Lanes, request: Request, prompt: Sequence[int], policy: Policy, seen: Seen
) -> Iterator[Event]:
    """Answers with the request's drafter, and with a draft length that `Lanes` does not know."""
    target, block = lanes.target(prompt), lanes.block_draft
    parts = DrafterSetup(
        target.vocab_size,
        lanes.end_ids,
        lambda: WatchedLM(lanes.draft(prompt), seen),
        (lambda: WatchedBlock(block(), seen)) if block else None,
        lanes.memory,
        lanes.costs,
    )
    drafter = find_drafter(request.drafter).build(parts)
    decoder = Speculative(target, drafter, policy, lanes.end_ids, lanes.candidates, lanes.verify)
    return decoder.generate(prompt, request.sampling, request.max_new_tokens)


def policies(dolly: Dolly, drafter: str, seen: Seen) -> dict[str, tuple[Policy, UCB1 | None]]:
    """The candidates by name, with the bandit of those that have one."""
    stats = AcceptanceStats(find_drafter(drafter).costs(dolly.models().costs))
    found: dict[str, tuple[Policy, UCB1 | None]] = {
        **{str(length): (partial(Fixed, length), None) for length in FIXED},
        "auto": (partial(Auto, stats), None),
    }
    for name, padded in (("TapOut", False), ("TapOut, padded", True)):
        bandit, rules = UCB1(len(RULES)), [rule() for rule in RULES]
        found[name] = (partial(TapOut, bandit, rules, seen, padded), bandit)
    return found


def answer(dolly: Dolly, request: Request, policy: Policy | None, seen: Seen) -> Lane:
    """One answer; without a draft length, an autoregressive one."""
    lanes = dolly.lanes(request)
    prompt = dolly.tokenizer.ask(request.instruction, request.context)
    if policy is None:
        events = lanes.autoregressive(prompt, request.sampling, request.max_new_tokens)
    else:
        events = speculative(lanes, request, prompt, policy, seen)
    recorder = LaneRecording("", dolly.tokenizer.detokenizer(), dolly.tokenizer.piece)
    for event in events:
        recorder.record(event)
    return recorder.lane()


def compare(dolly: Dolly, settings: dict[str, Any], repeats: int) -> dict[str, Any]:
    """Answers every prompt with every candidate.

    Returns:
        For each kind of prompt a row with milliseconds per token, tokens per target pass and tokens
        drafted in a round, by candidate; and how often each rule was selected.
    """
    seen = Seen()
    known = policies(dolly, settings["drafter"], seen)
    names = ["0", *known]
    made: dict[tuple[str, str], list[list[Lane]]] = {
        (kind, name): [[] for _ in prompts] for kind, prompts in KINDS.items() for name in names
    }
    for repeat in range(repeats):
        first = repeat * len(names) // repeats
        for kind, prompts in KINDS.items():
            for place, prompt in enumerate(prompts):
                texts = Counter[str]()
                for name in (*names[first:], *names[:first]):
                    policy = known[name][0] if name in known else None
                    lane = answer(dolly, Request(*prompt, **settings), policy, seen)
                    made[kind, name][place].append(lane)
                    texts[lane.text] += 1
                assert len(texts) == 1, "greedy texts differ"
    rows = []
    for kind in KINDS:
        lanes = {name: made[kind, name] for name in names}
        rows.append({"kind": kind} | {name: _figures(of) for name, of in lanes.items()})
    rules = [type(rule()).__name__ for rule in RULES]
    pulls = {
        name: dict(zip(rules, bandit.pulls, strict=True))
        for name, (_, bandit) in known.items()
        if bandit
    }
    return {"results": rows, "selected": pulls}


def _figures(lanes: Sequence[Sequence[Lane]]) -> dict[str, float]:
    """Of the answers to some prompts: the median time of each, averaged; and means."""
    every = [lane for of_prompt in lanes for lane in of_prompt]
    steps = sum(len(lane.steps) for lane in every)
    medians = [statistics.median(lane.seconds_per_token or 0.0 for lane in of) for of in lanes]
    return {
        "ms_per_token": 1e3 * statistics.mean(medians),
        "tokens_per_pass": sum(len(lane.tokens) for lane in every) / steps,
        "drafted_per_round": sum(lane.drafted for lane in every) / steps,
    }


def _summary(rows: Sequence[dict[str, Any]], name: str) -> float:
    """The geometric mean over the kinds of its time over that of the best fixed length."""
    ratios = []
    for row in rows:
        best = min(row[fixed]["ms_per_token"] for fixed in ("0", *map(str, FIXED)))
        ratios.append(row[name]["ms_per_token"] / best)
    return statistics.geometric_mean(ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pair", default=DEFAULT_PAIR)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--drafter", choices=(MODEL.name, BLOCK.name), default=BLOCK.name)
    options = parser.parse_args()
    settings = {"max_new_tokens": options.max_new_tokens, "drafter": options.drafter}
    try:
        dolly = Dolly(options.pair)
        found = compare(dolly, settings, options.repeats)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    rows = found["results"]
    names = [name for name in rows[0] if name != "kind"]
    table(
        ("ms per token", *names),
        [[row["kind"], *(f"{row[name]['ms_per_token']:.2f}" for name in names)] for row in rows],
    )
    over_best = {name: _summary(rows, name) for name in names}
    print("over the best fixed length of each kind, geometric mean:")
    table(("", *names), [["", *(f"{ratio:.3f}" for ratio in over_best.values())]])
    print(f"rules selected: {found['selected']}")
    save(
        "tapout",
        pair=dolly.about,
        repeats=options.repeats,
        **settings,
        over_best_fixed=over_best,
        **found,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
