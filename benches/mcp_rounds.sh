#!/usr/bin/env bash
# Round trips through `agentvfs serve mcp`, beside the same work in AgentFS's Python SDK.
#
#   benches/mcp_rounds.sh [CALLS]     how many of each kind; 500 without it
#
# The binary is $AGENTVFS_BIN, else target/release/agentvfs, which is built. Packages of PyPI, at fixed
# versions, are installed into target/mcp-bench. Nothing else should run meanwhile.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/.." && pwd)
target=${CARGO_TARGET_DIR:-$repository/target}
venv=$target/mcp-bench

agentvfs=${AGENTVFS_BIN:-$target/release/agentvfs}
[ -n "${AGENTVFS_BIN:-}" ] ||
    (cd "$repository" && cargo --quiet program)
if [ ! -e "$venv/installed" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --requirement "$repository/tests/mcp/requirements.txt" agentfs-sdk==0.6.4 pyturso==0.4.4
    touch "$venv/installed"
fi
scratch=$(mktemp -d)
export AGENTVFS_HOME=$scratch/home
unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH
take_down() {
    cd /
    "$agentvfs" workspace stop mcp --force --no-checkpoint >/dev/null 2>&1 || true
    for _ in $(seq 100); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf "$scratch"
}
trap take_down EXIT
mkdir "$scratch/project"
"$agentvfs" workspace start mcp --from "$scratch/project" >/dev/null
"$venv/bin/python" "$here/mcp_rounds.py" "$agentvfs" "$scratch/agentfs.db" "${1:-500}"
