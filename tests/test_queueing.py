"""The queue of many visitors: the formula where it is exact, and the simulation beside it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.load.queueing import Queue, waits

SECONDS = st.floats(0.0, 50.0)
VISITS = st.lists(st.tuples(SECONDS, SECONDS), min_size=1, max_size=40)  # gap to the last; race
REPLICAS = st.integers(1, 8)
LOADS = st.floats(0.01, 0.99)


def simulated(visits, replicas):
    """Arrivals, races and waits."""
    gaps, races = (np.array(column) for column in zip(*visits, strict=True))
    arrivals = np.cumsum(gaps)
    return arrivals, races, waits(arrivals, races, replicas)


# --- the formula ----------------------------------------------------------------------------------


@given(LOADS, st.floats(0.1, 100.0))
def test_one_replica_with_exponential_races_is_m_m_1(load, mean):
    queue = Queue(1, load / mean, mean)
    assert queue.mean_wait == pytest.approx(load * mean / (1 - load))
    late = 0.05  # P(wait > t) = load e^(-(1 - load) t / mean)
    exact = max(0.0, math.log(load / late) * mean / (1 - load))
    assert queue.quantile(1 - late) == pytest.approx(exact, abs=1e-9)


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


@given(st.integers(1, 63), LOADS, st.floats(0.0, 4.0))
def test_another_replica_never_makes_visitors_wait_longer(replicas, share, variation):
    fewer, more = (Queue(n, share * replicas, 1.0, variation) for n in (replicas, replicas + 1))
    assert more.waiting <= fewer.waiting
    assert more.mean_wait <= fewer.mean_wait
    assert more.quantile(0.95) <= fewer.quantile(0.95)


@pytest.mark.parametrize("rate", [2.0, 3.0])
def test_with_too_few_replicas_the_wait_has_no_end(rate):
    queue = Queue(2, rate, 1.0)
    assert (queue.waiting, queue.mean_wait, queue.quantile(0.5)) == (1.0, math.inf, math.inf)


# --- the simulation -------------------------------------------------------------------------------


@given(VISITS, REPLICAS)
def test_visitors_begin_in_order_and_at_most_one_race_holds_a_replica(visits, replicas):
    arrivals, races, waited = simulated(visits, replicas)
    begins = arrivals + waited
    assert (waited >= 0).all()
    assert (np.diff(begins) >= -1e-9).all()
    for begin in begins:
        assert ((begins < begin - 1e-9) & (begins + races > begin + 1e-9)).sum() < replicas


@given(VISITS, REPLICAS)
def test_nobody_waits_while_a_replica_is_free(visits, replicas):
    arrivals, races, waited = simulated(visits, replicas)
    begins = arrivals + waited
    for number in np.flatnonzero(waited > 1e-6):
        just_before = begins[number] - 1e-7
        busy = (begins <= just_before) & (begins + races > just_before)
        assert busy.sum() == replicas


@given(VISITS, REPLICAS)
def test_the_same_visitors_wait_no_longer_with_another_replica(visits, replicas):
    waited = [simulated(visits, n)[2] for n in (replicas, replicas + 1)]
    assert (waited[1] <= waited[0] + 1e-9).all()


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
