"""Stage `digits`: the pair that draws digits, a target and a draft over grey levels.

Trains both on scikit-learn's 1,797 handwritten digits of 8 × 8 pixels, exports them as OpenVINO IRs
and measures them. A token is a grey level, 0 to 16; the first token of an image names its digit
(`pipeline.digits`). Minutes on two cores.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from torch.nn.functional import kl_div, pad

from lab.table import markdown_table
from lab.training.card import CARDS
from lab.training.command import Command
from lab.training.files import read_lines, replacing_folder
from lab.training.fit import LOSSES, Loss, fit
from lab.training.packing import Batch, Example, pack
from lab.training.recipe import Phase
from lab.training.target import next_token_loss, packed_logits
from pipeline.digits import DIGITS, LEVELS, PIXELS, SIDE, Digits, Drawing
from pipeline.environment import environment
from pipeline.models.export import export
from pipeline.request import Request

_POSITIONS = 256  # more than an image's: the runtime warms up with longer passes
_HELD_OUT = 10  # every tenth image is held out
_SEED = 0
_SAMPLED = 4000  # images of the target, from which the draft learns
_SHIFTED = 0.5  # of the images in an epoch, by at most a pixel in each direction


@dataclass(frozen=True, slots=True)
class Recipe:
    """Of one model: its training, in which a row is an image, and the shape of a GPT-2."""

    phase: Phase
    layers: int
    width: int
    heads: int
    dropout: float = 0.0


_PHASE = Phase("digits-target", (2e-3, 0.0), steps=780, warmup=80, rows=64, decay=0.1)
TARGET = Recipe(_PHASE, layers=6, width=96, heads=3, dropout=0.1)
DRAFT = Recipe(replace(_PHASE, name="digits-draft", steps=760), layers=1, width=64, heads=2)


def main(command: Command, target: Recipe = TARGET, draft: Recipe = DRAFT) -> None:
    """Writes WORK/digits: `target/`, `draft/` and the model card."""
    work = command.work
    learned, held_out = images()
    large, small, out = new_model(target), new_model(draft), work / "digits"
    teach(large, learned, target, next_token_loss, work, shifted=True)
    teach(small, samples(large, _SAMPLED), draft, teacher_loss(large), work, shifted=False)
    nats = []
    for role, model, recipe in (("target", large, target), ("draft", small, draft)):
        with torch.no_grad():
            (batch,) = batches(held_out, len(held_out), 0)
            nats.append(next_token_loss(model, batch).item())
        checkpoint = work / recipe.phase.name
        with replacing_folder(checkpoint) as folder:
            model.save_pretrained(folder)
            _write_tokens(folder / "tokenizer.json")
        export(checkpoint, out / role, "int8")
        (out / role / "openvino_config.json").unlink(missing_ok=True)  # names the checkpoint
    (out / "README.md").write_text(card(out, work, (target, draft), nats), encoding="utf-8")


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
    config = GPT2Config(
        vocab_size=LEVELS + len(DIGITS),
        n_positions=_POSITIONS,
        n_embd=recipe.width,
        n_layer=recipe.layers,
        n_head=recipe.heads,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), recipe.dropout),
        bos_token_id=LEVELS,
        eos_token_id=None,
    )
    return GPT2LMHeadModel(config)


def teach(
    model: Any, learned: torch.Tensor, recipe: Recipe, loss_of: Loss, work: Path, shifted: bool
) -> None:
    """Trains a model on images, some of them shifted, from its checkpoint in `work` if any."""

    def epoch(number: int) -> Iterator[Batch]:
        rng = torch.Generator().manual_seed(_SEED + number)
        return batches(shift(learned, rng) if shifted else learned, recipe.phase.rows, number)

    fit(model, epoch, loss_of, recipe.phase, work, f"{recipe} {len(learned)} {_SEED}")
    model.to("cpu").eval()


def batches(drawn: torch.Tensor, rows: int, seed: int) -> Iterator[Batch]:
    """Images, int64[n, 1 + PIXELS], a row each; a pixel is predicted from those before it."""
    examples = [Example(image[:-1], image[1:]) for image in drawn.numpy()]
    return pack(examples, (), PIXELS, rows, (_SEED, seed))


def teacher_loss(teacher: Any) -> Loss:
    """The loss against a teacher's distributions: Kullback–Leibler divergence, nats a pixel."""

    def divergence(model: Any, batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            wanted, _ = packed_logits(teacher.to(batch.tokens.device), batch)
        mine, _ = packed_logits(model, batch)
        mine, wanted = (logits.float().log_softmax(-1) for logits in (mine, wanted))
        return kl_div(mine, wanted, reduction="batchmean", log_target=True)

    return divergence


def shift(batch: torch.Tensor, rng: torch.Generator) -> torch.Tensor:
    """Moves a part of the images by a pixel at most; what moves in is blank."""
    count = len(batch)
    framed = pad(batch[:, 1:].reshape(-1, SIDE, SIDE), (1, 1, 1, 1))
    windows = framed.unfold(1, SIDE, 1).unfold(2, SIDE, 1)  # [n, 3, 3, SIDE, SIDE]
    moves = torch.rand(count, generator=rng) < _SHIFTED
    down, right = torch.where(moves, torch.randint(0, 3, (2, count), generator=rng), 1)
    moved = windows[torch.arange(count), down, right]
    return torch.cat([batch[:, :1], moved.reshape(-1, PIXELS)], dim=1)


def samples(model: Any, count: int) -> torch.Tensor:
    """Images of a model at temperature 1, int64[count, 1 + PIXELS], as many of each digit."""
    torch.manual_seed(_SEED)
    names = (torch.arange(count) % len(DIGITS) + LEVELS)[:, None]
    asked = {"attention_mask": torch.ones_like(names), "max_new_tokens": PIXELS}
    asked |= {"suppress_tokens": [LEVELS + digit for digit in DIGITS]}
    drawn: torch.Tensor = model.generate(names, do_sample=True, top_k=0, **asked)
    return drawn


def _write_tokens(path: Path) -> None:
    """A tokenizer that names the tokens; an export asks for one."""
    names = [*map(str, range(LEVELS)), *(f"digit-{digit}" for digit in DIGITS)]
    words = {name: token for token, name in enumerate(names)}
    Tokenizer(models.WordLevel(words, unk_token="0")).save(str(path))


def card(folder: Path, work: Path, recipes: tuple[Recipe, Recipe], nats: list[float]) -> str:
    """The model card, with what the pair in a folder measures; `nats` a pixel, held out."""
    pair = Digits(folder)
    compiled = pair.models.models
    seconds = {row["phase"]: row["seconds"] for row in read_lines(work / LOSSES)}  # the last
    about = [
        ("shape", *(f"GPT-2, layers: {each.layers}, width {each.width}" for each in recipes)),
        ("weights in matrices, INT8", *(f"{model.parameters:,}" for model in compiled)),
        ("kB", *(round(model.weight_bytes / 1e3) for model in compiled)),
        ("nats a pixel, held out", *(f"{each:.3f}" for each in nats)),
    ]
    drawings = []
    for k in (1, 2, 4, 8):
        drawn = _drawn(pair, k, 1.0)
        accepted, pixels = drawn.fast.acceptance_rate or 0, len(drawn.fast.levels)
        figures = (f"{100 * accepted:.0f} %", f"{pixels / drawn.fast.passes:.2f}")
        drawings.append((k, *figures, f"{drawn.speedup or 0:.2f}×"))
    columns = ("K", "tested drafts accepted", "pixels per target pass", "speedup")
    return (
        (CARDS / "digits.md")
        .read_text(encoding="utf-8")
        .format(
            models=markdown_table(("", "target", "draft"), about),
            minutes=sum(seconds[recipe.phase.name] for recipe in recipes) / 60,
            machine=environment(),
            sampled=_SAMPLED,
            agreeing=_drawn(pair, 4, 0.0).agreeing,
            drawings=markdown_table(columns, drawings),
        )
    )


def _drawn(pair: Digits, length: int, temperature: float) -> Drawing:
    request = Request("digits", temperature=temperature, draft_length=length)
    *_, drawing = (each for each in pair.draw(request) if isinstance(each, Drawing))
    return drawing
