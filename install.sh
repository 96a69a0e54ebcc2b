#!/usr/bin/env bash
# Installs agentvfs and shows it at work, or runs its tests.
#
#   ./install.sh [PROJECT]   install what is missing, build, install the program, and try it on
#                            PROJECT (default: this repository), which is only read
#   ./install.sh --no-try    the same without trying it: for images, where nothing can be mounted
#   ./install.sh --test      install what the tests need and run all of them
#   ./install.sh --deb       build a Debian package, with man pages, completions and a systemd unit
#   ./install.sh --uninstall remove the program, its man pages and completions; workspaces and
#                            commits stay
#
# For Debian and Ubuntu with a Rust toolchain (cargo). Root installs to /usr/local/bin, others to
# ~/.local/bin, either to $BIN_DIR where that is set. Can be run again at any time.
set -euo pipefail

# Other names of the program (ctl/src/names.rs).
NAMES=(agentvfs-quickstart agentvfs-ctl agentfs)

# What builds the Debian package.
CARGO_DEB=3.8.0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=${CARGO_TARGET_DIR:-$here/target}

say() { printf '%s\n' "$*"; }

fail() {
    printf 'install.sh: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

# shellcheck source=.ci/packages.sh
. "$here/.ci/packages.sh"

usage() { sed -n '2,14s/^# \{0,1\}//p' "$here/install.sh"; }

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
    output=$("$@") || fail "failed: $text" "its output is above"
    printf '  %7d ms  %s\n' "$(($(now_ms) - start))" "$text"
}

# timed TEXT COMMAND...: the same with what it prints shown, in this shell.
timed() {
    local text=$1 start
    shift
    start=$(now_ms)
    "$@"
    printf '  %7d ms  %s\n' "$(($(now_ms) - start))" "$text"
}

# The version of a cargo; fails where it does not run.
cargo_version() { (cd "$here" && "$1" --version 2>/dev/null | cut -d' ' -f2 | grep .); }

# is_enough VERSION: whether it is no older than what Cargo.toml wants.
is_enough() {
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$here/Cargo.toml")
    [ "$(printf '%s\n' "$wanted" "$1" | sort -V | head -n 1)" = "$wanted" ]
}

# Finds cargo, new enough: the first in PATH, else that of rustup, which may stand behind the system's own.
need_cargo() {
    local own=${CARGO_HOME:-${HOME:-/root}/.cargo}/bin found version
    if ! found=$(command -v cargo); then
        PATH=$PATH:$own
        found=$(command -v cargo) ||
            fail "cargo is not installed" "install a Rust toolchain: https://rustup.rs"
    fi
    version=$(cargo_version "$found") || version=
    is_enough "${version:-0}" && return 0
    if [ "$found" != "$own/cargo" ] && [ -x "$own/cargo" ] && is_enough "$(cargo_version "$own/cargo" || echo 0)"; then
        say "note: $found is ${version:+Rust $version, }too old; using $own/cargo"
        PATH=$own:$PATH
        return 0
    fi
    old_cargo "$found" "$version"
}

# Says what helps where a cargo is too old or does not run: that depends on where it comes from.
old_cargo() {
    local found=$1 version=$2 what chosen
    what="Rust $version ($found) is too old; $wanted or newer is needed"
    [ -n "$version" ] || what="$found does not run"
    [ ! -x "$own/rustup" ] || PATH=$PATH:$own
    if ! command -v rustup >/dev/null; then
        fail "$what" "install another toolchain beside it: https://rustup.rs, then in a new shell ./install.sh"
    fi
    chosen=$(cd "$here" && rustup show active-toolchain 2>/dev/null | cut -d' ' -f1) || chosen=
    case $chosen in
    stable*) fail "$what" "rustup update stable" ;;
    "") fail "$what" "rustup default stable" ;;
    *) fail "$what: $chosen is chosen here" \
        "rustup update stable && rustup override set stable --path $here" ;;
    esac
}

