"""How long a race holds a replica, and the memory of one: from the committed measurements.

- `dolly-smol`, two cores, *derived*: milliseconds per token of both lanes
  (`lab/results/cost.json`); seconds of the prompt, which are the rest of whole answers
  (`lab/results/paper.json`, held-out records), by its length; peak memory
  (`lab/results/peers.json`).
- `dolly-smol`, one core, *predicted*: the CPU time of both threads, one after the other. It is an
  upper limit, since threads that wait for each other count.
- `dolly-v2-3b`, two cores, *predicted*: the passes of that size with random weights
  (`lab/results/full_size.json`), at an acceptance of 0.5, about that of the embedded pair;
  the prompt in passes of nine tokens, the widest that was measured. A target was loaded twice in
  that measurement, so memory is half of its peak.

The lengths of prompts and answers are those of the 60 held-out records whose answers the card of
`dolly-smol` prints, cut at the tokens that the page begins with. Each race is one of them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Any

from lab.saved import RESULTS
from pipeline.decoding.economics import CostModel, Costs
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED
from pipeline.request import MAX_DRAFT_LENGTH, Request
from pipeline.text.tokenizer import Tokenizer

_PAGE, _AUTOREGRESSIVE = "as the page begins", "autoregressive"
_HYBRID = "this project, hybrid"  # what the page begins with, among the engines
_ACCEPTANCE = 0.5
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Service:
    """What a race takes of a replica.

    Attributes:
        pair: its name.
        cores: of a replica.
        basis: "derived" or "predicted".
        seconds: of races, equally likely; both lanes, prompts included.
        memory_bytes: of a replica.
    """

    pair: str
    cores: int
    basis: str
    seconds: tuple[float, ...]
    memory_bytes: int

    @property
    def mean(self) -> float:
        return fmean(self.seconds)

    @property
    def variation(self) -> float:
        """The squared coefficient of variation."""
        return pvariance(self.seconds) / self.mean**2


Length = tuple[int, int]  # tokens of a record's prompt and of its answer


def services() -> tuple[Service, ...]:
    """All that are known, the smallest first."""
    lengths = record_lengths()
    return (*_embedded(lengths), _full_size(lengths))


def record_lengths() -> list[Length]:
    """Of the records whose answers the card prints; an answer's end key counts."""
    tokenizer = Tokenizer(EMBEDDED / "target")
    evaluation = json.loads((EMBEDDED / "evaluation.json").read_text(encoding="utf-8"))
    limit = Request("any").max_new_tokens
    return [
        (
            len(tokenizer.ask(record["instruction"], record["context"])),
            min(len(tokenizer.encode(record["answer"])) + record["ended"], limit),
        )
        for record in evaluation["reading"]
    ]


def _embedded(lengths: list[Length]) -> tuple[Service, Service]:
    """With two cores and with one."""
    cost = {row["method"]: row for row in _result("cost")["rows"]}
    lanes = {lane: cost[lane]["ms"] / 1e3 for lane in (_AUTOREGRESSIVE, _PAGE)}
    one_core = sum(cost[lane]["cpu_ms"] for lane in lanes) / 1e3 / sum(lanes.values())
    (whole,) = (
        row
        for row in _result("paper")["rows"]
        if (row["new_tokens"], row["records"], row["ends"]) == (100, "held out", True)
    )
    seconds_of = {_AUTOREGRESSIVE: whole["slow_s"], _PAGE: whole["page_s"]}
    prompts = sum(seconds_of[lane] - whole["tokens"] * lanes[lane] for lane in lanes)
    a_token = prompts / fmean(prompt for prompt, _ in lengths)
    seconds = [a_token * prompt + sum(lanes.values()) * answer for prompt, answer in lengths]
    engines = [row for row in _result("peers")["rows"] if row["subject"] == DEFAULT_PAIR]
    (peak,) = (row["peak_mb"] * 2**20 for row in engines if row["engine"] == _HYBRID)
    slower = (each * one_core for each in seconds)
    return (
        Service(DEFAULT_PAIR, 2, "derived", tuple(seconds), int(peak)),
        Service(DEFAULT_PAIR, 1, "predicted", tuple(slower), int(peak)),
    )


def _full_size(lengths: list[Length]) -> Service:
    """Of Dolly v2 3B, in INT8."""
    result = _result("full_size")["figures"]
    measured = result["costs"]["int8"]
    costs = Costs(measured["draft"], tuple(measured["verify"]))
    speedup = max(
        CostModel(_ACCEPTANCE, costs.in_steps, length).speedup
        for length in range(1, MAX_DRAFT_LENGTH + 1)
    )
    widest, a_token = len(costs.verify), costs.verify[0] * (1 + 1 / speedup)
    a_pass = 2 * costs.verify[-1] + costs.draft
    seconds = (math.ceil(prompt / widest) * a_pass + answer * a_token for prompt, answer in lengths)
    memory = result["stages"]["race int8"]["peak_gib"] / 2 * _GIB
    return Service("dolly-v2-3b", 2, "predicted", tuple(seconds), int(memory))


def _result(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
