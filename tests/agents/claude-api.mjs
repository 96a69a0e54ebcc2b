// A model's API as Claude Code asks it: whatever it is told, it writes a file, runs a command, and is done.
//
//   node claude-api.mjs PORT_FILE     writes its port there; ends with its standard input
import { createServer } from 'node:http';
import { renameSync, writeFileSync } from 'node:fs';

const STEPS = [
  (cwd) => ({ name: 'Write', input: { file_path: `${cwd}/made.txt`, content: 'made by claude\n' } }),
  () => ({ name: 'Bash', input: { command: process.env.MOCK_COMMAND, description: 'change files' } }),
];

// How many calls of tools have been answered, and where the agent works.
function progress(request) {
  const blocks = request.messages.flatMap((m) => (Array.isArray(m.content) ? m.content : []));
  const text = JSON.stringify(request.system ?? '') + JSON.stringify(request.messages);
  const cwd = /working directory: ([^\\"\n]+)/i.exec(text)?.[1] ?? '.';
  return { done: blocks.filter((b) => b.type === 'tool_result').length, cwd };
}

function reply(request) {
  const { done, cwd } = progress(request);
  const has = (name) => (request.tools ?? []).some((tool) => tool.name === name);
  const step = has('Bash') ? STEPS[done]?.(cwd) : undefined;
  return step
    ? { stop: 'tool_use', block: { type: 'tool_use', id: `toolu_${done}`, name: step.name, input: step.input } }
    : { stop: 'end_turn', block: { type: 'text', text: 'all done' } };
}

function message(request, content, stop) {
  return {
    id: 'msg_1', type: 'message', role: 'assistant', model: request.model, content,
    stop_reason: stop, stop_sequence: null, usage: { input_tokens: 1, output_tokens: 1 },
  };
}

function stream(response, request, { stop, block }) {
  const send = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  const isTool = block.type === 'tool_use';
  const empty = isTool ? { ...block, input: {} } : { type: 'text', text: '' };
  const delta = isTool
    ? { type: 'input_json_delta', partial_json: JSON.stringify(block.input) }
    : { type: 'text_delta', text: block.text };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  send('message_start', { message: message(request, [], null) });
  send('content_block_start', { index: 0, content_block: empty });
  send('content_block_delta', { index: 0, delta });
  send('content_block_stop', { index: 0 });
  send('message_delta', { delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: 1 } });
  send('message_stop', {});
  response.end();
}

const server = createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => (body += piece));
  request.on('end', () => {
    const json = (status, data) => {
      response.writeHead(status, { 'content-type': 'application/json' });
      response.end(JSON.stringify(data));
    };
    const path = request.url.split('?')[0];
    if (path === '/v1/messages/count_tokens') return json(200, { input_tokens: 1 });
    if (path !== '/v1/messages') return json(404, { type: 'error', error: { type: 'not_found_error', message: path } });
    const asked = JSON.parse(body);
    const answer = reply(asked);
    return asked.stream ? stream(response, asked, answer) : json(200, message(asked, [answer.block], answer.stop));
  });
});

server.listen(0, '127.0.0.1', () => {
  const file = process.argv[2];
  writeFileSync(`${file}.new`, `${server.address().port}\n`);
  renameSync(`${file}.new`, file);
});
process.stdin.on('end', () => process.exit(0)).resume();