# Why nothing can be mounted here, and what helps, as two lines; nothing where it can.
why_no_fuse() {
    local said caps
    if [ ! -e /dev/fuse ]; then
        printf '%s\n' "there is no /dev/fuse" \
            "as root: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
    elif ! said=$(LC_ALL=C bash -c ': <>/dev/fuse' 2>&1); then
        said="/dev/fuse cannot be opened: ${said##*: }"
        case $said in
        *"Permission denied") printf '%s\n' "$said" "as root: chmod 0666 /dev/fuse" ;;
        *"not permitted") printf '%s\n' "$said" \
            "start the container with --device /dev/fuse --cap-add SYS_ADMIN" ;;
        *) printf '%s\n' "$said" "as root: modprobe fuse" ;;
        esac
    elif [ "$(id -u)" -ne 0 ] && [ ! -e /etc/mtab ]; then
        printf '%s\n' "there is no /etc/mtab, which fusermount3 needs to unmount" \
            "as root: ln -s /proc/self/mounts /etc/mtab"
    elif [ "$(id -u)" -eq 0 ]; then
        caps=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
        # CAP_SYS_ADMIN, capabilities(7).
        [ $((0x$caps >> 21 & 1)) -eq 1 ] || printf '%s\n' "root has no CAP_SYS_ADMIN and cannot mount" \
            "start the container with --cap-add SYS_ADMIN --device /dev/fuse"
    fi
}

# What keeps the trial from working on the project, as far as that can be told before anything is built.
check_project() {
    local found
    project=$(cd "$1" 2>/dev/null && pwd -P) || {
        [ -e "$1" ] || fail "there is no directory $1" "./install.sh PROJECT"
        [ -d "$1" ] || fail "$1 is not a directory" "./install.sh PROJECT"
        fail "you cannot enter $1" "use a project of your own: ./install.sh PROJECT"
    }
    # A file in the mount belongs to whom it belongs in the project; the trial reads and deletes all of them.
    found=$(find "$project" -name .agentvfs -prune -o -type d ! \( -readable -writable -executable \) \
        -print -prune -quit 2>/dev/null)
    [ -z "$found" ] || fail "you cannot write to $found, nor to its copy in the mount" \
        "use a project of your own: ./install.sh PROJECT"
    found=$(find "$project" -name .agentvfs -prune -o -type f ! -readable -print -quit)
    [ -z "$found" ] || fail "you cannot read $found" \
        "use a project of your own: ./install.sh PROJECT"
}

