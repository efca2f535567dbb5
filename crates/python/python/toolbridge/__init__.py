"""Lets a model in the Claude Code CLI call functions inside your running Python process.

`ClaudeCodeModel` is a model for pydantic-ai; `Session` offers functions to a CLI that another program starts;
`Documents` are tools for both that copy text without showing it to the model; an `McpServer` is any other MCP
server, for both; `NatsTools` are tools of other machines, for both.
"""

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
from .callbacks import (
    Allow,
    CanUseTool,
    Decision,
    Deny,
    MessageCallback,
    PermissionRequest,
    PermissionRule,
    PermissionUpdate,
    StderrCallback,
)
from .cli_settings import BuiltinTool, Effort, HookEvent, PermissionMode
from .client import Client, current_client
from .conversation import Conversation, ConversationResponse, McpServerStatus
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
from .hooks import Hook, HookAnswer, HookCall, HookFunction, HookOutput
from .model import ClaudeCodeModel
from .progress import report_progress
from .prompt import portable_history
from .questions import Action, Answer, AskRequest, OnAsk, ask, ask_sync
from .response import CLIResponse, CLIUsage, RequestWithMetadata
from .session import Session, ToolHints
from .setting_types import Sandbox, SandboxNetwork, Subagent, Thinking
from .settings import DEFAULT_TRANSPORT, ClaudeCodeModelSettings, ServerInfo, TransportType
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
    "ClaudeCodeError",
    "ClaudeCodeModel",
    "ClaudeCodeModelSettings",
    "Client",
    "Conversation",
    "ConversationResponse",
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
    "portable_history",
    "read_only",
    "report_progress",
]
