"""Several processes of the app behind one address, as `serving/haproxy.cfg` describes it."""

import os
import shutil
import socket
import subprocess
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest
from gradio_client import Client

from lab.load.server import Server, free_port
from tests.fake_dolly import FakeDolly
from tests.served import (
    PLAIN,
    assert_shows,
    open_trace,
    opened,
    run,
    served,
    status_says,
    to_the_end,
    wait_for_end,
)
from tests.tiny import tiny_folder
from tests.traces import ran
from tests.waiting import wait_until

CONFIGURATION = Path(__file__).resolve().parents[1] / "serving" / "haproxy.cfg"
NAMES = ("one", "two")  # of the servers, and here of their pairs
LONG = {"max_new_tokens": 400, "kv_cache": "uncached"}


@pytest.fixture(scope="module", autouse=True)
def haproxy():
    """The program. Without it: skipped, but not under CI."""
    if shutil.which("haproxy") is None:
        if os.environ.get("CI"):
            pytest.fail("no HAProxy")
        pytest.skip("no HAProxy")


@contextmanager
def proxied(folder, urls):
    """The address of the proxy of these two servers."""
    text, port = CONFIGURATION.read_text(), free_port()
    addresses = {"bind :7860": f"bind 127.0.0.1:{port}"}
    for name, written, url in zip(NAMES, ("7861", "7862"), urls, strict=True):
        server = f"server {name} "
        addresses[f"{server}127.0.0.1:{written}"] = server + url.split("/")[2]
    for written, used in addresses.items():
        assert text.count(written) == 1
        text = text.replace(written, used)
    (folder / "haproxy.cfg").write_text(text)
    process = subprocess.Popen(["haproxy", "-f", str(folder / "haproxy.cfg")])
    try:
        wait_until(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()


def listens(port):
    with socket.socket() as visitor:
        return visitor.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Two of the app with a core each, by the names of their pairs; and their one address."""
    folder = tmp_path_factory.mktemp("proxied")
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        apps = {
            name: stack.enter_context(
                Server(
                    *("--cache-dir", str(folder / f"cache-{name}"), "--fixed-pair"),
                    *("--pair", str(shutil.copytree(tiny_folder(), folder / name))),
                    cores=[core],
                )
            )
            for name, core in zip(NAMES, (cores[0], cores[-1]), strict=True)
        }
        for app in apps.values():
            app.wait_until_ready()
        url = stack.enter_context(proxied(folder, [app.url for app in apps.values()]))
        yield apps, url


def process_of(visitor, url):
    """The name of the one that answers a visitor; None while none does."""
    reply = visitor.get(f"{url}ready")
    return reply.json()["pair"]["name"] if reply.status_code == 200 else None


@contextmanager
def visitors_of_each(url):
    """A client of each process, by its name."""
    with ExitStack() as stack:
        clients = {}
        while len(clients) < len(NAMES):
            client = stack.enter_context(closing(Client(url, verbose=False)))
            clients[client.predict(api_name="/status")["pair"]["name"]] = client
        yield clients


def test_each_process_has_its_core_and_a_visitor_stays_with_one(processes):
    _, url = processes
    with httpx.Client() as visitor:
        mine = process_of(visitor, url)
        assert {process_of(visitor, url) for _ in range(10)} == {mine}
    with visitors_of_each(url) as clients:
        for name, client in clients.items():
            trace = client.predict("Why?", max_new_tokens=5, api_name="/trace")
            assert (trace["pair"]["name"], trace["environment"]["threads"]) == (name, 1)


def test_two_visitors_race_at_once_and_their_updates_come_as_they_are_made(processes):
    _, url = processes
    with visitors_of_each(url) as clients:
        jobs = {}

        def at_once():
            """Both have begun, and none is done; a race that was over too soon begins again."""
            for name, client in clients.items():
                if name not in jobs or jobs[name].done():
                    jobs[name] = client.submit("Why?", **LONG, api_name="/race")
                    next(iter(jobs[name]))
            return not any(job.done() for job in jobs.values())

        wait_until(at_once)
        for job in jobs.values():
            job.cancel()


def test_a_page_and_its_uploads_pass(processes, browser, tmp_path):
    _, url = processes
    trace = ran(max_new_tokens=8)
    with opened(browser, url + "?max_new_tokens=12") as page:
        to_the_end(page)
        run(page, "How many planets are there?")
        status_says(page, "identical text")
        open_trace(page, tmp_path, trace.to_json())
        status_says(page, "Trace opened")
        wait_for_end(page)
        assert_shows(page, trace)


def test_the_visitors_of_a_killed_process_reach_the_other_with_a_new_session(processes, browser):
    """The last test of these processes, of which it leaves one."""
    apps, url = processes
    with httpx.Client() as visitor, closing(browser.new_page()) as page:
        page.goto(url + "?max_new_tokens=12")
        status_says(page, "Ready")
        (cookie,) = browser.cookies(url)
        killed = cookie["value"]
        (left,) = {*NAMES} - {killed}
        visitor.cookies.set(cookie["name"], killed)
        assert process_of(visitor, url) == killed
        apps[killed].kill()
        wait_until(lambda: process_of(visitor, url) == left)
        page.goto(url + "?max_new_tokens=12")
        status_says(page, "Ready")
        to_the_end(page)
        run(page, "How many planets are there?")
        status_says(page, "identical text")
        (cookie,) = browser.cookies(url)
        assert cookie["value"] == left


def test_no_visitor_reaches_a_process_before_its_models_are_loaded(tmp_path):
    loading = Future()
    with (
        served(loading) as one,
        served(FakeDolly(PLAIN)) as two,
        proxied(tmp_path, (one, two)) as url,
    ):
        wait_until(lambda: httpx.get(f"{url}ready").status_code == 200)
        wait_until(lambda: servers(url) == {"two"})
        loading.set_result(FakeDolly(PLAIN))
        wait_until(lambda: servers(url) == {*NAMES})


def servers(url):
    """The names of those that new visitors reach; None is the proxy itself, which has none."""
    return {httpx.get(f"{url}ready").cookies.get("process") for _ in range(4)}
