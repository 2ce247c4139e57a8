"""A local server of one folder with cross-origin isolation: `python -m mirlo_npm.server FOLDER [--port N]`.

A page whose answer has these headers, and whose files have them too, may share memory between threads.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

HEADERS = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}


class IsolatedHandler(http.server.SimpleHTTPRequestHandler):
    """Answers with files of a folder, and the headers of isolated pages."""

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def served(folder: Path, handler: type[http.server.SimpleHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Serve a folder in a thread; yield its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", port), functools.partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="mirlo_npm.server", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"there is no folder {arguments.folder}")
    with served(arguments.folder, IsolatedHandler, arguments.port) as address:
        print(f"{address}/demo.html: Ctrl-C ends the server", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
