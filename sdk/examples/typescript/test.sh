#!/usr/bin/env bash
# The examples against a mock of a model, and what must have come of them in the workspace. Installs their packages;
# sdk/typescript must be built. $AGENTVFS_BIN is the program.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# Not `npm ci`, which wants packages for all platforms in the lock file; the versions are those of it all the same.
command npm install --no-save --no-audit --no-fund --no-update-notifier --loglevel error
../../typescript/node_modules/.bin/tsc -p tsconfig.json

tmp=$(mktemp -d)
export AGENTVFS_HOME=$tmp/home OPENAI_API_KEY=none MODEL=mock
mock=
end() {
    [ -z "$mock" ] || kill "$mock" 2>/dev/null || true
    for name in vercel mastra; do
        "$AGENTVFS_BIN" stop "$name" --force >/dev/null 2>&1 || true
        "$AGENTVFS_BIN" delete "$name" --yes >/dev/null 2>&1 || true
    done
    rm -rf --one-file-system "$tmp"
}
trap end EXIT

# play SCRIPT: starts the mock with these turns.
play() {
    [ -z "$mock" ] || kill "$mock"
    rm -f "$tmp/url"
    printf '%s' "$1" >"$tmp/script.json"
    node mock.mjs "$tmp/script.json" >"$tmp/url" &
    mock=$!
    until [ -s "$tmp/url" ]; do sleep 0.05; done
    OPENAI_BASE_URL=$(sed -n 's/^url=//p' "$tmp/url")
    export OPENAI_BASE_URL
}

# has TEXT: the last example printed a line that contains it.
has() {
    grep -qF -- "$1" "$tmp/out" || { printf 'missing: %s\n' "$1"; cat "$tmp/out"; exit 1; }
}

mkdir "$tmp/vercel" "$tmp/mastra"
echo hello >"$tmp/vercel/greeting"
echo hello >"$tmp/mastra/greeting"

play '[
  {"tool": "bash", "arguments": {"command": "sed -i s/hello/hi/ greeting && mkdir -p new && ln -s ../greeting new/link"}},
  {"tool": "bash", "arguments": {"command": "cat new/link; ls -l new; cat nothing"}},
  {"text": "The greeting is shorter."}
]'
node dist/vercel-just-bash.js "$tmp/vercel" "make the greeting shorter" >"$tmp/out"
has "The greeting is shorter."
has "M greeting"
has "A new/link"
has "call 1: sed -i"
[ "$("$AGENTVFS_BIN" fs cat -w vercel greeting)" = hi ]
[ "$(cat "$tmp/vercel/greeting")" = hello ]
"$AGENTVFS_BIN" tool list -w vercel --json >"$tmp/out"
has 'cat: nothing: No such file or directory'
"$AGENTVFS_BIN" tool undo 1 -w vercel >/dev/null
[ "$("$AGENTVFS_BIN" fs cat -w vercel greeting)" = hello ]
echo "vercel-just-bash: passed"

# The first run is cut off after its first step: the mock has nothing more to say.
play '[
  {"tool": "read", "arguments": {"path": "greeting"}},
  {"tool": "write", "arguments": {"path": "greeting", "content": "hi\n"}},
  {"text": "First step done."}
]'
if node dist/mastra.js "$tmp/mastra" "make the greeting shorter" "count its bytes" >"$tmp/out" 2>&1; then
    echo "the first run was not cut off"
    exit 1
fi
has "First step done."
play '[
  {"tool": "run", "arguments": {"command": "wc -c < greeting > count"}},
  {"text": "Second step done."}
]'
node dist/mastra.js "$tmp/mastra" "make the greeting shorter" "count its bytes" >"$tmp/out"
has "First step done."
has "Second step done."
has "M greeting"
has "A count"
[ "$("$AGENTVFS_BIN" fs cat -w mastra count)" = 3 ]
[ "$("$AGENTVFS_BIN" branch list -w mastra | wc -l)" = 1 ]
echo "mastra: passed"
