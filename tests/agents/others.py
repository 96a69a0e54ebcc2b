#!/usr/bin/env python3
"""Gemini CLI and OpenCode as npm has them read what `agent install` writes, without an error.

Gemini CLI works one turn against a mock of its model's API: its hooks have the call in the timeline and the turn in the
history, and `rollback --meta prompt=ID` takes the file away. Both connect to the MCP server. Part of `.ci/long agents`.

    others.py AGENTVFS DIR     DIR has npm/ with both installed
"""

import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

SECONDS = 180


def fail(text):
    sys.exit(f"others: {text}")


class Model(http.server.BaseHTTPRequestHandler):
    """Has a file written, then says that it is done."""

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        tools = [f["name"] for t in asked.get("tools", []) for f in t.get("functionDeclarations", [])]
        did = any("functionResponse" in p for c in asked.get("contents", []) for p in c.get("parts", []))
        part = {"text": "All done."}
        if "write_file" in tools and not did:
            part = {"functionCall": {"name": "write_file", "args": {"file_path": "made.txt", "content": "by gemini\n"}}}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        said = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        data = json.dumps({"candidates": [said], "usageMetadata": usage, "modelVersion": "mock"})
        stream = "stream" in self.path
        body = (f"data: {data}\r\n\r\n" if stream else data).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if stream else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    program, place = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    home, project, bin = place / "others-home", place / "others", place / "others-bin"
    for directory in (home / ".gemini", home / ".config/opencode", project, bin):
        directory.mkdir(parents=True)
    (bin / "agentvfs").symlink_to(program)
    model = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=model.serve_forever, daemon=True).start()
    env = {
        "HOME": str(home),
        "PATH": f"{bin}:{place}/npm/node_modules/.bin:{os.environ['PATH']}",
        "AGENTVFS_HOME": str(place / "others-store"),
        "GEMINI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.server_address[1]}",
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "NO_PROXY": "127.0.0.1",
    }
    # What the user chose when the program asked first.
    (home / ".gemini/settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')

    def run(*words, cwd=project):
        done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode != 0:
            fail(f"{' '.join(words)}: status {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    rows = [row.split("\t") for row in run("agentvfs", "agent", "install", "gemini", "opencode").splitlines()]
    if not all(row[3] in ("written", "same") for row in rows):
        fail(f"install: {rows}")
    run("agentvfs", "start", "others", "--from", str(project))
    try:
        mount = Path(json.loads(run("agentvfs", "list", "--json"))["workspaces"][0]["mount"])
        for agent in ("gemini", "opencode"):
            said = run(agent, "mcp", "list", cwd=mount)
            if "agentvfs" not in said or "connected" not in said.lower() or "disconnected" in said.lower():
                fail(f"{agent} does not connect to the MCP server: {said}")
        run("gemini", "--yolo", "-m", "gemini-2.5-flash", "-p", "make a file", cwd=mount)
        if (mount / "made.txt").read_text() != "by gemini\n":
            fail("made.txt is not what the model wrote")
        calls = json.loads(run("agentvfs", "timeline", "--json", cwd=mount))["calls"]
        if [(call["name"], call["status"]) for call in calls] != [("write_file", "success")]:
            fail(f"timeline: {calls}")
        commits = json.loads(run("agentvfs", "log", "--all", "--json", cwd=mount))["commits"]
        turns = [commit["meta"] for commit in commits if commit["meta"].get("agent") == "gemini"]
        ids = {key: meta[key] for meta in turns for key in ("prompt", "prompt-end") if key in meta}
        if len(turns) != 2 or len(ids) != 2 or ids["prompt"] != ids["prompt-end"]:
            fail(f"the turn's commits: {turns}")
        run("agentvfs", "rollback", "--meta", f"prompt={ids['prompt']}", cwd=mount)
        if (mount / "made.txt").exists():
            fail("the turn was not taken back")
        log = Path(env["AGENTVFS_HOME"]) / "hooks.log"
        if log.exists():
            fail(f"hooks.log: {log.read_text()}")
    finally:
        run("agentvfs", "stop", "others", "--force")
    print("others: Gemini CLI worked a turn; Gemini CLI and OpenCode connect to the MCP server")


main()
