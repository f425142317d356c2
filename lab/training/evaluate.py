"""Stage `evaluate`: every figure of the model card, from the pair's IRs.

Answers Dolly's held-out records with the program's own engine, on the CPU. Writes
WORK/evaluation.json, and WORK/reading.json, whose marks a reader fills in. Every measurement is
kept in WORK/evaluation.jsonl as it is made, so that an interrupted run continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from tqdm import tqdm

from lab import corpus
from lab.corpus import Record
from lab.quality import Text, distributions
from lab.training import bars
from lab.training.base import BASE
from lab.training.command import Command
from lab.training.files import add_line, digest, read_json, read_lines, write_json
from lab.training.generation import quantised
from lab.training.target import TUNED
from pipeline.decoding.events import FinishReason
from pipeline.dolly import Dolly
from pipeline.environment import environment
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.model import OVModel
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.record import Trace
from pipeline.trace.repetition import body, repeats

Row = dict[str, Any]
Records = Mapping[int, Record]  # by Dolly's ids
Settings = Mapping[str, Any]  # fields of a request

EVALUATION, READING, KEPT = "evaluation.json", "reading.json", "evaluation.jsonl"
ROLES = ("target", "draft", "block")
SCORED_TOKENS = 300  # of prompt and response, of the records whose bits are counted
_SAMPLED = {"temperature": 0.7, "top_p": 0.92}
_OPEN: Mapping[str, Settings] = {
    "greedy, K = 4": {"drafter": "block", "draft_length": 4},
    "greedy, K = 8": {"drafter": "block", "draft_length": 8},
    "greedy, K = auto": {"drafter": "block", "draft_length": "auto"},
    "sampled, K = 4": {"drafter": "block", "draft_length": 4, **_SAMPLED},
    "sampled, K = auto": {"drafter": "block", "draft_length": "auto", **_SAMPLED},
    "draft model, greedy, K = 2": {"drafter": "model", "draft_length": 2},
    "draft model, greedy, K = 4": {"drafter": "model", "draft_length": 4},
    "hybrid, greedy, K = auto": {"drafter": "hybrid", "draft_length": "auto"},
}
_CONTEXT: Mapping[str, Settings] = {
    "hybrid, K = 4": {"drafter": "hybrid", "draft_length": 4},
    "hybrid, K = auto": {"drafter": "hybrid", "draft_length": "auto"},
}
_SEED = 0  # of the choice of records


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. The defaults are the card's."""

    records: int | None = None  # of language and of answers, the first ones; None takes all
    open: int = 100  # races of each setting, over records without a context
    context: int = 100  # likewise, with a context
    reading: int = 40  # answers to read, without a context
    reading_context: int = 20  # likewise, with a context
    answer_tokens: int = 256  # at most
    race_tokens: int = 100  # at most


