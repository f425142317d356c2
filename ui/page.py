"""The page: its layout and its event handlers."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from pipeline.decoding.race import Mode
from pipeline.errors import UserError
from ui import api, health, hosts, link, modules, tour
from ui.chat.routes import Chat
from ui.component import ASSETS, QUIET, component, fields, hidden
from ui.controls import Controls
from ui.errors import logged_line
from ui.header import Status, header_fields, offer, readiness
from ui.inputs import CheckedBlocks, Refusing
from ui.run.action import Action, Asked
from ui.run.loader import Loader
from ui.run.race import replayed
from ui.run.recorded import LARGEST, recorded, too_large
from ui.run.turn import Turn
from ui.run.view_state import Changes
from ui.session import Session
from ui.tabs.registry import TABS, pair_values
from ui.tabs.tab import Buttons
from ui.theme import THEME
from ui.timeline import TIMELINE

Outputs = tuple[str, str]  # the values of `Page._outputs`
Updates = dict[Any, Any]  # component -> value; an empty one has to be `gr.skip()`

_EMPTY = "Write a question or an instruction first."
_CLOSING = "server: shutting down — the tokens so far stay on this page; open it again later."
# Seconds between two polls of Gradio's queue. Its default of 0.001 takes 7 % of a core.
_QUEUE_PERIOD = 0.05  # Gradio's own default on Windows
_LOADING_PERIOD = 0.5  # seconds between two reports of progress
_THREADS = 40  # Gradio's own default; those of the races come on top
_SESSIONS = 256  # of the latest visitors; older ones are dropped
_UNSENT = 2**14  # bytes, beside those on their way, that a client may leave unread unnoticed


class Page:
    """The page of a pair.

    Args:
        loader: of the pair, whose models may still be loading.
        turn: how many runs there are at once; closing it ends them.
        max_new_tokens: the limit for visitors.
        queue_size: visitors, and requests of the chat API, that may wait; more are refused.

    Attributes:
        blocks: Gradio's.
        chat: the chat API.
    """

    def __init__(
        self,
        loader: Loader,
        turn: Turn | None = None,
        max_new_tokens: int = 512,
        queue_size: int = 16,
    ) -> None:
        self._loader, self._turn = loader, turn or Turn()
        with CheckedBlocks(
            title="Dolly, twice", analytics_enabled=False, delete_cache=(3600, 3600)
        ) as self.blocks:
            self._draw(max_new_tokens)
            self._connect()
            api.add(loader, self._turn)
        self.blocks.queue(max_size=queue_size)
        self.blocks._queue.sleep_when_free = _QUEUE_PERIOD
        self.chat = Chat(loader, self._turn, queue_size, lambda: len(self.blocks._queue))

    def serve(
        self,
        host: str | None = None,
        port: int | None = None,
        share: bool = False,
        mcp: bool = False,
    ) -> str:
        """Serves the page from background threads; returns its address.

        Raises:
            UserError: the port is taken.
        """
        middleware = [Middleware(Refusing)]
        if hosts.is_local(host, share):
            middleware.insert(0, Middleware(hosts.LocalHosts, host))
        try:
            _, url, _ = self.blocks.launch(
                server_name=host,
                server_port=port,
                share=share,
                mcp_server=mcp,
                theme=THEME,
                css_paths=sorted(ASSETS.glob("*/*.css")),
                **modules.launched(),
                max_file_size=LARGEST,
                max_threads=self._turn.at_once + _THREADS,
                ssr_mode=False,
                state_session_capacity=_SESSIONS,
                run_history=False,
                footer_links=["api"],
                app_kwargs={
                    "routes": [
                        health.route(self._loader, self._turn),
                        modules.ROUTE,
                        self.chat.route,
                    ],
                    "middleware": middleware,
                },
                prevent_thread_lock=True,
            )
        except OSError as error:
            raise UserError("port", port, f"choose another ({error})") from None
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # not on Windows
            for server in self.blocks.server.servers:
                for listening in server.sockets:  # whose options each connection inherits
                    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT)
        return str(url)

    def close(self) -> None:
        self.blocks.close(verbose=False)

    # --- layout ----------------------------------------------------------------------------------

    def _draw(self, max_new_tokens: int) -> None:
        """Adds all components, from top to bottom. Events change views only through two hidden
        outputs.
        """
        self._session = gr.State(Session(), delete_callback=Session.close)
        self._outputs = [hidden("updates"), hidden("lines")]
        self._loading = gr.Timer(_LOADING_PERIOD, active=False)  # on while the models load
        component("header", "view/fields", header_fields(self._loader, readiness(self._loader)))
        first = replayed(recorded(), "Recorded")
        tour.add(first.views[tour.NAME])
        self._controls = Controls(self._loader, max_new_tokens)
        self._notice = component(
            "notice",
            ("view/fields", "notice/too_large"),
            fields(),
            largest=LARGEST,
            refusal=str(too_large("SIZE")),
        )
        component("verdict", "view/fields", fields(**(first.verdict or {})))
        component("lanes", "lanes/lanes", first.lines or "")
        TIMELINE.add(first.views[TIMELINE.name])
        self._tabs: dict[str, gr.Tab] = {}
        self._buttons: Buttons = {}
        with gr.Tabs(elem_id="details", overflow_behavior="wrap"):
            for tab in TABS:
                with gr.Tab(tab.title, id=tab.name) as self._tabs[tab.name]:
                    self._buttons |= tab.add(first.views.get(tab.name, ""))
        with gr.Row(elem_id="exports"):
            self._upload = gr.UploadButton("Open a trace", size="sm", elem_id="open")
            self._downloads = [
                gr.DownloadButton("Download the trace", visible=False, size="sm", elem_id="trace"),
                gr.DownloadButton("Steps as CSV", visible=False, size="sm"),
            ]

    # --- events ----------------------------------------------------------------------------------

    def _connect(self) -> None:
        controls, session = self._controls, self._session
        on_models: dict[str, Any] = {  # events that run the models, in the queue
            "inputs": [session, *controls.inputs],
            "outputs": self._outputs,
            "concurrency_limit": self._turn.at_once,
            "concurrency_id": api.CONCURRENCY_ID,
            "trigger_mode": "once",
            "show_progress": "minimal",
            "show_progress_on": self._notice,
            "api_visibility": "private",
        }
        at_once: dict[str, Any] = {"inputs": [session], "queue": False, **QUIET}
        waiting: dict[str, Any] = {"concurrency_limit": None, **QUIET}

        running = [
            button.click(partial(self.answer, action), **on_models)
            for action, button in [(None, controls.run), *self._buttons.items()]
        ]
        controls.stop.click(None, cancels=running, api_visibility="private")
        # Gradio cancels what a visitor runs, not one run of it: who sees the end may start the next
        # one, so it is shown once the cancellation is over, which counts as a failure.
        stopping = [event.failure(self.stop, outputs=self._outputs, **at_once) for event in running]
        opening = self._upload.upload(
            self.open_trace,
            **at_once | {"inputs": [session, self._upload]},
            outputs=self._outputs,
        )
        for event in (*running, *stopping, opening):
            event.then(self.offer_files, outputs=self._downloads, **at_once)
        for name, tab in self._tabs.items():
            tab.select(partial(self.select_tab, name), **at_once)

        updates, lines = self._outputs
        controls.load.click(
            self.change_pair,
            inputs=[session, controls.pair, controls.fields["drafter"]],
            outputs=[updates, *controls.of_pair],
            trigger_mode="once",
            **waiting,
        )
        for on in (self.blocks.load, self._loading.tick):  # in no queue, which may be full
            on(self.show_pair, outputs=[updates, self._loading, *controls.of_pair], **at_once)
        filled = self.blocks.load(
            self.fill_from_link,
            outputs=[session, updates, *controls.inputs],
            **at_once,
        )
        filled.then(**controls.marking)
        filled.then(  # after a reload, with the id of the run that the browser has kept
            self.offer_files,
            **at_once | {"inputs": [session, lines]},
            outputs=self._downloads,
            js=f"(session) => {modules.load(['view/view'])}"
            r""".then(() => [session, /"run":"(\w*)"/.exec(views.lanes)?.[1] ?? ""])""",
        )

    # --- handlers --------------------------------------------------------------------------------

    def answer(
        self, action: Action | None, session: Session, mode: Mode, *form: Any
    ) -> Iterator[Outputs]:
        """Handles a click on the button of an action, or on Run: waits for the models, then shows
        what becomes of the form's request.
        """
        loader, turn = self._loader, self._turn
        if not str(form[0] or "").strip():
            yield self._show(session, Changes(notice=_EMPTY))
            return
        try:
            request = self._controls.request(*form)
            for _ in loader.wait():
                yield self._show(session, Changes())
            engine = loader.engine()
            asked = Asked(engine, request, loader.choice, loader.load, turn.taken)
            race = session.race(engine, request, turn, mode)
            for changes in session.act(action, asked, turn) if action else race:
                yield self._show(session, changes)
            if turn.closed:
                yield self._show(session, Changes(notice=_CLOSING))
        except Exception as error:
            yield self._show(session, Changes(notice=logged_line(error)))

    def stop(self, session: Session) -> Outputs:
        """Handles the end of an event that Stop has cancelled."""
        return self._show(session, session.stop())

    def open_trace(self, session: Session, file: str | None) -> Outputs:
        """Handles an uploaded trace."""
        try:
            if file is None:  # of a call that is not the page's
                raise UserError("trace file", None, "choose one")
            return self._show(session, session.open(Path(file)))
        except Exception as error:
            return self._show(session, Changes(notice=logged_line(error, "trace file")))

    def offer_files(self, session: Session, kept: str | None = None) -> list[Any]:
        """Shows the download buttons once a run has ended, and for one that outlived a reload."""
        files = session.files(kept or "")
        if files is None:
            return [gr.skip() for _ in self._downloads]
        return [gr.DownloadButton(value=path, visible=True) for path in files.paths]

    def select_tab(self, name: str, session: Session) -> None:
        session.tab = name

    def show_pair(self, session: Session) -> Updates:
        """Handles the opening of the page, and the ticks until the models are loaded: shows the
        progress of loading, then the pair.
        """
        loader = self._loader
        ticking = {self._loading: gr.Timer(active=not loader.done)}
        status = None if session.busy else readiness(loader)
        if not loader.done:
            return self._update(session, Changes(status=status)) | ticking
        ready = Changes(views=self._of_pair(), status=status, notice=offer(loader))
        return self._update(session, ready) | self._controls.about(loader) | ticking

    def change_pair(self, session: Session, name: str, drafter: str) -> Iterator[Updates]:
        """Handles a click on Load. While the visitor's own run goes on, its status stays."""
        loader, line = self._loader, ""
        try:
            for progress in loader.change(loader.pairs.get(name, loader.pair), self._turn):
                changes = Changes(status=Status("loading", f"{progress}…"))
                if session.busy:
                    changes = Changes(notice=f"{progress}…")
                yield self._update(session, changes)
        except Exception as error:
            line = logged_line(error, "pair")
        status = None if session.busy else readiness(loader)
        changes = Changes(views=self._of_pair(), status=status, notice=line)
        yield self._update(session, changes) | self._controls.about(loader, drafter)

    def _of_pair(self) -> dict[str, str]:
        """The views about the loaded pair."""
        ready = self._loader.done and not self._loader.failure
        return pair_values(self._loader.engine() if ready else None)

    def fill_from_link(self, session: Session, request: gr.Request) -> Updates:
        """Handles the opening of the page: fills the form from the link, if it has values."""
        drafters = self._loader.pair.drafters
        asked, line = link.read(request.query_params, self._controls.limits, drafters)
        # An empty line would remove another event's notice.
        notice = self._update(session, Changes(notice=line)) if line else {}
        # Gradio deletes only sessions that were an output.
        return {self._session: session, **self._controls.filled(asked), **notice}

    # --- outputs ---------------------------------------------------------------------------------

    def _show(self, session: Session, changes: Changes) -> Outputs:
        """The values of both outputs after the changes."""
        values = dict(changes.views)
        if changes.verdict is not None:
            values["verdict"] = fields(**changes.verdict)
        if changes.status is not None:
            values["header"] = header_fields(self._loader, changes.status)
        if changes.notice is not None:
            values["notice"] = fields(line=changes.notice)
        return session.view_state.update(values, changes.lines)

    def _update(self, session: Session, changes: Changes) -> Updates:
        """The update of the views alone, for events that have other outputs too."""
        updates, _ = self._outputs
        return {updates: self._show(session, changes)[0]}
