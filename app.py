"""Serves the page that races autoregressive against speculative decoding: `python app.py`."""

from __future__ import annotations

import argparse
import atexit
import errno
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pipeline.errors import UserError
from pipeline.models.choice import Choice, Parser, add_arguments, chosen
from pipeline.request import MAX_NEW_TOKENS

if TYPE_CHECKING:
    from pipeline.dolly import Dolly
    from serving.cluster import Cluster
    from ui.run.loader import Loader

_RUN_TIMEOUT = 2.0  # seconds that a run has to end when the server shuts down
_DRAIN_SECONDS = 0.5  # for the last update to reach that visitor's browser


def main(argv: Sequence[str] | None = None) -> int:
    """Serves the page until it is interrupted or terminated; returns the exit status."""
    ended: list[int] = []

    def end(number: int, _: object) -> None:
        ended.append(number)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        args = _parser().parse_args(argv)
        if not (args.pair or args.target or args.draft):
            args.pair = _environment("PAIR")
        choice = chosen(args)
        _check_server(args)
        _serve(choice, args, ended)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        pass  # Ctrl+C or SIGTERM: a normal end
    return 0


def _check_server(args: argparse.Namespace) -> None:
    """Checks that the page can be served, before any model is loaded for it.

    Raises:
        UserError: `host` is no address of this machine, `port` is taken, or `mcp` is asked for and
            not installed.
    """
    if args.mcp and find_spec("mcp") is None:
        remedy = f'pip install "gradio[mcp]=={version("gradio")}"'
        raise UserError("mcp", "not installed", remedy)
    if not (args.host or args.port):
        return  # Gradio looks for a free port
    host = (args.host or "127.0.0.1").strip("[]")  # as in an address of IPv6
    try:
        family, *_, address = socket.getaddrinfo(host, args.port or 0, type=socket.SOCK_STREAM)[0]
        socket.create_server(address[:2], family=family).close()
    except (OSError, UnicodeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise UserError("port", args.port, f"choose another ({error.strerror})") from None
        raise UserError("host", args.host, f"choose an address of this machine ({error})") from None


def _serve(choice: Choice, args: argparse.Namespace, ended: Sequence[int]) -> None:
    """Serves the page while the models are fetched and loaded in the background. `ended` are the
    signals to end that have come.
    """
    cluster = _cluster(args)
    from ui.run.loader import Loader
    from ui.run.turn import Turn

    load, fixed = (cluster.load, True) if cluster else (_load, args.fixed_pair)
    loader, turn = Loader(choice, load, fixed), Turn(args.replicas or 1)
    from ui.page import Page  # Gradio takes as long to import as a small pair to load

    page = Page(loader, turn, args.max_new_tokens, args.queue_size)
    try:
        page.serve(args.host, args.port, args.share, args.mcp)
        sys.stdout.flush()  # the address, which a pipe would keep
        if ended:  # during an import, whose callbacks drop what is raised in them
            raise KeyboardInterrupt
        _report_failure(loader)
        threading.Event().wait()
    finally:
        turn.close(_RUN_TIMEOUT)
        threading.Event().wait(_DRAIN_SECONDS)
        page.close()
        if cluster:
            cluster.close()


def _report_failure(loader: Loader) -> None:
    """Waits for the pair. If it cannot be loaded, the page stays open and offers another pair.

    Raises:
        UserError: it cannot be loaded, and visitors may not load another.
    """
    try:
        loader.engine()
    except UserError as error:
        if loader.fixed:
            raise
        print(error, "Or load another pair on the page.", file=sys.stderr)


def _load(choice: Choice) -> Dolly:
    from pipeline.dolly import Dolly

    return Dolly.of(choice)


def _cluster(args: argparse.Namespace) -> Cluster | None:
    """Where replicas are to run, if there are to be any.

    Raises:
        UserError: Ray is not installed, or there is no such cluster.
    """
    if not args.replicas:
        if args.ray_address:
            raise UserError("ray address", args.ray_address, "say how many --replicas it shall run")
        return None
    if not hasattr(os, "sched_getaffinity"):
        raise UserError("replicas", args.replicas, "they need Linux; leave it out")
    if find_spec("ray") is None:
        remedy = 'they need Ray: pip install "ray[serve]==2.60.0"'
        raise UserError("replicas", args.replicas, remedy)
    from serving.cluster import Cluster

    return Cluster(args.replicas, args.ray_address)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="app.py", description=__doc__)
    add_arguments(parser)
    kept = _environment("CACHE_DIR")
    parser.set_defaults(
        weights=_environment("WEIGHTS"),
        cache_dir=Path(kept) if kept else None,
        kv_memory=_environment("KV_MEMORY"),
        threads=_environment("THREADS", "0"),
    )
    names = ["PAIR", "WEIGHTS", "CACHE_DIR", "KV_MEMORY", "THREADS", "WATTS_PER_CORE"]

    def add(flag: str, about: str, default: str | None = None, **more: Any) -> None:
        """Adds a flag whose default the environment can set."""
        names.append(flag.upper().replace("-", "_"))
        value = _environment(names[-1], default)
        on = (value or "0").lower() not in ("0", "false", "no", "off")
        begins = on if "action" in more else value
        parser.add_argument(f"--{flag}", default=begins, help=about, **more)

    add(
        "fixed-pair",
        "visitors cannot load another pair, which takes disk, memory and time; "
        "the server exits with status 2 if this one cannot be loaded",
        action="store_true",
    )
    add(
        "replicas",
        "race N visitors at once, in processes with cores of their own: --threads each, or "
        "an equal share; fixes the pair; needs Ray (ray[serve])",
        type=_from_one("replicas"),
        metavar="N",
    )
    add(
        "ray-address",
        "of a Ray cluster for the replicas, whose machines have these files and the models "
        "in the same folders (default: this machine)",
        metavar="ADDRESS",
    )
    add("host", "address to listen on (default: this machine only)")
    add("port", "port to listen on (default: the first free one)", type=_from_one("port", 65_535))
    size = _from_one("queue size")
    about = "visitors that may wait in the queue (default: %(default)s)"
    add("queue-size", about, "16", type=size, metavar="N")
    about = f"limit of new tokens on the page, {MAX_NEW_TOKENS:,} or less (default: %(default)s)"
    add("max-new-tokens", about, "512", type=_from_one("new tokens"), metavar="N")
    add(
        "mcp",
        'also serve the API as MCP tools; needs pip install "gradio[mcp]"',
        action="store_true",
    )
    parser.add_argument("--share", action="store_true", help="also open a public Gradio link")
    flags = ", ".join(f"DOLLY_{name}" for name in names)
    parser.epilog = f"The environment can set defaults: {flags}."
    return parser


def _environment(name: str, default: str | None = None) -> str | None:
    return os.environ.get(f"DOLLY_{name}") or default


def _from_one(field: str, most: int = MAX_NEW_TOKENS) -> Callable[[str], int]:
    """The type of a flag: a number from 1 to `most`."""

    def number(text: str) -> int:
        value = int(text)
        if not 1 <= value <= most:
            raise UserError(field, value, f"choose one from 1 to {most:,}")
        return value

    return number


def _leave(status: int) -> NoReturn:
    """Ends the process without waiting for its threads.

    A thread that loads models may be inside OpenVINO, which nothing interrupts. When Python ends
    by itself, such a thread aborts the process as it comes back.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        atexit._run_exitfuncs()  # which delete temporary files
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    _leave(main())
