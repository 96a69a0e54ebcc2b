"""A model that follows a script: for each answered tool call it asks for the next one, then it says that it is done.

Speaks as much of Anthropic's messages and OpenAI's chat completions as the examples need.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: A tool and its arguments; ``{cwd}`` stands for the directory where the agent works.
Step = tuple[str, dict[str, Any]]


class MockModel(ThreadingHTTPServer):
    """Listens on a port of its own; ``url`` is its address."""

    daemon_threads = True

    def __init__(self, steps: list[Step], cwd: str = "") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.steps = steps
        self.cwd = cwd
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def step(self, done: int) -> Step | None:
        """What to do after ``done`` answers."""
        if done >= len(self.steps):
            return None
        name, arguments = self.steps[done]
        return name, json.loads(json.dumps(arguments).replace("{cwd}", self.cwd))


class _Handler(BaseHTTPRequestHandler):
    server: MockModel

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        path = self.path.split("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": 1})
        elif path.endswith("/messages"):
            self._messages(asked)
        elif path.endswith("/chat/completions"):
            self._completions(asked)
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": path}})

    def _completions(self, asked: dict[str, Any]) -> None:
        done = sum(message["role"] == "tool" for message in asked["messages"])
        step = self.server.step(done)
        message: dict[str, Any] = {"role": "assistant", "content": None if step else "all done"}
        if step:
            function = {"name": step[0], "arguments": json.dumps(step[1])}
            message["tool_calls"] = [{"id": f"call_{done}", "type": "function", "function": function}]
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if step else "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": asked["model"], "usage": usage}
        self._json(200, {**answer, "choices": [choice]})

    def _messages(self, asked: dict[str, Any]) -> None:
        contents = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
        done = sum(block.get("type") == "tool_result" for content in contents for block in content)
        has_tools = any(tool.get("name") == "Bash" for tool in asked.get("tools") or [])
        step = self.server.step(done) if has_tools else None
        block: dict[str, Any] = {"type": "text", "text": "all done"}
        if step:
            block = {"type": "tool_use", "id": f"toolu_{done}", "name": step[0], "input": step[1]}
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"]}
        message |= {"stop_reason": "tool_use" if step else "end_turn", "stop_sequence": None}
        message |= {"usage": {"input_tokens": 1, "output_tokens": 1}}
        if asked.get("stream"):
            self._stream(message, block)
        else:
            self._json(200, {**message, "content": [block]})

    def _stream(self, message: dict[str, Any], block: dict[str, Any]) -> None:
        if block["type"] == "tool_use":
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            empty = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events: list[tuple[str, dict[str, Any]]] = [
            ("message_start", {"message": {**message, "content": [], "stop_reason": None}}),
            ("content_block_start", {"index": 0, "content_block": empty}),
            ("content_block_delta", {"index": 0, "delta": delta}),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": stop, "usage": {"output_tokens": 1}}),
            ("message_stop", {}),
        ]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        for name, data in events:
            self.wfile.write(f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode())

    def _json(self, status: int, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
