"""How the servers in Python are served over HTTP: by uvicorn, which both packages use."""

import json
import os
import socket
import sys
import threading
from typing import Any

import uvicorn


def serve(app: Any) -> None:
    """Serves at a free port of this machine, says where, and ends this process with its stdin."""
    # With its protocol named: else asyncio does not switch Nagle's algorithm off, and every answer waits for 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    threading.Thread(target=end_with_stdin, daemon=True).start()
    print(json.dumps({"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"}), flush=True)
    # A connection waits for its turn longer than the five seconds that it would have.
    config = uvicorn.Config(app, log_level="error", access_log=False, timeout_keep_alive=600)
    uvicorn.Server(config).run([listener])


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
