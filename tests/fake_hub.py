"""A Hugging Face hub on this machine: as much of its HTTP interface as the client asks for."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0" * 40


class FakeHub:
    """Serves `repositories`, by name: their files' contents.

    Attributes:
        gated: names of repositories whose terms nobody accepted.
        breaks: bytes after which each download of weights breaks off.
        asked: the paths of all requests.
    """

    def __init__(self):
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.gated: set[str] = set()
        self.breaks: int | None = None
        self.asked: list[str] = []
        self.url = ""

    def answer(self, request, head):
        path = request.path.partition("?")[0]
        self.asked.append(path)
        for name, files in self.repositories.items():
            if path.startswith(f"/api/models/{name}"):
                return self._refused(request, name) or self._about(request, name, files)
            if path.startswith(f"/{name}/resolve/"):
                file = path.split("/resolve/")[1].partition("/")[2]
                if file in files:
                    return self._refused(request, name) or self._file(request, files[file], head)
                return self._send(request, 404, {"X-Error-Code": "EntryNotFound"})
        return self._send(request, 404, {"X-Error-Code": "RepoNotFound"})

    def _refused(self, request, name):
        if name not in self.gated:
            return False
        self._send(request, 403, {"X-Error-Code": "GatedRepo"})
        return True

    def _about(self, request, name, files):
        siblings = [{"rfilename": file, "size": len(body)} for file, body in files.items()]
        about = {"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}
        self._send(request, 200, {"Content-Type": "application/json"}, json.dumps(about).encode())

    def _file(self, request, body, head):
        headers = {
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{hashlib.sha256(body).hexdigest()}"',
            "Content-Length": str(len(body)),
        }
        if self.breaks is not None and not head and len(body) > self.breaks:
            body = body[: self.breaks]
        self._send(request, 200, headers, b"" if head else body)

    def _send(self, request, status, headers, body=b""):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if "Content-Length" not in headers:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)


@contextmanager
def fake_hub():
    hub = FakeHub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            hub.answer(self, head=False)

        def do_HEAD(self):
            hub.answer(self, head=True)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    often = 0.01  # seconds between two looks at whether it is to end; else half a second
    thread = threading.Thread(target=server.serve_forever, args=(often,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
