"""The same models, prompts and token counts in every engine that runs them.

    pip install -r requirements-dev.txt -r lab/requirements.txt && python -m lab.studies.peers

Each engine is a process of its own, loaded once and warmed up; each prompt goes to one engine after
the other, in an order that rotates. All decode greedily, and none stops before N tokens. If an
engine fails, its error stands below the table. Beside the embedded pair, larger shapes with random
weights are run autoregressively, without llama.cpp.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from tqdm import tqdm

from lab.engines.engines import (
    AUTOREGRESSIVE,
    DRAFT_LENGTH,
    EMBEDDED_MODELS,
    ENGINES,
    FIXED_DRAFTS,
    OURS,
    OURS_FASTEST,
    OURS_SPECULATIVE,
    Answer,
    Models,
)
from lab.engines.peer_models import for_peers
from lab.prompts import KINDS
from lab.report import save
from lab.shapes import SHAPES, model_folder
from lab.spread import Spread
from lab.table import table
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED
from pipeline.text.prompt import format_prompt
from pipeline.text.tokenizer import Tokenizer

_MANY = 100  # tokens; an answer of more is asked for once of each kind


def work(name: str, models: Models) -> None:
    """Answers prompts, a JSON line each, until there are no more."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what engines print is not a reply
    try:
        answer = ENGINES[name](models)
        replies.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            replies.write(json.dumps(timed(answer, **json.loads(line))) + "\n")
    except Exception as error:  # a failure is a result
        line = (str(error).strip() or "no message").splitlines()[0]
        replies.write(json.dumps({"failed": f"{type(error).__name__}: {line}"[:200]}) + "\n")


def timed(answer: Answer, prompt: list[int], count: int) -> dict[str, Any]:
    """The answer, the times of its tokens in seconds, and the peak memory so far."""
    times: list[tuple[int, float]] = []
    start = perf_counter()
    tokens = answer(prompt, count, lambda made: times.append((made, perf_counter() - start)))
    total = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens": tokens, "times": times, "total": total, "peak_mb": peak}


@dataclass(slots=True)
class Engine:
    """The process of an engine, and its answers."""

    name: str
    process: subprocess.Popen[str]
    failed: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, name: str, models: Models) -> Engine:
        command = [sys.executable, "-m", "lab.studies.peers", "--engine", name]
        command += ["--models", json.dumps(asdict(models), default=str)]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        engine = cls(name, process)
        engine._read()
        return engine

    def ask(self, prompt: list[int], count: int) -> dict[str, Any]:
        """The reply; empty if the engine failed, now or earlier."""
        if self.failed:
            return {}
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps({"prompt": prompt, "count": count}) + "\n")
            self.process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"failed": "the process ended"}
        self.failed = reply.get("failed", "")
        return {} if self.failed else reply


def raced(
    models: Models,
    names: Sequence[str],
    kinds: Mapping[str, Sequence[tuple[str, str]]],
    counts: Sequence[int],
    repeats: int,
) -> list[Engine]:
    """The engines with their answers to all prompts. Only the first prompt of a kind gets the
    largest N.

    Args:
        names: of engines.
        kinds: by name, instructions with their contexts.
        counts: each an N.
        repeats: of all of it.
    """
    encode = Tokenizer(models.target).encode
    prompts = {
        kind: [encode(format_prompt(*prompt)) for prompt in asked] for kind, asked in kinds.items()
    }
    engines = [Engine.start(name, models) for name in names]
    for engine in engines:
        engine.ask(encode("Once upon a time"), 40)  # warms up, with none of the prompts
    turns = [
        (kind, number, count)
        for count in counts
        for kind, asked in prompts.items()
        for number in range(1 if count > _MANY else len(asked))
    ]
    for turn, (kind, number, count) in enumerate(tqdm(turns * repeats, desc="prompts")):
        for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
            if reply := engine.ask(prompts[kind][number], count):
                about = {"kind": kind, "prompt": number, "count": count}
                engine.samples.append(about | reply)
    for engine in engines:
        engine.stop()
    return engines


def summed_up(engines: Sequence[Engine]) -> list[dict[str, Any]]:
    """A row for each engine. A ratio compares the medians of the repeats for one prompt and N; the
    row has the median of these ratios.
    """
    times = {engine.name: by_prompt(engine) for engine in engines}
    text = {key(s): s["tokens"] for e in engines if e.name == OURS for s in e.samples}
    rows: list[dict[str, Any]] = []
    for engine in engines:
        if engine.failed or not engine.samples:
            rows.append({"engine": engine.name, "failed": engine.failed})
            continue
        mine, samples = times[engine.name], engine.samples
        row: dict[str, Any] = {
            "engine": engine.name,
            "ms_per_token": asdict(Spread.of([*mine.values()])),
        }
        for name in (OURS_FASTEST, OURS_SPECULATIVE):
            ratios = [mine[k] / times[name][k] for k in mine.keys() & times.get(name, {}).keys()]
            row[f"over {name}"] = statistics.median(ratios) if ratios else None
        first: dict[tuple[str, int], float] = {}  # later, some engines have it cached
        for sample in samples:
            if sample["times"]:
                first.setdefault((sample["kind"], sample["prompt"]), 1e3 * sample["times"][0][1])
        row["first_token_ms"] = statistics.median(first.values()) if first else None
        if engine.name in FIXED_DRAFTS:
            row |= drafting(samples)
        row["peak_mb"] = max(sample["peak_mb"] for sample in samples)
        row["same_text"] = sum(s["tokens"] == text.get(key(s)) for s in samples) / len(samples)
        rows.append(row)
    return rows


