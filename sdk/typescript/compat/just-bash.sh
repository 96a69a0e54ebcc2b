#!/usr/bin/env bash
# agentfs-sdk's own tests of its file system for just-bash, unchanged, as its package on npm has them: against
# agentvfs, then against agentfs-sdk itself. Prints how many passed, and how long each took.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

stock=node_modules/agentfs-sdk/dist
dir=$(mktemp -d "$PWD/.just-bash.XXXXXX")
trap 'rm -rf "$dir"' EXIT

# The test imports two modules by relative paths: these stand in their places.
lay() {
    mkdir -p "$dir/$1/integrations/just-bash"
    cp "$stock/integrations/just-bash/AgentFs.test.js" "$dir/$1/integrations/just-bash/"
    printf 'export * from "%s";\n' "$2" >"$dir/$1/index_node.js"
    printf 'export * from "%s";\n' "$3" >"$dir/$1/integrations/just-bash/AgentFs.js"
}

run() {
    local out=$dir/$1.json
    node_modules/.bin/vitest run --root "$dir/$1" --reporter=json --outputFile="$out" >"$dir/$1.log" 2>&1 ||
        { cat "$dir/$1.log"; exit 1; }
    node -e '
        const { numPassedTests: passed, numTotalTests: total, testResults: [file] } = JSON.parse(fs.readFileSync(process.argv[2]));
        console.log(`just-bash ${process.argv[1]}: ${passed} of ${total} in ${Math.round(file.endTime - file.startTime)} ms`);
        if (passed !== total || total !== 104) process.exit(1);
    ' "$1" "$out"
}

lay agentvfs agentvfs/agentfs agentvfs/agentfs/just-bash
lay agentfs-sdk agentfs-sdk "$PWD/$stock/integrations/just-bash/AgentFs.js"
run agentvfs
run agentfs-sdk
