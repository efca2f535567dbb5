"""Lets a model in the Claude Code CLI call functions inside your running Python process.

`ClaudeCodeModel` is a model for pydantic-ai; `Session` offers functions to a CLI that somebody else starts;
`Documents` are tools for either that move text without showing it to the model.
"""

from ._native import Documents, __version__
from .answer import CLIResponse, CLIUsage, RequestWithMetadata
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
    StructuredOutputError,
    ToolNotFoundError,
    ToolsetNotRegisteredError,
)
from .model import ClaudeCodeModel
from .permission import Allow, CanUseTool, Decision, Deny, PermissionRequest
from .progress import report_progress
from .session import Session
from .settings import DEFAULT_TRANSPORT, ClaudeCodeModelSettings, PermissionMode, TransportType
from .teller import MessageCallback
from .tools import Toolsets, read_only

__all__ = [
    "DEFAULT_TRANSPORT",
    "Allow",
    "BridgeStartupError",
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
    "Decision",
    "Deny",
    "Documents",
    "IPCConnectionError",
    "IPCError",
    "IPCMessageSizeError",
    "IPCToolExecutionError",
    "InvalidRequestError",
    "MessageCallback",
    "PermissionMode",
    "PermissionRequest",
    "RequestWithMetadata",
    "Session",
    "StructuredOutputError",
    "ToolNotFoundError",
    "ToolsetNotRegisteredError",
    "Toolsets",
    "TransportType",
    "__version__",
    "read_only",
    "report_progress",
]
