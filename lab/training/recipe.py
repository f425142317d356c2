"""What is trained, on what, and for how long. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from math import inf

from pipeline.models.pairs import Weights


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of training: linear warm-up, then a linear decay to the phase's end.

    It ends after `minutes` of training or `steps` optimiser steps, whichever comes first.
    """

    name: str
    rates: tuple[float, float]  # learning rate after the warm-up and at the end
    minutes: float = inf
    steps: int = 1_000_000
    warmup: int = 25  # steps
    rows: int = 4  # packed rows in an optimiser step
    pack: int = 512  # tokens in a packed row
    int4_group: int = 0  # weights that share an INT4 scale in the forward pass; 0 trains in float
    rank: int = 0  # of what is added to each matrix of the layers (LoRA); 0 changes all weights
    muon: bool = False  # Muon updates the matrices of layers; AdamW updates all others
    decay: float = 0.01  # of the weights in matrices


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the model of the first stage writes for the target to answer."""

    batches: int  # in which lists are written
    lists: int = 256  # of a batch
    shots: int = 8  # of Dolly's instructions, with which a list begins
    temperature: float = 0.9
    top_p: float = 0.95
    longest: int = 96  # tokens that are written after them, several instructions


@dataclass(frozen=True, slots=True)
class Answers:
    """What the target writes for the draft to learn from."""

    instructions: int  # how many are answered; none of them was held out
    sampled: int = 0  # how many of them are answered again, by sampling
    temperature: float = 0.7
    top_p: float = 0.92
    top: int = 64  # how many of the target's probabilities are kept at a position
    longest: int = 200  # tokens of an answer


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft model."""

    layers: int = 2  # of the target's, that it starts from, from the first to the last
    vocabulary: int = 8192  # rows of its embedding and head, for the target's most frequent tokens
    feed_forward: float = 0.5  # width inside its feed-forward blocks, of the target's


@dataclass(frozen=True, slots=True)
class Block:
    """The block draft, which starts from the draft model."""

    hidden: int = 3  # of the target's layers, whose hidden states it reads; the last among them
    length: int = 8  # tokens that it can propose at once
    rank: int = 64  # of the bigram term
    anchors: int = 40  # tokens of a packed row whose slots are trained in a step


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of it."""

    target: Phase
    repetition: Phase
    instructions: Instructions
    answers: Answers
    draft: Draft
    draft_phase: Phase
    block: Block
    block_phase: Phase
    base_sha256: str = ""  # of the GGUF file to begin with; empty for any
    merged_tokens: int = 65_532  # that are kept; with the end-of-text token and Dolly's three 2**16
    teacher_sha256: str = ""  # of the larger model's GGUF file
    weights: Weights = "int4"  # the precision in which the target is shipped
    taught: int = 8000  # instructions that the larger model answers
    asked: int = 1600  # instructions whose answers teach it not to repeat itself
    longest_answer: int = 256  # tokens of a record's response; longer ones are left out
    longest: int = 512  # tokens of a record
    seed: int = 0

    def shaping(self, *stages: str) -> str:
        """What shapes a trained model, as text: what all depend on, and the parts of `stages`."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        of_all = {name for name, part in parts.items() if not is_dataclass(part)}
        return str({name: part for name, part in parts.items() if name in of_all.union(stages)})


RECIPE = Recipe(
    base_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    teacher_sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    target=Phase("target", (4e-4, 0.0), steps=235, int4_group=64, rank=32),  # an epoch
    repetition=Phase("repetition", (1e-4, 0.0), steps=64, warmup=6, int4_group=64, rank=8),
    instructions=Instructions(batches=10),
    answers=Answers(instructions=9000, sampled=700),
    draft=Draft(),
    draft_phase=Phase("draft", (8e-4, 0.0), minutes=15, int4_group=64),
    block=Block(),
    block_phase=Phase("block", (2e-3, 0.0), minutes=61, muon=True),
)


def spread(total: int, count: int) -> tuple[int, ...]:
    """Evenly spaced layers of a model, the last among them: where hidden states are read."""
    count = min(count, total)
    return tuple(total * (place + 1) // count - 1 for place in range(count))


def ends(total: int, count: int) -> tuple[int, ...]:
    """Evenly spaced layers of a model, from the first to the last: where a draft starts from."""
    count = min(count, total)
    return tuple((total - 1) * place // max(1, count - 1) for place in range(count))
