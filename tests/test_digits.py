"""Digits: the same decoders over grey levels, on the shipped pair and on the page."""

import json
import math
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import islice

import pytest
import torch
from playwright.sync_api import expect

from lab.studies.recalled import recalled
from lab.studies.sampled import joint
from lab.training import digits as training
from lab.training.command import Command
from lab.training.recipe import Phase
from pipeline.decoding.events import Origin, Step
from pipeline.digits import DIGITS, FOLDER, LEVELS, PIXELS, Digits, Drawing, prompt
from pipeline.errors import UserError
from pipeline.request import Request
from tests.chi_square import assert_follows
from tests.served import open_settings, status_says
from ui.tabs import beyond_text

LANES = ("autoregressive", "speculative")
WHOLE = len(DIGITS) * PIXELS


@cache
def pair():
    return Digits()


def drawn(**wanted):
    *_, drawing = pair().draw(Request("digits", **wanted))
    return drawing


@pytest.mark.parametrize("verification", ["token", "block"])
@pytest.mark.parametrize("k", [1, 4, 8, "auto"])
def test_greedy_images_are_identical(k, verification):
    drawing = drawn(draft_length=k, verification=verification)
    assert drawing.complete
    assert drawing.agreeing == WHOLE
    if k != "auto":
        assert drawing.fast.accepted > 0
        assert drawing.fast.passes < drawing.slow.passes == WHOLE
        assert set(drawing.fast.origins) >= {Origin.ACCEPTED, Origin.RESAMPLED}
    assert set(drawing.slow.origins) == {Origin.TARGET}


