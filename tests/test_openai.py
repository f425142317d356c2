"""The chat API: OpenAI's own client uses it unchanged, and its texts are the page's."""

import json
import logging
import socket
import time
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager

import httpx
import numpy as np
import openai
import pytest
from gradio_client import Client

from pipeline.decoding.economics import Costs, Measurement
from pipeline.errors import UserError
from pipeline.models.pairs import DEFAULT_PAIR, PAIRS, own_pair
from pipeline.request import Request
from pipeline.trace.explanation import explanations
from pipeline.trace.reader import parse_trace
from tests.fake_dolly import PAIR, FakeDolly, loader_of
from tests.served import PLAIN, served, served_page
from tests.tiny import tiny
from tests.waiting import PATIENCE, wait_until
from ui.chat.request import parse_chat_request
from ui.page import Page
from ui.run.turn import Turn

ASK = [{"role": "user", "content": "Say something"}]
MODELS = ("fake", "fake-autoregressive")
PAUSE = 0.05  # seconds before each event


@contextmanager
def client_of(url):
    base = f"{url}v1"
    with openai.OpenAI(base_url=base, api_key="any", max_retries=0, timeout=PATIENCE) as client:
        yield client


@pytest.fixture
def client(url):
    with client_of(url) as client:
        yield client


def ask(client, model="fake", **settings):
    return client.chat.completions.create(model=model, messages=ASK, **settings)


def post(url, timeout=PATIENCE, **body):
    whole = {"model": "fake", "messages": ASK, **body}
    return httpx.post(f"{url}v1/chat/completions", json=whole, timeout=timeout)


def error_of(reply):
    """The error's fields; its message is one line, and no traceback."""
    error = reply.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert "\n" not in error["message"]
    assert "Traceback" not in error["message"]
    return error


def parsed(*messages, **settings):
    roles = [{"role": role, "content": content} for role, content in messages]
    body = {"model": "any", "messages": roles, **settings}
    return parse_chat_request(json.dumps(body).encode())


def asked(*messages, **settings):
    return parsed(*messages, **settings).request(PAIRS["dolly-v2-3b"])


# --- answers --------------------------------------------------------------------------------------


def test_the_models_are_the_pair_in_both_modes(client):
    assert [model.id for model in client.models.list()] == [*MODELS]
    assert client.models.retrieve(MODELS[1]).id == MODELS[1]
    with pytest.raises(openai.NotFoundError, match="choose fake or fake-autoregressive"):
        client.models.retrieve("gpt-5")


@pytest.mark.parametrize("model", MODELS)
def test_a_completion_is_the_lane_of_its_model_and_a_stream_is_the_same_in_parts(
    client, url, dolly, model
):
    reply = ask(client, model, max_tokens=20)
    trace, text = dolly.last_trace(), reply.choices[0].message.content
    (lane,) = trace.lanes.values()
    assert [*trace.lanes] == [model.removeprefix("fake-").replace("fake", "speculative")]
    assert (reply.model, text, reply.choices[0].finish_reason) == (model, lane.text, "length")
    usage, details = reply.usage, reply.usage.completion_tokens_details
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, 20, 22)
    assert details.accepted_prediction_tokens == lane.accepted
    assert details.rejected_prediction_tokens == lane.drafted - lane.accepted
    assert usage.mean_acceptance_length == lane.metrics["mean_acceptance_length"]
    assert usage.draft_acceptance_rate == lane.metrics["draft_acceptance_rate"]
    assert bool(lane.drafted) == (model == "fake")

    with_usage = {"stream": True, "stream_options": {"include_usage": True}}
    *parts, last = ask(client, model, max_tokens=20, **with_usage)
    assert (last.choices, last.usage) == ([], usage)
    assert len({part.id for part in parts}) == 1
    assert parts[0].choices[0].delta.role == "assistant"
    texts = [part.choices[0].delta.content or "" for part in parts]
    assert sum(map(bool, texts)) > 5
    assert "".join(texts) == text
    reasons = [part.choices[0].finish_reason for part in parts]
    assert reasons == [*[None] * (len(parts) - 1), "length"]
    assert all(part.usage is None for part in parts)

    plain = post(url, model=model, stream=True, max_tokens=4)
    assert plain.headers["content-type"].startswith("text/event-stream")
    *events, done, rest = plain.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert not any("usage" in json.loads(event.removeprefix("data: ")) for event in events)


