#!/usr/bin/env python3
"""How long an agent waits for `agentvfs hook`.

    benches/hook.py [-n CALLS] [-d DIR] PROGRAM

PROGRAM: an `agentvfs` (such as target/release/agentvfs). In a workspace in DIR (default: a temporary directory) CALLS
tool calls (200) are begun and ended by the hooks of Claude Code, each of which changes a file; then as many hooks outside of
all workspaces, and `true`. Printed are the median, the 99th percentile and the longest of each, in milliseconds.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
import time


def show(what, times):
    times = sorted(1000 * seconds for seconds in times)
    at = lambda share: times[min(len(times) - 1, int(share * len(times)))]
    print(f"{what}\tmedian {at(0.5):.1f} ms\t99 % {at(0.99):.1f} ms\tmaximum {times[-1]:.1f} ms")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=200)
    parser.add_argument("-d")
    parser.add_argument("program")
    args = parser.parse_args()
    program, work = os.path.abspath(args.program), tempfile.mkdtemp(dir=args.d)
    environment = dict(os.environ, AGENTVFS_HOME=os.path.join(work, "home"))
    project = os.path.join(work, "project")
    os.mkdir(project)

    def run(command, cwd, text=""):
        since = time.monotonic()
        done = subprocess.run(command, env=environment, cwd=cwd, input=text, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{command}: {done.stderr}")
        return time.monotonic() - since

    def hook(event, number, cwd):
        told = {"session_id": "s", "tool_use_id": f"c{number}", "tool_name": "Bash", "hook_event_name": event}
        told.update({"cwd": cwd, "tool_input": {"command": "make"}, "tool_response": {"stdout": "done"}})
        return run([program, "hook", "claude"], cwd, json.dumps(told))

    run([program, "start", "bench", "--from", project], work)
    try:
        mount = os.path.join(work, "home/mnt/bench")
        begun, ended = [], []
        for number in range(args.n):
            begun.append(hook("PreToolUse", number, mount))
            with open(os.path.join(mount, "file"), "a") as f:
                f.write("changed\n")
            ended.append(hook("PostToolUse", number, mount))
        command = [program, "timeline", "-w", "bench", "--limit", str(2 * args.n)]
        timeline = subprocess.run(command, env=environment, capture_output=True)
        if len(timeline.stdout.splitlines()) != args.n:
            raise SystemExit("calls are missing in the timeline")
        show("before a tool", begun)
        show("after a tool", ended)
        show("outside", [hook("PreToolUse", number, work) for number in range(args.n)])
        show("true", [run(["true"], work) for _ in range(args.n)])
    finally:
        run([program, "stop", "bench"], work)
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
