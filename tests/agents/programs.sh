#!/usr/bin/env bash
# Programs that must work in `agentvfs run`: git, ssh, both with a server on the machine, a sandbox of bubblewrap's inside, a
# virtual environment of Python with pip, a browser, names from a resolver on 127.0.0.1; and what sudo says. Part of
# `.ci/long builds`.
#
#   tests/agents/programs.sh AGENTVFS DIR     DIR is empty and visible in a sandbox
#
# One that is not installed is named and left out. The resolver needs root.
set -euo pipefail
agentvfs=$1 dir=$2
export AGENTVFS_HOME="$dir/store" HOME="$dir/home"

fail() { printf 'programs: %s\n' "$1" >&2; exit 1; }
run() { "$agentvfs" run --quiet --session programs "$@"; }

# tried NAME COMMAND...: what it prints is shown where it fails.
tried() {
    local name=$1 command=$2
    shift 2
    if [ "$command" != - ] && ! command -v "$command" >/dev/null; then
        printf '%s: left out, there is no %s\n' "$name" "$command"
        return
    fi
    "$@" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; fail "$name does not work"; }
    printf '%s: works\n' "$name"
}

git_works() {
    run -- bash -ec 'git init -q; git add .; git -c user.name=n -c user.email=e commit -qm first; git status --short'
    run -- git log --oneline | grep -q first
    [ ! -e .git ] || fail "git wrote into the project"
}

# The configuration is refused where its owner looks wrong; a key cannot be used where others may read it.
ssh_works() {
    ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"
    printf 'Host there\n  HostName 127.0.0.1\n  Port 9\n' >"$HOME/.ssh/config"
    run --show "$HOME/.ssh" -- bash -ec '
        ssh -F ~/.ssh/config -G there | grep -qx "port 9"
        ssh-keygen -y -f ~/.ssh/id_ed25519 >/dev/null
        ssh -o BatchMode=yes -F ~/.ssh/config there true 2>&1 | grep -q "Connection refused"'
}

# A server of the caller's own on the machine: git clones from it and pushes to it, by ssh with the machine's configuration.
# Root's needs a directory of its own.
git_over_ssh_works() {
    local port server me
    me=$(id -un)
    [ "$(id -u)" -ne 0 ] || mkdir -p /run/sshd
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    [ -e "$HOME/.ssh/id_ed25519" ] || ssh-keygen -q -t ed25519 -N '' -f "$HOME/.ssh/id_ed25519"
    cp "$HOME/.ssh/id_ed25519.pub" "$HOME/.ssh/authorized_keys"
    ssh-keygen -q -t ed25519 -N '' -f "$dir/host_key"
    git init -q --bare "$dir/served.git"
    "$(PATH=$PATH:/usr/sbin type -P sshd)" -D -e -f /dev/null -p "$port" -h "$dir/host_key" -o ListenAddress=127.0.0.1 \
        -o PidFile=none -o UsePAM=no -o StrictModes=no -o "AuthorizedKeysFile=$HOME/.ssh/authorized_keys" 2>"$dir/sshd.log" &
    server=$!
    # It listens once it can be connected to.
    until (: <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do kill -0 "$server" || { cat "$dir/sshd.log"; return 1; }; done
    run --show "$HOME/.ssh" --env "GIT_SSH_COMMAND=ssh -i $HOME/.ssh/id_ed25519 -o BatchMode=yes -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null" -- bash -ec '
        cd /tmp
        git clone -q "$1" cloned
        cd cloned
        git -c user.name=n -c user.email=e commit -q --allow-empty -m "from inside"
        git push -q origin HEAD' - "ssh://$me@127.0.0.1:$port$dir/served.git" || { cat "$dir/sshd.log"; kill "$server"; return 1; }
    kill "$server"
    git --git-dir="$dir/served.git" log --all --format=%s | grep -qx "from inside"
}

bubblewrap_works() {
    run -- bwrap --ro-bind / / --bind "$PWD" "$PWD" --tmpfs /tmp --unshare-user --unshare-ipc \
        bash -ec 'echo from bwrap >nested; ! echo x >/etc/x'
    [ "$(run -- cat nested)" = "from bwrap" ]
}

venv_works() {
    run -- bash -ec 'python3 -m venv env; env/bin/pip install -q --disable-pip-version-check six==1.17.0
        env/bin/python -c "import six; assert six.__version__ == \"1.17.0\", six"'
}

browser_works() {
    run -- bash -ec 'printf "<p id=p>before<script>p.textContent=\"it ran\"</script>\n" >page.html'
    local flags=(--headless --disable-gpu --disable-background-networking --disable-component-update --disable-sync
        --no-first-run --disable-quic --user-data-dir=/tmp/browser)
    [ "$(id -u)" -ne 0 ] || flags+=(--no-sandbox)
    run -- timeout 60 chromium "${flags[@]}" --dump-dom "file://$PWD/page.html" | grep -q 'it ran'
}

# In a network of its own: a resolver on port 53 that knows one name.
resolver_works() {
    printf 'nameserver 127.0.0.1\n' >"$dir/resolv.conf"
    cat >"$dir/resolver.py" <<'END'
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 53))
while True:
    ask, who = s.recvfrom(512)
    end = ask.index(b"\0", 12) + 5
    found = ask[end - 4:end - 2] == b"\0\1" and ask[12:end].startswith(b"\7project")
    record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\x07"
    s.sendto(ask[:2] + b"\x81\x80\0\1" + bytes([0, found, 0, 0, 0, 0]) + ask[12:end] + record * found, who)
END
    unshare --net --mount --propagation private bash -ec '
        ip link set lo up 2>/dev/null || python3 -c "
import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sh\", b\"lo\", 0x41))"
        mount --bind "$1/resolv.conf" /etc/resolv.conf
        python3 "$1/resolver.py" & trap "kill $!" EXIT
        sleep 1
        "$2" run --quiet --session programs -- getent hosts project.example.org' - "$dir" "$agentvfs" | grep -q 127.0.0.7
}

sudo_says_why() {
    ! run -- sudo -n true >"$dir/sudo" 2>&1 || fail "sudo works"
    grep -qiE 'no new privileges|owned by|setuid|uid' "$dir/sudo" || { cat "$dir/sudo"; return 1; }
}

mkdir -p "$dir/project" "$HOME" "$HOME/.cache"
mkdir -m 700 "$HOME/.ssh"
cd "$dir/project"
printf 'a file\n' >file
"$agentvfs" workspace start --from . >/dev/null
trap '"$agentvfs" workspace stop project >/dev/null 2>&1' EXIT
tried git git git_works
tried ssh ssh ssh_works
PATH=$PATH:/usr/sbin tried 'git over ssh' sshd git_over_ssh_works
tried 'bubblewrap inside' bwrap bubblewrap_works
tried 'python, venv and pip' python3 venv_works
tried 'a browser' chromium browser_works
[ "$(id -u)" -ne 0 ] || tried 'a resolver on 127.0.0.1' unshare resolver_works
[ "$(id -u)" -eq 0 ] || tried "sudo's refusal" sudo sudo_says_why
[ "$(ls -A)" = file ] || fail "the project was changed: $(ls -A)"
