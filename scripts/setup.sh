#!/bin/sh
# Makes the virtual environment named by $1 and installs the package into it.
set -eu
venv=$1
python=${PYTHON:-python3}

fail() { echo "setup: $*" >&2; exit 2; }
as_root_on_debian() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

command -v "$python" >/dev/null || fail "$python not found: install Python 3.11 or newer"
"$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' ||
  fail "$("$python" --version) is too old: Python 3.11 or newer is needed (make PYTHON=/path/to/python3.11)"

missing=
command -v git >/dev/null || missing="$missing git"
"$python" -c 'import ensurepip' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
  as_root_on_debian || fail "missing:$missing; install them with your system's package manager"
  echo "setup: installing$missing"
  apt-get update -qq
  # shellcheck disable=SC2086  # a list of package names
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing the package and its dependencies into $venv (a few minutes the first time)"
# Pip's own output is kept back unless it fails: its progress for 60 packages hides what matters.
log=$venv/setup.log
if ! "$venv/bin/pip" install --disable-pip-version-check -c constraints.txt -e '.[dev]' >"$log" 2>&1; then
  tail -20 "$log" >&2
  fail "pip could not install the dependencies; the whole log is $log"
fi
echo "setup: done"
