"""What is trained, and for how long: one frozen configuration per kind of machine.

Knows numbers only; every stage reads the same `Profile`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from pipeline.errors import UserError


@dataclass(frozen=True, slots=True)
class Shape:
    """A GPT-NeoX model. Heads have 64 channels, as in Dolly; the MLP is four times the width."""

    hidden: int
    layers: int


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch of training: linear warm-up, then a linear decay to the phase's end.

    It ends after `minutes` of training or `steps` optimiser steps, whichever comes first.

    Attributes:
        corpus: what it reads; "reworded" is the instructions, asked in other ways each epoch.
        rates: learning rate after the warm-up and at the end.
        warmup: steps.
        rows: packed rows in an optimiser step.
        pack: tokens in a packed row.
        foreign: of the reworded instructions, the share that has nothing to do with the response.
        astray: share of response tokens that stand wrong where the model reads them; what is to
            follow stays right.
        int4_group: weights that share an INT4 scale in the forward pass; 0 trains in float.
    """

    name: str
    corpus: Literal["prose", "instructions", "reworded", "answers"]
    rates: tuple[float, float]
    minutes: float = inf
    steps: int = 1_000_000
    warmup: int = 60
    rows: int = 5
    pack: int = 256
    foreign: float = 0.2
    astray: float = 0.0
    int4_group: int = 0


@dataclass(frozen=True, slots=True)
class Domain:
    """Which instruction records are trained on; the held-out ones never are.

    Attributes:
        records: how many of the narrow domain (context-free Dolly, plain prose, one record per
            question); 0 takes all of Dolly and OpenAssistant.
        characters: shortest and longest response in the narrow domain.
    """

    records: int
    characters: tuple[int, int] = (100, 420)


@dataclass(frozen=True, slots=True)
class Answers:
    """What the target writes for the draft to learn from.

    Attributes:
        reworded: other ways in which each instruction trained on is asked.
        unseen: instructions answered besides those trained on.
        samples: sampled answers to each instruction besides the greedy one.
        top: how many of the target's probabilities are kept at a position.
        longest: tokens of an answer.
        batch: answers written at once.
    """

    unseen: int
    reworded: int = 0
    samples: int = 0
    temperature: float = 0.7
    top_p: float = 0.92
    top: int = 32
    longest: int = 120
    batch: int = 64


@dataclass(frozen=True, slots=True)
class Profile:
    """The whole recipe."""

    name: str
    target: Shape
    draft: Shape
    domain: Domain
    target_phases: tuple[Phase, ...]
    answers: Answers
    draft_phase: Phase
    vocab_size: int = 8192
    context: int = 1024
    weight_decay: float = 0.05
    seed: int = 0


def _with_draft(profile: Profile, shape: Shape) -> Profile:
    """The same recipe with another draft; both may share a work folder."""
    size = f"{shape.layers}x{shape.hidden}"
    phase = replace(profile.draft_phase, name=f"draft-{size}")
    return replace(profile, name=f"{profile.name}-{size}", draft=shape, draft_phase=phase)


_CPU = Profile(
    name="cpu",
    target=Shape(512, 10),
    draft=Shape(256, 1),
    domain=Domain(records=700),
    target_phases=(
        Phase("learning", "instructions", (1e-3, 0.0), minutes=38),
        Phase("rewording", "reworded", (6e-4, 0.0), minutes=35, rows=3, pack=512),
        Phase(
            "returning",
            "reworded",
            (5e-4, 0.0),
            minutes=30,
            rows=3,
            pack=512,
            foreign=0.5,
            astray=0.08,
        ),
    ),
    answers=Answers(unseen=1000, reworded=1),
    draft_phase=Phase("draft", "answers", (3e-3, 0.0), minutes=10, rows=4, pack=512),
)
# For about half an hour of a data-centre GPU. No such machine was at hand: not run yet.
_GPU = Profile(
    name="gpu",
    target=Shape(512, 12),
    draft=Shape(256, 1),
    domain=Domain(records=0),
    target_phases=(
        Phase("prose", "prose", (1.5e-3, 7e-4), minutes=12, warmup=200, rows=128, pack=512),
        Phase("tuning", "instructions", (7e-4, 0.0), minutes=6, rows=32, pack=512),
    ),
    answers=Answers(unseen=0, samples=2, longest=256, batch=512),
    draft_phase=Phase("draft", "answers", (3e-3, 0.0), minutes=5, rows=64, pack=512),
)
_OTHER_DRAFTS = (Shape(128, 1), Shape(384, 1), Shape(256, 2))
PROFILES = {
    profile.name: profile
    for profile in (_CPU, _GPU, *(_with_draft(_CPU, shape) for shape in _OTHER_DRAFTS))
}


def find_profile(name: str) -> Profile:
    """The profile called `name`; raises UserError if there is none."""
    if name not in PROFILES:
        raise UserError("profile", name, f"choose one of {', '.join(PROFILES)}")
    return PROFILES[name]
