# shellcheck shell=bash
# SQLite as programs use it: each journal mode, two writers at once, a writer killed at work, mapped
# reading, VACUUM, a backup. After each the database is sound and has what was committed.
packages sqlite3:sqlite3

# Inserts numbers from $2 to $3 as writer $1 into $4, each committed alone, and says each once it is.
sqlite_writer() {
    local i
    for ((i = $2; i <= $3; i++)); do
        sqlite3 -cmd '.timeout 60000' "$4" "insert into log values($1, $i, randomblob(500))" || return 1
        echo "$i"
    done
}

sqlite_new() { # FILE MODE
    [ "$(sqlite3 "$1" "pragma journal_mode=$2")" = "$2" ]
    sqlite3 "$1" 'create table log(writer int, n int, data blob, primary key(writer, n))'
}

sqlite_sound() { [ "$(sqlite3 "$1" 'pragma integrity_check')" = ok ]; }

sqlite_count() { sqlite3 "$1" "select count(*) from log where writer = $2"; }

sqlite_two_writers() { # MODE
    local db=two-$1.db first
    sqlite_new "$db" "$1"
    sqlite_writer 1 1 40 "$db" >/dev/null & first=$!
    sqlite_writer 2 1 40 "$db" >/dev/null
    wait "$first"
    sqlite_sound "$db"
    [ "$(sqlite_count "$db" 1) $(sqlite_count "$db" 2)" = "40 40" ]
}

# What the killed writer has said is there, and at most one more.
sqlite_killed() { # MODE
    local db=killed-$1.db writer said kept
    sqlite_new "$db" "$1"
    sqlite3 "$db" 'create table bulk(data blob)'
    (for ((i = 1; ; i++)); do
        echo "begin; insert into log values(1, $i, randomblob(500));"
        echo "insert into bulk values(randomblob(200000)); commit; select $i;"
    done) 2>/dev/null | sqlite3 -cmd '.timeout 60000' "$db" >"said-$1" & writer=$!
    until [ "$(wc -l <"said-$1")" -ge 15 ]; do sleep 0.01; done
    kill -9 "$writer"
    wait "$writer" || true
    said=$(grep -c . "said-$1")
    sqlite_sound "$db"
    kept=$(sqlite_count "$db" 1)
    [ "$kept" -ge "$said" ]
}

sqlite_bulk() { # MODE
    local db=bulk-$1.db
    sqlite_new "$db" "$1"
    sqlite3 "$db" "pragma mmap_size=268435456; with recursive c(n) as
        (select 1 union all select n + 1 from c where n < 20000)
        insert into log select 1, n, randomblob(200) from c;
        delete from log where n % 2; vacuum;" >/dev/null
    sqlite3 "$db" ".backup copy-$1.db"
    sqlite_sound "$db"
    sqlite_sound "copy-$1.db"
    [ "$(sqlite_count "copy-$1.db" 1)" = 10000 ]
}

export -f sqlite_writer sqlite_new sqlite_sound sqlite_count
export -f sqlite_two_writers sqlite_killed sqlite_bulk
for mode in wal delete truncate persist; do
    for case in two_writers killed bulk; do
        check sqlite "$case-$mode" bash -ec "sqlite_$case $mode"
    done
done
