"""Converts and races a model of Dolly v2 3B's full size with random weights: time and memory.

For machines without access to the hub: this tests every step but the download. A checkpoint with
Dolly v2 3B's exact configuration and tokenizer is created, converted and raced with a draft of
Pythia-160m's shape. Each stage runs in a process of its own, whose time and peak memory are
reported. Two models with random weights do not agree, so the acceptance rate is imposed
(`lab.imposed`); the speedups at other rates are predicted from measured costs.
"""

from __future__ import annotations

import json
import resource
import statistics
from argparse import ArgumentParser
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from lab.footprint import high_water_mark
from lab.imposed import Imposed, accepted_counts
from lab.result import Chart, Column, Result, Row, Rows, even
from lab.saved import saved
from lab.shapes import Sized, save_checkpoint
from lab.study import Setup, Study
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import CostModel
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.errors import UserError
from pipeline.models.pairs import Model, Weights
from pipeline.models.store import Store
from pipeline.request import MAX_DRAFT_LENGTH
from pipeline.text.prompt import ADDED_TOKENS

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.model import OVModel

# databricks/dolly-v2-3b, -12b and EleutherAI/pythia-160m, their config.json
TARGET = Sized("dolly-v2-3b", 2560, 32, 50280, head_size=80)
DRAFT = Sized("pythia-160m", 768, 12, 50304)
PROJECTED = Sized("dolly-v2-12b", 5120, 36, 50280, head_size=128)
FEW_LAYERS = (2, 4)  # with which it is converted; the rest is projected
ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
LENGTHS = range(1, MAX_DRAFT_LENGTH + 1)
_PROMPT, _GREEDY = [*range(100, 148)], SamplingParams()
_REPEATS = 2

Stages = dict[str, dict[str, Any]]  # by name: seconds, and peak_gib


def _measure(setup: Setup) -> Generator[Result, None, None]:
    options, store = setup.options, setup.choice.store
    tokenizer = options.tokenizer
    if not (tokenizer and tokenizer.is_file()):
        raise UserError("tokenizer", str(tokenizer), "name the file with --tokenizer")
    # A stage whose output exists is not repeated: its earlier measurement stands.
    earlier = saved("full_size")
    stages: Stages = dict(earlier.figures["stages"]) if earlier else {}
    result = Result(pair={"name": f"{TARGET.name} + {DRAFT.name}, random weights"})
    costs: dict[str, Any] = {}
    for weights in options.precisions:
        target = yield from _ready(store, tokenizer, TARGET, weights, stages)
        draft = yield from _ready(store, tokenizer, DRAFT, weights, stages)
        yield replace(result, doing=f"racing {weights}")
        folders = store.folder(target), store.folder(draft)
        repeats = setup.repeats or _REPEATS
        asked = folders, options.acceptance, options.max_new_tokens, repeats
        rows, costs[weights] = _stage(stages, f"race {weights}", _race, weights, *asked)
        result = replace(result, rows=(*result.rows, *rows))
    if options.project:
        for layers in FEW_LAYERS:
            few = replace(PROJECTED, name=_few(layers), layers=layers)
            yield from _ready(store, tokenizer, few, "int8", stages)
    figures = {"stages": stages, "costs": costs, "acceptance": options.acceptance}
    figures |= {"projected": projected(stages)}
    done = len(options.precisions)
    yield replace(result, figures=figures, done=done, planned=done)


