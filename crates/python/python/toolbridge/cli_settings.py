"""Settings of the CLI: tests/test_cli_settings.py makes this file from the table in Rust."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

# pydantic, which checks the settings, needs this one before Python 3.12.
from typing_extensions import TypedDict

from .setting_types import Count, Sandbox, Subagent, Thinking

Effort: TypeAlias = Literal[
    "low", "medium", "high", "xhigh", "max",
]
"""How much effort a model spends on its answer."""

PermissionMode: TypeAlias = Literal[
    "default", "acceptEdits", "plan", "bypassPermissions", "dontAsk", "auto",
]
"""How the CLI handles tools that no rule allows."""

HookEvent: TypeAlias = Literal[
    "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch", "UserPromptSubmit",
    "UserPromptExpansion", "Stop", "StopFailure", "MessageDisplay", "SubagentStart", "SubagentStop",
    "PreCompact", "PostCompact", "Notification", "PermissionRequest", "PermissionDenied", "Elicitation",
    "ElicitationResult", "ConfigChange", "InstructionsLoaded", "TaskCreated", "TaskCompleted",
    "WorktreeCreate",
]
"""An event in the CLI that a hook can be called for."""

BuiltinTool: TypeAlias = Literal[
    "default", "Agent", "AgentOutputTool", "Artifact", "AskUserQuestion", "Bash", "BashOutput", "Brief",
    "ClaudeDesign", "Config", "CronCreate", "CronDelete", "CronList", "DesignSync", "Edit",
    "EndConversation", "EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep",
    "JavaScript", "KillBash", "KillShell", "LS", "LSP", "ListAgents", "ListMcpResources",
    "ListMcpResourcesTool", "Monitor", "MultiEdit", "NotebookEdit", "NotebookRead", "OfferChromeSetup",
    "PowerShell", "Projects", "ProposeGoal", "PushNotification", "REPL", "Read", "ReadMcpResource",
    "ReadMcpResourceDirTool", "ReadMcpResourceTool", "ReadNotifications", "RemoteTrigger", "ReportFindings",
    "ScheduleWakeup", "SendFeedback", "SendMessage", "SendUserFile", "SendUserMessage",
    "ShareOnboardingGuide", "ShowOnboardingRolePicker", "Skill", "SlashCommand", "StructuredOutput",
    "SubagentHandback", "SubscribePR", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput",
    "TaskStop", "TaskUpdate", "TeamCreate", "TeamDelete", "TodoRead", "TodoWrite", "ToolSearch",
    "WaitForMcpServers", "WebFetch", "WebSearch", "Workflow", "Write", "propose_skills",
]
"""A tool of the CLI's own; `default` is its usual set."""


