# shellcheck shell=bash
# pjdfstest: what POSIX asks of a file system's calls, with several users. From crates.io.
if [ "$(id -u)" -ne 0 ]; then
    echo "pjdfstest: skipped, it needs root"
    return 0
fi
packages setfacl:acl /usr/include/sys/acl.h:libacl1-dev pkg-config:pkg-config cc:gcc
crate pjdfstest 0.2.2
id agentvfs-test >/dev/null 2>&1 || useradd --no-create-home --shell /usr/sbin/nologin agentvfs-test

pjdfs_out=$scratch/pjdfstest.out
cat >"$scratch/pjdfstest.toml" <<CONFIG
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "$(id -gn nobody)"], ["agentvfs-test", "agentvfs-test"]]
CONFIG
mkdir "$work/pjdfstest"
timeout 300 pjdfstest --configuration-file "$scratch/pjdfstest.toml" \
    --path "$work/pjdfstest" >"$pjdfs_out" 2>&1 || true
while read -r name result; do
    case $result in
    ok) pass ;;
    skipped) ;;
    *) fail pjdfstest "$name" "$(grep -A 4 -F "$name" "$pjdfs_out" | tr '\n' ' ' | cut -c 1-300)" ;;
    esac
done < <(sed -nE 's/^([a-z_0-9]+(::[A-Za-z_0-9]+)+) +([A-Za-z]+).*/\1 \3/p' "$pjdfs_out")
# A suite that dies half way has not passed.
grep -q '^Summary:' "$pjdfs_out" || fail pjdfstest end "$(tail -n 2 "$pjdfs_out" | tr '\n' ' ')"
