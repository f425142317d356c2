"""Every figure of the model card, from the pair's IRs. `python -m lab.training.evaluate`

Answers Dolly's held-out records with the program's own engine, on the CPU. Writes
WORK/evaluation.json, with all parts that were measured for the pair as it is, and
WORK/reading.json, whose marks a reader fills in. Every measurement is kept in
WORK/evaluation.jsonl as it is made, so that an interrupted run continues.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.training import bars, corpus
from lab.training.base import BASE
from lab.training.command import Command, new_parser, one_line_errors, timed
from lab.training.corpus import Record
from lab.training.files import replacing
from lab.training.generation import quantised
from lab.training.measurements import Measurements, Row, Series
from pipeline.decoding.events import FinishReason
from pipeline.dolly import Dolly
from pipeline.environment import environment
from pipeline.errors import UserError
from pipeline.request import Request
from pipeline.runtime.model import OVModel
from pipeline.text.prompt import END_KEY
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.record import Trace
from pipeline.trace.repetition import body, repeats

EVALUATION, READING, KEPT = "evaluation.json", "reading.json", "evaluation.jsonl"
PARTS = ("language", "answers", "open", "context", "reading")
_ROLES = ("target", "draft", "block")

SCORED_TOKENS = 300  # of prompt and response, of the records whose bits are counted
_PIECE = 32  # tokens whose logits are in memory at a time
SAMPLED = {"temperature": 0.7, "top_p": 0.92}
_OPEN: Mapping[str, Mapping[str, Any]] = {
    "greedy, K = 4": {"drafter": "block", "draft_length": 4},
    "greedy, K = 8": {"drafter": "block", "draft_length": 8},
    "greedy, K = auto": {"drafter": "block", "draft_length": "auto"},
    "sampled, K = 4": {"drafter": "block", "draft_length": 4, **SAMPLED},
    "sampled, K = auto": {"drafter": "block", "draft_length": "auto", **SAMPLED},
    "draft model, greedy, K = 2": {"drafter": "model", "draft_length": 2},
    "draft model, greedy, K = 4": {"drafter": "model", "draft_length": 4},
    "hybrid, greedy, K = auto": {"drafter": "hybrid", "draft_length": "auto"},
}
_CONTEXT: Mapping[str, Mapping[str, Any]] = {
    "hybrid, K = 4": {"drafter": "hybrid", "draft_length": 4},
    "hybrid, K = auto": {"drafter": "hybrid", "draft_length": "auto"},
}
_SEED = 0  # of the choice of records


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. The defaults are the card's.

    Attributes:
        records: of language and of answers, the first ones; None takes all.
        open, context: races of each setting, over records without and with a context.
        reading, reading_context: answers to read, without and with a context.
        answer_tokens, race_tokens: new tokens at most.
    """

    records: int | None = None
    open: int = 100
    context: int = 100
    reading: int = 40
    reading_context: int = 20
    answer_tokens: int = 256
    race_tokens: int = 100


SIZES = Sizes()


@dataclass(frozen=True, slots=True)
class Part:
    """Series by name, and what is made of all their rows."""

    series: dict[str, Series]
    summary: Callable[[dict[str, list[Row]]], Any]


# --- definitions ----------------------------------------------------------------------------------


def bits(logits: NDArray[np.float32], tokens: Sequence[int]) -> NDArray[np.float64]:
    """The information in each token under its row of `logits`, float32[tokens, vocab], in bits."""
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    chosen = rows[np.arange(len(tokens)), list(tokens)]
    information: NDArray[np.float64] = np.log2(np.exp(rows).sum(axis=-1)) - chosen / math.log(2)
    return information


def bits_per_byte(rows: Sequence[Row], end: bool = False) -> float:
    """Of responses together: their bits over their bytes of UTF-8.

    Args:
        end: whether the bits of what ends a response count: a blank line and the end key. The
            bytes are the response's own.
    """
    counted = sum(row["bits"] + (row["end_bits"] if end else 0.0) for row in rows)
    return float(counted / sum(row["bytes"] for row in rows))


