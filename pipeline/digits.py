"""A pair of image models that draws handwritten digits: the same decoders over grey levels.

A token is a grey level. An image is `PIXELS` tokens, row by row, after one that names the digit.
Like `dolly`, it joins models, decoders and race; there is no text.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.decoding.drafters.model import MODEL
from pipeline.decoding.events import AUTOREGRESSIVE, SPECULATIVE, Origin, Step
from pipeline.decoding.lanes import Lanes
from pipeline.decoding.race import race
from pipeline.decoding.verification import find_verifier
from pipeline.progress import Progress
from pipeline.request import Request

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.runtime.pair import CompiledPair

FOLDER = Path(__file__).resolve().parents[1] / "assets" / "models" / "digits"
SIDE = 8  # pixels
PIXELS = SIDE * SIDE
LEVELS = 17  # of grey, token 0 to 16; the tokens after these name the ten digits
DIGITS = range(10)


@dataclass(frozen=True, slots=True)
class Sheet:
    """The images of a lane so far, one after the other.

    Attributes:
        levels: the grey level of each pixel.
        origins: where each pixel came from.
        passes: how many forward passes the target has made.
        tested, accepted: drafted pixels.
        seconds: the time of decoding.
        drafting: seconds of these in the draft.
    """

    levels: tuple[int, ...] = ()
    origins: tuple[Origin, ...] = ()
    passes: int = 0
    tested: int = 0
    accepted: int = 0
    seconds: float = 0.0
    drafting: float = 0.0

    def after(self, step: Step) -> Sheet:
        """With the pixels of one more step."""
        return Sheet(
            self.levels + step.tokens,
            self.origins + step.origins,
            self.passes + 1,
            self.tested + step.tested,
            self.accepted + step.accepted,
            self.seconds + step.seconds,
            self.drafting + step.draft_s,
        )

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.tested if self.tested else None


@dataclass(frozen=True, slots=True)
class Drawing:
    """Both lanes' images so far.

    Attributes:
        request: how pixels are sampled.
        sheets: the images of each lane.
    """

    request: Request
    sheets: Mapping[str, Sheet] = field(
        default_factory=lambda: {AUTOREGRESSIVE: Sheet(), SPECULATIVE: Sheet()}
    )

    @property
    def slow(self) -> Sheet:
        """The autoregressive lane's."""
        return self.sheets[AUTOREGRESSIVE]

    @property
    def fast(self) -> Sheet:
        """The speculative lane's."""
        return self.sheets[SPECULATIVE]

    @property
    def agreeing(self) -> int:
        """Pixels before the first that differs."""
        one, other = self.slow.levels, self.fast.levels
        pairs = enumerate(zip(one, other, strict=False))
        return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))

    @property
    def complete(self) -> bool:
        whole = len(DIGITS) * PIXELS
        return all(len(sheet.levels) == whole for sheet in self.sheets.values())

    @property
    def speedup(self) -> float | None:
        """Of speculation, per pixel; None before both lanes have some."""
        slow, fast = self.slow, self.fast
        if not slow.levels or not fast.seconds:
            return None
        return (slow.seconds / len(slow.levels)) / (fast.seconds / len(fast.levels))


class Digits:
    """The pair. Its models are compiled on first use.

    Args:
        folder: contains `target/` and `draft/`, as optimum-intel writes them.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder

    @cached_property
    def models(self) -> CompiledPair:
        """Both models, compiled and warmed up.

        Raises:
            UserError: a file is missing or damaged.
        """
        from pipeline.runtime.model import OVModel, RuntimeOptions
        from pipeline.runtime.pair import CompiledPair

        options = RuntimeOptions(threads=1)
        target, draft = (OVModel(self._folder / role, options) for role in ("target", "draft"))
        return CompiledPair(target, draft)

    def lanes(self, request: Request) -> Lanes:
        """Builds the lanes of a request: its prompt is the token of a digit."""
        models = self.models
        return Lanes(
            target=lambda prompt: models.target.sequence(LEVELS),
            draft=lambda prompt: models.required_draft.sequence(LEVELS),
            costs=lambda: models.costs,
            stats=models.stats.setdefault(request.verification, {}),
            verify=find_verifier(request.verification).verify,
        )

    def draw(self, request: Request) -> Generator[Drawing | Progress, None, None]:
        """Draws every digit with both methods, in a race for each; yields after each step, and
        before what has to be compiled or measured first.

        Args:
            request: its sampling, draft length and verification; the draft is always a model.
        """
        if "models" not in vars(self):
            yield Progress("Preparing the image models")
        if request.draft_length == "auto" and not self.models.costs_known:
            yield from self.models.measure()
        lanes, drawing = self.lanes(request), Drawing(request)
        yield drawing
        for digit in DIGITS:
            params = replace(request.sampling, seed=request.seed + digit)
            racing = race(
                lanes.of("race", prompt(digit), params, PIXELS, MODEL.name, request.draft_length)
            )
            with closing(racing):
                for lane, event in racing:
                    if isinstance(event, Step):
                        sheets = {**drawing.sheets, lane: drawing.sheets[lane].after(event)}
                        drawing = replace(drawing, sheets=sheets)
                        yield drawing


def prompt(digit: int) -> list[int]:
    """The token that names a digit."""
    return [LEVELS + digit]
