"""The model pairs that a user can name: a target, its draft, and what to say about them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import UserError

_ROOT = Path(__file__).resolve().parents[1]
_EMBEDDED = _ROOT / "assets" / "models"
CONVERTED = _ROOT / "models"  # where converted models are looked for


@dataclass(frozen=True, slots=True)
class Chip:
    """An example to click."""

    label: str
    instruction: str
    context: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two folders with an OpenVINO IR and a tokenizer each.

    Args:
        name: what a user types.
        title: what a page shows.
        note: one line on what this pair is and is not.
        target_id, draft_id: the models' own names.
        chips: examples that it answers well.
    """

    name: str
    title: str
    note: str
    target: Path
    draft: Path
    target_id: str
    draft_id: str
    chips: tuple[Chip, ...]


_MINI_CHIPS = (
    Chip("Why is the sky blue?", "Why is the sky blue?"),
    Chip("A poem about spring", "Write a short poem about spring"),
    Chip("Five hobbies to try", "Give me a bulleted list of 5 hobbies I should try."),
    Chip("What is a dam?", "What is a dam?"),
    Chip("How many planets?", "How many planets are there?"),
    Chip("Not among its lessons", "What should I pack for a weekend in the mountains?"),
)
_DOLLY_CHIPS = (
    Chip("Why is the sky blue?", "Explain why the sky is blue"),
    Chip("Ideas for a gift", "Give me five ideas for a birthday gift for my grandmother."),
    Chip("A short story", "Write a short story about a dog who finds a map."),
    Chip(
        "Answer from a context",
        "When was the bridge opened, and how long is it?",
        "The Forth Bridge is a cantilever railway bridge in Scotland. It was opened on 4 March "
        "1890 and has a total length of 2,467 metres.",
    ),
)


def _dolly(size: str, draft: str, draft_id: str) -> Pair:
    return Pair(
        name=f"dolly-v2-{size}",
        title=f"Dolly v2 {size.upper()}, draft {draft_id.split('/')[1]}",
        note="Databricks' instruction-following model of 2023; it can be fluent and wrong.",
        target=CONVERTED / f"dolly-v2-{size}-int8",
        draft=CONVERTED / f"{draft}-int8",
        target_id=f"databricks/dolly-v2-{size}",
        draft_id=draft_id,
        chips=_DOLLY_CHIPS,
    )


PAIRS = {
    pair.name: pair
    for pair in (
        Pair(
            name="dolly-mini",
            title="Dolly mini, 40 M",
            note="A tiny Dolly trained for this page. It answers what it was taught, nearly word "
            "for word; asked anything else, it mostly recites another answer.",
            target=_EMBEDDED / "dolly-mini" / "target",
            draft=_EMBEDDED / "dolly-mini" / "draft",
            target_id="dolly-mini-target",
            draft_id="dolly-mini-draft",
            chips=_MINI_CHIPS,
        ),
        _dolly("12b", "dolly-v2-3b", "databricks/dolly-v2-3b"),
        _dolly("7b", "pythia-410m", "EleutherAI/pythia-410m"),
        _dolly("3b", "pythia-160m", "EleutherAI/pythia-160m"),
    )
}
DEFAULT_PAIR = "dolly-mini"


def find_pair(name: str | Path) -> Pair:
    """The pair of that name, or the one in a folder that holds `target/` and `draft/`.

    Raises:
        UserError: there is no such pair, or its models are not there yet.
    """
    pair = PAIRS.get(str(name)) or _in_folder(name)
    for folder, source in ((pair.target, pair.target_id), (pair.draft, pair.draft_id)):
        if not folder.is_dir():
            remedy = f"make it with: python -m pipeline.convert {source} {_relative(folder)}"
            raise UserError("pair", pair.name, f"{_relative(folder)} is not there; {remedy}")
    return pair


def _in_folder(name: str | Path) -> Pair:
    """A pair that the user keeps. The name may be anything at all, so it may not be a path."""
    try:
        folder = Path(name)
        found = (folder / "target").is_dir()
    except (OSError, ValueError):
        found = False
    if not found:
        choices = f"choose {', '.join(PAIRS)}, or a folder that holds target/ and draft/"
        raise UserError("pair", str(name), choices)
    return Pair(
        name=folder.name,
        title=folder.name,
        note="A pair from a folder of yours.",
        target=folder / "target",
        draft=folder / "draft",
        target_id=f"{folder.name}/target",
        draft_id=f"{folder.name}/draft",
        chips=_DOLLY_CHIPS,
    )


def _relative(folder: Path) -> Path:
    return folder.relative_to(_ROOT) if folder.is_relative_to(_ROOT) else folder
