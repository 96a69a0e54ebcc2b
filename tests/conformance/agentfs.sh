# shellcheck shell=bash
# AgentFS's own Python SDK on exports: it reads one completely, changes it, and what it changed is
# imported as a commit; a database that it made becomes a workspace.
packages python3:python3 /usr/share/doc/python3-venv:python3-venv

# Installed once, by these versions.
agentfs_python=$tools/agentfs/bin/python
if ! "$agentfs_python" -c 'import agentfs_sdk' 2>/dev/null; then
    python3 -m venv "$tools/agentfs"
    "$tools/agentfs/bin/pip" install --quiet --disable-pip-version-check \
        agentfs-sdk==0.6.4 pyturso==0.4.4
fi

agentfs_files=${AGENTFS_FILES:-1000}
agentfs_dir=$scratch/agentfs
mkdir -p "$agentfs_dir/project"

agentfs_sdk() { "$agentfs_python" "$here/agentfs.py" "$@"; }

agentfs_tree() {
    local i
    for ((i = 0; i < agentfs_files; i++)); do
        mkdir -p "p$((i % 50))/q$((i % 7))"
        printf 'file %d\n%*s\n' "$i" "$((i % 3000))" x >"p$((i % 50))/q$((i % 7))/f$i"
    done
    head -c 1000000 /dev/urandom >large
    truncate -s 300000 sparse
    printf end | dd of=sparse bs=1 seek=299997 conv=notrunc status=none
    ln -s large link
    ln large second-name
    mkfifo fifo
    mkdir -p empty/in/empty 'name with "quotes" and ünïcode'
}

agentfs_export_is_read() {
    (cd "$agentfs_dir/project" && agentfs_tree)
    "$agentvfs" workspace start sdk --from "$agentfs_dir/project"
    "$agentvfs" workspace checkpoint sdk exported
    "$agentvfs" export sdk "$agentfs_dir/x.db"
    agentfs_sdk compare "$agentfs_dir/x.db" "$agentfs_dir/project"
}

agentfs_change_comes_back() {
    local mount=$AGENTVFS_HOME/mnt/sdk
    agentfs_sdk change "$agentfs_dir/x.db"
    "$agentvfs" import "$agentfs_dir/x.db" --workspace sdk --branch theirs
    "$agentvfs" branch diff main theirs -w sdk >"$agentfs_dir/diff"
    [ "$(cut -f1,2 "$agentfs_dir/diff" | LC_ALL=C sort | tr '\t\n' ' ,')" = \
        'A new/deep/file,D p0/q0/f0,M p1/q1/f1,' ] || { cat "$agentfs_dir/diff"; return 1; }
    "$agentvfs" branch merge theirs -w sdk
    [ "$(cat "$mount/new/deep/file")" = 'made by the SDK' ]
    [ "$(cat "$mount/p1/q1/f1")" = 'changed by the SDK' ]
    [ ! -e "$mount/p0/q0/f0" ]
}

agentfs_database_is_imported() {
    agentfs_sdk make "$agentfs_dir/made.db" "$agentfs_dir/made"
    "$agentvfs" import "$agentfs_dir/made.db" --workspace made
    "$agentvfs" workspace start made
    diff -r "$agentfs_dir/made" "$AGENTVFS_HOME/mnt/made"
    [ "$("$agentvfs" kv get greeting -w made)" = '{"hello":"world"}' ]
}

agentfs_clean() {
    "$agentvfs" workspace stop sdk --force --no-checkpoint
    "$agentvfs" workspace stop made --force --no-checkpoint
}

export agentfs_python agentfs_files agentfs_dir agentvfs here
export -f agentfs_sdk agentfs_tree
export -f agentfs_export_is_read agentfs_change_comes_back agentfs_database_is_imported agentfs_clean
for case in export_is_read change_comes_back database_is_imported clean; do
    check agentfs "$case" bash -ec "agentfs_$case"
done
