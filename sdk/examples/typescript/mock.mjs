// A mock of a model with OpenAI's API (chat completions): its answers are the turns of a script, one a request.
//
//     node mock.mjs SCRIPT.json      prints url=…; SCRIPT is a list of {"tool", "arguments"} and {"text"}

import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const turns = JSON.parse(readFileSync(process.argv[2], "utf8"));
let asked = 0;

function messageOf(turn) {
  if (turn.text !== undefined) return { role: "assistant", content: turn.text };
  const call = { name: turn.tool, arguments: JSON.stringify(turn.arguments) };
  return { role: "assistant", content: null, tool_calls: [{ index: 0, id: `call_${asked}`, type: "function", function: call }] };
}

function answer(request, response) {
  const turn = turns[asked++];
  if (turn === undefined) {
    response.writeHead(500).end("the script has ended");
    return;
  }
  const message = messageOf(turn);
  const finish_reason = turn.text === undefined ? "tool_calls" : "stop";
  const head = { id: `chat-${asked}`, created: 1, model: request.model };
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  if (!request.stream) {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ ...head, object: "chat.completion", choices: [{ index: 0, message, finish_reason }], usage }));
    return;
  }
  response.setHeader("content-type", "text/event-stream");
  const part = (delta, finish_reason) => {
    const choices = [{ index: 0, delta, finish_reason }];
    response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices, usage })}\n\n`);
  };
  part(message, null);
  part({}, finish_reason);
  response.end("data: [DONE]\n\n");
}

const server = createServer((request, response) => {
  let body = "";
  request.setEncoding("utf8");
  request.on("data", (text) => (body += text));
  request.on("end", () => answer(JSON.parse(body), response));
});
server.listen(0, "127.0.0.1", () => console.log(`url=http://127.0.0.1:${server.address().port}/v1`));