def choose(records: Mapping[int, Record], count: int, context: bool) -> list[int]:
    """The ids of up to `count` records with a context, or without: the first of a shuffled order,
    the same for every count.
    """
    ids = sorted(
        record_id for record_id, record in records.items() if bool(record.context) == context
    )
    Random(_SEED).shuffle(ids)
    return ids[:count]


# --- bits per byte --------------------------------------------------------------------------------


def language(command: Command, records: Mapping[int, Record]) -> Part:
    """The reference responses, in Dolly's format, as the shipped target predicts them; as it does
    in float32; and as the base does, if its IR is there.
    """
    folders = {
        "shipped": command.work / "pair" / "target",
        "float32": quantised(command.target, command.work, "f32"),
    }
    if (command.work / BASE).is_dir():
        folders["base"] = quantised(command.work / BASE, command.work, "f32")
    tokenizer = Tokenizer(folders["shipped"])
    ending = tokenizer.encode(f"\n\n{END_KEY}")
    scored: dict[int, tuple[list[int], list[int]]] = {}
    for record_id, record in records.items():
        prompt = tokenizer.ask(record.instruction, record.context)
        response = tokenizer.encode(record.response)
        if response and len(prompt) + len(response) <= SCORED_TOKENS:
            scored[record_id] = prompt, response

    def series(name: str, folder: Path) -> Series:
        model = cache(partial(OVModel, folder))

        def measure(record_id: int) -> Row:
            prompt, response = scored[record_id]
            each = _bits_after(model(), tokenizer.size, prompt, [*response, *ending])
            return {
                "bits": float(each[: len(response)].sum()),
                "end_bits": float(each[len(response) :].sum()),
                "bytes": len(records[record_id].response.encode()),
                "tokens": len(response),
                "machine": _machine(),
            }

        return Series(f"bits per byte, {name}", f"bits {_digest(folder)}", list(scored), measure)

    def summary(rows: dict[str, list[Row]]) -> dict[str, Any]:
        return {
            "records": len(scored),
            "bytes": sum(row["bytes"] for row in rows["shipped"]),
            "tokens": sum(row["tokens"] for row in rows["shipped"]),
            "bits_per_byte": {name: bits_per_byte(of_model) for name, of_model in rows.items()},
            "with_end_key": {name: bits_per_byte(each, end=True) for name, each in rows.items()},
            "machines": sorted({row["machine"] for each in rows.values() for row in each}),
        }

    return Part({name: series(name, folder) for name, folder in folders.items()}, summary)


def _bits_after(
    model: OVModel, vocab_size: int, prompt: Sequence[int], tokens: Sequence[int]
) -> NDArray[np.float64]:
    """The bits of each of `tokens`, which follow the prompt."""
    sequence = model.sequence(vocab_size)
    sequence.forward(prompt[:-1], logits_to_keep=0)
    fed = [prompt[-1], *tokens[:-1]]
    pieces = []
    for at in range(0, len(fed), _PIECE):
        piece = fed[at : at + _PIECE]
        logits = sequence.forward(piece, logits_to_keep=len(piece)).logits
        pieces.append(bits(logits, tokens[at : at + _PIECE]))
    return np.concatenate(pieces)


# --- races ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Raced:
    """A race over one record, in counts.

    Attributes:
        text, tokens: the autoregressive answer; tokens without the end key and blanks before it.
        ended: by itself, within its budget.
        autoregressive_tokens, speculative_tokens: emitted, the end key included.
        target_runs: of the speculative lane, in decoding.
        speedup: None if an answer was too short to compare.
        identical: None if sampled.
        certainty: the largest probability at each token of the autoregressive answer, as it is
            sampled from or, if greedy, at temperature 1; the mean.
    """

    text: str
    tokens: list[int]
    ended: bool
    autoregressive_tokens: int
    speculative_tokens: int
    speedup: float | None
    target_runs: int
    tested: int
    accepted: int
    identical: bool | None
    certainty: float
    machine: str

    @classmethod
    def of(cls, trace: Trace, machine: str) -> Raced:
        slow, fast = trace.autoregressive, trace.speculative
        assert slow
        assert fast
        return cls(
            text=slow.text,
            tokens=body(slow),
            ended=slow.finish is FinishReason.STOP,
            autoregressive_tokens=len(slow.tokens),
            speculative_tokens=len(fast.tokens),
            speedup=trace.speedup,
            target_runs=len(fast.steps),
            tested=fast.tested,
            accepted=fast.accepted,
            identical=trace.identical,
            certainty=fmean(step.target_top[0][0][1] for step in slow.steps),
            machine=machine,
        )


