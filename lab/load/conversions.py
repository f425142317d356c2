"""Conversions that go wrong: a full disk, a read-only cache, two at once, and kill −9.

Each is of a tiny checkpoint, by `python -m pipeline.convert`, in a cache of its own. It must print
one line of what went wrong, leave nothing half-made, and work the next time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import psutil

from lab.load.parts import Finding
from lab.load.server import PATIENCE, ROOT, running
from pipeline.models.pairs import EMBEDDED
from pipeline.runtime.ir import read_config
from pipeline.runtime.model import OVModel

_REFUSED = 2  # the exit status with a line that says why
_LIMIT = 300.0  # seconds of a conversion
_PERIOD = 0.002  # seconds between two looks at how far it is
_ENDS = 10.0  # seconds that what a killed one started may go on
_XML, _BIN = "openvino_model.xml", "openvino_model.bin"

Reached = Callable[[Path, str], bool]  # given the cache, and what was written to the terminal
STAGES: Mapping[str, Reached] = {
    "begun": lambda cache, _: any(cache.glob(".*.log")),
    "exporting": lambda _, log: "exporting" in log,
    "saving": lambda _, log: "saving" in log,
    "the graph begun": lambda cache, _: any(cache.glob(f".*/{_XML}")),
    "the weights begun": lambda cache, _: any(cache.glob(f".*/{_BIN}")),
    "in its place": lambda cache, _: any(cache.glob(f"[!.]*/{_XML}")),
}
DISKS = (16, 128, 256)  # KiB; the tiny model needs more than the last
# In a mount namespace of its own: the folder, the disk's options at first and then, the command.
_SCRIPT = """
folder=$1 first=$2 then=$3; shift 3
mount -t tmpfs -o "$first" tmpfs "$folder/cache"
for run in first next; do
    "$@" > /dev/null 2> "$folder/$run.log"; echo $? > "$folder/$run.status"
    ls -A "$folder/cache" > "$folder/$run.left"
    mount -o "remount,$then" "$folder/cache"