def test_sampling_is_set_by_the_fields_of_a_request(client, dolly):
    sampled = {"temperature": 0.7, "top_p": 0.9, "seed": 7, "extra_body": {"top_k": 5}}
    first, again = (ask(client, **sampled, max_completion_tokens=12, user="me") for _ in range(2))
    request = dolly.last_trace().request
    names = ("temperature", "top_p", "seed", "top_k", "max_new_tokens")
    assert [request[name] for name in names] == [0.7, 0.9, 7, 5, 12]
    assert again.choices[0].message.content == first.choices[0].message.content
    for _ in range(2):
        ask(client, temperature=0.7)
    first, second = dolly.started[-2:]
    assert first.trace().request["seed"] != second.trace().request["seed"]
    begins = Request("Why?", drafter="hybrid", draft_length="auto")
    assert parsed(("user", "Why?"), seed=0).request(PAIRS[DEFAULT_PAIR]) == begins
    parsed(("user", "Why?"), n=1, tools=[], logprobs=False, stop=None, user="me", store=True)


def test_a_text_that_ends_by_itself_stops():
    dolly = FakeDolly(PLAIN)
    dolly.end_ids = frozenset(range(0, len(PLAIN), 2))
    with served(dolly) as url, client_of(url) as client:
        assert ask(client).choices[0].finish_reason == "stop"


def test_greedy_texts_are_those_of_a_trace_which_explains_them(client, url):
    with closing(Client(url, verbose=False)) as api:
        trace = api.predict("Say something", max_new_tokens=40, api_name="/trace")
    texts = [lane["text"] for lane in trace["lanes"].values()]
    replies = [ask(client, model, max_tokens=40) for model in MODELS]
    assert len({*texts, *(reply.choices[0].message.content for reply in replies)}) == 1
    explained = explanations(parse_trace(json.dumps(trace)))
    assert trace["explanations"] == json.loads(json.dumps(explained))


def test_a_prompt_that_does_not_fit_is_refused_before_a_stream_begins(monkeypatch):
    known = Measurement(Costs(0.2, (1.0,) * 9), spread=0.0)  # or the page waits for idle cores
    monkeypatch.setattr(tiny().models(), "measured", known)
    long = [{"role": "user", "content": "word " * 3000}]
    with served(tiny(), tiny().pair) as url:
        reply = post(url, model=tiny().pair.name, messages=long, stream=True)
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


def parts_of(stream):
    """The text and the last reason of a stream, and its entries of log-probabilities."""
    choices = [part.choices[0] for part in stream]
    text = "".join(choice.delta.content or "" for choice in choices)
    entries = [each for choice in choices if choice.logprobs for each in choice.logprobs.content]
    return text, choices[-1].finish_reason, entries


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "seed": 4}])
def test_a_stop_text_ends_the_answer_and_is_not_in_it(client, model, settings):
    settings = {"model": model, "max_tokens": 60, **settings}
    whole = ask(client, **settings).choices[0].message.content
    for start in (20, 23):
        across = whole[start : start + 7]  # of several tokens, from within one
        for stop in (across, [f"{across} never", across, "nothing like this"]):
            reply, text = ask(client, stop=stop, **settings), whole[: whole.find(across)]
            (choice,) = reply.choices
            assert (choice.message.content, choice.finish_reason) == (text, "stop")
            assert reply.usage.completion_tokens < 60
            stream = ask(client, stop=stop, stream=True, **settings)
            assert parts_of(stream)[:2] == (text, "stop")
    late = whole[-3:] + "and never this"
    assert ask(client, stop=late, **settings).choices[0].message.content == whole
    assert parts_of(ask(client, stop=late, stream=True, **settings))[:2] == (whole, "length")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.9, "seed": 4, "top_p": 0.5}])
