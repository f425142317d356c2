"""Dolly, twice: the web application. `python app.py --help`.

Flags, then a model pair, then the page, then the server. Importing this does nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pipeline.errors import UserError
from pipeline.pairs import DEFAULT_PAIR, PAIRS, find_pair


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves the page until it is interrupted; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        pair = find_pair(options.pair)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2

    # Gradio takes seconds to import; a wrong flag should not.
    from pipeline.dolly import Dolly
    from ui.loader import Loader
    from ui.page import build, launch_options

    page = build(Loader(lambda: Dolly(options.pair)), pair)
    try:
        page.launch(server_name=options.host, server_port=options.port, **launch_options())
    except OSError as error:  # the port is taken
        print(UserError("port", options.port, f"choose another ({error})"), file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Dolly v2 on OpenVINO, twice, side by side.")
    names = ", ".join(PAIRS)
    parser.add_argument(
        "--pair",
        default=DEFAULT_PAIR,
        metavar="NAME",
        help=f"{names}, or a folder that holds target/ and draft/ (default: {DEFAULT_PAIR})",
    )
    parser.add_argument("--host", help="address to serve on (default: this machine only)")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    return parser


if __name__ == "__main__":
    sys.exit(main())
