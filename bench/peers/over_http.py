"""Serves the Python servers over HTTP with uvicorn, which both packages use."""

import json
import os
import socket
import sys
import threading
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    """Serves on a free port of this machine, prints the URL, and exits when stdin ends."""
    # With an explicit protocol: otherwise asyncio does not disable Nagle's algorithm, and every answer waits 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
    # Connections are idle for longer than the default of five seconds.
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_keep_alive=600)
    uvicorn.Server(config).run([listener])


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
