"""What is trained, on what, and for how long: one frozen recipe that every stage reads.

Knows numbers only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of training: linear warm-up, then a linear decay to zero at its end.

    Attributes:
        rate: the highest learning rate.
        epochs: how often the examples are read; fractions end within one.
        warmup: steps.
        rows: packed rows in an optimiser step.
        pack: tokens in a packed row.
        int4_group: weights that share an INT4 scale in the forward pass; 0 trains in float.
    """

    name: str
    rate: float
    epochs: float
    warmup: int = 25
    rows: int = 4
    pack: int = 512
    int4_group: int = 0


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
class Answers:
    """What the target writes for the draft to learn from.

    Attributes:
        instructions: how many it answers, of Dolly and OpenAssistant; 0 takes all.
        samples: sampled answers to each instruction besides the greedy one.
        top: how many of the target's probabilities are kept at a position.
        longest: tokens of an answer.
        batch: answers written at once.
    """

    instructions: int
    samples: int = 1
    temperature: float = 0.7
    top_p: float = 0.92
    top: int = 64
    longest: int = 200
    batch: int = 32


@dataclass(frozen=True, slots=True)
class Recipe:
    """All of it.

    Attributes:
        longest_answer, longest: tokens; longer Dolly records are left out.
    """

    target: Phase
    draft: Draft
    draft_phase: Phase
    answers: Answers
    longest_answer: int = 256
    longest: int = 512
    weight_decay: float = 0.01
    seed: int = 0


RECIPE = Recipe(
    target=Phase("target", rate=1e-4, epochs=0.67, int4_group=64),
    draft=Draft(layers=(0, 14, 29), vocabulary=12_288),
    draft_phase=Phase("draft", rate=6e-4, epochs=4),
    answers=Answers(instructions=4_000),
)
