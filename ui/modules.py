"""Serves the page's scripts: the ES modules of `assets/`, and Plotly.

Their addresses have a version, so that a browser asks for each only once and never mixes two
versions. They are relative to the page, and so the same behind a proxy's path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

ASSETS = Path(__file__).resolve().parents[1] / "assets"
_PLOTLY = "plotly.min.js"
_FILES = {  # all that can be asked for; no request is looked up on the disk
    **{path.relative_to(ASSETS).as_posix(): path.read_bytes() for path in ASSETS.glob("*/*.js")},
    _PLOTLY: (files("plotly") / "package_data" / _PLOTLY).read_bytes(),
}
_VERSION = hashlib.sha256(b"".join(_FILES[name] for name in sorted(_FILES))).hexdigest()[:16]
_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable"}


async def _module(request: Request) -> Response:
    script = _FILES.get(request.path_params["name"])
    if script is None:
        return Response(status_code=404)
    return Response(script, headers=_HEADERS, media_type="text/javascript")


ROUTE = Route(f"/modules/{_VERSION}/{{name:path}}", _module)


def load(names: Sequence[str]) -> str:
    """JavaScript that loads those modules: files of `assets/`, without `.js`."""
    return (
        f"Promise.all({json.dumps([f'modules/{_VERSION}/{name}.js' for name in names])}"
        ".map((path) => import(new URL(path, document.baseURI))))"
    )


def call(names: Sequence[str], view: str = "") -> str:
    """JavaScript that loads those modules, and calls the default export of each in turn.

    Args:
        view: the argument of the call.
    """
    return f"{load(names)}.then((modules) => modules.forEach((each) => each.default({view})))"


def preloads() -> str:
    """Links for the page's head: all modules are fetched at once, and not one after another."""
    names = [name for name in _FILES if name != _PLOTLY]
    address = f"modules/{_VERSION}"
    return "".join(f'<link rel="modulepreload" href="{address}/{name}">' for name in names)


def launched() -> dict[str, Any]:
    """The arguments of `launch` for the page's own script."""
    return {"js": f"() => {call(['page/page'])}", "head": preloads()}
