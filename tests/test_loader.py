"""One pair at work, another on its way: who waits is told, and nothing is lost if it fails."""

import threading

import pytest

from pipeline.errors import UserError
from pipeline.models.choice import Choice
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS
from pipeline.models.store import Store
from pipeline.progress import Progress
from tests.waiting import wait_until
from ui.run.loader import Loader
from ui.run.turn import Turn

FIRST, SECOND = PAIRS[DEFAULT_PAIR], PAIRS["dolly-v2-3b"]


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Progress is looked at often, not twice a second."""
    monkeypatch.setattr("ui.run.loader._PERIOD", 0.01)


class Shop(Store):
    """Has every model, once `open` is set; or says that it has not."""

    def __init__(self, says=None, is_open=True):
        super().__init__()
        self.open, self.says = threading.Event(), says
        if is_open:
            self.open.set()

    def obtain(self, model):
        yield Progress("fetching", 1, 2, "B")
        assert self.open.wait(10)
        if self.says:
            raise UserError("model", model.id, self.says)


class Named(str):
    """An engine that is the name of its pair, and prepares nothing."""

    unloaded = False

    def prepare(self, request):
        yield from ()

    def unload(self):
        self.unloaded = True


def named(choice):
    return Named(choice.pair.name)


def loading(into):
    """A way to load, which notes what it loads."""

    def load(choice):
        into.append(choice.pair)
        return named(choice)

    return load


def loader(shop, load=named):
    return Loader(Choice(FIRST, shop), load)


def test_who_waits_is_told_how_far_it_has_come():
    shop, told = Shop(is_open=False), []
    waiting = loader(shop)
    for progress in waiting.wait():
        told.append(progress)
        if Progress("fetching", 1, 2, "B") in told:
            shop.open.set()
    assert waiting.done
    assert waiting.engine() == DEFAULT_PAIR


def test_another_pair_takes_over_when_it_is_there():
    shop = Shop()
    at_work = loader(shop)
    assert at_work.engine() == DEFAULT_PAIR
    shop.open.clear()
    change = at_work.change(SECOND, Turn())
    assert next(change)
    assert at_work.pair == FIRST  # still
    with pytest.raises(UserError, match="another pair is being loaded"):
        next(at_work.change(FIRST, Turn()))
    shop.open.set()
    assert all(isinstance(progress, Progress) for progress in change)
    assert at_work.pair == SECOND
    assert at_work.engine() == "dolly-v2-3b"


def test_another_pair_is_not_compiled_while_the_first_one_still_is():
    compiled, begun = [], []
    first_ends = threading.Event()

    def load(choice):
        begun.append(choice.pair)
        if choice.pair == FIRST:
            assert first_ends.wait(10)
        compiled.append(choice.pair)
        return named(choice)

    at_work = loader(Shop(), load)
    wait_until(lambda: begun)
    change, turn = at_work.change(SECOND, Turn()), at_work._compiling
    assert next(change)
    wait_until(lambda: len(turn._places) == 2)
    assert begun == [FIRST]
    first_ends.set()
    list(change)
    assert compiled == [FIRST, SECOND]
    assert at_work.engine() == SECOND.name


def test_another_pair_is_there_while_the_first_one_is_still_fetched():
    shop = Shop(is_open=False)
    at_work = loader(shop)
    wait_until(lambda: at_work.progress == Progress("fetching", 1, 2, "B"))
    shop.obtain = lambda model: iter(())  # what is asked for from now on is there
    list(at_work.change(SECOND, Turn()))
    assert at_work.engine() == SECOND.name
    shop.open.set()


def test_a_pair_is_loaded_when_its_turn_has_come_and_fetched_before():
    turn, over, loaded = Turn(), threading.Event(), []
    at_work = loader(Shop(), loading(loaded))
    assert at_work.engine() == DEFAULT_PAIR

    def race():
        yield "begun"
        over.wait()

    racing = turn.run(race())
    next(racing)
    shown = []
    for progress in at_work.change(SECOND, turn):
        shown.append(progress)
        if progress == Progress("Waiting for another run to end"):
            assert loaded == [FIRST]
            over.set()
            list(racing)
    assert Progress("Waiting for another run to end") in shown
    assert loaded == [FIRST, SECOND]


def test_a_pair_that_cannot_be_had_leaves_the_one_at_work():
    shop = Shop()
    at_work = loader(shop)
    assert at_work.engine() == DEFAULT_PAIR
    shop.says = "is not on the hub"
    with pytest.raises(UserError, match="not on the hub"):
        [*at_work.change(SECOND, Turn())]
    assert (at_work.pair, at_work.engine()) == (FIRST, DEFAULT_PAIR)
    shop.says, kept = None, at_work.engine()
    assert not kept.unloaded
    [*at_work.change(SECOND, Turn())]  # and the next one works
    assert at_work.pair == SECOND
    assert (kept.unloaded, at_work.engine().unloaded) == (True, False)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (UserError("model", "x", "choose another"), "model: “x” — choose another."),
        (RuntimeError("b\nc"), "pair: “dolly-v2-3b” — could not be loaded (RuntimeError b c"),
    ],
)
def test_where_the_first_pair_cannot_be_loaded_the_embedded_one_is_offered(error, line):
    def load(choice):
        if choice.pair == SECOND:
            raise error
        return named(choice)

    broken = Loader(Choice(SECOND, Shop()), load)
    list(broken.wait())
    assert str(broken.failure).startswith(line)
    with pytest.raises(UserError) as raised:
        broken.engine()
    assert str(raised.value).startswith(line)
    assert broken.offer == FIRST
    [*broken.change(broken.offer, Turn())]
    assert (broken.pair, broken.offer, broken.engine()) == (FIRST, FIRST, DEFAULT_PAIR)
    assert not broken.failure


def test_a_pair_that_failed_takes_no_memory_from_the_next(monkeypatch):
    monkeypatch.setattr("pipeline.models.choice.memory_bytes", lambda: FIRST.memory_bytes)
    broken = Loader(Choice(SECOND, Shop()), named)
    with pytest.raises(UserError, match="choose --weights int4, or a smaller pair"):
        broken.engine()
    [*broken.change(FIRST, Turn())]
    assert broken.engine() == DEFAULT_PAIR


def test_a_pair_that_does_not_fit_beside_the_one_at_work_is_one_line(monkeypatch):
    at_work = Loader(Choice(first := FIRST.with_weights("int4", "int8"), Shop()), named)
    assert at_work.engine() == DEFAULT_PAIR
    assert at_work.pairs == PAIRS | {DEFAULT_PAIR: first}
    monkeypatch.setattr("pipeline.models.choice.memory_bytes", lambda: SECOND.memory_bytes)
    for _ in range(2):  # and the next is told the same
        with pytest.raises(UserError, match="with the loaded pair"):
            [*at_work.change(SECOND, Turn())]
    assert at_work.pair == first
