"""Measures how the precision of weights and caches changes size, speed, acceptance and quality.

    python -m benchmarks.precision [--target CHECKPOINT --draft CHECKPOINT] [--repeats 5]

Without checkpoints, the embedded pair's weights are dequantised to float32 and converted again.
Quality is the target's, on the greedy answers of the float32 model with a float32 cache to
`benchmarks.prompts`. Top-1 is the share of positions with the same most likely token; KL is the
mean Kullback-Leibler divergence from the float32 distribution, in nats per token. Speed is measured
in races over one prompt of each kind, in an order that rotates with each repeat.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from experiments.prompts import KINDS
from benchmarks.report import save
from experiments.spread import Spread
from experiments.table import table
from pipeline.decoding.sampling import SamplingParams, probabilities
from pipeline.dolly import Dolly
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, EMBEDDED, Model, Weights, own_pair
from pipeline.models.store import Store
from pipeline.progress import in_bytes
from pipeline.request import Request
from pipeline.runtime.kv_cache.precision import KVPrecision
from pipeline.runtime.model import OVModel
from pipeline.text.tokenizer import Tokenizer

_UNSHAPED = SamplingParams(temperature=1)
_RACED: tuple[tuple[Weights, Weights, KVPrecision], ...] = (  # of target, draft and caches
    ("f32", "f32", "f32"),
    ("fp16", "fp16", "f16"),
    ("int8", "int8", "f32"),
    ("int8", "int8", "f16"),
    ("int8", "int8", "u8"),
    ("int8", "int4", "f16"),
    ("int4", "int8", "f16"),
    ("int4", "int4", "f16"),
)


@dataclass(frozen=True, slots=True)
class Text:
    """Token ids of a prompt, and of the answer on which quality is measured."""

    prompt: list[int]
    answer: list[int]


def embedded_checkpoint(role: str, store: Store) -> Path:
    """Writes the embedded model's weights as a float32 checkpoint; returns its folder."""
    folder = store.root / "checkpoints" / f"{DEFAULT_PAIR}-{role}"
    if not (folder / "tokenizer.json").is_file():
        from benchmarks.unpacked import unpacked

        unpacked(EMBEDDED / role).save_pretrained(folder)
        for name in ("tokenizer.json", "target_ids.json"):
            if (EMBEDDED / role / name).is_file():
                shutil.copyfile(EMBEDDED / role / name, folder / name)
    return folder


def greedy_texts(model: OVModel, tokenizer: Tokenizer, count: int) -> list[Text]:
    """Greedy answers of the reference model, of at most `count` tokens."""
    texts = []
    for asked in KINDS.values():
        for prompt in asked:
            ids = tokenizer.ask(*prompt)
            sequence = model.sequence(tokenizer.size)
            answer = [int(sequence.forward(ids, logits_to_keep=1).logits.argmax())]
            while len(answer) < count and answer[-1] not in tokenizer.end_ids:
                answer.append(int(sequence.forward(answer[-1:], logits_to_keep=1).logits.argmax()))
            texts.append(Text(ids, answer))
    return texts


def distributions(model: OVModel, text: Text, vocab_size: int) -> NDArray[np.float32]:
    """The target's distributions, float32[answer, vocab], from forward passes of four tokens."""
    sequence = model.sequence(vocab_size)
    tokens = [*text.prompt, *text.answer[:-1]]
    first = len(text.prompt)
    logits = [sequence.forward(tokens[:first], logits_to_keep=1).logits]
    chunks = (tokens[at : at + 4] for at in range(first, len(tokens), 4))
    logits += [sequence.forward(chunk, logits_to_keep=len(chunk)).logits for chunk in chunks]
    return probabilities(np.concatenate(logits), _UNSHAPED)


