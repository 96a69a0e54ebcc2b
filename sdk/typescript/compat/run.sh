#!/usr/bin/env bash
# agentfs-sdk's API: our tests of its calls, and its own tests for just-bash, each against agentvfs and agentfs-sdk itself.
# Run by sdk/test-ts.sh, which has built the package; $AGENTVFS_BIN is the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Not `npm ci`, which wants packages for all platforms in the lock file; the versions are those of it all the same.
command npm install --no-save --no-audit --no-fund --no-update-notifier --loglevel error
tmp=$(mktemp -d)
export AGENTVFS_HOME=$tmp/home
end() {
    "$AGENTVFS_BIN" list --json 2>/dev/null | node -e '
        const { workspaces } = JSON.parse(fs.readFileSync(0, "utf8"));
        for (const { name } of workspaces) console.log(name);' |
        while read -r name; do
            "$AGENTVFS_BIN" stop "$name" --force >/dev/null 2>&1 || true
            "$AGENTVFS_BIN" delete "$name" --yes >/dev/null 2>&1 || true
        done
    rm -rf --one-file-system "$tmp"
}
trap end EXIT

# api NAME PACKAGE
api() {
    local start=$EPOCHREALTIME
    AGENTFS_IMPL=$2 node --test --test-reporter=tap api.test.mjs >"$tmp/$1" 2>&1 || { grep -v '^ok\|^#' "$tmp/$1"; exit 1; }
    awk -v name="$1" -v from="$start" -v to="$EPOCHREALTIME" '
        /^# pass/ { pass = $3 } /^# tests/ { all = $3 }
        END { printf "api %s: %d of %d in %d ms\n", name, pass, all, (to - from) * 1000 }' "$tmp/$1"
}

api agentvfs agentvfs/agentfs
api agentfs-sdk agentfs-sdk
node --test bash.test.mjs >"$tmp/bash" 2>&1 || { cat "$tmp/bash"; exit 1; }
./just-bash.sh
