#!/usr/bin/env python3
"""Claude Code and Codex as npm has them work for twenty turns each in a workspace, against mocks of their models' APIs.

After each turn: the timeline has every call with its own id, `tool diff` shows exactly its files, `tool undo` takes one in
the middle back, and `rollback --meta prompt=ID` equals the tree that was recorded before the turn. In a last turn the policy
denies a `git push`, and the agent is told why. Part of `.ci/long agents`.

    turns.py AGENTVFS DIR [claude|codex ...]     DIR is empty or has npm/, with both agents installed
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TURNS = int(os.environ.get("TURNS", 20))
KILLED = (7, 14)
PUSH = """[[rule]]
name = "no-push"
tool = ["Bash", "*shell*", "exec_command"]
input = 'regex:git\\s+push'
verdict = "deny"
reason = "Pushing is for the user to decide."
"""
# Round trips of a turn that is not killed; then something hangs.
TURN_SECONDS = 120


def fail(text):
    sys.exit(f"turns: {text}")


def same(what, wanted, found):
    if wanted != found:
        fail(f"{what}: {found!r} in place of {wanted!r}")


class Call:
    """A call of the script: what it is, what it changes, and how it ends."""

    def __init__(self, turn, name, input, changes=(), status="success"):
        self.turn, self.name, self.input = turn, name, input
        self.changes, self.status = list(changes), status
        self.id = None


def script(agent, mount):
    """Rounds of calls by turn: each turn writes, edits, deletes, fails; some calls are made together."""
    turns = {}
    # Codex's hook has what a command printed, and not how it ended.
    failed = "error" if agent == "claude" else "success"
    for n in range(1, TURNS + 1):
        bash = lambda command, *changes, **more: Call(n, "Bash", {"command": command, "description": "x"}, changes, **more)
        if n in KILLED:
            hangs = bash("echo $$ > begun.new && mv begun.new begun; exec sleep 300", status="error")
            hangs.changes = None
            turns[n] = [[bash(f"echo half > half{n}.txt", f"A half{n}.txt")], [hangs]]
            continue
        first = "A first.txt" if n == 1 else "M first.txt"
        rounds = [
            [bash(f"mkdir -p d{n} && echo {n} > d{n}/made.txt", f"A d{n}/made.txt")],
            [bash(f"echo {n} > first.txt", first), bash(f"echo {n} > second{n}.txt", f"A second{n}.txt")],
            [bash(f"echo lost > lost{n}.txt; exit 3", f"A lost{n}.txt", status=failed)],
        ]
        if agent == "claude":
            path = f"{mount}/w{n}.txt"
            rounds.append([Call(n, "Write", {"file_path": path, "content": f"one {n}\ntwo\n"}, [f"A w{n}.txt"])])
            edit = {"file_path": path, "old_string": "two", "new_string": "three"}
            rounds.append([Call(n, "Edit", edit, [f"M w{n}.txt"])])
        else:
            rounds.append([bash(f"printf 'one {n}\\ntwo\\n' > w{n}.txt", f"A w{n}.txt")])
            rounds.append([bash(f"sed -i s/two/three/ w{n}.txt", f"M w{n}.txt")])
        rounds.append([bash(f"rm second{n}.txt", f"D second{n}.txt")])
        turns[n] = rounds
    push = "git push origin main; echo pushed > pushed.txt"
    turns[TURNS + 1] = [[Call(TURNS + 1, "Bash", {"command": push, "description": "x"})]]
    number = 0
    for rounds in turns.values():
        for call in (call for calls in rounds for call in calls):
            number += 1
            call.id = f"toolu_{number:04}" if agent == "claude" else f"call_{number:04}"
    return turns


class Machine:
    def __init__(self, agentvfs, root, agent):
        self.agent, self.root = agent, root / agent
        self.root.mkdir()
        (self.root / "home").mkdir()
        (self.root / "project").mkdir()
        (self.root / "project/base.txt").write_text("base\n")
        bin = self.root / "bin"
        bin.mkdir()
        (bin / "agentvfs").symlink_to(agentvfs)
        keep = ("LANG", "http_proxy", "https_proxy")
        self.env = {key: os.environ[key] for key in keep if key in os.environ} | {
            "HOME": str(self.root / "home"),
            "AGENTVFS_HOME": str(self.root / "store"),
            "PATH": f"{bin}:{root}/npm/node_modules/.bin:{os.environ['PATH']}",
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        out = self.run("quickstart", str(self.root / "project"), "--agent", agent)
        self.mount = re.search(r"^mount=(.*)$", out, re.M)[1]
        self.turns = script(agent, self.mount)
        self.start_api()

    def start_api(self):
        plain = lambda c: {"id": c.id, "name": c.name, "input": c.input}
        turns = {n: [[plain(c) for c in calls] for calls in rounds] for n, rounds in self.turns.items()}
        (self.root / "turns.json").write_text(json.dumps(turns))
        port_file = self.root / "port"
        self.api = subprocess.Popen(
            ["node", HERE / "turns-api.mjs", self.root / "turns.json", port_file], stdin=subprocess.PIPE, env=self.env)
        until(lambda: port_file.exists(), "the mock of the API does not start")
        port = port_file.read_text().strip()
        self.env["ANTHROPIC_BASE_URL"] = f"http://127.0.0.1:{port}"
        config = Path(self.env["HOME"]) / ".codex/config.toml"
        if self.agent == "codex":
            settings = config.read_text()
            config.write_text(
                'model = "mock"\nmodel_provider = "mock"\n' + settings + "\n[model_providers.mock]\n"
                f'name = "mock"\nbase_url = "http://127.0.0.1:{port}/v1"\nwire_api = "responses"\n')

    def stop(self):
        self.api.stdin.close()
        self.api.wait()
        self.run("stop", "project", "--force")

    def run(self, *args):
        done = subprocess.run(["agentvfs", *args], env=self.env, cwd=getattr(self, "mount", self.root),
                              capture_output=True, text=True)
        if done.returncode != 0:
            fail(f"agentvfs {' '.join(args)}: {done.stderr}")
        return done.stdout

    def command(self, n):
        words = f"turn-{n}"
        if self.agent == "claude":
            more = ["--continue"] if n > 1 else []
            return ["claude", "-p", words, *more, "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Write,Edit,Read"]
        # What `/hooks` does in a terminal, for one run.
        options = ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
        options += ["-c", 'sandbox_mode="danger-full-access"']
        return ["codex", "exec", *(["resume", "--last"] if n > 1 else []), *options, words]

    def turn(self, n):
        """Lets the agent work; a killed one is killed while its last call runs."""
        begun = Path(self.mount) / "begun"
        log = open(self.root / "agent.log", "ab")
        process = subprocess.Popen(self.command(n), env=self.env, cwd=self.mount, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
        if n in KILLED:
            until(begun.exists, f"the call of turn {n} does not begin")
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            # Its shell may be in a session of its own.
            try:
                os.kill(int(begun.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
            begun.unlink()
            return
        try:
            status = process.wait(TURN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            fail(f"turn {n} does not end; see {self.root}/agent.log")
        same(f"status of turn {n}", 0, status)

    def tree(self):
        """Every name with mode and content."""
        found = {}
        for dir, dirs, files in os.walk(self.mount):
            if ".agentvfs" in dirs:
                dirs.remove(".agentvfs")
            for name in dirs + files:
                path = Path(dir) / name
                found[str(path.relative_to(self.mount))] = (
                    path.lstat().st_mode, path.read_bytes() if name in files else None)
        return found

    def calls(self):
        rows = json.loads(self.run("timeline", "--json", "--limit", "10000"))["calls"]
        return [row for row in rows if row.get("key")]

    def prompt(self):
        """The id of the newest turn."""
        commits = json.loads(self.run("log", "--all", "--json"))["commits"]
        return next(c["meta"]["prompt"] for c in commits if "prompt" in c["meta"])

    def check_calls(self, n):
        rows = {row["key"].rsplit(":", 1)[1]: row for row in self.calls()}
        wanted = [c for k in range(1, n + 1) for calls in self.turns[k] for c in calls]
        same(f"calls after turn {n}", sorted(c.id for c in wanted), sorted(rows))
        for call in wanted:
            # A killed agent says nothing; its next prompt does.
            is_left = n in KILLED and call is self.turns[n][-1][-1]
            same(f"status of {call.id} ({call.input})", "pending" if is_left else call.status, rows[call.id]["status"])
        for calls in self.turns[n]:
            for call in calls:
                self.check_changes(call, calls, rows[call.id]["id"])
        return rows

    def check_changes(self, call, together, id):
        if call.changes is None:
            return
        diff = json.loads(self.run("tool", "diff", str(id), "--json"))
        found = {f"{row['status']} {row['path']}" for row in diff["changes"]}
        wanted = set(call.changes)
        if self.agent == "codex" and len(together) > 1:
            # They run at the same time, as children of one process: whose a change is, is not known.
            wanted |= found & {change for other in together for change in other.changes}
        same(f"changes of {call.id} in turn {call.turn}", sorted(wanted), sorted(found))

    def check_undo(self, n, rows):
        """A call in the middle is taken back, and nothing else."""
        call = next(c for calls in self.turns[n] for c in calls if c.changes == [f"A lost{n}.txt"])
        before = self.tree()
        self.run("tool", "undo", str(rows[call.id]["id"]))
        wanted = {path: what for path, what in before.items() if path != f"lost{n}.txt"}
        same(f"tree after tool undo in turn {n}", wanted, self.tree())
        self.run("undo")
        same(f"tree after undo in turn {n}", before, self.tree())

    def check_back(self, n, before):
        after = self.tree()
        self.run("rollback", "--meta", f"prompt={self.prompt()}")
        same(f"tree before turn {n}", before, self.tree())
        self.run("undo")
        same(f"tree after turn {n}", after, self.tree())

    def check_denied(self):
        """A push is not made, and the agent has the rule's reason as the call's result."""
        policy = self.root / "policy.toml"
        policy.write_text(PUSH)
        self.run("policy", "set", str(policy))
        self.run("watch", "--no-follow")
        self.turn(TURNS + 1)
        if (Path(self.mount) / "pushed.txt").exists():
            fail("the push was made")
        home = Path(self.env["HOME"])
        kept = home / (".claude/projects" if self.agent == "claude" else ".codex/sessions")
        told = "".join(path.read_text() for path in kept.rglob("*.jsonl"))
        if "Pushing is for the user to decide." not in told:
            fail(f"{self.agent} was not told why")
        events = [json.loads(line) for line in self.run("watch", "--no-follow", "--since", "0", "--op", "verdict").splitlines()]
        said = [(event["verdict"], event["extra"]["detail"].split()[0]) for event in events if event["op"] == "verdict"]
        same("verdicts", [("deny", "rule=no-push")], said)

    def all(self):
        for n in range(1, TURNS + 1):
            before = self.tree()
            self.turn(n)
            rows = self.check_calls(n)
            if n not in KILLED:
                self.check_undo(n, rows)
            self.check_back(n, before)
        self.check_denied()
        log = Path(self.env["AGENTVFS_HOME"]) / "hooks.log"
        same("hooks.log", "", log.read_text() if log.exists() else "")


def until(condition, why):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            fail(why)
        time.sleep(0.02)


def main():
    agentvfs, root = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    for agent in sys.argv[3:] or ["claude", "codex"]:
        start = time.monotonic()
        machine = Machine(agentvfs, root, agent)
        try:
            machine.all()
        finally:
            machine.stop()
        print(f"{agent}: {TURNS} turns, {len([c for r in machine.turns.values() for cs in r for c in cs])} calls: "
              f"done in {time.monotonic() - start:.0f} s")


main()