class Kept:
    """Measurements in a file, one a line. Those of other weights or settings stay in it, unused."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows: dict[tuple[str, int], Row] = {
            (depends_on, record): row for depends_on, record, row in read_lines(path)
        }

    def rows(
        self, name: str, depends_on: str, ids: Sequence[int], measure: Callable[[int], Row]
    ) -> list[Row]:
        """A row of plain JSON for each record in `ids`; measures those that are not there.

        Args:
            depends_on: all that a row depends on besides the record, as text.
        """
        missing = [record for record in ids if (depends_on, record) not in self._rows]
        for record in tqdm(missing, desc=name, disable=not missing):
            row = self._rows[depends_on, record] = measure(record)
            add_line(self._path, [depends_on, record, row])
        return [self._rows[depends_on, record] for record in ids]


def main(command: Command) -> None:
    """Measures everything, and prints what was reached."""
    print(bars.as_table(bars.bars(evaluate(command, Sizes()))))


def evaluate(command: Command, sizes: Sizes) -> dict[str, Any]:
    """Returns what evaluation.json holds.

    Raises:
        UserError: the pair or an IR is not there or damaged, or a file cannot be read or written.
    """
    kept, pair = Kept(command.work / KEPT), command.work / "pair"
    files = {role: model_files(pair / role) for role in ROLES}
    records = corpus.held_out_by_id(command.data)
    first = dict(list(records.items())[: sizes.records])
    to_read = choose(records, sizes.reading, context=False)
    to_read += choose(records, sizes.reading_context, context=True)
    dolly = cache(partial(Dolly, pair))  # loaded when the first race is run
    weights = " ".join(digest(*each) for each in files.values())

    def races(name: str, ids: Sequence[int], tokens: int, settings: Settings) -> list[Row]:
        def measure(number: int) -> Row:
            record = records[number]
            asked = {"max_new_tokens": tokens, "seed": number, **settings}
            request = Request(record.instruction, record.context, **asked)
            return raced(dolly().start(request).finish())

        return kept.rows(name, json.dumps([weights, tokens, dict(settings)]), ids, measure)

    def races_of(part: str, context: bool, settings: Mapping[str, Settings]) -> dict[str, Any]:
        ids = choose(records, getattr(sizes, part), context)
        return {
            name: race_summary(races(f"{part}, {name}", ids, sizes.race_tokens, setting))
            for name, setting in settings.items()
        }

    answer = partial(races, tokens=sizes.answer_tokens, settings=_OPEN["greedy, K = 4"])
    tokenizer = Tokenizer(pair / "target")
    references = (record.response for record in first.values())
    looping = sum(repeats(tokenizer.encode(text), text) for text in references)
    reading = []
    for number, race in zip(to_read, answer("answers to read", to_read), strict=True):
        asked = {"instruction": records[number].instruction, "context": records[number].context}
        answered = {"answer": race["text"].strip(), "ended": race["ended"]}
        reading.append({"id": number, **asked, **answered})
    figures = {
        "sizes": asdict(sizes),
        "bytes": {role: max(file.stat().st_size for file in each) for role, each in files.items()},
        "language": language(command, kept, first),
        "answers": answer_summary(answer("answers", [*first]), looping),
        "open": races_of("open", False, _OPEN),
        "context": races_of("context", True, _CONTEXT),
        "reading": reading,
    }
    marks = read_marks(command.work / READING)  # those of answers that are still the same stay
    marked = [row | {"mark": marks.get((row["id"], row["answer"]))} for row in reading]
    write_json(command.work / READING, marked)
    write_json(command.work / EVALUATION, figures)
    return figures


def choose(records: Records, count: int, context: bool) -> list[int]:
    """The ids of up to `count` records with a context, or without: the first of a shuffled order,
    the same for every count.
    """
    ids = sorted(number for number, record in records.items() if bool(record.context) == context)
    Random(_SEED).shuffle(ids)
    return ids[:count]


def model_files(folder: Path) -> list[Path]:
    """All that makes a model answer as it does; raises UserError if it has not been exported."""
    if not (folder / "openvino_model.xml").is_file():
        remedy = "is not there; run python -m lab.training export first"
        raise UserError("model", str(folder), remedy)
    return sorted(file for file in folder.iterdir() if file.suffix in (".xml", ".bin", ".json"))


def read_marks(path: Path) -> dict[tuple[int, str], Any]:
    """The mark of each record's answer, None where there is none yet; empty without the file."""
    rows = read_json(path, "mend it, or delete it") if path.is_file() else []
    return {(row["id"], row["answer"]): row.get("mark") for row in rows}


@cache
def _machine() -> str:
    about = environment()
    return f"{about['cpu']}, {about['cores']} cores, OpenVINO {about.get('openvino', 'unknown')}"