def quality(
    model: OVModel, texts: list[Text], reference: list[NDArray[np.float32]]
) -> dict[str, float]:
    """Compares a model with the reference, over all positions of all texts."""
    same = positions = 0
    divergence = 0.0
    for text, expected in zip(texts, reference, strict=True):
        got = distributions(model, text, expected.shape[1])
        same += int((got.argmax(axis=1) == expected.argmax(axis=1)).sum())
        positions += len(expected)
        ratio = np.log(np.maximum(expected, 1e-30)) - np.log(np.maximum(got, 1e-30))
        divergence += float((expected * ratio).sum(dtype=np.float64))
    return {"top1": same / positions, "kl": divergence / positions, "positions": positions}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", type=Path, help="a checkpoint of transformers")
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--max-new-tokens", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cache-dir", type=Path)
    options = parser.parse_args()
    store = Store(options.cache_dir)
    try:
        target = options.target or embedded_checkpoint("target", store)
        draft = options.draft or embedded_checkpoint("draft", store)
        pair = own_pair(str(target), str(draft))
        for weights in get_args(Weights):
            for model in (pair.target, pair.draft):
                for _ in store.obtain(replace(model, weights=weights)):
                    pass
        qualities = measure_quality(store, pair.target, options.max_new_tokens)
        pairs = {
            weights: Dolly(pair.with_weights(*weights), store=store)
            for weights in dict.fromkeys((target, draft) for target, draft, _ in _RACED)
        }
        races = measure_races(pairs, options.repeats, options.max_new_tokens)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    table(
        ("target weights", "cache", "size", "top-1", "KL"),
        [
            [
                row["weights"],
                row["kv"],
                in_bytes(row["bytes"]),
                f"{row['top1']:.1%}",
                f"{row['kl']:.5f}",
            ]
            for row in qualities
        ],
    )
    print()
    table(
        ("target", "draft", "cache", "AR ms/token", "spec ms/token", "speedup", "accepted"),
        [
            [
                row["target"],
                row["draft"],
                row["kv"],
                f"{row['autoregressive_ms']['median']:.2f}",
                f"{row['speculative_ms']['median']:.2f}",
                f"{row['speedup']:.2f}",
                f"{row['acceptance']:.1%}",
            ]
            for row in races
        ],
    )
    save(
        "precision",
        source="given checkpoints" if options.target else "the embedded pair, unpacked",
        quality=qualities,
        races=races,
    )
    return 0


def measure_quality(store: Store, target: Model, count: int) -> list[dict[str, Any]]:
    """Measures each precision of weights and of caches; the first row is the reference's."""
    rows: list[dict[str, Any]] = []
    texts: list[Text] = []
    reference: list[NDArray[np.float32]] = []
    for weights in get_args(Weights):
        folder = store.folder(replace(target, weights=weights))
        for kv in get_args(KVPrecision):
            model = OVModel(folder, kv_precision=kv)
            if not texts:
                tokenizer = Tokenizer(folder)
                texts = greedy_texts(model, tokenizer, count)
                reference = [distributions(model, text, tokenizer.size) for text in texts]
            about = {"weights": weights, "kv": kv, "bytes": model.weight_bytes}
            rows.append(about | quality(model, texts, reference))
    return rows


def measure_races(
    pairs: dict[tuple[Weights, Weights], Dolly], repeats: int, count: int
) -> list[dict[str, Any]]:
    """Measures times and acceptance of each combination."""
    samples: dict[Any, list[Any]] = {kind: [] for kind in _RACED}
    for turn in range(repeats):
        for kind in (*_RACED[turn % len(_RACED) :], *_RACED[: turn % len(_RACED)]):
            target, draft, kv = kind
            for asked in KINDS.values():
                request = Request(*asked[0], max_new_tokens=count, kv_precision=kv)
                samples[kind].append(pairs[target, draft].start(request).finish())
    rows = []
    for (target, draft, kv), traces in samples.items():
        lanes = {
            name: [1e3 * trace.lanes[name].seconds_per_token for trace in traces]
            for name in ("autoregressive", "speculative")
        }
        tested = sum(trace.speculative.tested for trace in traces)
        rows.append(
            {
                "target": target,
                "draft": draft,
                "kv": kv,
                **{f"{name}_ms": asdict(Spread.of(times)) for name, times in lanes.items()},
                "speedup": statistics.median(trace.speedup for trace in traces),
                "acceptance": sum(trace.speculative.accepted for trace in traces) / tested,
                "identical": sum(bool(trace.identical) for trace in traces) / len(traces),
            }
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
