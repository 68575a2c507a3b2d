"""What runs inside the sandbox: the tool server and the built-in tools.

Standard library only, Python 3.8 or newer; imports nothing of `agent_runtime` outside this folder. The folder is
zipped and sent through the container's stdin, so any image with `python3` serves.

The contract of a built-in tool
-------------------------------
- A module-level typed function `def search(workspace: Workspace, pattern: str, ...) -> Outcome`. Its signature
  gives the JSON Schema, its docstring the description; `workspace` is given by the server and is no parameter.
- It is listed in `registry.TOOLS` as `ToolEntry(function, inline, reads_only)`. Inline tools run in the server's
  own process and must end within a few milliseconds (they hold up every other call); the others are forked into a
  session of their own, and everything that they started is dead before the reply is sent.
- It returns `Outcome`, also for what went wrong: `failure(kind, message)`. An exception that escapes is a bug and
  is reported as `error.kind == "internal"`.
- Paths: through `workspace.resolve(path)`, which refuses what leads out of the workspace, symlinks included.
- Commands: through `command.run_command`, which gives empty stdin, no terminal, bytes capped at the source with
  the total told, the rest spilled to a file, and everything dead at `workspace.deadline`.
- Modules are imported once, before the first call: import at the top, never inside a function. The zip stays on
  disk at `workspace.package`, so that a subprocess may import from it (`PYTHONPATH`).
- Annotations stay Python 3.8: `from __future__ import annotations`, no `match`, no `X | Y` at run time.
"""
