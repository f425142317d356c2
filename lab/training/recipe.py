"""What is trained, on what, and for how long. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pipeline.models.pairs import Weights


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of training: linear warm-up, then a linear decay to the phase's end.

    It ends after `minutes` of training or `steps` optimiser steps, whichever comes first.

    Attributes:
        rates: learning rate after the warm-up and at the end.
        warmup: steps.
        rows: packed rows in an optimiser step.
        pack: tokens in a packed row.
        int4_group: weights that share an INT4 scale in the forward pass; 0 trains in float.
        muon: whether Muon updates the matrices of layers; AdamW updates all others.
    """

    name: str
    rates: tuple[float, float]
    minutes: float = inf
    steps: int = 1_000_000
    warmup: int = 25
    rows: int = 4
    pack: int = 512
    int4_group: int = 0
    muon: bool = False


@dataclass(frozen=True, slots=True)
class Instructions:
    """What the model of the first stage writes for the target to answer.

    Attributes:
        batches: in which lists are written.
        lists: of a batch.
        shots: of Dolly's instructions, with which a list begins.
        longest: tokens that are written after them, several instructions.
    """

    batches: int
    lists: int = 256
    shots: int = 8
    temperature: float = 0.9
    top_p: float = 0.95
    longest: int = 96


@dataclass(frozen=True, slots=True)
class Answers:
    """What the target writes for the draft to learn from.

    Attributes:
        instructions: how many are answered; none of them was held out.
        sampled: how many of them are answered again, by sampling.
        top: how many of the target's probabilities are kept at a position.
        longest: tokens of an answer.
    """

    instructions: int
    sampled: int = 0
    temperature: float = 0.7
    top_p: float = 0.92
    top: int = 64
    longest: int = 200


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft: some of the target's layers, over the target's most frequent tokens.

    Attributes:
        layers: how many of the target's it starts from, from the first to the last.
        vocabulary: rows of its embedding and head.
    """

    layers: int = 2
    vocabulary: int = 8192


@dataclass(frozen=True, slots=True)
class Block:
    """The block draft: layers of the target, over the draft's tokens.

    Attributes:
        layers: how many of the target's it starts from, from the first to the last.
        hidden: after how many of the target's layers it reads the hidden states, the last among
            them.
        length: tokens that it can propose at once.
        rank: of the bigram term.
        anchors: tokens of a packed row whose slots are trained in a step.
        decay: of the loss from one slot to the next.
    """

    layers: int = 2
    hidden: int = 3
    length: int = 8
    rank: int = 64
    anchors: int = 40
    decay: float = 0.65


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of it.

    Attributes:
        base_sha256: of the GGUF file to begin with; empty for any.
        merged_tokens: of its vocabulary that are kept, single bytes included.
        teacher_sha256: of the larger model's GGUF file.
        weights: the precision in which the target is shipped.
        taught: instructions that the larger model answers.
        asked: instructions whose answers are searched for loops, the first of those answered.
        longest_answer, longest: tokens; longer Dolly records are left out.
    """

    target: Phase
    repetition: Phase
    instructions: Instructions
    answers: Answers
    draft: Draft
    draft_phase: Phase
    block: Block
    block_phase: Phase
    base_sha256: str = ""
    merged_tokens: int = 65_532  # with the end-of-text token and Dolly's three, 2 ** 16
    teacher_sha256: str = ""
    weights: Weights = "int4-sym"
    taught: int = 8000
    asked: int = 1600
    longest_answer: int = 256
    longest: int = 512
    weight_decay: float = 0.01
    seed: int = 0


RECIPE = Recipe(
    base_sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    teacher_sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    target=Phase("target", (1e-4, 0.0), minutes=56, steps=400, int4_group=64),
    repetition=Phase("repetition", (5e-5, 0.0), minutes=11, steps=80, warmup=5, int4_group=64),
    instructions=Instructions(batches=30),
    answers=Answers(instructions=60000, sampled=2304),
    draft=Draft(),
    draft_phase=Phase("draft", (8e-4, 0.0), minutes=9, int4_group=64),
    block=Block(),
    block_phase=Phase("block", (2.5e-3, 0.0), minutes=144, muon=True),
)


def spread(total: int, count: int) -> tuple[int, ...]:
    """So many of a model's layers, from 0, evenly spaced, the last among them: where hidden states
    are read.
    """
    count = min(count, total)
    return tuple(total * (place + 1) // count - 1 for place in range(count))


def ends(total: int, count: int) -> tuple[int, ...]:
    """So many of a model's layers, from 0, evenly spaced from the first to the last: where a draft
    starts from.
    """
    count = min(count, total)
    return tuple((total - 1) * place // max(1, count - 1) for place in range(count))
