"""Serve a folder as any web server does. Used by tests/browser."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *arguments: object, broken: str | None, **more: object) -> None:
        self._broken = broken
        super().__init__(*arguments, **more)

    def copyfile(self, source: BinaryIO, outputfile: BinaryIO) -> None:
        if self._broken is not None and self.path == f"/{self._broken}":
            outputfile.write(source.read(1000))  # less than its Content-Length
        else:
            super().copyfile(source, outputfile)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def serve_folder(folder: Path, *, broken: str | None = None) -> Iterator[str]:
    """Yield the address of the folder while it is served; the connection of one file may break."""
    handler = partial(_Handler, directory=str(folder), broken=broken)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