def race_summary(races: Sequence[Raced]) -> dict[str, Any]:
    """What many races have in common; counts are summed before they are divided."""
    tested = sum(race.tested for race in races)
    speedups = [race.speedup for race in races if race.speedup is not None]
    claimed = [race.identical for race in races if race.identical is not None]
    return {
        "races": len(races),
        "identical": sum(claimed) if claimed else None,
        "acceptance": sum(race.accepted for race in races) / tested if tested else None,
        "tokens_per_run": sum(race.speculative_tokens for race in races)
        / sum(race.target_runs for race in races),
        "speedup": _quartiles(speedups) if speedups else None,  # none was long enough
        "slower": sum(speedup < 1 for speedup in speedups),
        "machines": sorted({race.machine for race in races}),
    }


def answer_summary(races: Sequence[Raced], reference_loops: int) -> dict[str, Any]:
    """As `race_summary`, and how the answers end.

    Args:
        reference_loops: of the references, those that loop by the same definition.
    """
    return race_summary(races) | {
        "ends": sum(race.ended for race in races),
        "loops": sum(repeats(race.tokens, race.text) for race in races),
        "reference_loops": reference_loops,
        "certainty": fmean(race.certainty for race in races),
        "tokens": _quartiles([race.autoregressive_tokens for race in races]),
    }


