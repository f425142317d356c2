"""The tasks of Spec-Bench (Xia et al. 2024, arXiv 2401.07851), in every engine.

    pip install -r requirements-dev.txt -r lab/requirements.txt
    python -m lab.studies.spec_bench [--count 5] [--repeats 3]

Questions are taken evenly from each of the six tasks, in Dolly's prompt format; of a conversation,
the first turn. All engines decode greedily, and none stops before N tokens. A speedup is over the
same engine's autoregressive mode, and over the fastest autoregressive mode of all.
"""

from __future__ import annotations

import argparse
import json
import lzma
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.engines.engines import (
    BASELINES,
    CONTEXT,
    EMBEDDED_MODELS,
    ENGINES,
    FIXED_DRAFTS,
    OURS,
)
from lab.prompts import evenly
from lab.report import save
from lab.studies.peers import Engine, by_prompt, differences, key, prepared, raced
from lab.table import table
from lab.training.corpus import DATA
from pipeline.errors import UserError
from pipeline.text.prompt import format_prompt
from pipeline.text.tokenizer import Tokenizer

_FILE = "spec_bench.jsonl.xz"
_TASKS = {  # by the file's categories; those of MT-bench are one task
    "translation": "translation",
    "summarization": "summarisation",
    "qa": "question answering",
    "math_reasoning": "mathematical reasoning",
    "rag": "retrieval-augmented",
}
_CONVERSATION = "conversation"
_Prompts = dict[str, list[tuple[str, str]]]  # of a task, with their contexts, which are empty
_Ratios = dict[tuple[str, int, int], float]  # by prompt


def questions(data: Path) -> dict[str, list[str]]:
    """All questions by task, in the order of the file.

    Raises:
        UserError: the file is absent or damaged.
    """
    path, tasks = data / _FILE, dict.fromkeys((_CONVERSATION, *_TASKS.values()))
    found: dict[str, list[str]] = {task: [] for task in tasks}
    try:
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                found[_TASKS.get(row["category"], _CONVERSATION)].append(row["turns"][0])
    except FileNotFoundError:
        raise UserError("data", str(path), "is not there; name its folder with --data") from None
    except (lzma.LZMAError, EOFError, ValueError, KeyError, IndexError):
        raise UserError("data", str(path), "is damaged; restore it") from None
    return found


def fitting(prompts: _Prompts, count: int) -> _Prompts:
    """Those that leave room for `count` tokens in the context of every engine."""
    encode = Tokenizer(EMBEDDED_MODELS.target).encode
    room = CONTEXT - count
    return {
        task: [prompt for prompt in asked if len(encode(format_prompt(*prompt))) <= room]
        for task, asked in prompts.items()
    }


def summed_up(engines: Sequence[Engine]) -> Iterator[dict[str, Any]]:
    """A row for each engine."""
    times = {engine.name: by_prompt(engine) for engine in engines if engine.samples}
    autoregressive = [times[name] for name in times if name in BASELINES]
    fastest = {place: min(each[place] for each in autoregressive) for place in times[OURS]}
    texts = {
        key(s): s["tokens"] for engine in engines if engine.name == OURS for s in engine.samples
    }
    for engine in engines:
        baseline = engine.name.partition(",")[0]
        own = times.get(baseline) if baseline in BASELINES else None
        if engine.failed or not engine.samples:
            yield {"engine": engine.name, "failed": engine.failed}
            continue
        mine, samples = times[engine.name], engine.samples
        over_own = {place: own[place] / mine[place] for place in mine} if own else {}
        over_fastest = {place: fastest[place] / mine[place] for place in mine}
        yield {
            "engine": engine.name,
            "over_own": _by_task(over_own) if own else None,
            "over_fastest": _by_task(over_fastest),
            "mean_accepted_tokens": _tokens_per_pass(engine),
            "identical": statistics.fmean(s["tokens"] == texts[key(s)] for s in samples),
        }


def _by_task(ratios: _Ratios) -> dict[str, float]:
    """The median of each task, and of all prompts."""
    tasks: dict[str, list[float]] = {}
    for (task, _, _), ratio in ratios.items():
        tasks.setdefault(task, []).append(ratio)
    medians = {task: statistics.median(each) for task, each in tasks.items()}
    return medians | {"all": statistics.median(ratios.values())}


def _tokens_per_pass(engine: Engine) -> float | None:
    """Where each report is of a forward pass of the target."""
    ours = engine.name.startswith(OURS)
    if not ours and engine.name not in FIXED_DRAFTS:
        return None
    tokens = sum(len(sample["tokens"]) for sample in engine.samples)
    return tokens / sum(len(sample["times"]) for sample in engine.samples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--count", type=int, default=5, help="questions of a task")
    parser.add_argument("--max-new-tokens", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    options = parser.parse_args()
    try:
        tasks = questions(options.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    asked = {task: [(t, "") for t in evenly(texts, options.count)] for task, texts in tasks.items()}
    kinds = fitting(asked, options.max_new_tokens)
    longer = sum(len(asked[task]) - len(kinds[task]) for task in asked)
    print(f"{longer} of {sum(map(len, asked.values()))} questions exceed the context, left out")
    names = dict.fromkeys([OURS, *options.engines])
    with tempfile.TemporaryDirectory() as made:
        models = prepared(EMBEDDED_MODELS, Path(made))
        engines = raced(models, [*names], kinds, [options.max_new_tokens], options.repeats)
    rows, notes = list(summed_up(engines)), differences(models)
    for title, name in (("same engine", "over_own"), ("fastest of all", "over_fastest")):
        print(f"\nSpeedup over the autoregressive mode, {title}")
        table(
            ("", *kinds, "all", "tokens per pass", "same"),
            [
                [
                    row["engine"],
                    *(f"{ratio:.2f}" for ratio in row[name].values()),
                    "–" if (mean := row["mean_accepted_tokens"]) is None else f"{mean:.2f}",
                    f"{row['identical']:.0%}",
                ]
                for row in rows
                if row.get(name)
            ],
        )
    for line in (*(f"{r['engine']}: {r['failed']}" for r in rows if "failed" in r), *notes):
        print(line)
    save(
        "spec_bench",
        questions=options.count,
        beyond_context=longer,
        new_tokens=options.max_new_tokens,
        repeats=options.repeats,
        notes=notes,
        results=rows,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
