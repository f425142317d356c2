"""Prompts by kind, shared by all studies that compare times."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from lab.corpus import DATA

_Item = TypeVar("_Item")

_BRIDGE = (
    "The Forth Bridge is a cantilever railway bridge across the Firth of Forth in the east of "
    "Scotland, nine miles west of central Edinburgh. Building began in 1882 and it was opened on "
    "4 March 1890. It spans the firth between the villages of South Queensferry and North "
    "Queensferry and has a total length of 2,467 metres."
)
_BEES = (
    "Honey bees live in colonies of up to sixty thousand. Workers gather nectar and pollen from "
    "flowers, and in doing so carry pollen from one flower to the next. About a third of what "
    "people eat depends on plants that insects pollinate. In winter the colony huddles around "
    "its queen and lives on the honey that it stored in summer."
)
_LETTER = (
    "Dear Mr Brown, the heating in my flat has not worked since Monday. Please send somebody to "
    "repair it before the weekend. I am at home every day after four in the afternoon."
)

# (instruction, context) of each
KINDS: dict[str, tuple[tuple[str, str], ...]] = {
    "open question": (
        ("Why is the sky blue?", ""),
        ("What is a dam?", ""),
        ("How do vaccines work?", ""),
    ),
    "list": (
        ("Give me a bulleted list of 5 hobbies I should try.", ""),
        ("Name ten animals that live in the sea.", ""),
        ("List the steps to bake bread.", ""),
    ),
    "story": (
        ("Write a short poem about spring", ""),
        ("Write a short story about a dog who finds a map.", ""),
        ("Tell a bedtime story about the moon.", ""),
    ),
    "answer from a context": (
        ("When was the bridge opened, and how long is it?", _BRIDGE),
        ("Where do bees get their food in winter?", _BEES),
        ("When is the writer at home?", _LETTER),
    ),
    "summary": (
        ("Summarise this in two sentences.", _BRIDGE),
        ("Summarise this in two sentences.", _BEES),
        ("Summarise this letter.", _LETTER),
    ),
    "rewrite": (
        ("Rewrite this with metres as feet.", _BRIDGE),
        ("Rewrite this about bumble bees.", _BEES),
        ("Rewrite this letter to Mrs Green.", _LETTER),
    ),
}
FIRST = [prompts[0] for prompts in KINDS.values()]
EVERY = [prompt for prompts in KINDS.values() for prompt in prompts]

CODE: tuple[str, ...] = (
    "Write a Python function that returns the first n Fibonacci numbers.",
    "Write a JavaScript function that removes duplicates from an array.",
    "Write a SQL query for the ten customers with the most orders in 2023.",
    "Write a C function that reverses a string in place.",
    "Explain what this does: sorted(words, key=lambda word: (-len(word), word))",
    "Write a Python class for a stack with push, pop and peek.",
    "Write a bash script that renames all .jpeg files in a folder to .jpg.",
    "Write a Python function that checks whether a number is prime, with a docstring.",
    "Write a regular expression that matches dates such as 2023-11-08, and explain it.",
    "Write a Java method that merges two sorted lists of integers.",
)


def evenly(items: Sequence[_Item], count: int) -> list[_Item]:
    """So many of them, from the beginning to the end."""
    return [items[number * len(items) // count] for number in range(min(count, len(items)))]


def add_records(parser: ArgumentParser, count: int, what: str) -> None:
    """Adds the arguments of studies that ask Dolly's records: how many, and where they are."""
    parser.add_argument("--count", type=int, default=count, help=what)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of Dolly's records")
