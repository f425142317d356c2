"""Waiting for replicas that visitors share: the formula, and a simulation without its assumptions.

Visitors come at random times, wait in one queue in order, and each holds one replica for the
seconds of their race. Knows numbers only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Queue:
    """The formula of Allen and Cunneen for M/G/c: Erlang's C, by the variation of the races.

    It is exact where races are exponential (M/M/c) and, for the mean, with one replica (M/G/1,
    Pollaczek and Khinchine); an approximation elsewhere. Sources: A. O. Allen, *Probability,
    Statistics and Queueing Theory*, 1990, 5.4; W. Whitt, *Approximations for the GI/G/m queue*,
    1993.

    Args:
        replicas: c, how many races run at once.
        rate: visitors a second, at random (Poisson).
        mean: seconds of a race.
        variation: squared coefficient of variation of the seconds of a race; 1 if exponential.
    """

    replicas: int
    rate: float
    mean: float
    variation: float = 1.0

    @property
    def load(self) -> float:
        """Replicas that are busy on average, if there are enough (Erlang)."""
        return self.rate * self.mean

    @property
    def utilisation(self) -> float:
        """The share of time that a replica is busy; from 1 on, the queue grows without end."""
        return self.load / self.replicas

    @property
    def waiting(self) -> float:
        """The probability that a visitor waits at all: Erlang's C; 1 when overloaded."""
        if self.utilisation >= 1:
            return 1.0
        blocked = 1.0  # Erlang's B, by its recursion over the replicas
        for count in range(1, self.replicas + 1):
            blocked = self.load * blocked / (count + self.load * blocked)
        return blocked / (1 - self.utilisation * (1 - blocked))

    @property
    def mean_wait(self) -> float:
        """Seconds, of all visitors; infinite when overloaded."""
        if self.utilisation >= 1:
            return math.inf
        exponential = self.waiting * self.mean / (self.replicas * (1 - self.utilisation))
        return exponential * (1 + self.variation) / 2

    def quantile(self, share: float) -> float:
        """The seconds that this share of visitors waits at most, if the wait of those who wait is
        exponential, as it is in M/M/c.
        """
        if self.utilisation >= 1:
            return math.inf
        late = 1 - share
        if self.waiting <= late:
            return 0.0
        return self.mean_wait / self.waiting * math.log(self.waiting / late)


def waits(arrivals: Seconds, races: Seconds, replicas: int) -> Seconds:
    """Simulates the queue event by event; returns each visitor's seconds until the race begins.

    Args:
        arrivals: when each visitor comes, ascending.  # [visitors]
        races: how long the race of each takes.  # [visitors]
        replicas: how many races run at once.
    """
    free = [0.0] * replicas  # a heap: when each replica is free
    waited = []
    for arrival, race in zip(arrivals.tolist(), races.tolist(), strict=True):
        begin = max(arrival, free[0])
        heapreplace(free, begin + race)
        waited.append(begin - arrival)
    return np.array(waited)
