"""The native module, implemented in Rust."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Protocol, TypeVar, final, type_check_only

from ._waiting import EventLoop
from .tools import Host, Served

__all__ = [
    "BUILTIN_TOOLS",
    "EFFORTS",
    "HOOK_EVENTS",
    "LENGTH_PREFIX_SIZE",
    "MAX_MESSAGE_SIZE",
    "PERMISSION_MODES",
    "SCHEMA_FILE_PREFIX",
    "SETTINGS",
    "SOCKET_FILE_PREFIX",
    "SOCKET_FILE_SUFFIX",
    "SOCKET_PERMISSIONS",
    "Call",
    "Conversation",
    "Documents",
    "Ending",
    "McpServer",
    "Model",
    "NatsTools",
    "RunningServer",
    "Scripted",
    "Session",
    "Stream",
    "Task",
    "__version__",
    "check_hook_event",
    "find_cli",
    "shutdown",
]

LENGTH_PREFIX_SIZE: int
MAX_MESSAGE_SIZE: int
SCHEMA_FILE_PREFIX: str
SOCKET_FILE_PREFIX: str
SOCKET_FILE_SUFFIX: str
SOCKET_PERMISSIONS: int
SETTINGS: Sequence[tuple[str, str, str]]
BUILTIN_TOOLS: Sequence[str]
HOOK_EVENTS: Sequence[str]
PERMISSION_MODES: Sequence[str]
EFFORTS: Sequence[str]
__version__: str

_T_contra = TypeVar("_T_contra", contravariant=True)

@type_check_only
class Done(Protocol[_T_contra]):
    """Called with the outcome of a task: a value or an exception."""

    def __call__(self, value: _T_contra | None, error: BaseException | None, /) -> None: ...

@final
class Task:
    """Work in the background; its outcome is delivered on the event loop."""

    def cancel(self) -> bool: ...

@final
class Call:
    """A call into Python: a tool call, a permission request, or a question to the user."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> bytes: ...
    @property
    def tool_use_id(self) -> str | None: ...
    @property
    def is_awaited(self) -> bool: ...
    @property
    def tool(self) -> Served: ...
    @property
    def is_wanted(self) -> bool: ...
    @property
    def client(self) -> tuple[str | None, str | None, str | None, int | None] | None: ...
    def answer(self, result: bytes) -> None: ...
    def fail(self, type_name: str, message: str) -> None: ...
    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...
    def ask(self, message: str, schema: bytes, place: EventLoop, done: Done[bytes]) -> Task: ...
    def on_cancel(self, callback: Callable[[], object]) -> bool: ...

@final
class Documents:
    """Tools over two folders, manuals (read-only) and a vault, or over a single folder of notes."""

    def __new__(
        cls,
        workspace: str | PathLike[str] | None = None,
        *,
        manuals: str | PathLike[str] | None = None,
        vault: str | PathLike[str] | None = None,
        daily: str | None = None,
        allow_file_scope: bool = False,
        read_only: bool = False,
        hard_max_sections: int | None = None,
        hard_max_chars: int | None = None,
        hard_max_copy_chars: int | None = None,
        log_level: Literal["error", "warn", "info"] | None = None,
        init: bool = False,
    ) -> Documents: ...
    @property
    def tool_names(self) -> list[str]: ...
    @property
    def manuals(self) -> Path: ...
    @property
    def vault(self) -> Path: ...

@final
class McpServer:
    """Any MCP server, a child process or a URL, whose tools a session offers in addition to its own."""

    def __new__(
        cls,
        *,
        command: str | PathLike[str] | None = None,
        args: Sequence[str | PathLike[str]] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        bearer: str | None = None,
        name: str | None = None,
        prefix: str | None = None,
        start_timeout: float | None = None,
    ) -> McpServer: ...
    @staticmethod
    def from_config(path: str | PathLike[str]) -> list[McpServer]: ...
    @property
    def name(self) -> str: ...
    def start(self, event_loop: EventLoop, done: Done[RunningServer]) -> Task: ...

@final
class NatsTools:
    """Tools that other hosts offer over NATS, for a session or a model in addition to its own."""

    def __new__(
        cls,
        url: str,
        *,
        credentials_file: str | PathLike[str] | None = None,
        nkey_file: str | PathLike[str] | None = None,
        root_certificates: str | PathLike[str] | None = None,
        client_certificate: tuple[str | PathLike[str], str | PathLike[str]] | None = None,
        inbox_prefix: str | None = None,
        prefix: str | None = None,
    ) -> NatsTools: ...
    @property
    def name(self) -> str: ...
    def start(self, event_loop: EventLoop, done: Done[RunningServer]) -> Task: ...

@final
class RunningServer:
    """A running server, or the tools of other machines."""

    @property
    def tool_names(self) -> list[str]: ...
    def stop(self, done: Done[None]) -> Task: ...
    def close(self) -> None: ...

@final
class Stream:
    """The events of a running request. Closing it ends the request."""

    def next(self, done: Done[list[bytes]]) -> Task: ...
    def interrupt(self) -> None: ...
    def close(self) -> None: ...

@final
class Conversation:
    """A conversation that stays open. Closing it stops the CLI."""

    def stream(self, prompt_json: bytes) -> Stream: ...
    @property
    def session_id(self) -> str | None: ...
    def set_model(self, model: str | None, done: Done[None]) -> Task: ...
    def set_permission_mode(self, mode: str, done: Done[None]) -> Task: ...
    def mcp_servers(self, done: Done[bytes]) -> Task: ...
    def context_usage(self, done: Done[bytes]) -> Task: ...
    def rewind_files(self, prompt_id: str, done: Done[None]) -> Task: ...
    def add(self, tool: Served) -> None: ...
    def remove(self, name: str) -> bool: ...
    def stop(self, done: Done[None]) -> Task: ...

@final
class Ending:
    """Ends a request early; its answer is what was received so far."""

    def __new__(cls) -> Ending: ...
    def now(self) -> None: ...

@final
class Model:
    """A model; each request has its own tools and callbacks."""

    def __new__(cls, config: bytes) -> Model: ...
    def request(self, host: Host, done: Done[bytes]) -> Task: ...
    def stream(self, host: Host, done: Done[Stream]) -> Task: ...
    def open(self, host: Host, done: Done[Conversation]) -> Task: ...
    def keep_warm(self, count: int, host: Host, done: Done[None]) -> Task: ...
    def interrupt(self) -> int: ...

@final
class Session:
    """Serves tools of this process on a socket."""

    def __new__(
        cls,
        host: Host,
        bridge: Path,
        directory: Path | None = None,
        name: str | None = None,
        names_dir: Path | None = None,
        server: bytes | None = None,
        park: int | None = None,
    ) -> Session: ...
    def add(self, tool: Served) -> None: ...
    def remove(self, name: str) -> bool: ...
    @property
    def socket_path(self) -> Path: ...
    @property
    def schema_path(self) -> Path: ...
    def mcp_config(self, name: str) -> bytes: ...
    def stop(self, done: Done[None]) -> Task: ...
    def close(self) -> None: ...

@final
class Scripted:
    """A scripted model server on loopback."""

    def __new__(cls, script: str | Callable[[bytes], str]) -> Scripted: ...
    @property
    def url(self) -> str: ...
    @property
    def environment(self) -> dict[str, str]: ...
    def requests(self) -> bytes: ...
    def overruns(self) -> int: ...
    def close(self) -> None: ...

def check_hook_event(event: str) -> None: ...
def find_cli(bundled: str | PathLike[str] | None) -> Path: ...
def shutdown() -> None: ...