def _stage(stages: Stages, name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Runs a stage in a process of its own; returns what it returns."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        value, stages[name] = pool.submit(_timed, work, arguments).result()
    return value


def _timed(work: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
    start = perf_counter()
    value = work(*arguments)
    children = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # a conversion is one
    peak = max(high_water_mark() or 0, children)
    return value, {"seconds": perf_counter() - start, "peak_gib": peak / 2**30}


def _ready(
    store: Store, tokenizer: Path, sized: Sized, weights: Weights, stages: Stages
) -> Generator[Result, None, Model]:
    """Creates and converts the model unless that is done."""
    folder = store.root / "checkpoints" / f"{sized.name.split()[0]}-{sized.layers}"
    if not (folder / "tokenizer.json").is_file():
        yield Result(doing=f"making {sized.name}")
        _stage(stages, f"make {sized.name}", _make, sized, folder, tokenizer)
    model = Model(str(folder), weights)
    if store.find(model) is None:
        yield Result(doing=f"converting {sized.name} to {weights}")
        _stage(stages, f"convert {sized.name} {weights}", _convert, store.root, model)
    return model


def _few(layers: int) -> str:
    """The name of the projected model with a few of its layers."""
    return f"{PROJECTED.name} ({layers} layers)"


def _convert(root: Path, model: Model) -> None:
    for _ in Store(root).obtain(model):
        pass


def _make(sized: Sized, folder: Path, tokenizer: Path) -> None:
    """Writes a bfloat16 checkpoint with random weights, and Dolly's tokenizer."""
    import torch
    from tokenizers import AddedToken, Tokenizer

    torch.set_default_dtype(torch.bfloat16)
    save_checkpoint(sized, folder)
    real = Tokenizer.from_file(str(tokenizer))
    if sized.name.startswith("dolly"):
        real.add_tokens([AddedToken(text, normalized=False) for text in ADDED_TOKENS])
    real.save(str(folder / "tokenizer.json"))


def _race(
    weights: str, folders: tuple[Path, Path], acceptance: float, max_new_tokens: int, repeats: int
) -> tuple[list[Row], dict[str, Any]]:
    """Measures every draft length; returns a row for each, and the costs of forward passes.

    Args:
        folders: of target and draft.
        acceptance: the rate to impose.
    """
    from pipeline.runtime.model import OVModel, RuntimeOptions
    from pipeline.runtime.pair import measure_costs

    exact, fastest = (
        OVModel(folders[0], RuntimeOptions(lossless=lossless)) for lossless in (True, False)
    )
    draft_model = OVModel(folders[1])
    for model in (exact, fastest, draft_model):
        model.warm_up()
    costs, rng = measure_costs(exact, draft_model).costs, np.random.default_rng(0)

    def autoregressive(model: OVModel) -> float:
        lanes = Lanes(target=lambda prompt: model.sequence())
        return _ms_per_token(_steps(lanes.autoregressive(_PROMPT, _GREEDY, max_new_tokens)))

    def speculative(k: int) -> list[Step]:
        lanes = Lanes(
            target=lambda prompt: exact.sequence(),
            draft=lambda prompt: draft_model.sequence(),
            verify=Imposed(accepted_counts(acceptance, k, max_new_tokens, rng)),
        )
        return _steps(lanes.speculative(_PROMPT, _GREEDY, max_new_tokens, MODEL.name, k))

    exact_ms, fastest_ms = list[float](), list[float]()
    made: dict[int, list[Step]] = {k: [] for k in LENGTHS}
    times: dict[int, list[float]] = {k: [] for k in LENGTHS}
    ratios: dict[int, list[float]] = {k: [] for k in LENGTHS}
    for _ in range(repeats):
        exact_ms.append(autoregressive(exact))
        for k in LENGTHS:
            fastest_ms.append(autoregressive(fastest))  # next to its comparison
            steps = speculative(k)
            made[k] += steps
            times[k].append(_ms_per_token(steps))
            ratios[k].append(fastest_ms[-1] / times[k][-1])
    rows: list[Row] = [
        {
            "weights": weights,
            "length": k,
            "acceptance": sum(s.accepted for s in steps) / sum(s.tested for s in steps),
            "block": sum(len(step.tokens) for step in steps) / len(steps),
            "draft_ms": 1e3 * statistics.median(step.draft_s / k for step in steps),
            "verify_ms": 1e3 * statistics.median(step.verify_s for step in steps),
            "ms": statistics.median(times[k]),
            "speedup": statistics.median(ratios[k]),
            "fastest_ms": statistics.median(fastest_ms),
            "exact_ms": statistics.median(exact_ms),
            **{_named(a): CostModel(a, costs.in_steps, k).speedup for a in ACCEPTANCES},
        }
        for k, steps in made.items()
    ]
    return rows, json.loads(json.dumps(asdict(costs)))


def _named(acceptance: float) -> str:
    """The column of the speedup that is predicted at an acceptance."""
    return f"at_{100 * acceptance:.0f}"


def _steps(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def _ms_per_token(made: Sequence[Step]) -> float:
    return 1e3 * sum(s.seconds for s in made) / sum(len(s.tokens) for s in made)


def projected(stages: Stages) -> Mapping[str, float]:
    """The cost of converting all layers of `PROJECTED`, from that of `FEW_LAYERS`; empty before
    those are measured.
    """
    low, high = (stages.get(f"convert {_few(layers)} int8") for layers in FEW_LAYERS)
    more = (PROJECTED.layers - FEW_LAYERS[0]) / (FEW_LAYERS[1] - FEW_LAYERS[0])
    if not (low and high):
        return {}
    return {name: low[name] + more * (high[name] - low[name]) for name in ("seconds", "peak_gib")}


def _conclude(rows: Rows) -> str:
    said = []
    for weights in dict.fromkeys(row["weights"] for row in rows):
        of_weights = [row for row in rows if row["weights"] == weights]
        best = max(of_weights, key=lambda row: row["speedup"])
        said.append(
            f"{best['speedup']:.1f}× in {weights} at K = {best['length']} (autoregression "
            f"takes {best['fastest_ms']:.0f} ms per token)"
        )
    return (
        f"With random weights and imposed acceptance, Dolly v2 3B’s size reaches "
        f"{' and '.join(said)}."
    )


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--tokenizer", type=Path, help="GPT-NeoX-20B's tokenizer.json")
    add("--precisions", nargs="+", choices=get_args(Weights), default=["int8", "int4"])
    add("--acceptance", type=float, default=0.8)
    add("--max-new-tokens", type=int, default=40)
    add("--project", action="store_true", help="also measure layers of the 12B")


STUDY = Study(
    name="full_size",
    title="Dolly v2 3B’s full size",
    question="How long do conversion and decoding take at Dolly v2 3B’s size, and what would "
    "speculation gain there?",
    needs="PyTorch, 11 GB of memory, 20 GB of disk, and GPT-NeoX-20B’s tokenizer",
    usage="--tokenizer FILE",
    seconds=1320,
    columns=(
        Column("weights", "Weights"),
        Column("length", "K", digits=0),
        Column("acceptance", "Imposed acceptance", "%", 0),
        Column("block", "Tokens per target pass"),
        Column("draft_ms", "Draft step", "ms"),
        Column("verify_ms", "Verification", "ms", 0),
        Column("ms", "Time per token", "ms", 0),
        Column("speedup", "Speedup over the fastest mode", "×"),
        Column("fastest_ms", "Autoregression, fastest", "ms", 0),
        Column("exact_ms", "Autoregression, exact", "ms", 0),
        *(Column(_named(a), f"Predicted at {100 * a:.0f} %", "×") for a in ACCEPTANCES),
    ),
    chart=Chart(
        kind="lines",
        x="length",
        y=("speedup",),
        series="weights",
        level=even,
        reading="Random weights, imposed acceptance: costs, caches and verification are real. "
        "Predicted speedups are over the exact mode.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
