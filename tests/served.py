"""The app with a fake Dolly, and what a visitor does with its page."""

import json
from concurrent.futures import Future
from contextlib import closing, contextmanager

import httpx

from tests.fake_dolly import PAIR, loader_of
from tests.traces import MARKUP, WORDS
from ui.page import Page

LANES = ("autoregressive", "speculative")
HEIGHTS = {1366: 768, 320: 640, 1024: 768, 390: 844}  # of a window, by its width
SCREENS = [(width, theme) for width in HEIGHTS for theme in ("light", "dark")]
PLAIN = WORDS
HOSTILE = "".join(MARKUP)
FIELDS = (
    "Draft length K",
    "number input for Temperature",
    "Seed",
    "New tokens",
    "KV precision",
    "Verification",
)  # one of each kind, of those that every mode shows


@contextmanager
def served(dolly, pair=PAIR):
    """The address of the app, its models already loaded unless `dolly` is still a future."""
    loader = loader_of(dolly, pair)
    if not isinstance(dolly, Future):
        list(loader.wait())
    with served_page(Page(loader)) as url:
        yield url


@contextmanager
def served_page(page):
    """Its address."""
    try:
        yield page.serve()
    finally:
        page.close()


def event(url, kind, label):
    """The number of the event on a component, found as a script would find it."""
    config = httpx.get(f"{url}config").json()
    (component,) = [
        each["id"]
        for each in config["components"]
        if label in (each["props"].get("value"), each["props"].get("label"))
    ]
    (number,) = [
        each["id"] for each in config["dependencies"] if [component, kind] in each["targets"]
    ]
    return number


def called(url, endpoint, values):
    """The last event of a call and its data; by hand: clients refuse to send the worst."""
    calls = f"{url}gradio_api/call/{endpoint}"
    headers = {"content-type": "application/json"}
    joined = httpx.post(calls, content=json.dumps({"data": values}), headers=headers)
    *_, event, data = httpx.get(f"{calls}/{joined.json()['event_id']}").text.split("\n")[:-2]
    return event.removeprefix("event: "), json.loads(data.removeprefix("data: "))


@contextmanager
def opened(browser, url, width=1280, status="Ready", height=900):
    """The page once its status says so; whatever its scripts throw, fails the test."""
    errors = []
    with closing(browser.new_page()) as page:
        page.set_viewport_size({"width": width, "height": height})
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and errors.append(said.text))
        page.goto(url)
        page.get_by_test_id("run").wait_for()
        status_says(page, status)
        page.wait_for_function("window.views?.header")  # what answers the page's opening is there
        yield page
    assert not errors


def status_says(page, words):
    page.wait_for_function(
        "words => document.querySelector('[data-testid=status]')?.textContent.includes(words)",
        arg=words,
    )


def next_frame(page):
    """Returns once the page has been drawn again."""
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")


STEADY = """() => new Promise((steady) => {
    let height = 0;
    let frames = 0;
    const look = () => {
        const now = document.documentElement.scrollHeight;
        frames = now === height ? frames + 1 : 0;
        height = now;
        frames < 5 ? requestAnimationFrame(look) : steady();
    };
    look();
})"""  # resolves once nothing has changed the page's height for some frames


def fit(page, width, height, theme="light"):
    """Returns once the window has this size and the page this theme."""
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("dark => document.body.classList.toggle('dark', dark)", theme == "dark")
    page.evaluate(STEADY)


def box(page, selector):
    """Left, top, right and bottom."""
    found = page.locator(selector).bounding_box()
    return found["x"], found["y"], found["x"] + found["width"], found["y"] + found["height"]


TALL = """(labels) => [...document.querySelectorAll(labels)].filter((each) => {
    const range = document.createRange();
    range.selectNodeContents(each);
    const words = [...range.getClientRects()].filter(({ width }) => width > 1);
    const height = Math.max(...words.map((each) => each.bottom - words[0].top));
    return each.checkVisibility() && height > 1.9 * parseFloat(getComputedStyle(each).lineHeight);
}).map((each) => each.textContent)"""


