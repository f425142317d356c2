"""Compares the time of a decoding step with its lower bound by memory bandwidth.

    python -m benchmarks.roofline [--repeats 40] [--shapes 20M 60M 160M 410M]

An autoregressive step reads every weight once, and the KV cache. The lower bound is those bytes
divided by the memory bandwidth, measured here with a triad as in STREAM (McCalpin 1995). The table
shows it beside the measured time, the time by kind of operation, and the time at longer contexts.
Models have random weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.report import save
from experiments.bandwidth import bandwidth
from experiments.shapes import SHAPES, Sized, model_folder
from experiments.table import table
from pipeline.environment import environment
from pipeline.errors import UserError
from pipeline.models.pairs import EMBEDDED, Weights
from pipeline.runtime.model import OVModel
from pipeline.runtime.sequence import OVCausalLM

CONTEXT = 128
CONTEXTS = (64, CONTEXT, 512, 1024, 1900)
_TOKEN = 17  # any token: the time does not depend on it
_PRECISIONS: tuple[Weights, ...] = ("int8", "int4")
_SHOWN = (
    "FullyConnectedCompressed",
    "PagedAttentionExtension",
)  # kinds of operations with a column of their own


def measure(sized: Sized, folder: Path, repeats: int) -> dict[str, Any]:
    """Measures a step of one token and of five, by kind of operation and by context length."""
    model, profiled = OVModel(folder), OVModel(folder, properties={"PERF_COUNT": True})
    model.warm_up()
    sequences = {context: filled(model, context) for context in CONTEXTS}
    ones: dict[int, list[float]] = {context: [] for context in CONTEXTS}
    fives = []
    for _ in range(repeats):
        for context, sequence in sequences.items():
            sequence.time_forward(1)  # so that the next is not the first pass of its size
            ones[context].append(1e3 * sequence.time_forward(1))
        sequences[CONTEXT].time_forward(5)
        fives.append(1e3 * sequences[CONTEXT].time_forward(5))
    operations = {context: operations_ms(profiled, context, repeats) for context in CONTEXTS}
    embedding = sized.vocabulary * sized.hidden  # bytes, in INT8; a step reads one row
    return {
        "shape": sized.name,
        "parameters": model.parameters,
        "weights": model.weights,
        "bytes": model.weight_bytes - embedding + sequences[CONTEXT].kv_bytes,
        "step_ms": statistics.median(ones[CONTEXT]),
        "five_ms": statistics.median(fives),
        "operations_ms": operations[CONTEXT],
        "contexts": [
            {
                "context": context,
                "step_ms": statistics.median(times),
                "attention_ms": operations[context]["PagedAttentionExtension"],
            }
            for context, times in ones.items()
        ],
    }


def filled(model: OVModel, context: int) -> OVCausalLM:
    """A sequence with that many tokens in its cache."""
    sequence = model.sequence()
    sequence.forward([_TOKEN] * context, logits_to_keep=0)
    return sequence


def operations_ms(model: OVModel, context: int, repeats: int) -> dict[str, float]:
    """Milliseconds of a step at that context, by kind of operation.

    OpenVINO reports means of all passes so far, from which those before these steps are subtracted.
    """
    sequence = filled(model, context)
    sequence.time_forward(1)
    passes, before = model.forward_passes, model.operations()
    for _ in range(repeats):
        sequence.time_forward(1)
    return {
        kind: 1e3 * (average * model.forward_passes - before[kind] * passes) / repeats
        for kind, average in model.operations().items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--shapes", nargs="+", choices=SHAPES, default=["20M", "60M", "160M", "410M"]
    )
    parser.add_argument("--repeats", type=int, default=40)
    options = parser.parse_args()
    threads = int(environment()["threads"])
    rate = bandwidth(threads, options.repeats)
    print(f"memory: {rate / 1e9:.1f} GB/s, triad on {threads} threads\n")
    tokenizer = EMBEDDED / "target" / "tokenizer.json"
    try:
        results = [
            measure(sized, model_folder(sized, weights, tokenizer), options.repeats)
            for sized in map(SHAPES.__getitem__, options.shapes)
            for weights in _PRECISIONS
        ]
    except UserError as error:
        print(error, file=sys.stderr)
        return 2

    rows = []
    for result in results:
        least = 1e3 * result["bytes"] / rate
        operations = result["operations_ms"]
        others = sum(operations.values()) - sum(operations.get(kind, 0.0) for kind in _SHOWN)
        rows.append(
            [
                f"{result['shape']} {result['weights']}",
                f"{result['bytes'] / 1e6:.0f}",
                f"{least:.2f}",
                f"{result['step_ms']:.2f}",
                f"{least / result['step_ms']:.0%}",
                f"{result['five_ms'] / result['step_ms']:.2f}",
                *(f"{operations.get(kind, 0.0):.2f}" for kind in _SHOWN),
                f"{others:.2f}",
                f"{result['step_ms'] - sum(operations.values()):.2f}",
            ]
        )
    table(
        (
            *("model", "MB", "least ms", "step ms", "of limit", "× for 5"),
            *("products", "attention", "others", "outside"),
        ),
        rows,
    )
    print("\nstep ms (attention in it) at a context of")
    table(
        ("model", *map(str, CONTEXTS)),
        [
            [
                f"{result['shape']} {result['weights']}",
                *(f"{at['step_ms']:.2f} ({at['attention_ms']:.2f})" for at in result["contexts"]),
            ]
            for result in results
        ],
    )
    save("roofline", context=CONTEXT, bytes_per_second=rate, results=results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
