"""Converts and races a model of Dolly v2 3B's full size with random weights; time and memory.

    python -m lab.studies.full_size --tokenizer gpt-neox-20b-tokenizer.json [--weights int8 int4]

For machines without access to the hub: this tests every step but the download. A checkpoint with
Dolly v2 3B's exact configuration and tokenizer is created, converted and raced with a draft of
Pythia-160m's shape. Each stage runs in a separate process, whose time and peak memory are reported.
Two models with random weights do not agree, so the acceptance rate is imposed
(`lab.imposed`); the speedups at other rates are predicted from measured costs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, get_args

import numpy as np

from lab.imposed import Imposed, accepted_counts
from lab.report import RESULTS, save
from lab.table import table
from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.economics import CostModel, Costs
from pipeline.decoding.events import Event, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.sampling import SamplingParams
from pipeline.errors import UserError
from pipeline.models.pairs import Model, Weights
from pipeline.models.store import Store
from pipeline.request import MAX_DRAFT_LENGTH
from pipeline.runtime.model import OVModel, RuntimeOptions
from pipeline.runtime.pair import measure_costs
from pipeline.text.prompt import ADDED_TOKENS

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
_PROMPT, _GREEDY = [*range(100, 148)], SamplingParams()

_RESULT = RESULTS / "full_size.json"


@dataclass(frozen=True, slots=True)
class Stage:
    """Wall-clock time and peak resident memory of a process."""

    seconds: float
    peak_gib: float


def run_stage(name: str, *arguments: str) -> Stage:
    """Runs `python -m` with the arguments.

    Raises:
        UserError: it failed. Its own output has the reason.
    """
    start = perf_counter()
    process = subprocess.Popen([sys.executable, "-m", *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise UserError("stage", name, "failed; see above")
    stage = Stage(perf_counter() - start, usage.ru_maxrss / 2**20)  # of KiB
    print(f"{name}: {stage.seconds:.0f} s, peak {stage.peak_gib:.1f} GiB", flush=True)
    return stage


def make_checkpoint(name: str, layers: int, folder: Path, tokenizer: Path) -> None:
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", type=Path, help="GPT-NeoX-20B's tokenizer.json")
    parser.add_argument("--weights", nargs="+", choices=get_args(Weights), default=["int8", "int4"])
    parser.add_argument("--acceptance", type=float, default=0.8)
    parser.add_argument("--max-new-tokens", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--project", action="store_true", help="also measure layers of the 12B")
    # Run one stage, in the process that was started for it:
    parser.add_argument("--make", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--race", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        name, layers, folder = options.make
        make_checkpoint(name, int(layers), Path(folder), options.tokenizer)
        return 0
    if options.race:
        weights, target, draft, file = options.race
        result = race(weights, (Path(target), Path(draft)), options)
        Path(file).write_text(json.dumps(result))
        return 0
    earlier = json.loads(_RESULT.read_text()) if _RESULT.is_file() else {}
    stages: dict[str, Stage] = {}
    races: dict[str, Any] = {}
    try:
        if not (options.tokenizer and options.tokenizer.is_file()):
            raise UserError("tokenizer", str(options.tokenizer), "name the file")
        store = Store(options.cache_dir)
        for weights in options.weights:
            models: list[str] = []
            for name in PAIR:
                model, took = ready(store, options.tokenizer, name, weights)
                models.append(str(store.folder(model)))
                stages |= took
            written = store.root / "race.json"
            racing = ("lab.studies.full_size", "--race", weights, *models, str(written))
            for name in ("acceptance", "max_new_tokens", "repeats"):
                racing += (f"--{name.replace('_', '-')}", str(getattr(options, name)))
            stages[f"race {weights}"] = run_stage(f"race {weights}", *racing)
            races[weights] = json.loads(written.read_text())
        if options.project:
            for layers in FEW_LAYERS:
                stages |= ready(store, options.tokenizer, PROJECTED, "int8", layers)[1]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    # A stage whose output exists is not repeated: its earlier measurement stands.
    kept = earlier.get("stages", {}) | {name: asdict(stage) for name, stage in stages.items()}
    save("full_size", stages=kept, races=earlier.get("races", {}) | races)
    project(kept)
    return 0


def ready(
    store: Store, tokenizer: Path, name: str, weights: Weights, layers: int = 0
) -> tuple[Model, dict[str, Stage]]:
    """Creates and converts the model unless that is done; returns it, and the stages that ran."""
    layers = layers or CONFIGS[name]["num_hidden_layers"]
    about = name if layers == CONFIGS[name]["num_hidden_layers"] else f"{name} ({layers} layers)"
    folder, stages = store.root / "checkpoints" / f"{name}-{layers}", {}
    if not (folder / "tokenizer.json").is_file():
        making = ("--make", name, str(layers), str(folder), "--tokenizer", str(tokenizer))
        stages[f"make {about}"] = run_stage(f"make {about}", "lab.studies.full_size", *making)
    model = Model(str(folder), weights)
    if store.find(model) is None:
        command = ("pipeline.convert", model.id, "--weights", weights)
        stage = f"convert {about} {weights}"
        stages[stage] = run_stage(stage, *command, "--cache-dir", str(store.root))
    return model, stages


def project(stages: dict[str, Any]) -> None:
    """Prints the projected cost of converting all of `PROJECTED`, from that of `FEW_LAYERS`."""
    few = [stages.get(f"convert {PROJECTED} ({layers} layers) int8") for layers in FEW_LAYERS]
    if not all(few):
        return
    layers = CONFIGS[PROJECTED]["num_hidden_layers"]
    for what in ("seconds", "peak_gib"):
        low, high = (stage[what] for stage in few if stage)
        slope = (high - low) / (FEW_LAYERS[1] - FEW_LAYERS[0])
        whole = low + slope * (layers - FEW_LAYERS[0])
        print(
            f"PROJECTED {what} of converting {PROJECTED} to INT8: {whole:.1f} ({slope:.2f} a layer)"
        )


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
    made: dict[int, list[Step]] = {k: [] for k in range(1, MAX_DRAFT_LENGTH + 1)}
    ratios: dict[int, list[float]] = {k: [] for k in made}
    for _ in range(repeats):
        times["exact"].append(ms_per_token(autoregressive(exact)))
        for k in made:
            times["fastest"].append(ms_per_token(autoregressive(fastest)))  # next to its comparison
            run = speculative(k)
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


def _steps(events: Iterable[Event]) -> list[Step]:
    return [event for event in events if isinstance(event, Step)]


def ms_per_token(made: Sequence[Step]) -> float:
    return 1e3 * sum(s.seconds for s in made) / sum(len(s.tokens) for s in made)


def show(about: str, results: list[dict[str, Any]], medians: dict[str, float]) -> None:
    print(f"{about}; autoregressive {medians['fastest']:.2f} ms per token")
    print(f"(exact: {medians['exact']:.2f})\n")
    table(
        ("K", "accepted", "block", "draft ms", "verify ms", "ms per token", "× fastest AR"),
        [[row["draft_length"], *(f"{v:.2f}" for v in list(row.values())[1:])] for row in results],
    )


def race(weights: str, folders: tuple[Path, Path], options: argparse.Namespace) -> dict[str, Any]:
    """Times the pair with an imposed acceptance; predicts other speedups from its costs."""
    results, medians, costs = measure(
        folders, options.acceptance, options.max_new_tokens, options.repeats
    )
    about = f"{weights}, random weights, acceptance IMPOSED"
    show(f"{about}: {options.acceptance}", results, medians)
    lengths = range(1, MAX_DRAFT_LENGTH + 1)
    forecast = {
        str(a): [CostModel(a, costs.in_steps, k).speedup for k in lengths] for a in ACCEPTANCES
    }
    print("\nPREDICTED speedup over exact autoregression, from measured costs")
    table(
        ("acceptance", *(f"K={k}" for k in lengths)),
        [[a, *(f"{speedup:.2f}" for speedup in row)] for a, row in forecast.items()],
    )
    return {
        "about": about,
        "autoregressive_ms": medians,
        "costs": json.loads(json.dumps(asdict(costs))),
        "imposed": results,
        "predicted": forecast,
    }


if __name__ == "__main__":
    sys.exit(main())
