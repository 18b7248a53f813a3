"""A small video site on loopback: pages of JSON, files, faults on demand."""

import http.server
import json
import threading
import time
from pathlib import Path

import numpy as np

from vid2context.addresses import Door
from vid2context.media import write_clip

VTT = b"WEBVTT\n\n00:00.100 --> 00:00.600\nHigh water at noon\n"


def clip(path: Path, *, sound: bool = False, seconds: float = 1.0) -> Path:
    """Write a film whose pictures differ."""
    count = int(10 * seconds)
    frames = [np.full((48, 64, 3), (i * 17) % 250, np.uint8) for i in range(count)]
    audio = np.zeros(int(16000 * seconds), np.float32) if sound else None
    write_clip(path, frames, fps=10, audio=audio)
    return path


class Harbour:
    """Serve what a test put into `files` and `pages`, and note every request."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.pages: dict[str, object] = {}
        self.moved: dict[str, str] = {}
        self.faults: dict[str, list[int]] = {}
        self.stall_after: dict[str, int] = {}
        self.no_length: set[str] = set()
        self.kind = "video/mp4"
        self.seen: list[tuple[str, dict[str, str]]] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                site.answer(self)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.port = self.server.server_port
        self.base = f"http://127.0.0.1:{self.port}"
        self.door = Door("127.0.0.1", self.port, "harbour_site:HarbourIE")

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def film(self, name: str, **more) -> dict:
        return {"url": f"{self.base}/{name}", "ext": "mp4", "height": 360} | more

    def track(self, name: str, query: str = "", ext: str = "vtt") -> list[dict]:
        return [{"url": f"{self.base}/{name}{query}", "ext": ext}]

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]

    def answer(self, request):
        path = request.path.partition("?")[0]
        self.seen.append((path, dict(request.headers)))
        if self.faults.get(path):
            return self.empty(request, self.faults[path].pop(0))
        if path in self.moved:
            return self.empty(request, 302, location=self.moved[path])
        if path.startswith("/api/") and path[5:] in self.pages:
            body, kind = json.dumps(self.pages[path[5:]]).encode(), "application/json"
        elif path in self.files:
            body, kind = self.files[path], self.kind
        else:
            return self.empty(request, 404)
        start, end = 0, len(body)
        asked = request.headers.get("Range", "")
        if asked.startswith("bytes="):
            first, _, last = asked[6:].partition("-")
            start, end = int(first), min(end, int(last) + 1 if last else end)
        request.send_response(206 if asked else 200)
        request.send_header("Content-Type", kind)
        request.send_header("ETag", '"one"')
        if asked:
            request.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(body)}")
        if path in self.no_length:
            request.send_header("Connection", "close")
            request.close_connection = True
        else:
            request.send_header("Content-Length", str(end - start))
        request.end_headers()
        cut = self.stall_after.pop(path, None)
        request.wfile.write(body[start : end if cut is None else start + cut])
        if cut is not None:
            request.wfile.flush()
            time.sleep(30)

    def empty(self, request, status: int, *, location: str = ""):
        request.send_response(status)
        if location:
            request.send_header("Location", location)
        request.send_header("Content-Length", "0")
        request.end_headers()
