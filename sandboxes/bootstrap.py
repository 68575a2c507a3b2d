"""How the tool server's code gets into a sandbox: zipped, as the first bytes of the stream.

So any image with `python3` (3.8 or newer) serves, and nothing is mounted or copied.
"""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from agent_runtime import tools

# argv: workspace, scratch directory, output cap, owner's pid or 0. `-I -S`: neither the user's files nor
# site-packages are looked at, which also saves 10 ms.
PROGRAM = """
import os, sys
def read(size):
    data = b""
    while len(data) < size:
        piece = os.read(0, size - len(data))
        if not piece:
            sys.exit(0)
        data += piece
    return data
root, tmp, output_cap, owner = sys.argv[1:]
package = os.path.join(tmp, "agent-runtime-tools.zip")
with open(package, "wb") as file:
    file.write(read(int.from_bytes(read(4), "big")))
sys.path.insert(0, package)
from agent_runtime.tools.server import main
main([root, tmp, package, output_cap, owner])
"""


def command(python: str, workspace: str, tmp: str, output_cap: int, owner_pid: int) -> list[str]:
    """The command line of a tool server that waits for `package()` on its stdin."""
    return [python, "-I", "-S", "-c", PROGRAM, workspace, tmp, str(output_cap), str(owner_pid)]


@functools.cache
def package() -> bytes:
    """The length and the zip of `agent_runtime.tools`, alone in an otherwise empty `agent_runtime`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("agent_runtime/__init__.py", "")
        for path in sorted(Path(tools.__path__[0]).glob("*.py")):
            archive.writestr(f"agent_runtime/tools/{path.name}", path.read_bytes())
    return len(buffer.getvalue()).to_bytes(4, "big") + buffer.getvalue()
