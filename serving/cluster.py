"""Ray, which runs the replicas: on this machine, or on a cluster. Nothing else here imports it."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from pipeline.decoding.answer_memory import AnswerMemory
from pipeline.decoding.race import Mode
from pipeline.environment import memory_bytes
from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.progress import in_bytes
from pipeline.request import Request
from pipeline.text.tokenizer import Tokenizer
from pipeline.trace.record import Trace
from serving.replica import Description, Replica, Report
from serving.replicas import Replicas, Response

if TYPE_CHECKING:  # importing it loads Ray
    from ray.serve.handle import DeploymentHandle, DeploymentResponseGenerator

_QUIET = {"log_level": "WARNING", "enable_access_log": False}  # of Ray Serve
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # it would report to its makers
    # Seconds until it looks again for a free replica: whoever comes later must not find it first.
    "RAY_SERVE_ROUTER_RETRY_MAX_BACKOFF_S": "0.05",
}
_LOCAL = {  # of Ray on this machine, whose ports let whoever has the token run code
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # they are those of the loopback, here as there
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
}
_OBJECTS = 80 * 2**20  # bytes of Ray's store of objects, about its least; updates are small
_DRAINING = 2.0  # seconds that a replica has to end its run when it is stopped
_PERIOD = 0.1  # seconds between two looks at which replicas answer
_HEALTH = 2.0  # seconds between two looks at whether a replica's process is there


class Cluster:
    """Ray, started or found; made in the main thread, where it leaves SIGTERM as it is.

    Args:
        replicas: how many.
        address: of a Ray cluster that is there; None starts Ray on this machine.

    Raises:
        UserError: there is no such cluster.
    """

    def __init__(self, replicas: int, address: str | None = None) -> None:
        self._replicas, self._address = replicas, address
        handler = signal.getsignal(signal.SIGTERM)
        self._connect()
        signal.signal(signal.SIGTERM, handler)  # Ray's own would end the process at once
        self._name = f"dolly-{uuid.uuid4().hex[:8]}"  # others may use the cluster too

    def load(self, choice: Choice) -> Replicas:
        """Starts the replicas; returns when all have loaded the pair.

        Raises:
            UserError: the cores or the memory do not suffice, or the pair cannot be loaded.
        """
        import ray

        machines = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        cores = choice.threads or _share(machines, self._replicas)
        if self._address is None:
            self._check_memory(choice)
        self._check_cores(cores, machines)
        handle = self._deploy(choice, cores).options(stream=True)
        description = _description(handle, self._replicas)
        tokenizer = Tokenizer(choice.store.folder(choice.pair.target))

        def call(request: Request, mode: Mode, memory: AnswerMemory | None) -> Response:
            return _Stream(handle.run.remote(request, mode, memory))

        return Replicas(choice.pair, tokenizer, description, call)

    def close(self) -> None:
        """Ends the replicas, and Ray where it was started here."""
        import ray
        from ray import serve

        if self._address is not None:
            serve.delete(self._name)
        ray.shutdown()

    def _connect(self) -> None:
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        if self._address is None:
            os.environ |= _LOCAL
        import ray
        from ray import serve

        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        logging.getLogger("ray").setLevel(logging.ERROR)
        logging.getLogger("ray.serve").setLevel(logging.WARNING)
        if self._address is None:
            ray.init(
                "local",  # and no cluster that the environment names, or that runs here already
                num_cpus=len(os.sched_getaffinity(0)),
                num_gpus=0,
                include_dashboard=False,
                object_store_memory=_OBJECTS,
                **options,
            )
        else:
            try:
                ray.init(self._address, **options)
            except (ConnectionError, ValueError) as error:  # the latter of what is no address
                reason = " ".join(str(error).split())
                remedy = (
                    f"no cluster there ({reason}); if it asks for a token, set RAY_AUTH_MODE=token"
                )
                raise UserError("ray address", self._address, remedy) from None
        serve.start(proxy_location="Disabled", logging_config=_QUIET)

    def _check_memory(self, choice: Choice) -> None:
        needed = self._replicas * choice.pair.memory_bytes
        if needed > memory_bytes():
            remedy = f"need about {in_bytes(needed)} and this machine has "
            remedy += f"{in_bytes(memory_bytes())}; choose fewer, or --weights int4"
            raise UserError("replicas", self._replicas, remedy)

    def _check_cores(self, cores: int, machines: Sequence[int]) -> None:
        if _places(machines, cores) < self._replicas:
            there = " and ".join(map(str, machines))
            remedy = f"of {cores} cores each are too many for {there} cores; choose fewer"
            raise UserError("replicas", self._replicas, f"{remedy}, or fewer --threads")

    def _deploy(self, choice: Choice, cores: int) -> DeploymentHandle:
        from ray import serve

        deployment = serve.deployment(
            Replica,
            num_replicas=self._replicas,
            max_ongoing_requests=1,
            max_queued_requests=self._replicas,  # the page's own queue is before it
            ray_actor_options={"num_cpus": cores},
            graceful_shutdown_timeout_s=_DRAINING,
            graceful_shutdown_wait_loop_s=0.1,
            health_check_period_s=_HEALTH,
            logging_config=_QUIET,
        )
        return serve.run(
            deployment.bind(choice, cores),
            name=self._name,
            route_prefix=None,
            logging_config=_QUIET,
        )


def _places(machines: Sequence[int], cores: int) -> int:
    """Replicas of so many cores for which machines of so many have room; none has cores of two."""
    return sum(each // cores for each in machines)


def _share(machines: Sequence[int], replicas: int) -> int:
    """The most cores that every replica can have, at least one."""
    choices = range(max(machines, default=1), 1, -1)
    return next((cores for cores in choices if _places(machines, cores) >= replicas), 1)


def _description(handle: DeploymentHandle, replicas: int) -> Description:
    """That of any replica, once all of them have answered.

    Raises:
        UserError: one of them could not load the pair.
    """
    while True:
        answers: list[Description | UserError] = handle.broadcast("describe").results()
        for answer in answers:
            if isinstance(answer, UserError):
                raise answer
        if len(answers) >= replicas:
            return cast(Description, answers[0])
        time.sleep(_PERIOD)  # the handle does not know all of them yet


class _Stream:
    """What a replica streams; its errors in the page's words."""

    def __init__(self, response: DeploymentResponseGenerator) -> None:
        self._response = response

    def __iter__(self) -> Iterator[Trace | Report]:
        from ray.exceptions import RayActorError, RayTaskError
        from ray.serve.exceptions import BackPressureError

        try:
            yield from self._response
        except BackPressureError:
            line = "every replica is busy; try again later"
            raise UserError("queue", "full", line) from None
        except RayActorError:  # which Ray has logged
            raise UserError("replica", "lost", "its process ended; run it again") from None
        except RayTaskError as error:
            raise error.cause from None

    def cancel(self) -> None:
        with suppress(Exception):  # what the response has raised, Ray raises again
            self._response.cancel()