def test_logprobs_are_the_targets_own_of_each_token(client, dolly, model, settings):
    (choice,) = ask(client, model, max_tokens=30, logprobs=True, top_logprobs=3, **settings).choices
    target, before = dolly._target(), [1, 2]
    (lane,) = dolly.last_trace().lanes.values()
    assert [entry.token for entry in choice.logprobs.content] == [
        token.text for token in lane.tokens
    ]
    for entry, token in zip(choice.logprobs.content, lane.tokens, strict=True):
        logits = target.next_logits(before).astype(np.float32).astype(float)
        expected = logits - np.log(np.exp(logits).sum())
        assert entry.logprob == pytest.approx(expected[token.id], abs=1e-5)
        assert bytes(entry.bytes) == entry.token.encode()
        best = np.argsort(-expected)[:3]
        assert [each.token for each in entry.top_logprobs] == [PLAIN[each] for each in best]
        for each, place in zip(entry.top_logprobs, best, strict=True):
            assert each.logprob == pytest.approx(expected[place], abs=1e-5)
            assert bytes(each.bytes) == each.token.encode()
        before.append(token.id)
    asked = {"max_tokens": 30, "logprobs": True, "top_logprobs": 3, **settings}
    text, _, entries = parts_of(ask(client, model, stream=True, **asked))
    assert (text, entries) == (choice.message.content, choice.logprobs.content)


def test_logprobs_without_the_likeliest_tokens_and_those_before_a_stop_text(client, dolly):
    whole = ask(client, max_tokens=30, logprobs=True).choices[0]
    assert all(entry.top_logprobs == [] for entry in whole.logprobs.content)
    *_, third, fourth = whole.logprobs.content[:4]
    cut = {"max_tokens": 30, "logprobs": True, "stop": third.token + fourth.token}
    (choice,) = ask(client, **cut).choices
    kept = choice.logprobs.content
    assert kept == whole.logprobs.content[: len(kept)]
    assert "".join(entry.token for entry in kept) == choice.message.content
    assert parts_of(ask(client, stream=True, **cut))[2] == kept
    assert ask(client, max_tokens=3).choices[0].logprobs is None


@pytest.mark.parametrize(
    ("pair", "drafter"),
    [
        (PAIRS[DEFAULT_PAIR], "block"),
        (PAIRS["dolly-v2-3b"], "model"),
        (own_pair("me/alone"), "lookup"),
    ],
)
def test_a_seeded_text_depends_on_no_measured_times(pair, drafter):
    """So that the same seed samples the same text, whatever was asked before."""
    seeded = parsed(("user", "Why?"), seed=1, temperature=0.5).request(pair)
    assert (seeded.drafter, seeded.draft_length) == (drafter, Request("any").draft_length)
    for other in ({"seed": 1}, {"temperature": 0.5}, {"seed": 1, "temperature": 0}):
        request = parsed(("user", "Why?"), **other).request(pair)
        assert request == Request("Why?", **{**pair.settings, **other, "seed": request.seed})


# --- requests -------------------------------------------------------------------------------------


