"""What is trained, on what, and for how long. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


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
        batch: answers kept at once.
    """

    instructions: int
    sampled: int = 0
    temperature: float = 0.7
    top_p: float = 0.92
    top: int = 64
    longest: int = 200
    batch: int = 256


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft: some of the target's layers, over the target's most frequent tokens.

    Attributes:
        layers: of the target, in order, that it starts from.
        vocabulary: rows of its embedding and head.
    """

    layers: tuple[int, ...]
    vocabulary: int


@dataclass(frozen=True, slots=True)
class Block:
    """The block draft: layers of the target, over the draft's tokens.

    Attributes:
        layers: of the target, in order, that it starts from.
        hidden_layers: of the target, from 0, whose streams it reads.
        length: tokens that it can propose at once.
        rank: of the bigram term.
        anchors: tokens of a packed row whose slots are trained in a step.
        decay: of the loss from one slot to the next.
    """

    layers: tuple[int, ...]
    hidden_layers: tuple[int, ...]
    length: int = 8
    rank: int = 64
    anchors: int = 40
    decay: float = 0.65


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of it.

    Attributes:
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
    asked: int = 1600
    longest_answer: int = 256
    longest: int = 512
    weight_decay: float = 0.01
    seed: int = 0


RECIPE = Recipe(
    target=Phase("target", (1e-4, 0.0), minutes=56, steps=400, int4_group=64),
    repetition=Phase("repetition", (5e-5, 0.0), minutes=11, steps=80, warmup=5, int4_group=64),
    instructions=Instructions(batches=30),
    answers=Answers(instructions=60000, sampled=2304),
    draft=Draft(layers=(0, 29), vocabulary=8192),
    draft_phase=Phase("draft", (8e-4, 0.0), minutes=9, int4_group=64),
    block=Block(layers=(0, 29), hidden_layers=(9, 19, 29)),
    block_phase=Phase("block", (2.5e-3, 0.0), minutes=144, muon=True),
)
