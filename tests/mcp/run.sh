#!/usr/bin/env bash
# `agentvfs serve mcp` with clients that others wrote: the packages mcp from PyPI and @modelcontextprotocol/sdk from
# npm; some seconds once they are installed.
#
#   tests/mcp/run.sh
#
# The binary is $AGENTVFS_BIN, else target/debug/agentvfs, which is built. The packages of
# requirements.txt and package-lock.json are installed, at the versions they name, into target/mcp and
# target/mcp-npm. Needs Python 3.10 or later with venv, and Node 18 or later with npm, which are installed where they
# are missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
venv=$target/mcp
node=$target/mcp-npm

fail() {
    printf 'mcp: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

# shellcheck source=/dev/null
. "$repository/.ci/packages.sh"

install_python() {
    python3 -c 'import ensurepip, sys; assert sys.version_info >= (3, 10)' 2>/dev/null && return
    need /usr/share/doc/python3-venv:python3-venv
    python3 -c 'import ensurepip, sys; assert sys.version_info >= (3, 10)' 2>/dev/null ||
        fail "Python 3.10 or later with venv is needed" "install it by other means"
}

install_node() {
    need node:nodejs npm:npm
    node -e 'process.exit(Number(process.versions.node.split(".")[0]) >= 18 ? 0 : 1)' ||
        fail "Node 18 or later is needed" "install it by other means"
}

install_node_packages() {
    mkdir -p "$node"
    cp "$here/client.mjs" "$here/package.json" "$node"
    cmp -s "$here/package-lock.json" "$node/installed" && return
    cp "$here/package-lock.json" "$node"
    (cd "$node" && npm ci --ignore-scripts --no-audit --no-fund --silent)
    cp "$here/package-lock.json" "$node/installed"
}

install_packages() {
    cmp -s "$here/requirements.txt" "$venv/installed" && return
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed"
}

take_down() {
    cd /
    "$agentvfs" workspace stop mcp --force --no-checkpoint >/dev/null 2>&1 || true
    for _ in $(seq 100); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf --one-file-system "$scratch"
}

agentvfs=${AGENTVFS_BIN:-$target/debug/agentvfs}
[ -n "${AGENTVFS_BIN:-}" ] || (cd "$repository" && cargo build --quiet --locked --bin agentvfs)
install_python
install_packages
install_node
install_node_packages
scratch=$(mktemp -d)
export AGENTVFS_HOME=$scratch/home
unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH
trap take_down EXIT
mkdir -p "$scratch/project/src"
printf 'a project\n' >"$scratch/project/README"
printf 'fn main() {}\n' >"$scratch/project/src/main.rs"
"$agentvfs" workspace start mcp --from "$scratch/project" --mount "$scratch/m" >/dev/null

timeout 300 "$venv/bin/python" "$here/client.py" "$agentvfs" "$scratch/m"
timeout 300 node "$node/client.mjs" "$agentvfs" "$venv/bin/python" "$here/odd.py" "$scratch/m"
