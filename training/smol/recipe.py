"""What is trained, on what, and for how long. Knows numbers only."""

from __future__ import annotations

from dataclasses import dataclass

from training.profiles import Answers, Phase


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
class Recipe:
    """All of it. `answers.unseen` instructions are answered; none of them was held out.

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
    target=Phase(
        "target",
        "instructions",
        (1e-4, 0.0),
        minutes=56,
        steps=400,
        warmup=25,
        rows=4,
        pack=512,
        int4_group=64,
    ),
    draft=Draft(layers=(0, 14, 29), vocabulary=12_288),
    draft_phase=Phase("draft", "answers", (6e-4, 0.0), steps=1200, warmup=25, rows=4, pack=512),
    answers=Answers(unseen=4000, samples=1, top=64, longest=200, batch=32),
)