def test_the_last_message_is_the_instruction_and_the_others_its_context():
    alone = asked(("user", "Why?"))
    assert (alone.instruction, alone.context) == ("Why?", "")
    turns = (("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Why?"))
    request = asked(*turns)
    assert request.instruction == "Why?"
    assert request.context == "Be brief.\n\nUser: Hi\n\nAssistant: Hello"
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    assert asked(("user", parts)).instruction == "one\ntwo"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"n": 2}, "n: 2 — not supported; leave it out."),
        ({"tools": [{}]}, "tools: “list” — not supported; leave it out."),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs: 21 — choose a whole number from 0"),
        ({"top_logprobs": 2}, "top_logprobs: 2 — set logprobs to true."),
        ({"logprobs": 1}, "logprobs: 1 — it must be a valid boolean."),
        ({"stop": [*"abcde"]}, "stop: 5 — choose at most 4 texts."),
        ({"stop": ""}, "stop: “” — choose texts of 1 to 200 characters."),
        ({"stop": [1]}, "stop: 1 — choose texts of 1 to 200 characters."),
        ({"stop": 1}, "stop: 1 — choose texts of 1 to 200 characters."),
        ({"temperature": "hot"}, "temperature: “hot” — choose a number from 0 to 5; 0 is greedy."),
        ({"temperature": [1]}, "temperature: “list” — choose a number from 0 to 5"),
        ({"temperature": 9}, "temperature: 9 — choose a number from 0 to 5"),
        ({"seed": 1.5}, "seed: 1.5 — choose a whole number from 0 to "),
        ({"seed": -1}, "seed: -1 — choose a whole number from 0 to "),
        ({"top_p": 0}, "top_p: 0 — "),
        ({"max_tokens": 0}, "max_tokens: 0 — "),
        ({"max_completion_tokens": 0, "max_tokens": 5}, "max_completion_tokens: 0 — "),
        ({"stream_options": 1}, "stream_options: 1 — it must be "),
        ({"messages": []}, "messages: “list” — it must have at least 1 item"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages: “” — type what"),
        ({"messages": [{"role": "tool", "content": ""}]}, "messages[0].role: “tool” — it must be"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: “nothing” — it must be there."),
        ({"messages": [{"role": "user", "content": [{}]}]}, "messages[0].content: “list” — it "),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages: “system” — let the last"),
    ],
)
def test_what_is_not_supported_or_outside_its_range_is_one_line(url, settings, line):
    reply = post(url, **settings)
    assert reply.status_code == 400
    error = error_of(reply)
    assert error["message"].startswith(line)
    assert (error["type"], error["param"]) == ("invalid_request_error", line.partition(":")[0])


# --- errors ---------------------------------------------------------------------------------------


def test_an_unknown_model_and_what_is_no_json_or_too_large_are_refused(url):
    reply = post(url, model="gpt-5")
    assert (reply.status_code, error_of(reply)["code"]) == (404, "model_not_found")
    for content, status in ((b"{no", 400), (b" " * (5 * 2**20), 413)):
        headers = {"Content-Type": "application/json"}
        reply = httpx.post(f"{url}v1/chat/completions", content=content, headers=headers)
        assert (reply.status_code, error_of(reply)["message"][:5]) == (status, "body:")


@pytest.mark.parametrize("name", ["x" * 200_000, "a\nb\0" * 50_000, "é\u2028" * 50_000])
def test_the_name_of_an_unknown_field_is_cut_and_escaped(url, name):
    reply = post(url, **{name: 1})
    assert (reply.status_code, len(reply.content) < 1000) == (400, True)
    error = error_of(reply)
    assert error["message"].isprintable()
    assert error["message"].endswith("not supported; leave it out.")
    assert error["param"].isprintable()


@pytest.mark.parametrize(
    ("method", "path", "status", "line"),
    [
        ("GET", "nothing", 404, "address: “/v1/nothing” — "),
        ("POST", "chat", 404, "address: “/v1/chat” — "),
        ("DELETE", "x" * 500, 404, "address: “/v1/xxx"),
        ("GET", "chat/completions", 405, "method: “GET” — use POST."),
        ("POST", "models", 405, "method: “POST” — use GET."),
        ("DELETE", "models/fake", 405, "method: “DELETE” — use GET."),
    ],
)
def test_another_address_or_method_is_refused_as_openai_does(url, method, path, status, line):
    reply = httpx.request(method, f"{url}v1/{path}")
    assert reply.status_code == status
    error = error_of(reply)
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith(line)
    assert len(error["message"]) < 200
    if status == 405:
        assert reply.headers["Allow"].startswith(line.split()[-1].rstrip("."))


