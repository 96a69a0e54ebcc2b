#!/usr/bin/env bash
# Tests of the SDKs.
#
#   sdk/test.sh           the Python client's own tests, against $AGENTVFS_BIN (target/debug/agentvfs); no network
#   sdk/test.sh types     mypy --strict and ruff, in an environment that is made for it (PyPI)
#   sdk/test.sh long      agentfs-sdk's own tests on agentvfs and on itself, with times; the examples (PyPI)
#
# Settings: PYTHON (python3), AGENTFS_ROUNDS (how often both are timed; 3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
sdk=$PWD
python=${PYTHON:-python3}
export AGENTVFS_BIN=${AGENTVFS_BIN:-$sdk/../target/debug/agentvfs}
export PYTHONDONTWRITEBYTECODE=1

MYPY=1.18.2 RUFF=0.14.5
PYTEST=9.0.1 PYTEST_ASYNCIO=1.3.0
AGENTFS=0.6.4 PYTURSO=0.4.4
# How many tests that release has, and how much longer than on itself they may take here, in percent.
AGENTFS_TESTS=131 AGENTFS_PERCENT_MAX=150

fail() { printf 'sdk/test.sh: %s\n' "$1" >&2; exit 1; }

[ -x "$AGENTVFS_BIN" ] || fail "there is no $AGENTVFS_BIN: build it, or set AGENTVFS_BIN"
work=$(mktemp -d)
trap 'end' EXIT

# Ends the daemons of homes in $work.
end() {
    local home
    for home in "$work"/home*; do
        [ -e "$home/daemon.sock" ] || continue
        "$AGENTVFS_BIN" --root "$home" list | cut -f1 | while read -r name; do
            "$AGENTVFS_BIN" --root "$home" stop "$name" --force --no-checkpoint >/dev/null || true
        done
        "$python" - "$home" <<'END' || true
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as stream:
    stream.connect(sys.argv[1] + "/daemon.sock")
    stream.sendall(b'{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1,"client":"sdk/test.sh"}}\n')
    os.kill(json.loads(stream.makefile().readline())["result"]["pid"], signal.SIGTERM)
END
    done
    rm -rf --one-file-system "$work"
}

# environment NAME PACKAGE...
environment() {
    "$python" -m venv "$work/$1"
    "$work/$1/bin/pip" install --quiet --disable-pip-version-check "${@:2}"
}

own() {
    PYTHONPATH="$sdk/python/src:$sdk/python/tests" "$python" -m unittest discover -s python/tests
}

types() {
    environment types "mypy==$MYPY" "ruff==$RUFF"
    (cd python && "$work/types/bin/mypy" --cache-dir "$work/mypy")
    (cd python-agentfs && "$work/types/bin/mypy" --cache-dir "$work/mypy-agentfs")
    "$work/types/bin/ruff" check --no-cache --config python/pyproject.toml python python-agentfs examples/python
}

# timed PYTHON: milliseconds that agentfs-sdk's tests take; fails unless all of them pass.
timed() {
    local log=$work/log start=$EPOCHREALTIME
    "$1" -m pytest --quiet -p no:cacheprovider -o asyncio_mode=auto --rootdir "$work/agentfs" "$work/agentfs/tests" \
        >"$log" 2>&1 || { cat "$log" >&2; fail "agentfs-sdk's tests fail"; }
    grep -q "^$AGENTFS_TESTS passed" "$log" || { tail -3 "$log" >&2; fail "not $AGENTFS_TESTS tests passed"; }
    echo $(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
}

# agentfs-sdk's own tests, unchanged, on agentvfs and on itself in turn; the least of each counts.
agentfs() {
    local ours=0 theirs=0 took
    environment stock "agentfs-sdk==$AGENTFS" "pyturso==$PYTURSO" "pytest==$PYTEST" "pytest-asyncio==$PYTEST_ASYNCIO"
    # As a user has them: built and installed.
    cp -r python python-agentfs "$work"
    environment ours "pytest==$PYTEST" "pytest-asyncio==$PYTEST_ASYNCIO" "$work/python" "$work/python-agentfs"
    "$work/ours/bin/pip" check --disable-pip-version-check
    "$work/stock/bin/pip" download --quiet --disable-pip-version-check --no-binary :all: --no-deps --dest "$work" \
        "agentfs-sdk==$AGENTFS"
    mkdir "$work/agentfs"
    tar xzf "$work/agentfs_sdk-$AGENTFS.tar.gz" --strip-components=1 -C "$work/agentfs"
    rm -r "$work/agentfs/agentfs_sdk" # Else it would be found before what is installed.
    for ((round = 0; round < ${AGENTFS_ROUNDS:-3}; round++)); do
        took=$(AGENTVFS_HOME=$work/home$round timed "$work/ours/bin/python")
        ((ours == 0 || took < ours)) && ours=$took
        took=$(timed "$work/stock/bin/python")
        ((theirs == 0 || took < theirs)) && theirs=$took
    done
    printf 'agentfs-sdk %s: %d of %d tests on agentvfs, %d ms; on itself %d ms; %d %%\n' \
        "$AGENTFS" "$AGENTFS_TESTS" "$AGENTFS_TESTS" "$ours" "$theirs" $((100 * ours / theirs))
    ((100 * ours <= AGENTFS_PERCENT_MAX * theirs)) || fail "more than $AGENTFS_PERCENT_MAX % of the time"
}

examples() {
    cp -r python "$work/client"
    environment examples -r examples/python/requirements.txt "$work/client"
    (cd examples/python && "$work/examples/bin/python" -m unittest test_examples)
}

case "${1:-}" in
    '') own ;;
    types) types ;;
    long)
        agentfs
        examples
        ;;
    *) fail "unknown part $1" ;;
esac
