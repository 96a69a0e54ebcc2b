# shellcheck shell=bash
# fsx: random reads, writes, mappings, holes and copies of one file, each byte known. From crates.io.
packages cc:gcc
crate fsx 0.3.2

# fsx_case NAME OPERATIONS LENGTH LONGEST ALIGNMENT WEIGHT=...
fsx_case() {
    local name=$1 count=$2 config=$scratch/fsx-$1.toml seed
    {
        printf 'flen = %s\n[opsize]\nmin = 0\nmax = %s\nalign = %s\n[weights]\n' "$3" "$4" "$5"
        printf 'close_open = 1\nread = 10\nwrite = 10\ntruncate = 3\nfsync = 0.2\nfdatasync = 0.2\n'
        printf '%s\n' "${@:6}"
    } >"$config"
    for seed in 11 12; do
        check fsx "$name-$seed" fsx -q -N "$count" -S "$seed" -f "$config" -P "$scratch" "$name-$seed"
    done
}

fsx_case calls 6000 262144 65536 1 mapread=0 mapwrite=0 invalidate=0
fsx_case mapped 6000 262144 65536 1 mapread=10 mapwrite=10 invalidate=1
fsx_case holes 6000 262144 65536 1 mapread=5 mapwrite=5 punch_hole=8 posix_fallocate=4
fsx_case copies 6000 262144 65536 1 mapread=5 mapwrite=5 copy_file_range=8 sendfile=5
fsx_case blocks 4000 1048576 131072 4096 mapread=8 mapwrite=8 punch_hole=4
fsx_case small 8000 65536 64 1 mapread=8 mapwrite=8
