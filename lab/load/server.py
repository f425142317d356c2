"""`app.py` in a process of its own, as an operator starts it: for measurements and tests."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
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
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed on leaving
        pinned = ["taskset", "--cpu-list", ",".join(map(str, cores))] if cores else []
        self._process = subprocess.Popen(
            [*pinned, sys.executable, "app.py", "--port", str(port), *flags],
            cwd=ROOT,
            env=os.environ | _OFFLINE | ({"TMPDIR": str(temporary)} if temporary else {}),
            stdout=subprocess.DEVNULL,
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
            self._errors.close()

    def wait_until_open(self) -> None:
        """Returns once the page is served; its models may still load.

        Raises:
            RuntimeError: the process ended, or the time is over.
        """
        self._wait_for(httpx.codes.OK, httpx.codes.SERVICE_UNAVAILABLE)

    def wait_until_ready(self, timeout: float = PATIENCE) -> None:
        """Returns once the models are loaded, too.

        Raises:
            RuntimeError: as `wait_until_open`.
        """
        self._wait_for(httpx.codes.OK, timeout=timeout)

    @property
    def errors(self) -> str:
        """What it wrote to the terminal, beside its address."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

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
        return [*filter(_is_replica, self.processes)]

    @property
    def memory(self) -> dict[str, int]:
        """Resident bytes of the page, of all its replicas together, and of what else it started."""
        used = dict.fromkeys(("page", "replicas", "processes of Ray"), 0)
        for process in self.processes:
            with suppress(psutil.NoSuchProcess):  # it may end meanwhile
                other = "replicas" if _is_replica(process) else "processes of Ray"
                used["page" if process.pid == self.pid else other] += process.memory_info().rss
        return used

    def _wait_for(self, *statuses: int, timeout: float = PATIENCE) -> None:
        """Returns once `/ready` has one of these."""
        until = time.monotonic() + timeout
        while self._status() not in statuses:
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"app.py does not serve: {self.errors}")
            time.sleep(_PERIOD)

    def _status(self) -> int:
        try:
            return httpx.get(f"{self.url}ready", timeout=_ANSWER).status_code
        except httpx.HTTPError:  # it refuses, does not listen yet, or does not answer
            return 0


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


def _is_replica(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).startswith("ray::ServeReplica")
    return False
