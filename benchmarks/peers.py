"""The same models, prompts and token counts through every engine that runs them.

    pip install -r benchmarks/requirements.txt
    python -m benchmarks.peers [--target DIR --draft DIR] [--repeats 3]

Each engine is a process of its own, loaded once and warmed; the prompts go to one after the other,
in an order that turns with each repeat. All are greedy and none may stop before N tokens. Where an
engine fails, the table says how.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.engines import DRAFT_LENGTH, ENGINES, OURS, OURS_SPECULATIVE, Answer, Models
from benchmarks.prompts import KINDS
from benchmarks.report import Spread, json_line, table
from pipeline.pairs import DEFAULT_PAIR, PAIRS
from pipeline.prompt import format_prompt
from pipeline.tokenizer import Tokenizer


def work(name: str, models: Models) -> None:
    """Answers prompts, a JSON line each, until there are no more."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # engines print what they like: not among the replies
    try:
        answer = ENGINES[name](models)
        replies.write(json.dumps({"ready": True}) + "\n")
        for line in sys.stdin:
            replies.write(json.dumps(timed(answer, **json.loads(line))) + "\n")
    except Exception as error:  # whatever a peer does is a result
        line = (str(error).strip() or "no message").splitlines()[0]
        replies.write(json.dumps({"failed": f"{type(error).__name__}: {line}"[:200]}) + "\n")


def timed(answer: Answer, prompt: list[int], count: int) -> dict[str, Any]:
    """The answer, when its tokens came, and the most memory so far."""
    times: list[tuple[int, float]] = []
    start = perf_counter()
    tokens = answer(prompt, count, lambda made: times.append((made, perf_counter() - start)))
    total = perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"tokens": tokens, "times": times, "total": total, "peak_mb": peak}


@dataclass(slots=True)
class Engine:
    """A worker, and what it has said."""

    name: str
    process: subprocess.Popen[str]
    failed: str = ""
    samples: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def start(cls, name: str, models: Models) -> Engine:
        command = [sys.executable, "-m", "benchmarks.peers", "--engine", name]
        for option, folder in (
            ("--target", models.target),
            ("--draft", models.draft),
            ("--target-torch", models.target_torch),
            ("--draft-torch", models.draft_torch),
        ):
            command += [option, str(folder)] if folder else []
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
        """What came back; empty if it failed, now or earlier."""
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


def main() -> int:
    pair = PAIRS[DEFAULT_PAIR]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, default=pair.target)
    parser.add_argument("--draft", type=Path, default=pair.draft)
    parser.add_argument("--target-torch", type=Path, help="the same as transformers saves it")
    parser.add_argument("--draft-torch", type=Path)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--counts", nargs="+", type=int, default=[40, 100, 256])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)  # be this worker
    options = parser.parse_args()
    models = Models(options.target, options.draft, options.target_torch, options.draft_torch)
    if options.engine:
        work(options.engine, models)
        return 0

    tokenizer = Tokenizer(models.target)
    prompts = {
        kind: [tokenizer.encode(format_prompt(*prompt)) for prompt in asked]
        for kind, asked in KINDS.items()
    }
    engines = [
        Engine.start(name, models)
        for name in options.engines
        if models.target_torch or not name.startswith("transformers")
    ]
    for engine in engines:
        engine.ask(prompts["open question"][0], 40)  # to warm it
    for turn in range(options.repeats):
        for count in options.counts:
            for kind, asked in prompts.items():
                for number, prompt in enumerate(asked):
                    for engine in engines[turn % len(engines) :] + engines[: turn % len(engines)]:
                        if reply := engine.ask(prompt, count):
                            about = {"kind": kind, "prompt": number, "count": count}
                            engine.samples.append(about | reply)
    for engine in engines:
        engine.stop()
    report(engines, options.counts)
    return 0


def per_token(sample: dict[str, Any]) -> float:
    """Milliseconds of a token after the first report, or of all where nothing was reported."""
    if not sample["times"]:
        return 1e3 * float(sample["total"]) / len(sample["tokens"])
    made, first = sample["times"][0]
    return float(1e3 * (sample["total"] - first) / (len(sample["tokens"]) - made))


def report(engines: Sequence[Engine], counts: Sequence[int]) -> None:
    """Ratios are of the same prompt and count, then medians."""
    texts: dict[tuple[Any, ...], list[int]] = {}
    times: dict[str, dict[tuple[Any, ...], float]] = {}
    for engine in engines:
        grouped: dict[tuple[Any, ...], list[float]] = {}
        for sample in engine.samples:
            key = (sample["kind"], sample["prompt"], sample["count"])
            grouped.setdefault(key, []).append(per_token(sample))
            if engine.name == OURS:
                texts[key] = sample["tokens"]
        times[engine.name] = {key: statistics.median(group) for key, group in grouped.items()}
    rows: list[list[object]] = []
    results: list[dict[str, Any]] = []
    for engine in engines:
        if engine.failed or not engine.samples:
            rows.append([engine.name, f"failed: {engine.failed}", "", "", "", "", ""])
            results.append({"engine": engine.name, "failed": engine.failed})
            continue
        mine = times[engine.name]
        ratios = {
            name: [mine[key] / times[name][key] for key in mine if key in times.get(name, {})]
            for name in (OURS, OURS_SPECULATIVE)
        }
        same = sum(
            sample["tokens"] == texts.get((sample["kind"], sample["prompt"], sample["count"]))
            for sample in engine.samples
        )
        first = [1e3 * sample["times"][0][1] for sample in engine.samples if sample["times"]]
        result = {
            "engine": engine.name,
            "ms_per_token": {
                str(count): statistics.median(ms for key, ms in mine.items() if key[2] == count)
                for count in counts
            },
            "over_ours": statistics.median(ratios[OURS]) if ratios[OURS] else None,
            "over_our_speculative": statistics.median(ratios[OURS_SPECULATIVE])
            if ratios[OURS_SPECULATIVE]
            else None,
            "first_token_ms": statistics.median(first) if first else None,
            "peak_mb": max(sample["peak_mb"] for sample in engine.samples),
            "same_text": same / len(engine.samples),
        }
        results.append(result)
        shown = (result["over_ours"], result["over_our_speculative"], result["first_token_ms"])
        rows.append(
            [
                engine.name,
                Spread.of(list(mine.values())),
                *("–" if value is None else f"{value:.2f}" for value in shown),
                f"{result['peak_mb']:.0f}",
                f"{same} of {len(engine.samples)}",
            ]
        )
    header = (
        "ms a token",
        "all prompts",
        "× ours",
        "× ours, spec.",
        "first ms",
        "peak MB",
        "same text",
    )
    table(header, rows)
    json_line("peers", draft_length=DRAFT_LENGTH, counts=list(counts), results=results)


if __name__ == "__main__":
    sys.exit(main())
