"""Fetches or converts a model: `python -m pipeline.convert databricks/dolly-v2-3b`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from pipeline.errors import UserError
from pipeline.models.choice import Parser
from pipeline.models.pairs import Model
from pipeline.models.store import Store
from pipeline.progress import Progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit status: 2 for an error that the user can fix."""
    parser = Parser(
        prog="python -m pipeline.convert",
        description="Fetches a model, or converts it, and prints the folder of its OpenVINO IR.",
    )
    parser.add_argument("model", help="name on the hub, perhaps @revision; folder; or GGUF file")
    parser.add_argument(
        "--weights", default="int8", help="f32, fp16, int8 (default), int4 or int4-asym"
    )
    parser.add_argument("--cache-dir", type=Path, help="where models are kept")
    parser.add_argument("--remote-code", action="store_true", help="let it run code of its own")
    try:
        options = parser.parse_args(arguments)
        store = Store(options.cache_dir)
        model = Model(options.model, options.weights, remote_code=options.remote_code)
        show(store.obtain(model))
        print(store.folder(model))
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def show(progress: Iterable[Progress]) -> None:
    """Prints a line for each stage, which a terminal updates in place; elsewhere another line
    follows at every tenth of it.
    """
    stage, tenth = "", 0
    for step in progress:
        before = stage, tenth
        stage, tenth = step.stage, 10 * step.done // max(1, step.total)
        if sys.stderr.isatty() and stage == before[0]:
            print(f"\033[F\033[K{step}", file=sys.stderr, flush=True)
        elif (stage, tenth) != before:
            print(step, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