@pytest.mark.parametrize("kind", ["text/plain", "text/plain;charset=UTF-8", "multipart/x", None])
def test_a_body_that_a_browser_sends_without_asking_is_refused(url, dolly, kind):
    """Without a preflight, a foreign web page can have one sent to a visitor's own server."""
    body = json.dumps({"model": "fake", "messages": ASK}).encode()
    headers = {"Content-Type": kind} if kind else {}
    reply = httpx.post(f"{url}v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 415
    assert error_of(reply)["message"].endswith(" — send application/json.")
    called = f"{url}gradio_api/call/trace"  # which Gradio refuses
    assert httpx.post(called, content=b'{"data": ["Why?"]}', headers=headers).status_code == 422
    assert not dolly.started
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    reply = httpx.post(f"{url}v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == 200


def test_without_a_pair_the_service_is_unavailable():
    loading = Future()
    with served(loading) as url:
        for reply in (post(url), httpx.get(f"{url}v1/models")):
            assert reply.status_code == 503
            assert "try again later" in error_of(reply)["message"]
        loading.set_exception(UserError("model", "x", "choose another"))
        wait_until(lambda: "choose another" in error_of(post(url))["message"])
        assert post(url).status_code == 503


def test_a_failure_is_one_line_also_in_a_stream(client, url, dolly):
    dolly.fails = True
    reply = post(url)
    assert reply.status_code == 500
    assert "RuntimeError the <b>engine</b> broke" in error_of(reply)["message"]
    with pytest.raises(openai.APIError, match="RuntimeError the <b>engine</b> broke"):
        list(ask(client, stream=True))


def test_a_server_that_is_stopped_says_so():
    dolly, turn = FakeDolly(PLAIN, pause=PAUSE), Turn()
    with (
        served_page(Page(loader_of(dolly), turn)) as url,
        client_of(url) as client,
        ask(client, stream=True) as stream,
    ):
        next(stream)
        wait_until(lambda: tokens(dolly.started[0]))
        turn.close(2)
        with pytest.raises(openai.APIError, match="server: shutting down"):
            list(stream)


# --- the queue ------------------------------------------------------------------------------------


def tokens(run):
    return sum(len(lane.tokens) for lane in run.trace().lanes.values())


def ended(run):
    return all(lane.finish for lane in run.trace().lanes.values())


def test_one_run_at_a_time_and_no_more_wait_than_the_queue_holds():
    dolly = FakeDolly(PLAIN, pause=PAUSE)
    with served_page(Page(loader_of(dolly, PAIR), queue_size=1)) as url, client_of(url) as client:
        with ask(client, stream=True, max_tokens=2000) as running:
            wait_until(lambda: dolly.started and tokens(dolly.started[0]))
            with ask(client, stream=True) as waiting:
                reply = post(url)
                assert reply.status_code == 429
                assert error_of(reply)["message"].startswith("queue: “full” — at most 1 may wait")
                assert tokens(dolly.started[1]) == 0
                running.close()  # the client disconnects
                wait_until(lambda: tokens(dolly.started[1]))
                assert ended(dolly.started[0])
                assert tokens(dolly.started[0]) < 2000
                dolly.pause = 0.0
                assert "".join(c.choices[0].delta.content or "" for c in waiting)
        assert ask(client).choices[0].message.content


def test_a_client_that_leaves_frees_its_place():
    dolly = FakeDolly(PLAIN, pause=PAUSE)
    page = Page(loader_of(dolly), queue_size=1)
    with served_page(page) as url, client_of(url) as client:
        with ask(client, stream=True, max_tokens=2000):
            wait_until(lambda: dolly.started and tokens(dolly.started[0]))
            with pytest.raises(httpx.ReadTimeout):
                post(url, 0.3)
            wait_until(lambda: len(page.chat.open) == 1)
            with ask(client, stream=True):
                assert tokens(dolly.started[1]) == tokens(dolly.started[2]) == 0
        wait_until(lambda: not page.chat.open)
        with pytest.raises(httpx.ReadTimeout):
            post(url, 1.0, max_tokens=2000)
        wait_until(lambda: not page.chat.open)
        wait_until(lambda: ended(dolly.started[0]) and ended(dolly.started[3]))
        assert tokens(dolly.started[1]) == tokens(dolly.started[2]) == 0
        assert 0 < tokens(dolly.started[3]) < 2000


# --- clients that do not read, or do not send -----------------------------------------------------


@contextmanager
def connected(url, content, length=None):
    """A connection that has sent this of a body, and reads nothing."""
    address = httpx.URL(url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects
        client.settimeout(PATIENCE)
        client.connect((address.host, address.port))
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Type: application/json\r\nContent-Length: {length or len(content)}\r\n\r\n"
        )
        client.sendall(head.encode() + content)
        yield client


def unread(url, max_tokens=2000):
    body = {"model": "fake", "messages": ASK, "stream": True, "max_tokens": max_tokens}
    return connected(url, json.dumps(body).encode())


def everything(client):
    """What it receives until the server closes the connection."""
    read = b""
    while part := client.recv(2**16):
        read += part
    return read


def test_streams_that_are_not_read_let_others_go_first():
    """They are 2,000 tokens long, of which a connection holds fewer than a third."""
    dolly = FakeDolly(PLAIN, pause=0.001)
    page = Page(loader_of(dolly), queue_size=16)
    with served_page(page) as url, ExitStack() as stack:
        for count in (1, 2):
            stack.enter_context(unread(url))
            wait_until(lambda expected=count: len(dolly.started) == expected)
        assert post(url, max_tokens=5).status_code == 200
        first, second, _ = dolly.started
        assert not ended(first)
        assert not ended(second)
        assert 0 < tokens(first) < 1900


def test_a_stream_that_is_not_read_ends_after_a_while(caplog):
    page = Page(loader_of(FakeDolly(PLAIN)))
    page.chat.stream_timeout = 0.2
    with served_page(page) as url, unread(url) as client:
        wait_until(lambda: any("stream: " in each.message for each in caplog.records))
        wait_until(lambda: not page.chat.open)
        assert b"[DONE]" not in everything(client)


def test_a_stream_that_is_read_late_is_whole():
    dolly = FakeDolly(PLAIN)
    page = Page(loader_of(dolly))
    with served_page(page) as url, unread(url) as client:
        wait_until(lambda: dolly.started and ended(dolly.started[0]))
        wait_until(lambda: not page.chat.open)  # what is left to read holds no place
        read = b""
        while b"[DONE]" not in read:
            read += client.recv(2**16)


def test_half_a_body_holds_no_place_and_ends_after_a_while():
    page = Page(loader_of(FakeDolly(PLAIN)), queue_size=1)
    page.chat.body_timeout = 0.5
    with served_page(page) as url, ExitStack() as stack:
        halves = [
            stack.enter_context(connected(url, b'{"model": "fake", ', length=1000))
            for _ in range(10)
        ]
        assert post(url, max_tokens=5).status_code == 200
        for client in halves:
            head, _, body = everything(client).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 408 ")
            line = "body: “incomplete” — send it within 0.5 s."
            assert json.loads(body)["error"]["message"] == line


def test_a_client_that_leaves_while_its_body_is_read_is_one_line_in_the_log(url, caplog):
    with connected(url, b'{"model": "fake", ', length=1000):
        time.sleep(0.2)  # until the server reads
    wait_until(lambda: caplog.records)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.message == "A client left before its request had arrived"
    assert record.exc_info is None
