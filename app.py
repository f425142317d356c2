"""Races autoregressive against speculative decoding of Dolly v2 in a browser: `python app.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pipeline.errors import UserError
from pipeline.pairs import DEFAULT_PAIR, PAIRS, Pair, find_pair

if TYPE_CHECKING:
    from pipeline.dolly import Dolly


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the page until it is interrupted; returns the exit status."""
    args = _parser().parse_args(argv)
    try:
        _serve(find_pair(args.pair), args)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # how one stops it
    return 0


def _serve(pair: Pair, args: argparse.Namespace) -> None:
    """The page opens at once; the models load meanwhile."""
    from ui.page import build, serve

    with ThreadPoolExecutor(1, thread_name_prefix="load") as pool:
        loading = pool.submit(_load, args.pair)
        page = build(pair, loading)
        serve(page, args.host, args.port, args.share)
        try:
            loading.result()
            page.block_thread()
        finally:
            page.close(verbose=False)


def _load(name: str) -> Dolly:
    from pipeline.dolly import Dolly

    return Dolly(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__)
    parser.add_argument(
        "--pair",
        default=DEFAULT_PAIR,
        metavar="NAME|FOLDER",
        help=f"{', '.join(PAIRS)}, or a folder with target/ and draft/ (default: %(default)s)",
    )
    parser.add_argument("--host", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=int, help="port to listen on (default: the first free one)")
    parser.add_argument("--share", action="store_true", help="also open a public Gradio link")
    return parser


if __name__ == "__main__":
    sys.exit(main())
