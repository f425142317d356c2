"""How fast would a pair be whose draft were right that often? Acceptance imposed by a coin.

    python -m benchmarks.imposed [--target 160M] [--acceptance 0.8] [--repeats 5]

The models have random weights, which agree on nothing. So the target's own greedy text is made
first; then the draft model runs, for its time, and that text's next token is put above what it
says, or a wrong one, as a seeded coin tells. Everything else is as always:
costs, caches and the test are real, the acceptance is not.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import save, table
from benchmarks.shapes import SHAPES, model_folder
from benchmarks.wrapped import WrappedLM
from pipeline.decoding.drafters import DEFAULT_DRAFTER
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


class CoinLM(WrappedLM):
    """Takes the model's time, and says what the coin makes of the text to come.

    Args:
        text: what the target will say, prompt included.
        acceptance: how often this is to say the same.
    """

    def __init__(self, model: CausalLM, text: Sequence[int], acceptance: float, seed: int) -> None:
        super().__init__(model)
        self._text, self._acceptance = text, acceptance
        self._coin = np.random.default_rng(seed)

    def forward(self, tokens: Sequence[int], logits_to_keep: int, pad_to: int = 0) -> Output:
        output = super().forward(tokens, logits_to_keep, pad_to)
        if logits_to_keep and len(self) < len(self._text):
            token = self._text[len(self)]
            right = self._coin.random() < self._acceptance
            output.logits[-1, token if right else token ^ 1] = np.inf
        return output


def steps(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def ms_per_token(made: Sequence[Step]) -> float:
    return 1e3 * sum(s.seconds for s in made) / sum(len(s.tokens) for s in made)


def measure(
    folders: tuple[Path, Path], acceptance: float, max_new_tokens: int, repeats: int
) -> tuple[list[dict[str, Any]], dict[str, float], Costs]:
    """For every draft length: acceptance, costs and speedup; milliseconds of autoregression; and
    what the runs cost.

    Args:
        folders: of target and draft.
        acceptance: what the coin is told.
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
        coin = CoinLM(draft_model.sequence(), text, acceptance, seed)
        lanes = Lanes(target=lambda prompt: exact.sequence(), draft=lambda prompt: coin)
        return steps(lanes.speculative(_PROMPT, _GREEDY, max_new_tokens, DEFAULT_DRAFTER, k))

    text = [*_PROMPT, *(token for step in autoregressive(exact) for token in step.tokens)]
    times: dict[str, list[float]] = {"fastest": [], "exact": []}
    made: dict[int, list[Step]] = {k: [] for k in range(1, MAX_DRAFT_LENGTH + 1)}
    ratios: dict[int, list[float]] = {k: [] for k in made}
    for turn in range(repeats):
        times["exact"].append(ms_per_token(autoregressive(exact)))
        for k in made:
            times["fastest"].append(ms_per_token(autoregressive(fastest)))  # just before, each time
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
    print(f"{about}; autoregressive {medians['fastest']:.2f} ms a token")
    print(f"(exact: {medians['exact']:.2f})\n")
    table(
        ("K", "accepted", "block", "draft ms", "verify ms", "ms a token", "× fastest AR"),
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
    about = f"{options.target}, random weights, acceptance imposed by a coin: {options.acceptance}"
    show(about, results, medians)
    save("imposed", about=about, autoregressive_ms=medians, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
