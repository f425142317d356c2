"""The tasks of Spec-Bench (Xia et al. 2024, arXiv 2401.07851), in every engine.

Questions are taken evenly from each of the six tasks, in Dolly's prompt format; of a conversation,
the first turn. All engines decode greedily, and none stops before N tokens. A speedup is over the
fastest autoregressive mode of all engines; that over the same engine's own stands beside it.
"""

from __future__ import annotations

import statistics
import tempfile
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from lab.corpus import SPEC_BENCH, rows
from lab.prompts import add_records, evenly
from lab.result import Cell, Chart, Column, Result, Row, Rows, even
from lab.studies.peers import Key, Running, arguments, raced
from lab.study import Setup, Study
from pipeline.text.prompt import format_prompt
from pipeline.text.tokenizer import Tokenizer

_TASKS = {  # by the file's categories; those of MT-bench are one task
    "translation": "translation",
    "summarization": "summarisation",
    "qa": "question answering",
    "math_reasoning": "mathematical reasoning",
    "rag": "retrieval-augmented",
}
_CONVERSATION = "conversation"
TASKS = (_CONVERSATION, *_TASKS.values())
_REPEATS = 3
_Prompts = dict[str, list[tuple[str, str]]]  # of a task, with their contexts, which are empty


def questions(data: Path) -> dict[str, list[str]]:
    """All questions by task, in the order of the file.

    Raises:
        UserError: the file is absent or damaged.
    """
    found: dict[str, list[str]] = {task: [] for task in TASKS}
    for row in rows(data, SPEC_BENCH):
        found[_TASKS.get(row["category"], _CONVERSATION)] += row["turns"][:1]
    return found


def fitting(prompts: _Prompts, count: int) -> _Prompts:
    """Those that leave room for `count` tokens in the context of every engine."""
    from lab.engines.engines import CONTEXT
    from lab.engines.models import EMBEDDED_MODELS

    encode = Tokenizer(EMBEDDED_MODELS.target).encode
    room = CONTEXT - count
    return {
        task: [prompt for prompt in asked if len(encode(format_prompt(*prompt))) <= room]
        for task, asked in prompts.items()
    }


def rows_of(engines: Sequence[Running]) -> Iterator[Row]:
    """A row for each engine."""
    from lab.engines.engines import ENGINES, OURS

    times = {engine.name: engine.ms_per_token for engine in engines if engine.samples}
    slow = {name: each for name, each in times.items() if ENGINES[name].autoregressive}
    reference = next(engine for engine in engines if engine.name == OURS)
    fastest = {key: min(each[key] for each in slow.values()) for key in times[OURS]}
    for engine in engines:
        row: dict[str, Cell] = dict.fromkeys(column.name for column in COLUMNS)
        row |= {"engine": engine.name, "failed": engine.failed or None}
        if engine.samples and not engine.failed:
            mine, own = times[engine.name], slow.get(engine.name.partition(",")[0])
            row |= _by_task({key: fastest[key] / mine[key] for key in mine})
            row["own"] = statistics.median(own[key] / mine[key] for key in mine) if own else None
            row["block"] = _tokens_per_pass(engine)
            row["same"] = engine.same_text(reference)
        yield row


def _by_task(ratios: Mapping[Key, float]) -> dict[str, Cell]:
    """The median of each task, and of all prompts."""
    tasks: dict[str, list[float]] = {}
    for (task, _, _), ratio in ratios.items():
        tasks.setdefault(task, []).append(ratio)
    medians = {task: statistics.median(each) for task, each in tasks.items()}
    return {**medians, "all": statistics.median(ratios.values())}


def _tokens_per_pass(engine: Running) -> float | None:
    """Where each report is of a forward pass of the target."""
    from lab.engines.engines import ENGINES, OURS

    if not engine.name.startswith(OURS) and not ENGINES[engine.name].fixed_drafts:
        return None
    tokens = sum(len(each.tokens) for each in engine.answers)
    return tokens / sum(len(each.times) for each in engine.answers)


def _measure(setup: Setup) -> Generator[Result, None, None]:
    from lab.engines.engines import ENGINES, OURS
    from lab.engines.models import EMBEDDED_MODELS, for_peers

    options, repeats = setup.options, setup.repeats or _REPEATS
    tasks = questions(options.data)
    asked = {task: [(t, "") for t in evenly(texts, options.count)] for task, texts in tasks.items()}
    kinds = fitting(asked, options.max_new_tokens)
    figures = {
        "questions": options.count,
        "beyond_context": sum(len(asked[task]) - len(kinds[task]) for task in asked),
        "new_tokens": options.max_new_tokens,
        "repeats": repeats,
    }
    result = Result(pair={"name": setup.choice.pair.name}, figures=figures)
    names = dict.fromkeys([OURS, *(options.engines or ENGINES)])
    with tempfile.TemporaryDirectory() as made:
        yield replace(result, doing="writing the models for other engines")
        models = for_peers(EMBEDDED_MODELS, Path(made))
        counts = [options.max_new_tokens]
        engines = yield from raced(models, [*names], kinds, counts, repeats, result)
    done = len(engines[0].answers)
    figures |= {"notes": models.differences}
    yield replace(result, rows=tuple(rows_of(engines)), figures=figures, done=done, planned=done)


def _conclude(rows: Rows) -> str:
    ran = [row for row in rows if row["all"] is not None]
    first, second = sorted(ran, key=lambda row: -row["all"])[:2]
    return (
        f"On all questions, “{first['engine']}” is {first['all']:.2f}× as fast as the "
        f"fastest autoregression of any engine, and “{second['engine']}” "
        f"{second['all']:.2f}×."
    )


def _arguments(parser: ArgumentParser) -> None:
    arguments(parser)
    parser.add_argument("--max-new-tokens", type=int, default=100)
    add_records(parser, 5, "questions of a task")


COLUMNS = (
    Column("engine", "Engine"),
    *(Column(task, task.capitalize(), "×") for task in TASKS),
    Column("all", "All questions", "×"),
    Column("own", "Over its own autoregression", "×"),
    Column("block", "Tokens per pass"),
    Column("same", "Text as ours", "%", 0),
    Column("failed", "Failed"),
)
STUDY = Study(
    name="spec_bench",
    title="Spec-Bench",
    question="How much faster is each engine on the six tasks of Spec-Bench?",
    needs='the engines (pip install ".[engines]"), PyTorch and the questions (--data)',
    seconds=1860,
    columns=COLUMNS,
    chart=Chart(
        kind="bars",
        x="engine",
        y=("all",),
        level=even,
        reading="Medians over all questions; the dashed line is the fastest autoregressive mode of "
        "all engines, question by question. The table has each task.",
    ),
    measure=_measure,
    conclude=_conclude,
    arguments=_arguments,
)