def key(sample: dict[str, Any]) -> tuple[str, int, int]:
    return sample["kind"], sample["prompt"], sample["count"]


def by_prompt(engine: Engine) -> dict[tuple[str, int, int], float]:
    """Milliseconds per token after the first report, or of all tokens if none was reported."""
    grouped: dict[tuple[str, int, int], list[float]] = {}
    for sample in engine.samples:
        made, first = sample["times"][0] if sample["times"] else (0, 0.0)
        taken = 1e3 * (sample["total"] - first) / (len(sample["tokens"]) - made)
        grouped.setdefault(key(sample), []).append(taken)
    return {place: statistics.median(group) for place, group in grouped.items()}


def drafting(samples: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Acceptance, where each report is of a round with `DRAFT_LENGTH` drafted tokens."""
    rounds = [
        later - earlier
        for sample in samples
        for (earlier, _), (later, _) in pairwise([(0, 0.0), *sample["times"]])
    ]
    accepted = sum(made - 1 for made in rounds)
    tested = sum(min(made, DRAFT_LENGTH) for made in rounds)
    return {"acceptance": accepted / tested, "block_efficiency": sum(rounds) / len(rounds)}


def prepared(models: Models, folder: Path) -> Models:
    """`for_peers`, in a process of its own: a process starts with its parent's peak memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(for_peers, models, folder).result()


def differences(models: Models) -> list[str]:
    """A line on each model that other engines run in another form than this project."""
    notes = []
    if models.full_draft:
        notes.append(
            "The draft has a trimmed vocabulary, which no other engine takes. Theirs is the same "
            "draft with a row for each token of the target: it proposes the same tokens, and a "
            "step of it reads a longer head."
        )
    if models.gguf:
        notes.append(
            "llama.cpp runs 4-bit matrices as Q4_1, with the same values, and 8-bit ones as Q8_0, "
            "the nearest that it has."
        )
    return notes


def show(subject: str, rows: Sequence[dict[str, Any]]) -> None:
    def cell(row: dict[str, Any], name: str, digits: int = 2) -> str:
        return "–" if row.get(name) is None else f"{row[name]:.{digits}f}"

    print(f"\n{subject}")
    table(
        (
            "",
            "ms per token",
            "× ours",
            "× ours, spec.",
            "first ms",
            "accepted",
            "block",
            "MB",
            "same",
        ),
        [
            [
                row["engine"],
                Spread(**row["ms_per_token"]),
                cell(row, f"over {OURS_FASTEST}"),
                cell(row, f"over {OURS_SPECULATIVE}"),
                cell(row, "first_token_ms", 0),
                cell(row, "acceptance"),
                cell(row, "block_efficiency"),
                cell(row, "peak_mb", 0),
                f"{row['same_text']:.0%}",
            ]
            for row in rows
            if "failed" not in row
        ],
    )
    for row in rows:
        if "failed" in row:
            print(f"{row['engine']} failed: {row['failed']}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subjects = (DEFAULT_PAIR, "160M", "410M")
    parser.add_argument("--subjects", nargs="+", choices=subjects, default=subjects)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--counts", nargs="+", type=int, default=[40, 100])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)  # be its process
    parser.add_argument("--models", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        folders = {name: path and Path(path) for name, path in options.models.items()}
        work(options.engine, Models(**folders))
        return 0

    results, notes = {}, []
    for subject in options.subjects:
        names, counts = options.engines, options.counts
        with tempfile.TemporaryDirectory() as made:
            if subject in SHAPES:
                names, counts = [name for name in names if name in AUTOREGRESSIVE], counts[:1]
                tokenizer = EMBEDDED / "target" / "tokenizer.json"
                folder = model_folder(SHAPES[subject], "int8", tokenizer)
                models = Models(folder, folder)
            else:
                models = prepared(EMBEDDED_MODELS, Path(made))
                notes = differences(models)
            engines = raced(models, names, KINDS, counts, options.repeats)
            results[subject] = summed_up(engines)
        show(subject, results[subject])
    for note in notes:
        print(note)
    save(
        "peers",
        draft_length=DRAFT_LENGTH,
        counts=options.counts,
        repeats=options.repeats,
        notes=notes,
        results=results,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