done
cp -r "$folder/cache" "$folder/copy"
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a disturbed conversion, and of the next one in the same cache.

    Attributes:
        status: of its process; None where it was killed.
        line: the last that it wrote.
        left: what stayed in the cache that is no model.
        next_status: of the next one.
        next_left: what stayed after that.
        works: the model that the next one made can be read.
    """

    status: int | None
    line: str
    left: tuple[str, ...]
    next_status: int
    next_left: tuple[str, ...]
    works: bool


def failures(outcome: Outcome, status: int | None) -> Iterator[str]:
    """A line for each defect. A killed conversion may leave files and half a line.

    Args:
        status: the one that is expected: None of a conversion that is killed.
    """
    if outcome.status != status:
        wanted = "it was not killed" if status is None else f"not {status}"
        yield f"exit status {outcome.status}, {wanted}: {outcome.line}"
    if outcome.status is not None:
        if "Traceback" in outcome.line:
            yield "a traceback"
        elif outcome.status == _REFUSED and " — " not in outcome.line:
            yield f"the last line does not say why: {outcome.line}"
        if outcome.left:
            yield f"{', '.join(outcome.left)} stayed"
    if outcome.next_status or not outcome.works:
        yield f"the next run failed with status {outcome.next_status}"
    if outcome.next_left:
        yield f"{', '.join(outcome.next_left)} stayed after the next run"


def on_a_disk(first: str, folder: Path, checkpoint: Path) -> Outcome:
    """Converts on a small or read-only disk, which then becomes large and writable.

    Args:
        first: the options of the disk, as `mount` takes them.
        folder: an empty one.
    """
    (folder / "cache").mkdir()
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = _command(checkpoint, folder / "cache")
    script = ["bash", "-c", _SCRIPT, "bash", str(folder), first, "rw,size=64m", *command]
    subprocess.run(["unshare", "--mount", *user, *script], cwd=ROOT, check=True, timeout=_LIMIT)
    first_left, next_left = (
        _partial((folder / f"{run}.left").read_text().split()) for run in ("first", "next")
    )
    return Outcome(
        status=int((folder / "first.status").read_text()),
        line=_line((folder / "first.log").read_text()),
        left=first_left,
        next_status=int((folder / "next.status").read_text()),
        next_left=next_left,
        works=_works(folder / "copy"),
    )


def killed(reached: Reached, folder: Path, checkpoint: Path) -> Outcome:
    """Kills a conversion when it has come so far. What it started must end, too."""
    cache, log = folder / "cache", folder / "first.log"
    process = _started(checkpoint, cache, log)
    children: list[psutil.Process] = []
    while process.poll() is None and not reached(cache, log.read_text()):
        with suppress(psutil.NoSuchProcess):
            children = psutil.Process(process.pid).children() or children
        time.sleep(_PERIOD)
    process.kill()
    process.wait(PATIENCE)
    deadline = time.monotonic() + _ENDS
    while any(map(running, children)) and time.monotonic() < deadline:
        time.sleep(_PERIOD)
    going_on = tuple(f"process {child.pid}" for child in children if running(child))
    status = None if process.returncode < 0 else process.returncode
    return _next(status, log, folder, checkpoint, going_on)


def two_at_once(folder: Path, checkpoint: Path) -> Outcome:
    """Two processes convert the same model."""
    log = folder / "first.log"
    both = [_started(checkpoint, folder / "cache", log) for _ in range(2)]
    status = max(abs(process.wait(_LIMIT)) for process in both)
    return _next(status, log, folder, checkpoint)


def _next(
    status: int | None,
    log: Path,
    folder: Path,
    checkpoint: Path,
    going_on: tuple[str, ...] = (),
) -> Outcome:
    """The outcome, after another conversion in the same cache."""
    cache = folder / "cache"
    left = _partial(os.listdir(cache))
    following = _started(checkpoint, cache, folder / "next.log").wait(_LIMIT)
    after = going_on + _partial(os.listdir(cache))
    return Outcome(status, _line(log.read_text()), left, following, after, _works(cache))


def _command(checkpoint: Path, cache: Path) -> list[str]:
    convert = [sys.executable, "-m", "pipeline.convert", str(checkpoint)]
    return [*convert, "--cache-dir", str(cache)]


def _started(checkpoint: Path, cache: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("a") as errors:
        return subprocess.Popen(
            _command(checkpoint, cache), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors
        )


def _partial(names: Sequence[str]) -> tuple[str, ...]:
    """Of what is in a cache, the names of what is no complete model."""
    return tuple(sorted(name for name in names if name.startswith(".")))


def _line(log: str) -> str:
    """The last line; all of a traceback."""
    return log if "Traceback" in log else (log.strip().splitlines() or [""])[-1]


def _works(cache: Path) -> bool:
    """Whether there is one model, which computes."""
    models = [path.parent for path in cache.glob(f"[!.]*/{_XML}")]
    if len(models) != 1:
        return False
    return OVModel(models[0]).sequence().forward([1, 2], logits_to_keep=1).logits.size > 0


# How a conversion is disturbed, given an empty folder and the checkpoint; and the exit status that
# is expected, None of one that is killed.
Case = tuple[Callable[[Path, Path], Outcome], int | None]
CASES: Mapping[str, Case] = {
    **{f"a disk of {size} KiB": (partial(on_a_disk, f"size={size}k"), _REFUSED) for size in DISKS},
    "a read-only cache": (partial(on_a_disk, "ro"), _REFUSED),
    "two at once": (two_at_once, 0),
    **{f"killed: {stage}": (partial(killed, reached), None) for stage, reached in STAGES.items()},
}


def measure(work: Path, cases: Sequence[str] = tuple(CASES)) -> Finding:
    """Converts a tiny checkpoint in all these ways.

    Args:
        work: an empty folder.
        cases: those of `CASES`.
    """
    checkpoint = work / "checkpoint"
    _write_checkpoint(checkpoint)
    outcomes, found = {}, list[str]()
    for number, case in enumerate(cases):
        folder = work / str(number)
        folder.mkdir()
        convert, status = CASES[case]
        outcome = convert(folder, checkpoint)
        outcomes[case] = asdict(outcome)
        found += (f"{case}: {line}" for line in failures(outcome, status))
    return Finding({"cases": outcomes}, tuple(found))


def _write_checkpoint(folder: Path) -> None:
    """A tiny GPT-NeoX of random weights, with the tokenizer of the embedded pair."""
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM  # loads PyTorch

    embedded = EMBEDDED / "target"
    config = GPTNeoXConfig(
        vocab_size=read_config(embedded).vocab_size,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=128,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=0,
    )
    GPTNeoXForCausalLM(config).save_pretrained(folder)
    shutil.copy(embedded / "tokenizer.json", folder)