def wrapped(page, labels):
    """Those that have more than one line."""
    return page.evaluate(TALL, labels)


def publish(page, view, value):
    """Has a view of the page show a value, as an event of the server would."""
    page.evaluate(
        """(detail) => document.dispatchEvent(new CustomEvent("update", { detail }))""",
        {"name": view, "value": value},
    )


def run(page, instruction="Say something", begins=True):
    """Runs it; returns once the panes show it, and no longer the recorded run."""
    page.get_by_label("Instruction").fill(instruction)
    if begins:  # or a live run before it is taken for this one
        page.evaluate("delete document.querySelector('.panes').dataset.source")
    page.get_by_test_id("run").click()
    if begins:
        page.locator(".panes[data-source=live]").wait_for()


def begun(page):
    """Returns once the run has emitted a few tokens."""
    page.locator("[data-testid=pane-autoregressive] .text .tok").nth(3).wait_for()


def open_settings(page):
    """Opens them for the first time; returns once they can be typed into. Gradio draws the fields
    as they open, and a frame later updates each one, over what was typed meanwhile.
    """
    page.locator("#settings > button").click()
    for label in FIELDS:
        page.get_by_label(label, exact=True).wait_for()
    for _ in range(2):
        next_frame(page)


def drafters(page):
    """The titles in the menu of drafters, without what they explain."""
    page.wait_for_function("!document.querySelector('[role=option]')")  # of a menu before it
    page.get_by_label("Drafter", exact=True).click()
    page.get_by_role("option").first.wait_for()
    offered = page.get_by_role("option").all_inner_texts()
    page.keyboard.press("Escape")
    return [title.partition(":")[0].removeprefix("✓").strip() for title in offered]


def open_trace(page, folder, text, name="a trace.json"):
    """Opens it as a file of the visitor's, written into the folder."""
    file = folder / name
    file.write_text(text, encoding="utf-8")
    with page.expect_file_chooser() as chooser:
        page.get_by_role("button", name="Open a trace").click()
    chooser.value.set_files(file)


def wait_for_end(page, reason="length", skip=True):
    """Both lanes at once: in a replay, one ends before the other. The status and the verdict are
    then those of the end.

    Args:
        skip: press the button that ends a replay, which is else as slow as one can follow.
    """
    page.wait_for_function(
        """([reason, skip]) => {
            const playing = document.querySelector(".replay [data-do=play][data-playing=true]");
            if (skip && playing) document.querySelector(".replay [data-do=end]").click();
            return document.querySelector("#header header").dataset.state !== "running"
                && document.querySelectorAll(`.pane[data-end=${reason}]`).length === 2;
        }""",
        arg=[reason, skip],
    )


def to_the_end(page):
    """Ends the replay of the recorded run, which takes seconds."""
    page.locator(".replay:enabled [data-do=end]").dispatch_event("click")
    wait_for_end(page, "stop")


def count(page, lane):
    return page.locator(f"[data-testid=pane-{lane}] .text .tok").count()


def shown(page, lane):
    """The lane's text, token by token, without drafts that came to nothing."""
    return page.eval_on_selector_all(
        f"[data-testid=pane-{lane}] .text .tok[data-step][data-i]",
        """tokens => tokens
            .filter((token) => !["rejected", "untested", "drafted"].includes(token.dataset.state))
            .map((token) => token.textContent)""",
    )


def assert_shows(page, trace):
    for name, lane in trace.lanes.items():
        texts = shown(page, name)
        assert texts == [token.text for token in lane.tokens]
        assert "".join(texts) == lane.text


def seek(page, milliseconds):
    """Moves the scrubber there, in model time."""
    page.get_by_test_id("scrubber").evaluate(
        """(scrubber, at) => {
            scrubber.value = at;
            scrubber.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        milliseconds,
    )
