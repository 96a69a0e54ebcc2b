#!/usr/bin/env bash
# Remotes against a service of S3 that others wrote: moto from PyPI; some seconds once it is installed.
#
#   tests/remote/run.sh
#
# The packages of requirements.txt are installed, at the versions it names, into target/moto. Needs Python 3.10 or later with
# venv, which is installed where it is missing.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$here/../.." && pwd)
venv=${CARGO_TARGET_DIR:-$repository/target}/moto

fail() {
    printf 'remote: %s\nhint: %s\n' "$1" "$2" >&2
    exit 1
}

# shellcheck source=/dev/null
. "$repository/.ci/packages.sh"

python3 -c 'import ensurepip' 2>/dev/null || need /usr/share/doc/python3-venv:python3-venv
if ! cmp -s "$here/requirements.txt" "$venv/installed"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$venv/installed"
fi

log=$(mktemp)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true; rm -f "$log"' EXIT
endpoint=http://127.0.0.1:$port
make_bucket='
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/bucket", method="PUT"))'
for _ in $(seq 300); do
    python3 -c "$make_bucket" "$endpoint" 2>/dev/null && made=1 && break
    sleep 0.1
done
[ "${made:-}" ] || fail "moto does not answer: $(tail -n 3 "$log")" "rm -r $venv"

cd "$repository"
AGENTVFS_S3=$endpoint cargo test --workspace --locked --quiet --test remote_network -- of_another
