"""A run as lines of JSON: the append-only text that the page's script reads.

Lines carry text as data. The script writes it with `textContent`; it is never markup.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from pipeline.dolly import Update
from pipeline.events import Drafted, Finish, Origin, Prefill, Step
from pipeline.trace import Token, Trace
from ui.timings import timing_rows, timings
from ui.verdict import verdict


class Feed:
    """Writes a run's lines.

    Args:
        piece: a token id's own text, for drafts that never became text.
    """

    def __init__(self, piece: Callable[[int], str]) -> None:
        self._piece = piece

    def start(self, trace: Trace) -> str:
        lanes = list(trace.lanes)
        request = trace.request
        return _line("start", lanes=lanes, budget=request["max_new_tokens"], greedy=trace.greedy)

    def update(self, update: Update) -> str:
        """The line for one update, or no line."""
        match update.event:
            case Prefill(seconds=seconds):
                return _line("prefill", lane=update.lane, seconds=seconds)
            case Drafted(tokens=tokens):
                return _line("drafted", lane=update.lane, texts=[self._piece(t) for t in tokens])
            case Step() as step:
                tokens = list(self._step(step, update.tokens))
                return _line("step", lane=update.lane, tokens=tokens, time_s=update.time_s)
            case Finish(reason=reason):
                return _line("finish", lane=update.lane, reason=reason)

    def summary(self, trace: Trace) -> str:
        """Verdict and plot of the trace as it stands."""
        return _line(
            "summary",
            verdict=asdict(verdict(trace)),
            figure=timings(trace),
            rows=timing_rows(trace),
            rates={name: lane.tokens_per_second for name, lane in trace.lanes.items()},
        )

    def end(self, trace: Trace) -> str:
        return self.summary(trace) + _line("end", trace=trace.to_dict())

    def _step(self, step: Step, tokens: tuple[Token, ...]) -> Iterator[dict[str, Any]]:
        """The step's tokens in reading order: what stands, what was rejected and what replaced it."""
        for place, token in enumerate(tokens):
            tested = place < len(step.drafted)
            entry = {
                "text": token.text,
                "state": token.origin,
                "id": token.id,
                "step": token.step,
                "place": place + 1,
                "name": self._piece(token.id),
                "draft_s": step.draft_s,
                "verify_s": step.verify_s,
                "time_s": token.time_s,
            }
            if tested:
                entry |= {
                    "draft_prob": step.draft_prob[place],
                    "target_prob": step.target_prob[place],
                    "accept_prob": step.accept_prob[place],
                    "uniform": step.uniform[place],
                }
            if token.origin is Origin.RESAMPLED:
                entry["replaced"] = self._piece(step.drafted[place])
                for rejected in step.drafted[place:]:
                    yield {"text": self._piece(rejected), "state": "rejected", "step": step.index}
            yield entry


def _line(kind: str, **data: object) -> str:
    return json.dumps({"kind": kind, **data}, ensure_ascii=False) + "\n"
