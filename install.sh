#!/usr/bin/env bash
# Installs agentvfs and shows it at work, or runs its tests.
#
#   ./install.sh [PROJECT]   install what is missing, build, install the program, and try it on
#                            PROJECT (default: this repository), which is only read
#   ./install.sh --test      install what the tests need and run all of them
#
# For Debian and Ubuntu with a Rust toolchain (cargo). Root installs to /usr/local/bin, others to
# ~/.local/bin. Can be run again at any time.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/target}

say() { printf '%s\n' "$*"; }

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

usage() { sed -n '2,9s/^# \{0,1\}//p' "$here/install.sh"; }

# Milliseconds since the epoch.
now_ms() {
    local now=${EPOCHREALTIME/[^0-9]/}
    printf '%s' "${now%???}"
}

# step TEXT COMMAND...: runs the command and says how long it took. What it prints is in $output.
step() {
    local text=$1 start
    shift
    start=$(now_ms)
    output=$("$@") || fail "this failed: $text"
    printf '  %7d ms  %s\n' "$(($(now_ms) - start))" "$text"
}

# Installs Debian packages for what is missing; arguments are COMMAND:PACKAGE or /PATH:PACKAGE.
need() {
    local pair missing=() root=()
    for pair in "$@"; do
        command -v "${pair%%:*}" >/dev/null || [ -e "${pair%%:*}" ] || missing+=("${pair#*:}")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    command -v apt-get >/dev/null ||
        fail "these packages are missing: ${missing[*]}" "install them with this system's own tools"
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "these packages are missing: ${missing[*]}" "as root: apt-get install ${missing[*]}"
        root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${root[@]}" apt-get update -qq
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Finds cargo, new enough.
need_cargo() {
    command -v cargo >/dev/null || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
    command -v cargo >/dev/null ||
        fail "there is no cargo" "install a Rust toolchain: https://rustup.rs"
    local wanted found
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/Cargo.toml")
    found=$(cd "$here" && cargo --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$wanted" "$found" | sort -V | head -n 1)" = "$wanted" ] ||
        fail "Rust $found is too old, $wanted is needed" "rustup update stable"
}

# The C compiler links Rust programs and builds zstd, make builds jemalloc; fusermount3 mounts for users
# who may not.
need_build() { need cc:gcc /usr/include/stdio.h:libc6-dev make:make fusermount3:fuse3; }

need_fuse() {
    [ -e /dev/fuse ] || fail "$1" \
        "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
}

run_tests() {
    need_cargo
    need_build
    need git:git setfattr:attr setfacl:acl
    [ -e /dev/fuse ] || say "there is no /dev/fuse: tests that need a mount skip themselves"
    cd "$here"
    cargo test --workspace --locked
}

build() { (cd "$here" && cargo program); }

install_program() {
    local bin=$HOME/.local/bin
    [ "$(id -u)" -ne 0 ] || bin=/usr/local/bin
    mkdir -p "$bin"
    install -m 755 "$target/release/agentvfs" "$bin/agentvfs"
    agentvfs=$bin/agentvfs
    say "installed $agentvfs"
    case :$PATH: in
    *":$bin:"*) ;;
    *) say "note: $bin is not in your PATH" ;;
    esac
}

# What stat says of everything below a directory. Access times are left out (reading moves them),
# and the sizes of directories (each file system has its own idea of them).
listing() {
    (cd "$1" && find . -name .agentvfs -prune -o \
        \( -type d -printf '%p\t%y\t%m\t%U\t%G\t%T@\n' \
        -o -printf '%p\t%y\t%m\t%U\t%G\t%T@\t%s\t%l\n' \) | LC_ALL=C sort)
}

# Fails, and shows the first differences, where two listings are not the same.
same() { diff <(printf '%s\n' "$1") <(printf '%s\n' "$2") | head -n 10 >&2; }

write_something() {
    mkdir -p "$mount/agentvfs-demo/deep"
    echo "first" >"$mount/agentvfs-demo/note"
    head -c 1048576 /dev/zero >"$mount/agentvfs-demo/deep/zeros"
    ln -s note "$mount/agentvfs-demo/link"
}

destroy() {
    find "$mount" -mindepth 1 -delete
    echo "not what was here" >"$mount/agentvfs-demo"
}

stop_demo() {
    "$agentvfs" workspace stop demo --force --no-checkpoint >/dev/null 2>&1 || true
    # Its daemon ends by itself when nothing is mounted; the store goes after it.
    local tries
    for ((tries = 0; tries < 100; tries++)); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    rm -rf "$AGENTVFS_HOME"
}

main_job() {
    local before checkpointed commit
    say "trying it on $project, with a store of its own in $AGENTVFS_HOME"
    before=$(listing "$project")
    step "workspace start: the project is there" "$agentvfs" workspace start demo --from "$project"
    mount=$(sed -n 's/^mount=//p' <<<"$output")
    [ -d "$mount" ] || fail "start named no mount"
    step "first look at all $(wc -l <<<"$before") files and directories" listing "$mount"
    same "$before" "$output" || fail "the mount does not show the project as it is"
    # A file in the mount belongs to whom it belongs in the project.
    [ -w "$mount" ] || fail "$project is not yours to write to, so neither is the mount" \
        "give a project of your own: ./install.sh PROJECT"
    step "write into it" write_something
    step "workspace checkpoint (waits until the project is imported)" \
        "$agentvfs" workspace checkpoint demo first
    commit=$output
    checkpointed=$(listing "$mount")
    step "delete everything" destroy
    step "workspace rollback" "$agentvfs" workspace rollback --workspace demo
    [ "$output" = "$commit" ] || fail "rollback went to $output, not to $commit"
    step "verify: names, types, modes, owners, times, lengths" listing "$mount"
    same "$checkpointed" "$output" || fail "the rollback is not exact"
    [ "$(cat "$mount/agentvfs-demo/link")" = first ] || fail "a file has other content"
    step "verify: the content of every file" \
        diff -r --no-dereference --exclude=agentvfs-demo --exclude=.agentvfs "$project" "$mount"
    step "workspace stop" "$agentvfs" workspace stop demo
    same "$before" "$(listing "$project")" || fail "$project has changed meanwhile"
    say "all is as it should be, and $project is untouched"
}

install_and_try() {
    project=$(cd "${1:-$here}" 2>/dev/null && pwd -P) || fail "there is no directory $1"
    need_cargo
    need_build
    step "build" build
    install_program
    need_fuse "the program is installed, but there is no /dev/fuse to try it with"
    AGENTVFS_HOME=$(mktemp -d)
    export AGENTVFS_HOME
    # A workspace of the caller's must not be meant by accident.
    unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH
    trap stop_demo EXIT
    main_job
    say "now: cd SOMEWHERE && agentvfs workspace start --from project"
}

case ${1:-} in
--test) run_tests ;;
-h | --help) usage ;;
-*) fail "unknown option $1" "./install.sh --help" ;;
*) install_and_try "$@" ;;
esac
