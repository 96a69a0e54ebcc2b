#!/usr/bin/env python3
"""Listing, blame, verify and export with many tool calls, and the daemon's memory.

    benches/calls.py [-n CALLS] [-d DIR] PROGRAM...

PROGRAM: an `agentvfs` (such as target/release/agentvfs), or several to compare, each in a home of its own
in DIR (default: a temporary directory). Calls are made through the control socket; each writes a file,
every hundredth the one that is blamed. Printed is the best of five, in milliseconds, of whole commands, and the most
memory that the daemon had so far. On a machine that does something else the figures say nothing.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time


class Bench:
    def __init__(self, program, work):
        self.program = os.path.abspath(program)
        self.work = work
        self.home = os.path.join(work, "home")
        self.project = os.path.join(work, "project")
        os.makedirs(self.project)
        open(os.path.join(self.project, "blamed"), "w").close()
        self.run("workspace", "start", "bench", "--from", self.project)
        self.run("workspace", "checkpoint", "bench", "ready")

    def run(self, *args):
        environment = dict(os.environ, AGENTVFS_HOME=self.home)
        done = subprocess.run([self.program, *args], env=environment, capture_output=True, text=True, cwd=self.work)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def calls(self, count):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.home, "daemon.sock"))
            lines = s.makefile("rw", encoding="utf-8", newline="\n")

            def ask(method, **params):
                request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]

            pid = ask("hello", protocol=1, client="bench")["pid"]
            here = {"workspace": "bench", "branch": "main"}
            for n in range(count):
                name = "blamed" if n % 100 == 0 else f"f{n % 1000}"
                text = json.dumps({"path": name, "n": n})
                call = ask("tool.start", name="edit", parameters=text, unsynced=True, **here)["id"]
                with open(os.path.join(self.home, "mnt/bench", name), "w") as f:
                    f.write(text)
                ask("tool.finish", id=call, result="true", **here)
            return pid

    def best(self, *args):
        times = []
        for _ in range(5):
            start = time.monotonic()
            self.run(*args)
            times.append(time.monotonic() - start)
        return min(times) * 1000

    def stop(self):
        self.run("workspace", "stop", "bench", "--no-checkpoint")


def peak_memory(pid):
    with open(f"/proc/{pid}/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=100_000)
    parser.add_argument("-d")
    parser.add_argument("program", nargs="+")
    args = parser.parse_args()
    at = ("-w", "bench")
    rows = {
        "list": ("timeline", "--limit", "20", *at),
        "blame": ("blame", "blamed", *at),
        "verify": ("timeline", "--verify", *at),
        "export": ("export", "bench", "plain.db", "--force"),
        "export --history": ("export", "bench", "history.db", "--history", "--force"),
    }
    for program in args.program:
        work = tempfile.mkdtemp(prefix="agentvfs-calls.", dir=args.d)
        bench = Bench(program, work)
        try:
            pid = bench.calls(args.n)
            print(f"{program}: {args.n} calls, {peak_memory(pid):.0f} MiB")
            for name, command in rows.items():
                print(f"  {name:18}{bench.best(*command):10.1f} ms{peak_memory(pid):8.0f} MiB", flush=True)
        finally:
            bench.stop()
            shutil.rmtree(work)


if __name__ == "__main__":
    main()
