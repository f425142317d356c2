"""The formula for waiting visitors where it is exact, and the simulation beside it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load.queueing import Queue, waits

SECONDS = st.floats(0.0, 50.0)
VISITS = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40)  # gap to the last; race
LOADS = st.floats(0.01, 0.99)


@given(LOADS, st.floats(0.1, 100.0))
def test_one_replica_with_exponential_races_is_m_m_1(load, mean):
    late = 0.05  # P(wait > t) = load e^(-(1 - load) t / mean)
    exact = max(0.0, math.log(load / late) * mean / (1 - load))
    assert Queue(1, load / mean, mean).quantile(1 - late) == pytest.approx(exact, abs=1e-9)


@given(LOADS, st.floats(0.0, 5.0))
def test_one_replica_with_any_races_is_pollaczek_and_khinchine(load, variation):
    second_moment = 1 + variation  # of races of one second on average
    exact = load * second_moment / (2 * (1 - load))
    assert Queue(1, load, 1.0, variation).mean_wait == pytest.approx(exact)


@given(st.integers(1, 64), LOADS)
def test_erlangs_c_is_its_sum(replicas, share):
    load = replicas * share
    terms = [math.exp(n * math.log(load) - math.lgamma(n + 1)) for n in range(replicas + 1)]
    last = terms.pop() / (1 - share)
    assert Queue(replicas, load, 1.0).waiting == pytest.approx(last / (sum(terms) + last))


@pytest.mark.parametrize("rate", [2.0, 3.0])
def test_with_too_few_replicas_the_wait_has_no_end(rate):
    queue = Queue(2, rate, 1.0)
    assert (queue.waiting, queue.mean_wait, queue.quantile(0.5)) == (1.0, math.inf, math.inf)


@given(VISITS, st.integers(1, 8))
def test_a_race_begins_once_fewer_earlier_ones_run_than_there_are_replicas(visits, replicas):
    """In the order of arrival, and with no replica free while somebody waits."""
    gaps, races = (np.array(column) for column in zip(*visits, strict=True))
    arrivals = np.cumsum(gaps)
    begins = arrivals + waits(arrivals, races, replicas)
    for number, arrival in enumerate(arrivals):
        ends = sorted((begins + races)[:number], reverse=True)
        free = ends[replicas - 1] if number >= replicas else 0.0
        assert begins[number] == pytest.approx(max(arrival, free))


@pytest.mark.parametrize(("replicas", "share"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.9)])
def test_with_exponential_races_it_agrees_with_the_formula(replicas, share):
    """Within five standard errors; the seed is fixed."""
    visitors, batches = 60_000, 20
    queue, rng = Queue(replicas, replicas * share, 1.0), np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(1 / queue.rate, visitors))
    waited = waits(arrivals, rng.exponential(1.0, visitors), replicas)[visitors // 10 :]
    for sample, exact in (
        (waited, queue.mean_wait),
        (waited > 0, queue.waiting),
        (waited > queue.quantile(0.95), 0.05),
    ):
        means = [batch.mean() for batch in np.array_split(sample, batches)]
        error = np.std(means, ddof=1) / math.sqrt(batches)
        assert abs(np.mean(means) - exact) < 5 * error