@pytest.mark.parametrize(("k", "verification"), [(1, "token"), (4, "block")])
def test_sampled_pixels_follow_the_targets_distribution(k, verification):
    """The next two pixels after half an image, over 4,000 drawings."""
    request = Request("digits", temperature=1.0, verification=verification)
    half = [*prompt(3), *drawn(temperature=1.0).slow.levels[3 * PIXELS :][: PIXELS // 2]]
    lanes = pair().lanes(request)
    expected = joint(lanes.target(()), half, request.sampling, frozenset())
    recalling, counts = recalled(lanes, half), Counter()
    for seed in range(4000):
        params = replace(request.sampling, seed=seed)
        lane = recalling.speculative(half, params, k + 2, "model", k)
        tokens = [token for event in lane if isinstance(event, Step) for token in event.tokens]
        counts[tuple(tokens[:2])] += 1
    assert_follows(counts, expected)


def test_every_pixel_is_a_grey_level_after_a_drawing_that_was_closed():
    drawing = pair().draw(Request("digits"))
    *_, part = islice(drawing, 200)
    drawing.close()
    assert not part.complete
    drawing = drawn(temperature=2.0, seed=5)
    for sheet in (drawing.slow, drawing.fast):
        assert len(sheet.levels) == WHOLE
        assert {*sheet.levels} <= {*range(LEVELS)}
        assert len({*sheet.levels}) > 10


def test_the_weights_are_under_two_megabytes():
    sizes = [file.stat().st_size for file in FOLDER.glob("*/openvino_model.bin")]
    assert (len(sizes), sum(sizes) < 2e6) == (2, True)


def test_without_its_models_there_is_one_line_that_says_so(tmp_path):
    with pytest.raises(UserError, match=r"^model: .* — add its openvino_model.xml"):
        list(Digits(tmp_path).draw(Request("digits")))


def test_a_tenth_of_the_images_is_held_out():
    learned, held_out = training.images()
    assert (learned.shape, held_out.shape) == ((1617, 1 + PIXELS), (180, 1 + PIXELS))
    for part in (learned, held_out):
        assert set(part[:, 0].tolist()) == {LEVELS + digit for digit in DIGITS}
        assert int(part[:, 1:].max()) == LEVELS - 1


def test_a_shift_moves_a_picture_by_a_pixel_at_most_and_keeps_its_name():
    image = torch.zeros(200, 1 + PIXELS, dtype=torch.long)
    image[:, 0], image[:, 1 + 8 * 3 + 4] = LEVELS + 7, 16  # row 3, column 4
    moved = training.shift(image, torch.Generator().manual_seed(0))
    assert {*moved[:, 0].tolist()} == {LEVELS + 7}
    of, places = moved[:, 1:].nonzero().T
    assert of.tolist() == [*range(200)]
    assert {*places.tolist()} == {8 * row + column for row in (2, 3, 4) for column in (3, 4, 5)}


def test_a_pair_is_trained_exported_and_described(tmp_path, monkeypatch):
    """The target learns from images, the draft from the target's; the card has their figures."""
    monkeypatch.setattr(training, "_SAMPLED", 20)

    def recipe(name):
        phase = Phase(name, (3e-3, 0.0), steps=40, warmup=4, rows=16)
        return training.Recipe(phase, layers=1, width=32, heads=1)

    images = training.samples(training.new_model(training.DRAFT).eval(), 20)
    assert images.shape == (20, 1 + PIXELS)
    assert images[:, 0].tolist() == [LEVELS + digit for digit in DIGITS] * 2
    assert int(images[:, 1:].max()) < LEVELS
    training.main(Command(tmp_path), recipe("large"), recipe("small"))
    *_, drawing = Digits(tmp_path / "digits").draw(Request("digits", temperature=1.0))
    assert drawing.complete
    text = (tmp_path / "digits" / "README.md").read_text()
    (nats,) = (line for line in text.splitlines() if line.startswith("| nats a pixel, held out"))
    assert all(1 < float(cell) < math.log(LEVELS) for cell in nats.split("|")[2:4])
    assert "python -m lab.training digits" in text
    assert text.count(" × |") == 0 < text.count("× |")
    assert [*(tmp_path / "digits").glob("*/openvino_config.json")] == []


def test_what_the_page_is_sent_is_the_drawing():
    drawing = drawn(temperature=1.0, draft_length=4)
    told = json.loads(beyond_text.value(drawing))
    for lane, sheet in drawing.sheets.items():
        assert told["sheets"][lane]["levels"] == [*sheet.levels]
        assert told["sheets"][lane]["origins"] == [*sheet.origins]
        assert f"{sheet.passes} target passes" in told["sheets"][lane]["figures"]
    share = 100 * drawing.fast.drafting / drawing.fast.seconds
    assert f"{share:.0f} % of it for drafts" in told["sheets"]["speculative"]["figures"]
    assert "drafts" not in told["sheets"]["autoregressive"]["figures"]
    assert told["claim"].startswith("Same distribution")
    assert f"{100 * drawing.fast.acceptance_rate:.0f} % of tested drafts" in told["claim"]
    assert json.loads(beyond_text.value(drawn()))["claim"].startswith("Identical: all 640 pixels")
    assert json.loads(beyond_text.value(Drawing(Request("digits"))))["claim"] == ""


def pixels(page, lane):
    return page.eval_on_selector_all(
        f"[data-testid=digits] [data-lane={lane}] .images i",
        """pixels => pixels.map((pixel) => [
            16 * pixel.style.getPropertyValue("--level"), pixel.dataset.origin])""",
    )


def test_the_page_draws_digits_with_both_methods(page):
    page.get_by_role("tab", name="Beyond text").click()
    page.get_by_role("button", name="Draw ten digits").click()
    status_says(page, "Digits drawn")
    claim = page.locator("[data-testid=digits] .claim")
    expected = drawn(temperature=1.0, draft_length=1).fast  # where there is something to see
    expect(claim).to_contain_text(f"{WHOLE} → {expected.passes} target passes, ")
    fast = pixels(page, "speculative")
    assert fast == [
        [level, origin] for level, origin in zip(expected.levels, expected.origins, strict=True)
    ]
    expect(page.locator("[data-testid=digits] .image")).to_have_count(2 * len(DIGITS))
    expect(page.locator(".panes[data-source=record]")).to_be_visible()  # the run shown stays

    open_settings(page)
    page.get_by_label("number input for Temperature").fill("0.5")
    page.get_by_role("button", name="Draw ten digits").click()
    expect(claim).not_to_contain_text(f" {expected.passes} target passes, ")
    cooler = drawn(temperature=0.5, draft_length=1).slow
    assert pixels(page, "autoregressive") == [[level, "target"] for level in cooler.levels]
    page.get_by_role("button", name="Draw them greedily").click()
    claim.get_by_text("Identical: all 640 pixels agree").wait_for()


def slowly(draw):
    """As `draw`, with a pause at each step."""

    def drawing(*given):
        for part in draw(*given):
            time.sleep(0.01)
            yield part

    return drawing


def test_a_drawing_is_stopped_like_a_run(page, monkeypatch):
    """The last pixels stay, and the next drawing is whole."""
    page.get_by_role("tab", name="Beyond text").click()
    with monkeypatch.context() as patched:
        patched.setattr(Digits, "draw", slowly(Digits.draw))
        page.get_by_role("button", name="Draw ten digits").click()
        page.locator("[data-testid=digits] .images i").nth(20).wait_for()
        page.get_by_test_id("stop").click()
        status_says(page, "Stopped")
    assert 0 < len(pixels(page, "speculative")) < WHOLE
    page.get_by_role("button", name="Draw ten digits").click()
    status_says(page, "Digits drawn")
    assert len(pixels(page, "speculative")) == WHOLE