class CLISettings(TypedDict, total=False):
    """Settings of the CLI."""

    claude_code: bool
    """Enables all of Claude Code: its built-in tools and system prompt, settings files, `CLAUDE.md`,
    memories, skills, hooks, the MCP servers of the user and the project, and transcripts on disk. By default
    a model has none of these. Prompts stay plain text; see `expand_prompts`."""
    claude_code_expand_prompts: bool
    """Whether the CLI expands prompts: it then reads files named with `@`, and treats a prompt that begins
    with `/` as a command. By default a prompt is plain text. Never enable this for untrusted prompts."""
    claude_code_coding_prompt: bool
    """Uses the CLI's own system prompt, which is for coding, if no `system_prompt` is set."""
    claude_code_cli_settings: Mapping[str, Any]
    """Settings for the CLI: an object as in its settings files."""
    claude_code_fallback_model: str
    """The model to use if the first one is overloaded or unavailable; several are separated by commas."""
    claude_code_effort: Effort
    """How much effort the model spends on its answer."""
    claude_code_thinking: Thinking
    """Whether the model thinks before it answers."""
    claude_code_task_budget: Count
    """Tells the model how many tokens it has for the whole request, so that it finishes in time."""
    claude_code_betas: Sequence[str]
    """Names of the API's beta features. The CLI sends them only with an API key."""
    claude_code_client_app: str
    """The name of your program in requests to the API, such as `shop/1.2`."""
    claude_code_working_directory: str | os.PathLike[str]
    """The CLI's working directory. By default it is an empty one, or that of this process if the CLI needs
    one: for built-in tools, settings files, stored conversations, or other servers."""
    claude_code_add_dirs: Sequence[str | os.PathLike[str]]
    """More directories that the CLI's tools may access."""
    claude_code_timeout_counts_tools: bool
    """Whether the timeout includes the time in which the CLI waits for functions of this process: tools,
    hooks, `can_use_tool`. By default it does not, so tools have no limit here."""
    claude_code_allowed_tools: Sequence[str]
    """Allows tools by the CLI's rules, such as `Read` or `Bash(git log *)`. They run without asking for
    permission; other tools stay available."""
    claude_code_disallowed_tools: Sequence[str]
    """Denies tools by the CLI's rules."""
    claude_code_builtin_tools: Sequence[BuiltinTool | str]
    """The built-in tools offered to the model, such as `Read`; `default` means the CLI's usual ones. There
    are none by default."""
    claude_code_skills: Sequence[str] | Literal["all"]
    """The skills that the model may use; this also offers the tool for skills. They come from
    `setting_sources`, from `plugins`, and from the CLI itself."""
    claude_code_plugins: Sequence[str | os.PathLike[str]]
    """Directories with plugins: skills, agents, hooks, commands and MCP servers, which are all enabled. With
    `strict_mcp_config` the plugins' servers are ignored."""
    claude_code_sandbox: Sandbox
    """Runs the commands of the CLI's tool `Bash` in a sandbox."""
    claude_code_strict_mcp_config: bool
    """Whether only the MCP servers given here exist, or also those of the user's and the project's
    configuration. True by default, unless `claude_code` is set."""
    claude_code_allow_own_tools: bool
    """Whether the tools of this process run without asking for permission. They do by default, unless
    `can_use_tool` is set."""
    claude_code_enable_file_checkpointing: bool
    """Makes the CLI back up files before its tools change them, so that `rewind_files` can restore them. The
    conversation must be kept."""
    claude_code_permission_mode: PermissionMode
    """How the CLI handles tools that no rule allows."""
    claude_code_max_turns: Count
    """Limits the number of turns, which are requests to the model."""
    claude_code_max_budget_usd: float
    """Limits the cost of a request, in US dollars."""
    claude_code_system_prompt: str
    """The system prompt. There is none by default."""
    claude_code_append_system_prompt: str
    """Text appended to the system prompt."""
    claude_code_exclude_dynamic_sections: bool
    """Moves user-specific content, such as the directory, from the CLI's own system prompt to the first
    prompt, so that users can share the API's cache of the system prompt."""
    claude_code_system_prompt_snapshot: bool
    """Whether a conversation keeps its original system prompt even when resumed with another one; true by
    default in the CLI."""
    claude_code_keep_session: bool
    """Whether the CLI stores the conversation on disk, so that it can be resumed. By default each request is
    a new conversation that is not stored. A request that sets this or one of the next four settings takes
    none of the five from its model."""
    claude_code_session_id: str
    """The id, a UUID, of the new conversation, which is stored; chosen by the CLI if not set. With
    `fork_session` it is the id of the copy."""
    claude_code_continue_conversation: bool
    """Continues the latest conversation of the working directory."""
    claude_code_resume: str
    """Continues the conversation with this id, the session id in a response."""
    claude_code_fork_session: bool
    """Continues in a copy with a new id; the old conversation stays as it is."""
    claude_code_resume_session_at: str
    """Continues after the message with this id and drops later ones, in a conversation that is resumed."""
    claude_code_resume_drops_turn: str
    """With `resume_session_at`: the id of the prompt that is dropped together with its answer. It is an error
    if anything else would be dropped."""
    claude_code_setting_sources: Sequence[str]
    """The settings files that the CLI reads (`user`, `project`, `local`), with the `CLAUDE.md`, skills,
    agents and hooks that belong to them. By default it reads none."""
    claude_code_include_hook_events: bool
    """Makes the CLI report when hooks begin and end, in its messages."""
    claude_code_forward_subagent_text: bool
    """Makes the CLI report text and thinking of subagents too, not only their tool calls, in its messages."""
    claude_code_extra_args: Sequence[str]
    """More command-line arguments for the CLI, after all others."""
    claude_code_env: Mapping[str, str]
    """Variables in the CLI's environment."""
    claude_code_mcp_servers: Mapping[str, Mapping[str, Any]]
    """More MCP servers, as in the CLI's `mcpServers`."""
    claude_code_agents: Mapping[str, Subagent]
    """Agents that the model may start, by name; it gets the tool to start them. They have only the tools that
    they are given."""
