#!/usr/bin/env python3
"""How soon lists are there in a workspace with a long history and many branches.

    benches/history.py [-c COMMITS] [-b BRANCHES] [-r ROUNDS] [-d DIR] PROGRAM

PROGRAM: an `agentvfs` (such as target/release/agentvfs). In a workspace on a small project COMMITS checkpoints (100,000)
are made, each tenth with a label, then BRANCHES branches (1,000). Then each command is run ROUNDS times (21). Printed is
the time from its start until its first byte and until its end, in milliseconds: median and least of the rounds, and the
least processor time of the daemon, which says more on a busy machine. On a terminal, which is a pseudo terminal of 100
columns, and in a pipe.
"""

import argparse
import base64
import fcntl
import glob
import json
import os
import pty
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile
import termios
import time

# What is asked, and whether on a terminal.
COMMANDS = [
    (["log"], True),
    (["log", "-n", "10"], True),
    (["log", "--no-graph", "-n", "10"], True),
    (["log"], False),
    (["log", "-n", "10"], False),
    (["log", "--oneline"], False),
    (["branch", "list"], True),
    (["branch", "list"], False),
    (["status"], True),
    (["status"], False),
]


class Daemon:
    """A connection by the control protocol."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        peer = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        self.pid = struct.unpack("3i", peer)[0]
        self.lines = self.socket.makefile("rb")
        self.last = 0
        self.ask("hello", protocol=1, client="history.py")

    def processor_ms(self):
        """Processor time of the daemon's threads until now."""
        times = [open(path).read().split()[0] for path in glob.glob(f"/proc/{self.pid}/task/*/schedstat")]
        return sum(map(int, times)) / 1e6

    def ask(self, method, **params):
        self.last += 1
        request = {"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        while True:
            answer = json.loads(self.lines.readline())
            if answer.get("id") == self.last:
                break
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']}")
        return answer["result"]


class Bench:
    def __init__(self, program, work):
        self.program, self.work = os.path.abspath(program), work
        self.project = os.path.join(work, "project")
        os.mkdir(self.project)
        for n in range(100):
            with open(os.path.join(self.project, f"f{n}"), "w") as f:
                f.write(f"file {n}\n")
        self.environment = dict(
            os.environ, AGENTVFS_HOME=os.path.join(work, "home"), TERM="xterm", LC_ALL="C.UTF-8"
        )
        self.run("start", "bench", "--from", self.project)
        self.run("config", "auto-idle=off", "auto-busy=off")
        while '"done"' not in self.run("status", "bench", "--json"):
            time.sleep(0.1)

    def run(self, *args):
        done = subprocess.run(
            [self.program, *args], env=self.environment, cwd=self.project, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def socket_path(self):
        return os.path.join(self.environment["AGENTVFS_HOME"], "daemon.sock")

    def fill(self, commits, branches):
        daemon = Daemon(self.socket_path())
        place = {"workspace": "bench", "branch": "main"}
        since = time.monotonic()
        for n in range(commits):
            text = base64.b64encode(f"{n:09}\n".encode()).decode()
            daemon.ask("fs.write", path=f"f{n % 100}", b64=text, offset=0, **place)
            label = f"label-{n}" if n % 10 == 0 else None
            daemon.ask("workspace.checkpoint", label=label, message=f"change {n}", wait=False, **place)
        print(f"{commits} commits made in {time.monotonic() - since:.0f} s", flush=True)
        since = time.monotonic()
        for n in range(branches):
            daemon.ask("branch.create", name=f"branch-{n}", **place)
        print(f"{branches} branches made in {time.monotonic() - since:.0f} s", flush=True)

    def once(self, args, terminal):
        """Milliseconds until the first byte and until the end."""
        since = time.monotonic()
        if terminal:
            pid, out = pty.fork()
            if pid == 0:
                os.chdir(self.project)
                os.execve(self.program, [self.program, *args], self.environment)
            fcntl.ioctl(out, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 100, 0, 0))
        else:
            child = subprocess.Popen(
                [self.program, *args], env=self.environment, cwd=self.project, stdout=subprocess.PIPE
            )
            pid, out = child.pid, child.stdout.fileno()
        first = None
        while True:
            try:
                part = os.read(out, 1 << 16)
            except OSError:  # The other end of a terminal is closed.
                part = b""
            first = first or time.monotonic()
            if not part:
                break
        if terminal:
            os.close(out)
            _, status = os.waitpid(pid, 0)
            status = os.waitstatus_to_exitcode(status)
        else:
            status = child.wait()
            child.stdout.close()
        if status != 0:
            raise SystemExit(f"{' '.join(args)} ended with {status}")
        return 1000 * (first - since), 1000 * (time.monotonic() - since)

    def measure(self, rounds):
        print("command\ton\tfirst byte ms\tleast\tend ms\tleast\tdaemon ms\tleast")
        daemon = Daemon(self.socket_path())
        for args, terminal in COMMANDS:
            times = []
            for _ in range(rounds):
                before = daemon.processor_ms()
                first, end = self.once(args, terminal)
                times.append((first, end, daemon.processor_ms() - before))
            row = [" ".join(args), "terminal" if terminal else "pipe"]
            for part in zip(*times):
                row += [f"{statistics.median(part):.1f}", f"{min(part):.1f}"]
            print("\t".join(row), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-c", type=int, default=100_000)
    parser.add_argument("-b", type=int, default=1000)
    parser.add_argument("-r", type=int, default=21)
    parser.add_argument("-d")
    parser.add_argument("program")
    args = parser.parse_args()
    work = tempfile.mkdtemp(dir=args.d)
    bench = Bench(args.program, work)
    try:
        bench.fill(args.c, args.b)
        bench.measure(args.r)
    finally:
        bench.run("stop", "bench", "--force", "--no-checkpoint")
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
