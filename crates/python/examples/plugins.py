"""A program whose functions come and go: each module in a folder is a plugin, which the model loads.

It prints a config for `claude --mcp-config`, and ends with its stdin.

python plugins.py FOLDER
"""

import inspect
import json
import sys
from pathlib import Path
from types import ModuleType

from toolbridge import Session

session = Session(instructions="More functions are in plugins. `load_plugin` loads one.")
loaded: dict[str, list[str]] = {}


@session.tool
def load_plugin(name: str) -> str:
    """Loads a plugin; from then on its functions can be called."""
    plugins = {path.stem: path for path in Path(sys.argv[1]).glob("*.py")}
    if name not in plugins or name in loaded:
        raise ValueError(
            f"`{name}` cannot be loaded; there are {sorted(plugins)}, loaded are {sorted(loaded)}"
        )
    module = ModuleType(name)
    exec(compile(plugins[name].read_text(), plugins[name], "exec"), vars(module))
    loaded[name] = []
    for _, function in inspect.getmembers(module, inspect.isfunction):
        if function.__module__ == name and not function.__name__.startswith("_"):
            session.add(function)
            loaded[name].append(function.__name__)
    return f"loaded: {', '.join(loaded[name])}"


@session.tool
def unload_plugin(name: str) -> str:
    """Unloads a plugin."""
    return f"unloaded: {', '.join(one for one in loaded.pop(name, []) if session.remove(one))}"


with session:
    print(json.dumps(session.mcp_config("tools")), flush=True)
    sys.stdin.read()
