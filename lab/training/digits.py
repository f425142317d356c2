"""The pair that draws digits: a target and a draft over grey levels.

Trains both on scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, exports them as OpenVINO IRs
and measures them. A token is a grey level, 0 to 16; the first token of an image names its digit
(`pipeline.digits`). Minutes on two cores.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from lab.training.command import one_line_errors, timed
from lab.training.files import replacing_folder
from lab.training.fit import LOSSES, Loss, fit
from lab.training.recipe import Phase
from pipeline.digits import DIGITS, FOLDER, LEVELS, PIXELS, SIDE, Digits, Drawing
from pipeline.environment import environment
from pipeline.models.export import export
from pipeline.request import Request

_VOCABULARY = LEVELS + len(DIGITS)
_POSITIONS = 256  # more than an image's: the runtime warms up with longer passes
_HELD_OUT = 10  # every tenth image is held out
_SEED = 0
_DECAY = 0.1  # AdamW's


@dataclass(frozen=True, slots=True)
class Recipe:
    """Of one model.

    Attributes:
        layers, width, heads: of a GPT-2.
        phase: its training; a row is an image.
        dropout: during training.
    """

    layers: int
    width: int
    heads: int
    phase: Phase
    dropout: float = 0.1


TARGET = Recipe(
    layers=6,
    width=96,
    heads=3,
    phase=Phase("digits-target", (2e-3, 0.0), steps=780, warmup=80, rows=64),
)
DRAFT = Recipe(
    layers=1,
    width=64,
    heads=2,
    phase=Phase("digits-draft", (2e-3, 0.0), steps=760, warmup=80, rows=64),
    dropout=0.0,
)
_SAMPLED = 4000  # images of the target, from which the draft learns
_SHIFTED = 0.5  # of the images in an epoch, by at most a pixel in each direction


@dataclass(frozen=True, slots=True)
class Images:
    """A batch for `fit`.

    Attributes:
        tokens: int64[n, 1 + PIXELS], the token of a digit and the pixels of an image.
    """

    tokens: torch.Tensor

    @property
    def segments(self) -> torch.Tensor:
        """One for each prediction: nothing is padding."""
        return torch.ones_like(self.tokens[:, 1:])

    def to(self, device: torch.device) -> Images:
        return Images(self.tokens.to(device))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--work", type=Path, required=True, help="folder for the checkpoints")
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"default: {FOLDER}")
    given = parser.parse_args()
    with one_line_errors(), timed(given.work, "digits"):
        make(given.work, given.out)


def make(work: Path, out: Path, target: Recipe = TARGET, draft: Recipe = DRAFT) -> None:
    """Writes `target/`, `draft/` and the model card to `out`.

    An interrupted run goes on from the checkpoints in `work`.
    """
    learned, held_out = images()
    large, small = new_model(target), new_model(draft)
    teach(large, learned, target, pixel_loss, work, shifted=True)
    teach(small, samples(large, _SAMPLED), draft, teacher_loss(large), work, shifted=False)
    nats = {}
    for role, model, recipe in (("target", large, target), ("draft", small, draft)):
        nats[role] = loss(model, held_out)
        checkpoint = work / recipe.phase.name
        with replacing_folder(checkpoint) as folder:
            model.save_pretrained(folder)
            _write_tokens(folder / "tokenizer.json")
        export(checkpoint, out / role, "int8")
        (out / role / "openvino_config.json").unlink(missing_ok=True)  # names the checkpoint
    (out / "README.md").write_text(card(out, work, nats), encoding="utf-8")


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """The digits as tokens, int64[n, 1 + PIXELS]: those to learn from, and those held out."""
    from sklearn.datasets import load_digits

    found = load_digits()
    levels = torch.from_numpy(found.images).long().reshape(-1, PIXELS)
    named = torch.cat([torch.from_numpy(found.target).long()[:, None] + LEVELS, levels], dim=1)
    apart = torch.arange(len(named)) % _HELD_OUT == 0
    return named[~apart], named[apart]


def new_model(recipe: Recipe) -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(_SEED)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=_VOCABULARY,
            n_positions=_POSITIONS,
            n_embd=recipe.width,
            n_layer=recipe.layers,
            n_head=recipe.heads,
            resid_pdrop=recipe.dropout,
            embd_pdrop=recipe.dropout,
            attn_pdrop=recipe.dropout,
            bos_token_id=LEVELS,
            eos_token_id=None,
        )
    )


def teach(
    model: Any, learned: torch.Tensor, recipe: Recipe, loss_of: Loss, work: Path, shifted: bool
) -> None:
    """Trains a model on images, from its checkpoint in `work` if any.

    Args:
        model: changed in place.
        learned: int64[n, 1 + PIXELS].
        recipe: the model's.
        loss_of: what it minimises.
        shifted: whether some images are moved, others in each epoch.
    """
    shape = {**dataclasses.asdict(recipe), "images": len(learned), "seed": _SEED}
    fit(
        model,
        lambda number: _epoch(learned, recipe.phase.rows, number, shifted),
        loss_of,
        recipe.phase,
        decay=_DECAY,
        folder=work,
        configuration=json.dumps(shape),
    )
    model.to("cpu").eval()


def _epoch(learned: torch.Tensor, rows: int, number: int, shifted: bool) -> Iterator[Images]:
    rng = torch.Generator().manual_seed(_SEED + number)
    for places in torch.split(torch.randperm(len(learned), generator=rng), rows):
        batch = learned[places]
        yield Images(shift(batch, rng) if shifted else batch)


def pixel_loss(model: Any, batch: Images) -> torch.Tensor:
    """Nats a pixel."""
    logits = model(batch.tokens[:, :-1]).logits.flatten(0, 1)
    return cross_entropy(logits.float(), batch.tokens[:, 1:].flatten())


def teacher_loss(teacher: Any) -> Callable[[Any, Images], torch.Tensor]:
    """The loss against a teacher's distributions: Kullback–Leibler divergence, nats a pixel."""

    def divergence(model: Any, batch: Images) -> torch.Tensor:
        given = batch.tokens[:, :-1]
        teacher.to(given.device)
        with torch.no_grad():
            wanted = softmax(teacher(given).logits.flatten(0, 1).float(), -1)
        mine = log_softmax(model(given).logits.flatten(0, 1).float(), -1)
        return kl_div(mine, wanted, reduction="batchmean")

    return divergence