def language(command: Command, kept: Kept, records: Records) -> dict[str, Any]:
    """How the shipped target predicts the reference responses; it in float32, before `repetition`
    rounded it; and the base.
    """
    folders = {
        "shipped": command.work / "pair" / "target",
        "float32": quantised(command.work / TUNED, command.work, "f32"),
    }
    if (command.work / BASE).is_dir():
        folders["base"] = quantised(command.work / BASE, command.work, "f32")
    tokenizer = Tokenizer(folders["shipped"])
    scored: dict[int, tuple[list[int], str]] = {}
    for number, record in records.items():
        prompt = tokenizer.ask(record.instruction, record.context)
        count = len(tokenizer.encode(record.response))
        if count and len(prompt) + count <= SCORED_TOKENS:
            scored[number] = prompt, record.response
    rows: dict[str, list[Row]] = {}
    for name, folder in folders.items():
        model = cache(partial(OVModel, folder))
        rows[name] = kept.rows(
            f"bits per byte, {name}",
            f"bits {digest(*model_files(folder))}",
            [*scored],
            lambda number, model=model: response_bits(model(), tokenizer, *scored[number]),  # type: ignore[misc]
        )
    return {
        "records": len(scored),
        "bytes": sum(row["bytes"] for row in rows["shipped"]),
        "tokens": sum(row["tokens"] for row in rows["shipped"]),
        "bits_per_byte": {name: bits_per_byte(each) for name, each in rows.items()},
        "machines": sorted({row["machine"] for each in rows.values() for row in each}),
    }


def response_bits(model: OVModel, tokenizer: Tokenizer, prompt: list[int], response: str) -> Row:
    """The information in a response, without the end key."""
    tokens = tokenizer.encode(response)
    probs = distributions(model, Text(prompt, tokens), tokenizer.size)
    bits = -np.log2(probs[np.arange(len(tokens)), tokens].astype(np.float64)).sum()
    counts = {"bytes": len(response.encode()), "tokens": len(tokens)}
    return {"bits": float(bits), **counts, "machine": _machine()}


def bits_per_byte(rows: Sequence[Row]) -> float:
    """Of responses together: their bits over their bytes of UTF-8."""
    return float(sum(row["bits"] for row in rows) / sum(row["bytes"] for row in rows))


def raced(trace: Trace) -> Row:
    """A race over one record, in counts.

    Of the autoregressive answer are "text", "tokens" (without the end key and blanks before it),
    whether it "ended" by itself, and its "certainty": the mean of the largest probability at each
    token, as it is sampled from or, if greedy, at temperature 1. "speedup" is None if an answer was
    too short to compare, "identical" if it was sampled.
    """
    slow, fast = trace.autoregressive, trace.speculative
    assert slow
    assert fast
    return {
        "text": slow.text,
        "tokens": body(slow),
        "ended": slow.finish is FinishReason.STOP,
        "autoregressive_tokens": len(slow.tokens),
        "speculative_tokens": len(fast.tokens),
        "speedup": trace.speedup,
        "target_runs": len(fast.steps),
        "tested": fast.tested,
        "accepted": fast.accepted,
        "identical": trace.identical,
        "certainty": fmean(step.target_top[0][0][1] for step in slow.steps),
        "machine": _machine(),
    }


def race_summary(races: Sequence[Row]) -> dict[str, Any]:
    """What many races have in common; counts are summed before they are divided."""
    speedups = [race["speedup"] for race in races if race["speedup"] is not None]
    claimed = [race["identical"] for race in races if race["identical"] is not None]
    counts = ("tested", "accepted", "speculative_tokens", "target_runs")
    tested, accepted, tokens, runs = (sum(race[name] for race in races) for name in counts)
    return {
        "races": len(races),
        "identical": sum(claimed) if claimed else None,
        "acceptance": accepted / tested if tested else None,
        "tokens_per_run": tokens / runs,
        "speedup": _quartiles(speedups) if speedups else None,  # none was long enough
        "slower": sum(speedup < 1 for speedup in speedups),
        "machines": sorted({race["machine"] for race in races}),
    }


def answer_summary(races: Sequence[Row], reference_loops: int) -> dict[str, Any]:
    """As `race_summary`, and how the answers end.

    Args:
        reference_loops: of the references, those that loop by the same definition.
    """
    return race_summary(races) | {
        "ends": sum(race["ended"] for race in races),
        "loops": sum(repeats(race["tokens"], race["text"]) for race in races),
        "reference_loops": reference_loops,
        "certainty": fmean(race["certainty"] for race in races),
        "tokens": _quartiles([race["autoregressive_tokens"] for race in races]),
    }


def _quartiles(values: Sequence[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    found: list[float] = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return found