check_fuse() {
    local why
    mapfile -t why < <(why_no_fuse)
    [ ${#why[@]} -eq 0 ] || fail "${why[0]}, so the program cannot be tried" \
        "${why[1]}; ./install.sh --no-try only installs it"
}

# Fails where the program's directory cannot be written to.
check_bin() {
    bin=${BIN_DIR:-$HOME/.local/bin}
    [ "$(id -u)" -ne 0 ] || bin=${BIN_DIR:-/usr/local/bin}
    { mkdir -p "$bin" && : >"$bin/.agentvfs.$$"; } 2>/dev/null ||
        fail "cannot write to $bin" "use another directory: BIN_DIR=DIR ./install.sh"
    rm -f "$bin/.agentvfs.$$"
}

check_target() {
    mkdir -p "$target" 2>/dev/null && [ -w "$target" ] ||
        fail "cannot write to $target" "use another directory: CARGO_TARGET_DIR=DIR ./install.sh"
}

run_tests() {
    local why skipped status=0
    need_cargo
    check_target
    [ -e "$target/debug/agentvfs" ] || need_space "$target" 6600 "building the tests"
    need "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    mapfile -t why < <(why_no_fuse)
    [ ${#why[@]} -eq 0 ] ||
        say "note: ${why[0]}: tests that need a mount are skipped" "(${why[1]})"
    cd "$here"
    say "building and running all tests: half an hour on two cores the first time"
    skipped=${AGENTVFS_SKIPPED:-$(mktemp)}
    AGENTVFS_SKIPPED=$skipped cargo test --workspace --locked --no-fail-fast || status=$?
    if [ -s "$skipped" ]; then
        say "skipped:"
        LC_ALL=C sort -u "$skipped" | sed 's/^/  /'
    fi
    [ -n "${AGENTVFS_SKIPPED:-}" ] || rm -f "$skipped"
    [ "$status" -eq 0 ] || fail "tests failed" "cargo test -p CRATE NAME runs one again"
}

build() { (cd "$here" && cargo program); }

# A Debian package of the program that was built, with what the program makes of its own command line. Debug information,
# five times as large as the program, is a package beside it.
package() {
    local parts=$target/release/package shell name agentvfs=$target/release/agentvfs
    rm -rf "$parts"
    "$agentvfs" man install "$parts" >/dev/null
    for shell in bash:agentvfs.bash zsh:_agentvfs fish:agentvfs.fish; do
        "$agentvfs" completions "${shell%%:*}" >"$parts/${shell#*:}"
    done
    for name in "${NAMES[@]}"; do ln -s agentvfs "$parts/$name"; done
    (cd "$here" && CARGO_TARGET_DIR=$target cargo deb --package ctl --no-build --locked --dbgsym)
}

build_package() {
    need_cargo
    check_target
    [ -e "$target/release/agentvfs" ] || need_space "$target" 1200 "building"
    need "${BUILD_PACKAGES[@]}" dpkg-deb:dpkg
    command -v cargo-deb >/dev/null ||
        fail "cargo-deb is not installed" "cargo install --locked --version $CARGO_DEB cargo-deb"
    step "build" build
    step "package" package
    say "built" "$output"
    say "install it as root: apt-get install $(grep '\.deb$' <<<"$output")"
}

# Under a temporary name first: a program that runs is replaced as a whole, or not at all.
install_program() {
    local new=$bin/.agentvfs.$$
    if ! { strip -o "$new" "$target/release/agentvfs" && chmod 755 "$new" &&
        mv -f "$new" "$bin/agentvfs"; }; then
        rm -f "$new"
        fail "the program cannot be installed into $bin" \
            "free space there, or use another directory: BIN_DIR=DIR ./install.sh"
    fi
    agentvfs=$bin/agentvfs
    link_names
    say "installed $agentvfs ($(du -m "$agentvfs" | cut -f1) MB)"
    case :$PATH: in
    *":$bin:"*) ;;
    *) say "note: $bin is not in your PATH" ;;
    esac
    say "completions for your shell: $agentvfs completions install"
    say "man pages: $agentvfs man install"
}

# Links by the names under which others know such a program; one of somebody else's stays.
link_names() {
    local name
    for name in "${NAMES[@]}"; do
        if [ ! -e "$bin/$name" ] && [ ! -L "$bin/$name" ]; then
            ln -s agentvfs "$bin/$name" || say "note: cannot make the link $bin/$name"
        elif ! is_own_link "$bin/$name"; then
            say "note: $bin/$name is another program, and stays"
        fi
    done
}

is_own_link() { [ "$(readlink "$1" || true)" = agentvfs ]; }

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

# True where something is mounted below a directory.
is_mounted_below() { cut -d' ' -f5 /proc/self/mountinfo | grep -qF "$1/"; }

# Ends the trial, however it went. The store is removed once nothing is mounted in it any more.
clean_up() {
    local status=$? tries
    trap - EXIT
    say "cleaning up: the daemon ends two seconds after the last workspace"
    "$agentvfs" stop demo --force --no-checkpoint >/dev/null 2>&1 || true
    for ((tries = 0; tries < 300; tries++)); do
        [ -S "$AGENTVFS_HOME/daemon.sock" ] || break
        sleep 0.1
    done
    if is_mounted_below "$AGENTVFS_HOME"; then
        fail "something is still mounted below $AGENTVFS_HOME, which is therefore not removed" \
            "end the processes that use it, umount it, then rm -r $AGENTVFS_HOME"
    fi
    rm -rf --one-file-system "$AGENTVFS_HOME" || fail "cannot remove $AGENTVFS_HOME" "rm -r $AGENTVFS_HOME"
    exit "$status"
}

main_job() {
    local before checkpointed commit
    say "trying it on $project, with a store of its own in $AGENTVFS_HOME"
    before=$(listing "$project")
    step "start: the project is there" "$agentvfs" start demo --from "$project"
    mount=$(sed -n 's/^mount=//p' <<<"$output")
    [ -d "$mount" ] || fail "start printed no mount" "agentvfs doctor shows what is missing"
    step "first look at all $(wc -l <<<"$before") files and directories" listing "$mount"
    same "$before" "$output" || fail "the mount does not show the same files as the project" \
        "if a program writes to $project, try another project"
    step "write into it" write_something
    step "checkpoint (waits until the project is imported)" \
        "$agentvfs" checkpoint demo first
    commit=$output
    checkpointed=$(listing "$mount")
    step "delete everything" destroy
    step "rollback" "$agentvfs" rollback --workspace demo
    [ "$output" = "$commit" ] || fail "rollback went to $output, not to $commit" "please report this"
    step "verify: names, types, modes, owners, times, lengths" listing "$mount"
    same "$checkpointed" "$output" || fail "the rollback is not exact" "please report this"
    [ "$(cat "$mount/agentvfs-demo/link")" = first ] ||
        fail "a file has wrong content" "please report this"
    step "verify: the content of every file" \
        diff -r --no-dereference --exclude=agentvfs-demo --exclude=.agentvfs "$project" "$mount"
    step "stop" "$agentvfs" stop demo
    same "$before" "$(listing "$project")" || fail "$project changed during the trial" \
        "if a program writes to it, try another project"
    say "everything is correct, and $project is unchanged"
}

# Removes what was installed. A program that serves mounts is not taken from under them.
uninstall() {
    local home completions file
    check_bin
    home=${AGENTVFS_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/agentvfs}
    ! is_mounted_below "$home" ||
        fail "workspaces are mounted below $home" "agentvfs list names them; agentvfs stop NAME unmounts one"
    [ -e "$bin/agentvfs" ] || fail "there is no $bin/agentvfs" "another directory: BIN_DIR=DIR ./install.sh --uninstall"
    completions=("${XDG_DATA_HOME:-$HOME/.local/share}/bash-completion/completions/agentvfs"
        "${XDG_DATA_HOME:-$HOME/.local/share}/zsh/site-functions/_agentvfs"
        "${XDG_CONFIG_HOME:-$HOME/.config}/fish/completions/agentvfs.fish")
    for file in "${NAMES[@]}"; do
        ! is_own_link "$bin/$file" || rm -f "$bin/$file"
    done
    for file in "$bin/agentvfs" "${completions[@]}" "$(dirname "$bin")"/share/man/man1/agentvfs{,-*}.1; do
        [ -e "$file" ] || continue
        rm -f "$file" || fail "cannot remove $file" "remove it yourself"
        case $file in
        */agentvfs-*.1) ;; # The first page stands for all of them.
        *) say "removed $file" ;;
        esac
    done
    [ ! -e "$home" ] || say "kept: $home, with all workspaces and commits; rm -r $home deletes them"
}

install_and_try() {
    need_cargo
    [ -z "$1" ] || check_project "$1"
    check_bin
    check_target
    [ -e "$target/release/agentvfs" ] || need_space "$target" 1200 "building"
    timed "packages" need "${BUILD_PACKAGES[@]}"
    [ -z "$1" ] || check_fuse
    if [ ! -e "$target/release/agentvfs" ]; then
        say "building: about six minutes on two cores, the last two without output (linking)"
    fi
    step "build" build
    install_program
    [ -n "$1" ] || return 0
    AGENTVFS_HOME=$(mktemp -d)
    export AGENTVFS_HOME
    # A workspace of the caller's must not be meant by accident.
    unset AGENTVFS_WORKSPACE AGENTVFS_BRANCH
    trap clean_up EXIT
    main_job
    say "now: cd SOMEWHERE && agentvfs start --from project"
}

[ $# -le 1 ] || fail "at most one argument is allowed, not $#" "./install.sh --help"
case ${1:-} in
--test) run_tests ;;
--no-try) install_and_try "" ;;
--deb) build_package ;;
--uninstall) uninstall ;;
-h | --help) usage ;;
-*) fail "unknown option $1" "./install.sh --help" ;;
*) install_and_try "${1:-$here}" ;;
esac
