"""Measures speculative decoding at an imposed acceptance rate, with models of random weights.

    python -m benchmarks.imposed [--target 160M] [--acceptance 0.8] [--repeats 5]

Two models with random weights do not agree. So the target's greedy text is generated first. The
draft model then runs as usual, but its logits are replaced: with a given probability, drawn from a
seeded generator, it prefers that text's next token, and otherwise another one. Costs, caches and
verification are real; only the acceptance rate is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import save
from benchmarks.wrapped import WrappedLM
from experiments.shapes import SHAPES, model_folder
from experiments.table import table
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import Costs
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.lm import CausalLM, Output
from pipeline.decoding.sampling import SamplingParams
from pipeline.models.pairs import EMBEDDED
from pipeline.request import MAX_DRAFT_LENGTH
from pipeline.runtime.model import OVModel
from pipeline.runtime.pair import measure_costs

DRAFT = "draft"  # of `SHAPES`
_PROMPT = list(range(100, 148))
_GREEDY = SamplingParams()


class ImposedLM(WrappedLM):
    """A draft model that takes its usual time and agrees with a given text at a given rate.

    Args:
        text: the target's greedy text, prompt included.
        acceptance: the probability that the most likely token is that text's next.
    """

    def __init__(self, model: CausalLM, text: Sequence[int], acceptance: float, seed: int) -> None:
        super().__init__(model)
        self._text, self._acceptance = text, acceptance
        self._rng = np.random.default_rng(seed)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        output = super().forward(tokens, logits_to_keep, pad_to)
        if logits_to_keep and len(self) < len(self._text):
            token = self._text[len(self)]
            right = self._rng.random() < self._acceptance
            output.logits[-1, token if right else token ^ 1] = np.inf
        return output


def steps(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def ms_per_token(made: Sequence[Step]) -> float:
    return 1e3 * sum(s.seconds for s in made) / sum(len(s.tokens) for s in made)


def measure(
    folders: tuple[Path, Path], acceptance: float, max_new_tokens: int, repeats: int
) -> tuple[list[dict[str, Any]], dict[str, float], Costs]:
    """Measures every draft length.

    Args:
        folders: of target and draft.
        acceptance: the rate to impose.

    Returns:
        A row for each draft length: acceptance rate, times and speedup; the milliseconds per token
        of autoregressive decoding in both modes; and the measured costs.
    """
    exact, fastest = (OVModel(folders[0], lossless=lossless) for lossless in (True, False))
    draft_model = OVModel(folders[1])
    for model in (exact, fastest, draft_model):
        model.warm_up()
    costs = measure_costs(exact, draft_model)

    def autoregressive(model: OVModel) -> list[Step]:
        lanes = Lanes(target=lambda prompt: model.sequence())
        return steps(lanes.autoregressive(_PROMPT, _GREEDY, max_new_tokens))

    def speculative(k: int, seed: int) -> list[Step]:
        draft = ImposedLM(draft_model.sequence(), text, acceptance, seed)
        lanes = Lanes(target=lambda prompt: exact.sequence(), draft=lambda prompt: draft)
        return steps(lanes.speculative(_PROMPT, _GREEDY, max_new_tokens, MODEL.name, k))

    text = [*_PROMPT, *(token for step in autoregressive(exact) for token in step.tokens)]
    times: dict[str, list[float]] = {"fastest": [], "exact": []}
    made: dict[int, list[Step]] = {k: [] for k in range(1, MAX_DRAFT_LENGTH + 1)}
    ratios: dict[int, list[float]] = {k: [] for k in made}
    for turn in range(repeats):
        times["exact"].append(ms_per_token(autoregressive(exact)))
        for k in made:
            times["fastest"].append(ms_per_token(autoregressive(fastest)))  # next to its comparison
            run = speculative(k, seed=turn)
            assert [t for s in run for t in s.tokens] == text[len(_PROMPT) :]
            made[k] += run
            times.setdefault(str(k), []).append(ms_per_token(run))
            ratios[k].append(times["fastest"][-1] / times[str(k)][-1])

    results: list[dict[str, Any]] = []
    for k, run in made.items():
        tested = sum(step.tested for step in run)
        results.append(
            {
                "draft_length": k,
                "acceptance": sum(step.accepted for step in run) / tested,
                "block_efficiency": sum(len(step.tokens) for step in run) / len(run),
                "draft_ms": 1e3 * statistics.median(s.draft_s / k for s in run),
                "verify_ms": 1e3 * statistics.median(s.verify_s for s in run),
                "ms_per_token": statistics.median(times[str(k)]),
                "over_fastest": statistics.median(ratios[k]),
            }
        )
    medians = {name: statistics.median(times[name]) for name in ("fastest", "exact")}
    return results, medians, costs


def show(about: str, results: list[dict[str, Any]], medians: dict[str, float]) -> None:
    print(f"{about}; autoregressive {medians['fastest']:.2f} ms per token")
    print(f"(exact: {medians['exact']:.2f})\n")
    table(
        ("K", "accepted", "block", "draft ms", "verify ms", "ms per token", "× fastest AR"),
        [[row["draft_length"], *(f"{v:.2f}" for v in list(row.values())[1:])] for row in results],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", choices=SHAPES, default="160M")
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    tokenizer = EMBEDDED / "target" / "tokenizer.json"
    target, draft = (model_folder(SHAPES[n], "int8", tokenizer) for n in (options.target, DRAFT))
    results, medians, _ = measure(
        (target, draft), options.acceptance, options.max_new_tokens, options.repeats
    )
    about = f"{options.target}, random weights, imposed acceptance: {options.acceptance}"
    show(about, results, medians)
    save("imposed", about=about, autoregressive_ms=medians, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
