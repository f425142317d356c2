"""`app.py` in a process of its own, as an operator starts it: for measurements and tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import psutil

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds; others may use the cores
_PERIOD = 0.05  # seconds between two looks
_ANSWER = 5.0  # seconds in which a server that is ready answers
_OFFLINE = {
    "HF_ENDPOINT": "http://127.0.0.1:9",  # where nobody listens
    "PYTHONUNBUFFERED": "",  # off, as in most terminals
}


@contextmanager
def ready(work: Path, pair: str, *flags: str) -> Iterator[Server]:
    """A server whose models are loaded, and which visitors cannot load others into.

    Args:
        work: a folder for its caches.
        pair: a name of the registry, or a folder.
        flags: further ones of `app.py`.
    """
    cache = str(work / "cache")
    with Server("--pair", pair, "--fixed-pair", "--cache-dir", cache, *flags) as server:
        server.wait_until_ready()
        yield server


class Server:
    """The page at a free port of this machine, without a network. On leaving, it is terminated.

    Args:
        flags: of `app.py`.
        cores: the numbers of those it may use; none are all.
        temporary: a folder, of a short name; None takes the user's. Replicas of servers with
            different ones may have the same cores.

    Attributes:
        url: of the page.
        pid: of the process.
    """

    def __init__(
        self, *flags: str, cores: Collection[int] = (), temporary: Path | None = None
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/"
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed on leaving
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        self._process = subprocess.Popen(
            [*pinned, sys.executable, "app.py", "--port", str(port), *flags],
            cwd=ROOT,
            env=os.environ | _OFFLINE | ({"TMPDIR": str(temporary)} if temporary else {}),
            stdout=self._output,
            stderr=self._errors,
        )
        self.pid = self._process.pid  # also where it is pinned, since taskset becomes the program

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.poll() is None:
                self.terminate()
        finally:
            self._output.close()
            self._errors.close()

    def wait_until_open(self) -> None:
        """Returns once the page is served; its models may still load.

        Raises:
            RuntimeError: the process ended, or the time is over.
        """
        self._wait(lambda: self.url.rstrip("/") in _read(self._output), "open", PATIENCE)

    def wait_until_ready(self, timeout: float = PATIENCE) -> None:
        """Returns once the models are loaded, too.

        Raises:
            RuntimeError: as `wait_until_open`.
        """
        self._wait(self._ready, "ready", timeout)

    @property
    def errors(self) -> str:
        """What it wrote to the terminal, beside its address."""
        return _read(self._errors)

    def terminate(self, timeout: float = PATIENCE) -> int:
        """Ends it as who hosts it does; returns its exit status.

        Raises:
            subprocess.TimeoutExpired: it does not end in this time; it is killed then.
        """
        self._process.terminate()
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """Ends it as a machine without memory does."""
        self._process.kill()
        self._process.wait()

    @property
    def processes(self) -> list[psutil.Process]:
        """Its own, and all that it started and that still run."""
        try:
            own = psutil.Process(self.pid)
            return [own, *own.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    @property
    def replicas(self) -> list[psutil.Process]:
        """The processes of its replicas; empty without."""
        return [each for each in self.processes if _command(each).startswith("ray::ServeReplica")]

    @property
    def memory(self) -> dict[str, int]:
        """Resident bytes of the page, of all its replicas together, and of what else it started."""
        replicas = self.replicas
        own, *others = self.processes
        return {
            "page": _resident(own),
            "replicas": sum(map(_resident, replicas)),
            "processes of Ray": sum(_resident(each) for each in others if each not in replicas),
        }

    def _wait(self, condition: Callable[[], bool], state: str, timeout: float) -> None:
        until = time.monotonic() + timeout
        while not condition():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"app.py is not {state}: {self.errors}")
            time.sleep(_PERIOD)

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}ready", timeout=_ANSWER) as answer:
                return bool(answer.status == 200)
        except OSError:  # it refuses, does not listen yet, or does not answer
            return False


def free_port() -> int:
    """A port of this machine on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def running(process: psutil.Process) -> bool:
    """Whether the process is there and has not ended."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _resident(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


def _command(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _read(file: IO[bytes]) -> str:
    """All of it, while another process appends."""
    size = os.fstat(file.fileno()).st_size
    return os.pread(file.fileno(), size, 0).decode(errors="replace")