def shift(batch: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Moves a part of the images by a pixel at most; what moves in is blank."""
    named, pictures = batch[:, :1], batch[:, 1:].reshape(-1, SIDE, SIDE)
    framed = torch.nn.functional.pad(pictures, (1, 1, 1, 1))
    moved = []
    for picture in framed:
        down, right = (1, 1)
        if torch.rand((), generator=rng) < _SHIFTED:
            down, right = torch.randint(0, 3, (2,), generator=rng).tolist()
        moved.append(picture[down : down + SIDE, right : right + SIDE])
    return torch.cat([named, torch.stack(moved).reshape(-1, PIXELS)], dim=1)


@torch.no_grad()
def samples(model: Any, count: int) -> torch.Tensor:
    """Images of a model at temperature 1, int64[count, 1 + PIXELS], as many of each digit."""
    rng = torch.Generator().manual_seed(_SEED)
    drawn = (torch.arange(count) % len(DIGITS) + LEVELS)[:, None]
    past, fed = None, drawn
    for _ in range(PIXELS):
        output = model(fed, past_key_values=past, use_cache=True)
        past = output.past_key_values
        probs = softmax(output.logits[:, -1, :LEVELS], -1)
        fed = torch.multinomial(probs, 1, generator=rng)
        drawn = torch.cat([drawn, fed], dim=1)
    return drawn


@torch.no_grad()
def loss(model: Any, held_out: torch.Tensor) -> float:
    """Nats a pixel."""
    return float(pixel_loss(model, Images(held_out)))


def _write_tokens(path: Path) -> None:
    """A tokenizer that names the tokens; an export asks for one."""
    names = [*map(str, range(LEVELS)), *(f"digit-{digit}" for digit in DIGITS)]
    words = {name: token for token, name in enumerate(names)}
    Tokenizer(models.WordLevel(words, unk_token="0")).save(str(path))


def card(folder: Path, work: Path, nats: dict[str, float]) -> str:
    """The model card, with what the pair in a folder measures.

    Args:
        folder: of the pair.
        work: of its training.
        nats: a pixel on the images held out, by role.
    """
    pair, machine = Digits(folder), environment()
    sampled = {k: _drawn(pair, k, 1.0) for k in (1, 2, 4, 8)}
    greedy = _drawn(pair, 4, 0.0)
    rows = "\n".join(
        f"| {k} | {100 * (drawn.fast.acceptance_rate or 0):.0f} % "
        f"| {len(drawn.fast.levels) / drawn.fast.passes:.2f} | {drawn.speedup or 0:.2f}× |"
        for k, drawn in sampled.items()
    )
    target, draft = pair.models.target, pair.models.draft
    return _CARD.format(
        target=f"{target.parameters:,}",
        draft=f"{draft.parameters:,}",
        target_kb=round(target.weight_bytes / 1e3),
        draft_kb=round(draft.weight_bytes / 1e3),
        target_shape=f"{TARGET.layers} layers, width {TARGET.width}",
        draft_shape=f"{DRAFT.layers} layer, width {DRAFT.width}",
        target_nats=f"{nats['target']:.3f}",
        draft_nats=f"{nats['draft']:.3f}",
        minutes=f"{_minutes(work):.0f}",
        machine=f"{machine['cores']} cores of {machine['cpu']}",
        sampled=_SAMPLED,
        agreeing=greedy.agreeing,
        rows=rows,
    )


def _minutes(work: Path) -> float:
    """Of training, over all runs."""
    last: dict[str, float] = {}
    with (work / LOSSES).open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            last[row["phase"]] = float(row["seconds"])
    return sum(last[recipe.phase.name] for recipe in (TARGET, DRAFT)) / 60


def _drawn(pair: Digits, length: int, temperature: float) -> Drawing:
    request = Request("digits", temperature=temperature, draft_length=length)
    *_, drawing = (each for each in pair.draw(request) if isinstance(each, Drawing))
    return drawing


_CARD = """# digits: a pair that draws

Two small models over grey levels instead of words. They show that the decoders know token ids and
nothing else: the page's tab "Beyond text" draws ten digits with both methods
(`pipeline/digits.py`).

| | target | draft |
|---|---|---|
| shape | GPT-2, {target_shape} | GPT-2, {draft_shape} |
| weights in matrices, INT8 | {target} | {draft} |
| kB | {target_kb} | {draft_kb} |
| nats a pixel, held out | {target_nats} | {draft_nats} |

- **Tokens.** 0 to 16 are grey levels; 17 to 26 name the digits 0 to 9. An image is the token of its
  digit and 64 grey levels, row by row. There is no end token.
- **Data.** scikit-learn's `load_digits`: 1,797 images of 8 × 8 pixels, the test set of *Optical
  Recognition of Handwritten Digits* (E. Alpaydin and C. Kaynak, UCI Machine Learning Repository,
  1998, doi 10.24432/C50P49, CC BY 4.0). Every tenth image is held out.
- **Training.** `python -m lab.training.digits --work WORK`: {minutes} minutes on {machine}.
  The target learns the images, half of them moved by a pixel at most; the draft learns the target's
  distributions on {sampled:,} images that the target drew.
- **Limits.** It draws digits of 8 × 8 pixels, not always legible ones, and nothing else.

Ten digits, drawn by both methods in a race. Greedy, K = 4: {agreeing} of 640 pixels agree. At
temperature 1:

| K | tested drafts accepted | pixels per target pass | speedup |
|---|---|---|---|
{rows}

Licence of the weights: CC BY-SA 4.0.
"""


if __name__ == "__main__":
    main()
