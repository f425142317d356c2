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
from lab.result import Cell, Chart, Column, Result, Row, Rows, even, number
from lab.saved import saved
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
CONFIGS: dict[str, dict[str, int]] = {
    "dolly-v2-3b": {
        "hidden_size": 2560,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 50280,
    },
    "dolly-v2-12b": {
        "hidden_size": 5120,
        "num_hidden_layers": 36,
        "num_attention_heads": 40,
        "vocab_size": 50280,
    },
    "pythia-160m": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "vocab_size": 50304,
    },
}
PAIR = ("dolly-v2-3b", "pythia-160m")
PROJECTED, FEW_LAYERS = "dolly-v2-12b", (2, 4)  # converted with few layers; the rest is projected
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
    result = Result(pair={"name": " + ".join(PAIR) + ", random weights"})
    costs: dict[str, Any] = {}
    for weights in options.precisions:
        models = []
        for name in PAIR:
            models.append((yield from _ready(store, tokenizer, name, weights, stages)))
        yield replace(result, doing=f"racing {weights}")
        folders = store.folder(models[0]), store.folder(models[1])
        repeats = setup.repeats or _REPEATS
        asked = folders, options.acceptance, options.max_new_tokens, repeats
        rows, costs[weights] = _stage(stages, f"race {weights}", _race, weights, *asked)
        result = replace(result, rows=(*result.rows, *rows))
    if options.project:
        for layers in FEW_LAYERS:
            yield from _ready(store, tokenizer, PROJECTED, "int8", stages, layers)
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
    store: Store, tokenizer: Path, name: str, weights: Weights, stages: Stages, layers: int = 0
) -> Generator[Result, None, Model]:
    """Creates and converts the model unless that is done."""
    layers = layers or CONFIGS[name]["num_hidden_layers"]
    about = name if layers == CONFIGS[name]["num_hidden_layers"] else f"{name} ({layers} layers)"
    folder = store.root / "checkpoints" / f"{name}-{layers}"
    if not (folder / "tokenizer.json").is_file():
        yield Result(doing=f"making {about}")
        _stage(stages, f"make {about}", _make, name, layers, folder, tokenizer)
    model = Model(str(folder), weights)
    if store.find(model) is None:
        yield Result(doing=f"converting {about} to {weights}")
        _stage(stages, f"convert {about} {weights}", _convert, store.root, model)
    return model


def _convert(root: Path, model: Model) -> None:
    for _ in Store(root).obtain(model):
        pass


def _make(name: str, layers: int, folder: Path, tokenizer: Path) -> None:
    """Writes a sharded bfloat16 checkpoint of that configuration, with random weights."""
    import torch
    from tokenizers import AddedToken, Tokenizer
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    sizes = CONFIGS[name] | {"num_hidden_layers": layers}
    config = GPTNeoXConfig(
        **sizes,
        intermediate_size=4 * sizes["hidden_size"],
        max_position_embeddings=2048,
        rotary_pct=0.25,
        bos_token_id=0,
        eos_token_id=0,
        tie_word_embeddings=False,
        use_parallel_residual=True,
    )
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    GPTNeoXForCausalLM(config).save_pretrained(folder, max_shard_size="2GB")
    real = Tokenizer.from_file(str(tokenizer))
    if name.startswith("dolly"):
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

    def autoregressive(model: OVModel) -> list[Step]:
        lanes = Lanes(target=lambda prompt: model.sequence())
        return _steps(lanes.autoregressive(_PROMPT, _GREEDY, max_new_tokens))

    def speculative(k: int) -> list[Step]:
        lanes = Lanes(
            target=lambda prompt: exact.sequence(),
            draft=lambda prompt: draft_model.sequence(),
            verify=Imposed(accepted_counts(acceptance, k, max_new_tokens, rng)),
        )
        return _steps(lanes.speculative(_PROMPT, _GREEDY, max_new_tokens, MODEL.name, k))

    times: dict[str, list[float]] = {"fastest": [], "exact": []}
    made: dict[int, list[Step]] = {k: [] for k in LENGTHS}
    ratios: dict[int, list[float]] = {k: [] for k in made}
    for _ in range(repeats):
        times["exact"].append(_ms_per_token(autoregressive(exact)))
        for k in made:
            times["fastest"].append(
                _ms_per_token(autoregressive(fastest))
            )  # next to its comparison
            run = speculative(k)
            made[k] += run
            times.setdefault(str(k), []).append(_ms_per_token(run))
            ratios[k].append(times["fastest"][-1] / times[str(k)][-1])

    slow = {f"{name}_ms": statistics.median(times[name]) for name in ("fastest", "exact")}
    rows: list[Row] = []
    for k, run in made.items():
        tested = sum(step.tested for step in run)
        row: dict[str, Cell] = {
            "weights": weights,
            "length": k,
            "acceptance": sum(step.accepted for step in run) / tested,
            "block": sum(len(step.tokens) for step in run) / len(run),
            "draft_ms": 1e3 * statistics.median(step.draft_s / k for step in run),
            "verify_ms": 1e3 * statistics.median(step.verify_s for step in run),
            "ms": statistics.median(times[str(k)]),
            "speedup": statistics.median(ratios[k]),
            **slow,
            **{_named(a): CostModel(a, costs.in_steps, k).speedup for a in ACCEPTANCES},
        }
        rows.append(row)
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
    few = [stages.get(f"convert {PROJECTED} ({layers} layers) int8") for layers in FEW_LAYERS]
    more = (CONFIGS[PROJECTED]["num_hidden_layers"] - FEW_LAYERS[0]) / (
        FEW_LAYERS[1] - FEW_LAYERS[0]
    )
    low, high = few
    if not (low and high):
        return {}
    return {name: low[name] + more * (high[name] - low[name]) for name in ("seconds", "peak_gib")}


def _conclude(rows: Rows) -> str:
    said = []
    for weights in dict.fromkeys(row["weights"] for row in rows):
        of_weights = [row for row in rows if row["weights"] == weights]
        best = max(of_weights, key=lambda row: number(row["speedup"]))
        said.append(
            f"{number(best['speedup']):.1f}× in {weights} at K = {best['length']} (autoregression "
            f"takes {number(best['fastest_ms']):.0f} ms per token)"
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
