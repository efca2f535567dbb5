"""Lets a model in the Claude Code CLI call functions inside your running Python process.

`ClaudeCodeModel` is a model for pydantic-ai; `Session` offers functions to a CLI that another program starts;
`Documents` are tools for both that copy text without showing it to the model; an `McpServer` is any other MCP
server, for a session; `NatsTools` are tools of other machines, for both. pydantic-ai also finds the model by
names such as `claude-code:sonnet`; see `model_names`.
"""

from . import model_names
from ._executable import find_cli
from ._native import (
    LENGTH_PREFIX_SIZE,
    MAX_MESSAGE_SIZE,
    SCHEMA_FILE_PREFIX,
    SOCKET_FILE_PREFIX,
    SOCKET_FILE_SUFFIX,
    SOCKET_PERMISSIONS,
    Documents,
    McpServer,
    NatsTools,
    __version__,
)
from .answer import CLIResponse, CLIUsage, RequestWithMetadata
from .callbacks import (
    Allow,
    CanUseTool,
    Decision,
    Deny,
    MessageCallback,
    PermissionMode,
    PermissionRequest,
    PermissionRule,
    PermissionUpdate,
    StderrCallback,
)
from .chat import Chat, ChatAnswer, McpServerStatus
from .client import Client, current_client
from .conversation import portable_history
from .errors import (
    BridgeStartupError,
    ClaudeCodeError,
    CLIExecutionError,
    CLIInterruptedError,
    CLINotFoundError,
    CLIResponseParseError,
    InvalidRequestError,
    IPCConnectionError,
    IPCError,
    IPCMessageSizeError,
    IPCToolExecutionError,
    McpServerError,
    NatsError,
    QuestionError,
    StructuredOutputError,
    ToolNotFoundError,
    ToolsetNotRegisteredError,
)
from .failure import ToolErrors
from .hooks import Hook, HookAnswer, HookCall, HookEvent, HookFunction, HookOutput
from .model import ClaudeCodeModel
from .progress import report_progress
from .questions import Action, Answer, AskRequest, OnAsk, ask, ask_sync
from .server_info import ServerInfo
from .session import Session, ToolHints
from .settings import (
    DEFAULT_TRANSPORT,
    BuiltinTool,
    ClaudeCodeModelSettings,
    Effort,
    Sandbox,
    SandboxNetwork,
    Subagent,
    Thinking,
    TransportType,
)
from .tools import Toolsets, read_only

__all__ = [
    "DEFAULT_TRANSPORT",
    "LENGTH_PREFIX_SIZE",
    "MAX_MESSAGE_SIZE",
    "SCHEMA_FILE_PREFIX",
    "SOCKET_FILE_PREFIX",
    "SOCKET_FILE_SUFFIX",
    "SOCKET_PERMISSIONS",
    "Action",
    "Allow",
    "Answer",
    "AskRequest",
    "BridgeStartupError",
    "BuiltinTool",
    "CLIExecutionError",
    "CLIInterruptedError",
    "CLINotFoundError",
    "CLIResponse",
    "CLIResponseParseError",
    "CLIUsage",
    "CanUseTool",
    "Chat",
    "ChatAnswer",
    "ClaudeCodeError",
    "ClaudeCodeModel",
    "ClaudeCodeModelSettings",
    "Client",
    "Decision",
    "Deny",
    "Documents",
    "Effort",
    "Hook",
    "HookAnswer",
    "HookCall",
    "HookEvent",
    "HookFunction",
    "HookOutput",
    "IPCConnectionError",
    "IPCError",
    "IPCMessageSizeError",
    "IPCToolExecutionError",
    "InvalidRequestError",
    "McpServer",
    "McpServerError",
    "McpServerStatus",
    "MessageCallback",
    "NatsError",
    "NatsTools",
    "OnAsk",
    "PermissionMode",
    "PermissionRequest",
    "PermissionRule",
    "PermissionUpdate",
    "QuestionError",
    "RequestWithMetadata",
    "Sandbox",
    "SandboxNetwork",
    "ServerInfo",
    "Session",
    "StderrCallback",
    "StructuredOutputError",
    "Subagent",
    "Thinking",
    "ToolErrors",
    "ToolHints",
    "ToolNotFoundError",
    "ToolsetNotRegisteredError",
    "Toolsets",
    "TransportType",
    "__version__",
    "ask",
    "ask_sync",
    "current_client",
    "find_cli",
    "model_names",
    "portable_history",
    "read_only",
    "report_progress",
]

model_names.register()