def _quartiles(values: Sequence[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    found: list[float] = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return found


class _Racing:
    """Series of races of one pair, which is loaded when the first race is run."""

    def __init__(self, pair: Path, records: Mapping[int, Record]) -> None:
        self._records = records
        self._dolly = cache(partial(Dolly, pair))
        self._digest = " ".join(_digest(pair / role) for role in _ROLES)

    def series(
        self, name: str, ids: Sequence[int], tokens: int, settings: Mapping[str, Any]
    ) -> Series:
        def measure(record_id: int) -> Row:
            record = self._records[record_id]
            request = Request(
                record.instruction,
                record.context,
                max_new_tokens=tokens,
                seed=record_id,
                **settings,
            )
            trace = self._dolly().start(request).finish()
            return asdict(Raced.of(trace, _machine()))

        depends_on = json.dumps([self._digest, tokens, dict(settings)])
        return Series(name, depends_on, ids, measure)


def _races(rows: Sequence[Row]) -> list[Raced]:
    return [Raced(**row) for row in rows]


# --- the whole ------------------------------------------------------------------------------------


def evaluate(command: Command, only: str | None = None, sizes: Sizes = SIZES) -> dict[str, Any]:
    """Measures one part or all, and writes what is known of the pair.

    Returns:
        What evaluation.json holds: the parts that are complete.

    Raises:
        UserError: the pair or an IR is not there or damaged, or a file cannot be read or written.
    """
    kept = Measurements(command.work / KEPT)
    figures: dict[str, Any] = {
        "sizes": asdict(sizes),
        "bytes": {role: _file_bytes(command, role) for role in _ROLES},
    }
    for name, part in _parts(command, sizes).items():
        if only in (None, name):
            for series in part.series.values():
                kept.complete(series)
        rows = {series: kept.rows(part.series[series]) for series in part.series}
        complete = {series: found for series, found in rows.items() if found is not None}
        if len(complete) == len(rows):
            figures[name] = part.summary(complete)
    if "reading" in figures:
        _write_reading(command.work / READING, figures["reading"])
    with replacing(command.work / EVALUATION) as path:
        path.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return figures


def _parts(command: Command, sizes: Sizes) -> dict[str, Part]:
    pair = command.work / "pair"
    records = corpus.held_out_by_id(command.data)
    first = dict(list(records.items())[: sizes.records])
    racing, tokenizer = _Racing(pair, records), Tokenizer(pair / "target")
    to_read = choose(records, sizes.reading, context=False)
    to_read += choose(records, sizes.reading_context, context=True)

    def summary_of_each(rows: dict[str, list[Row]]) -> dict[str, Any]:
        return {name: race_summary(_races(of_setting)) for name, of_setting in rows.items()}

    def answers(rows: dict[str, list[Row]]) -> dict[str, Any]:
        references = (record.response for record in first.values())
        looping = sum(repeats(tokenizer.encode(text), text) for text in references)
        return answer_summary(_races(rows["answers"]), looping)

    def reading(rows: dict[str, list[Row]]) -> list[dict[str, Any]]:
        return [
            {
                "id": record_id,
                "instruction": records[record_id].instruction,
                "context": records[record_id].context,
                "answer": race.text.strip(),
                "ended": race.ended,
            }
            for record_id, race in zip(to_read, _races(rows["answers"]), strict=True)
        ]

    # The same settings, so the answers to read are among the others.
    settings = _OPEN["greedy, K = 4"]
    answering = partial(racing.series, tokens=sizes.answer_tokens, settings=settings)
    raced: dict[str, dict[str, Series]] = {
        part: {
            name: racing.series(f"{part}, {name}", ids, sizes.race_tokens, setting)
            for name, setting in settings.items()
        }
        for part, ids, settings in (
            ("open", choose(records, sizes.open, context=False), _OPEN),
            ("context", choose(records, sizes.context, context=True), _CONTEXT),
        )
    }
    return {
        "language": language(command, first),
        "answers": Part({"answers": answering("answers", list(first))}, answers),
        "open": Part(raced["open"], summary_of_each),
        "context": Part(raced["context"], summary_of_each),
        "reading": Part({"answers": answering("answers to read", to_read)}, reading),
    }


def _write_reading(path: Path, answers: Sequence[dict[str, Any]]) -> None:
    """Keeps the marks of answers that are still the same."""
    marks = {(old["id"], old["answer"]): old["mark"] for old in read_reading(path)}
    marked = [answer | {"mark": marks.get((answer["id"], answer["answer"]))} for answer in answers]
    with replacing(path) as temporary:
        text = json.dumps(marked, indent=1, ensure_ascii=False) + "\n"
        temporary.write_text(text, encoding="utf-8")


def read_reading(path: Path) -> list[dict[str, Any]]:
    """The answers and their marks; none if the file is not there.

    Raises:
        UserError: it is damaged.
    """
    if not path.is_file():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        return [{name: row[name] for name in ("id", "answer", "mark")} for row in rows]
    except (ValueError, KeyError, TypeError):
        remedy = "must be JSON with id, answer and mark of each answer; mend it, or delete it"
        raise UserError("marks", path.name, remedy) from None


def _file_bytes(command: Command, role: str) -> int:
    """Of the largest file of a model."""
    return max(file.stat().st_size for file in _files(command.work / "pair" / role))


def _digest(folder: Path) -> str:
    """Of all that makes a model answer as it does."""
    digest = hashlib.blake2b(digest_size=16)
    for file in _files(folder):
        with file.open("rb") as content:
            digest.update(file.name.encode())
            digest.update(hashlib.file_digest(content, "blake2b").digest())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """A model's files; raises UserError if it has not been exported."""
    if not (folder / "openvino_model.xml").is_file():
        remedy = "is not there; run python -m lab.training.export first"
        raise UserError("model", str(folder), remedy)
    yield from sorted(file for file in folder.iterdir() if file.suffix in (".xml", ".bin", ".json"))


@cache
def _machine() -> str:
    about = environment()
    return f"{about['cpu']}, {about['cores']} cores, OpenVINO {about.get('openvino', 'unknown')}"


def main() -> None:
    """The command line; exits with 2 and one line on what a user can mend."""
    parser = new_parser(__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this part")
    given = parser.parse_args()
    with one_line_errors(), timed(given.work, "evaluate"):
        print(bars.table(bars.bars(evaluate(Command(given.work, given.data), given.only))))


if __name__ == "__main__":
    main()
