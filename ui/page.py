"""The page: what is where, and what happens when it is used."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from pipeline.errors import UserError
from ui import api, link
from ui.component import ASSETS, QUIET, asset, component, fields, hidden
from ui.controls import Controls
from ui.header import Status, header_fields, offer, readiness
from ui.plots.figure import PLOTLY
from ui.run.loader import Loader
from ui.run.recorded import recorded
from ui.run.turn import Turn
from ui.session import Session, View, replayed, run_failed
from ui.tabs import draft_lengths
from ui.tabs.registry import RUN_TABS, TABS
from ui.theme import THEME

if TYPE_CHECKING:  # importing it loads OpenVINO
    from pipeline.decoding.race import Mode
    from pipeline.dolly import Dolly
    from pipeline.request import Request

Work = Callable[["Dolly", "Request", Turn], Iterator[View]]
Updates = dict[Any, Any]  # component -> value; an empty one has to be `gr.skip()`

_CLOSING = "server: it is being stopped — what was made so far stays; open the page again later."
# Seconds between two looks of Gradio's queue for work; its own 0.001 takes 7 % of a core.
_QUEUE_PERIOD = 0.05  # which is what it takes on Windows
_SESSIONS = 256  # the latest visitors'; what others ran is forgotten
_LARGEST_UPLOAD = "32mb"  # of a file that is then refused in words


def build(
    loader: Loader,
    turn: Turn | None = None,
    max_new_tokens: int = 512,
    queue_size: int = 16,
) -> gr.Blocks:
    """The page.

    Args:
        loader: of the pair that it is of, whose models may still be on their way.
        turn: closing it ends the run under way.
        max_new_tokens: the most that a visitor may ask for.
        queue_size: visitors waiting for their turn; more are told to come back.
    """
    turn = turn or Turn()
    with gr.Blocks(
        title="Dolly, twice", analytics_enabled=False, delete_cache=(3600, 3600)
    ) as page:
        state = gr.State(Session(), delete_callback=Session.close)
        board, log = hidden("updates"), hidden("lines")
        component("header", "view/fields", header_fields(loader, readiness(loader)))
        controls = Controls(loader, max_new_tokens)
        notice = component("notice", "view/fields", fields())
        first = replayed(recorded(), "Recorded")
        component("verdict", "view/fields", fields(**(first.verdict or {})))
        component("lanes", ("lanes/lanes", "lanes/card", "lanes/replay"), first.lanes or "")
        chosen: dict[str, gr.Tab] = {}
        with gr.Tabs(elem_id="details", overflow_behavior="wrap"):
            for tab in TABS:
                with gr.Tab(tab.title, id=tab.name) as chosen[tab.name]:
                    if tab is draft_lengths.TAB:
                        measure = gr.Button(
                            "Measure every draft length", size="sm", elem_id="measure"
                        )
                    tab.add(first.details.get(tab.name, ""))
        with gr.Row(elem_id="exports"):
            upload = gr.UploadButton("Open a trace", size="sm", elem_id="open")
            download = gr.DownloadButton(
                "Download the trace", visible=False, size="sm", elem_id="trace"
            )
            steps = gr.DownloadButton("Steps as CSV", visible=False, size="sm")

        def told(session: Session, view: View) -> str:
            now = dict(view.details)
            if view.verdict is not None:
                now["verdict"] = fields(**view.verdict)
            if view.status is not None:
                now["header"] = header_fields(loader, view.status)
            if view.notice is not None:
                now["notice"] = fields(line=view.notice)
            return session.board.tell(now)

        def shown(session: Session, view: View) -> list[str]:
            if view.lanes is not None:
                session.log = view.lanes
            return [told(session, view), session.log]

        def looked_at(session: Session, tab: str) -> str:
            return told(session, session.look_at(tab))

        def kept(session: Session) -> list[Any]:
            files = session.files
            if files is None:
                return [gr.skip(), gr.skip()]
            return [gr.DownloadButton(value=path, visible=True) for path in files.paths]

        def loaded(session: Session) -> Iterator[Updates]:
            for _ in loader.wait():
                yield {board: told(session, View(status=readiness(loader)))}
            yield {
                board: told(session, View(status=readiness(loader), notice=offer(loader))),
                **controls.about(loader),
            }

        def changed(session: Session, name: str) -> Iterator[Updates]:
            line, coming = "", loader.change(loader.pairs.get(name, loader.pair))
            try:
                for progress in coming:
                    loading = View(status=Status("loading", f"{progress}…"))
                    if session.works:  # whose status is that of its run
                        loading = View(notice=f"{progress}…")
                    yield {board: told(session, loading)}
            except UserError as error:
                line = str(error)
            now = View(status=None if session.works else readiness(loader), notice=line)
            yield {board: told(session, now), **controls.about(loader)}

        def linked(session: Session, request: gr.Request) -> Updates:
            asked, line = link.read(request.query_params, controls.limits)
            updates = controls.filled(asked)
            if line:  # else it would take away what another event has said meanwhile
                updates[board] = told(session, View(notice=line))
            return {state: session, **updates}  # Gradio only ever forgets what was an output

        def follow(session: Session, work: Work, form: Sequence[Any]) -> Iterator[list[str]]:
            try:
                request = controls.request(*form)
                for _ in loader.wait():
                    yield shown(session, View())
                for view in work(loader.dolly(), request, turn):
                    yield shown(session, view)
                if turn.closed:
                    yield shown(session, View(notice=_CLOSING))
            except UserError as error:
                yield shown(session, View(notice=str(error)))
            except Exception as error:
                yield shown(session, View(notice=run_failed(error)))

        def answer(session: Session, mode: Mode, *form: Any) -> Iterator[list[str]]:
            yield from follow(session, partial(session.race, mode=mode), form)

        def measured(session: Session, _: Mode, *form: Any) -> Iterator[list[str]]:
            yield from follow(session, session.sweep, form)

        def stopped(session: Session) -> list[str]:
            return shown(session, session.stopped())

        def opened(session: Session, file: str) -> list[str]:
            try:
                return shown(session, session.open(Path(file)))
            except UserError as error:
                return shown(session, View(notice=str(error)))
            except Exception as error:
                logging.getLogger(__name__).exception("A trace could not be shown")
                return shown(session, View(notice=run_failed(error)))

        outputs = [board, log]
        runs = [
            button.click(
                work,
                inputs=[state, *controls.inputs],
                outputs=outputs,
                concurrency_limit=1,
                concurrency_id=api.CONCURRENCY_ID,
                trigger_mode="once",
                show_progress="minimal",
                show_progress_on=notice,
                api_visibility="private",
            )
            for button, work in ((controls.run, answer), (measure, measured))
        ]
        stop = controls.stop.click(None, cancels=runs).then(
            stopped,
            inputs=[state],
            outputs=outputs,
            queue=False,
            **QUIET,
        )
        controls.load.click(
            changed,
            inputs=[state, controls.pair],
            outputs=[board, *controls.of_pair],
            concurrency_limit=None,
            trigger_mode="once",
            **QUIET,
        )
        opening = upload.upload(
            opened,
            inputs=[state, upload],
            outputs=outputs,
            queue=False,
            **QUIET,
        )
        for event in (*runs, stop, opening):
            event.then(
                kept,
                inputs=[state],
                outputs=[download, steps],
                queue=False,
                **QUIET,
            )
        for name in RUN_TABS:
            chosen[name].select(
                partial(looked_at, tab=name),
                inputs=[state],
                outputs=[board],
                queue=False,
                **QUIET,
            )
        page.load(
            loaded,
            inputs=[state],
            outputs=[board, *controls.of_pair],
            concurrency_limit=None,
            **QUIET,
        )
        page.load(
            linked,
            inputs=[state],
            outputs=[state, board, *controls.inputs],
            queue=False,
            **QUIET,
        )
        api.add(loader, turn)
    page.queue(max_size=queue_size)
    page._queue.sleep_when_free = _QUEUE_PERIOD
    return page


def serve(
    page: gr.Blocks,
    host: str | None = None,
    port: int | None = None,
    share: bool = False,
    mcp: bool = False,
) -> str:
    """Opens the page in threads of its own; returns its address.

    Raises:
        UserError: the port is taken, or `mcp` is asked for and not installed.
    """
    if mcp and find_spec("mcp") is None:
        remedy = f'pip install "gradio[mcp]=={gr.__version__}"'
        raise UserError("mcp", "not installed", remedy)
    try:
        _, url, _ = page.launch(
            server_name=host,
            server_port=port,
            share=share,
            mcp_server=mcp,
            theme=THEME,
            css_paths=sorted(ASSETS.glob("*/*.css")),
            js=asset("page/page.js"),
            allowed_paths=[str(PLOTLY)],
            max_file_size=_LARGEST_UPLOAD,
            ssr_mode=False,
            state_session_capacity=_SESSIONS,
            run_history=False,
            footer_links=["api"],
            prevent_thread_lock=True,
        )
    except OSError as error:
        raise UserError("port", port, f"choose another ({error})") from None
    return str(url)
