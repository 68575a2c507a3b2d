"""The environment of everything that runs in a sandbox."""

from __future__ import annotations

ENVIRONMENT = {
    # Nothing waits for a key press or a password: there is no terminal and stdin is empty.
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "TERM": "dumb",
    "NO_COLOR": "1",
    # Output is the same on every machine.
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "COLUMNS": "100",
    # What comes out of a sandbox is what was edited in it.
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
}
