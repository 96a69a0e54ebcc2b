# shellcheck shell=bash
# git as people and agents use it, in a repository on the mount: the work of a day, then fsck.
packages git:git

export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=$scratch/gitconfig
cat >"$GIT_CONFIG_GLOBAL" <<CONFIG
[user]
name = Test
email = test@example.org
[init]
defaultBranch = main
[gc]
auto = 0
[advice]
detachedHead = false
CONFIG

git_clean() { [ -z "$(git status --porcelain)" ]; }

git_begin() {
    local i
    git init -q day && cd day
    for ((i = 0; i < 600; i++)); do
        mkdir -p "src/d$((i % 23))"
        seq "$i" "$((i + i % 90))" >"src/d$((i % 23))/file$i.txt"
    done
    ln -s src/d0/file0.txt link
    chmod 755 src/d0/file0.txt
    git add -A && git commit -qm begin && git_clean
}

git_commits() {
    local i
    cd day
    for ((i = 1; i <= 25; i++)); do
        echo "$i" >>"src/d$((i % 23))/log.txt"
        git add -A && git commit -qm "change $i"
    done
    [ "$(git rev-list --count HEAD)" = 26 ] && git_clean
}

# An unchanged tree is found unchanged without reading it; a changed one is not, whatever its times.
git_notices() {
    local file=src/d1/file1.txt
    cd day
    find src -type f -exec touch {} +
    git_clean
    git update-index -q --refresh
    git diff-files --quiet
    cp -p "$file" ../kept
    sleep 1.1
    tr '0-9' 'a-j' <../kept >"$file"
    touch -r ../kept "$file"
    [ "$(git status --porcelain)" = " M $file" ]
    git checkout -q -- "$file"
    chmod 755 "$file"
    [ "$(git status --porcelain)" = " M $file" ]
    git checkout -q -- "$file" && git_clean
}

git_branches() {
    local i
    cd day
    git checkout -q -b side HEAD~10
    echo side >side.txt
    git add -A && git commit -qm side
    for ((i = 0; i < 4; i++)); do git checkout -q main && git checkout -q side; done
    git checkout -q main && git merge -q -m merged side && git_clean
    git checkout -q -b again side && git rebase -q main && git_clean
    git checkout -q main
    echo stashed >>src/d2/file2.txt
    git stash -q && git_clean && git stash pop -q && ! git diff --quiet
    git reset -q --hard && touch junk && git clean -fdq && git_clean && [ ! -e junk ]
}

git_copies() {
    cd day
    git worktree add -q ../tree again
    (cd ../tree && git_clean)
    git worktree remove ../tree
    git clone -q . ../local
    git clone -q --no-local . ../remote
    git -C ../local fsck --full --strict
    git -C ../remote fsck --full --strict
    git init -q --bare ../bare.git
    git push -q ../bare.git main
    git -C ../remote fetch -q ../bare.git main
    [ "$(git -C ../remote rev-parse FETCH_HEAD)" = "$(git rev-parse main)" ]
}

git_packs() {
    cd day
    git repack -adfq
    git gc -q --prune=now
    git fsck --full --strict
    git_clean
    find . -name .git -prune -o -type f -exec sha1sum {} + | sort >../before
    rm -rf src && git checkout -q -- src
    find . -name .git -prune -o -type f -exec sha1sum {} + | sort | cmp - ../before
}

git_at_once() {
    local i watcher
    cd remote
    (for ((i = 0; i < 30; i++)); do GIT_OPTIONAL_LOCKS=0 git status >/dev/null || exit 1; done) &
    watcher=$!
    for ((i = 0; i < 15; i++)); do
        echo "$i" >"at-once-$i" && git add "at-once-$i" && git commit -qm "$i"
    done
    wait "$watcher"
    git fsck --full
}

export -f git_clean git_begin git_commits git_notices git_branches git_copies git_packs git_at_once
for case in begin commits notices branches copies packs at_once; do
    check git "$case" bash -ec "git_$case"
done
