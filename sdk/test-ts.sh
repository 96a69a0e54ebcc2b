#!/usr/bin/env bash
# Tests of the TypeScript SDK. Needs Node 20 or later with npm, FUSE, and a built agentvfs.
#
#   sdk/test-ts.sh            builds and checks the package, runs its tests and those of agentfs-sdk's API
#   sdk/test-ts.sh quick      without the file of 1 GiB and without what needs other packages than TypeScript
#   sdk/test-ts.sh examples   the examples against a mock of a model's API; installs their packages (400 MB)
#
# The program is $AGENTVFS_BIN, else target/debug/agentvfs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/typescript"

fail() {
    printf 'sdk/test-ts.sh: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

what=${1:-all}
case $#:$what in
[01]:all | 1:quick | 1:examples) ;;
*) fail "unknown arguments: $*" "sdk/test-ts.sh [quick|examples]" ;;
esac

AGENTVFS_BIN=$(realpath "${AGENTVFS_BIN:-../../target/debug/agentvfs}")
[ -x "$AGENTVFS_BIN" ] || fail "$AGENTVFS_BIN is not there" "cargo build --workspace --locked --bins, or set \$AGENTVFS_BIN"
command -v npm >/dev/null || fail "npm is not installed" "as root: apt-get install nodejs npm"
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || fail "node is older than 20" ""
export AGENTVFS_BIN
unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH AGENTVFS_SOCKET AGENTVFS_HOME

npm() { command npm --no-audit --no-fund --no-update-notifier --loglevel error "$@"; }

npm ci
node_modules/.bin/tsc -p tsconfig.json
node_modules/.bin/tsc -p test/tsconfig.json

if [ "$what" = examples ]; then
    exec ../examples/typescript/test.sh
fi
tests=(workspace faults agentfs steps events)
[ "$what" = quick ] || tests+=(large)
files=("${tests[@]/#/dist-test/}")
node --test --test-concurrency=1 "${files[@]/%/.test.js}"
[ "$what" != all ] || compat/run.sh
