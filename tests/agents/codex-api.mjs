// A model's API as Codex asks it: whatever it is told, it runs a command by the agent's own shell tool, and is done.
//
//   node codex-api.mjs PORT_FILE     writes its port there; ends with its standard input
import { createServer } from 'node:http';
import { renameSync, writeFileSync } from 'node:fs';

const COMMAND = process.env.MOCK_COMMAND;

// The call of a shell tool, as the agent that asks names and describes it.
function call(tools) {
  const tool = tools.find((t) => /^(exec_command|shell_command|shell)$/.test(t.name ?? ''));
  if (!tool) throw new Error(`no shell tool among ${JSON.stringify(tools.map((t) => t.name ?? t.type))}`);
  const words = { exec_command: { cmd: COMMAND }, shell_command: { command: COMMAND } };
  const args = words[tool.name] ?? { command: ['bash', '-c', COMMAND] };
  return { type: 'function_call', id: 'fc_1', call_id: 'call_1', name: tool.name, arguments: JSON.stringify(args) };
}

function reply(request) {
  const answered = request.input.some((item) => item.type === 'function_call_output');
  if (!answered) return call(request.tools ?? []);
  return {
    type: 'message', role: 'assistant', id: 'msg_1', status: 'completed',
    content: [{ type: 'output_text', text: 'all done', annotations: [] }],
  };
}

function stream(response, item) {
  const send = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  const usage = { input_tokens: 1, output_tokens: 1, total_tokens: 2 };
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  send('response.created', { response: { id: 'resp_1' } });
  send('response.output_item.done', { output_index: 0, item });
  send('response.completed', { response: { id: 'resp_1', status: 'completed', output: [item], usage } });
  response.end();
}

const server = createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => (body += piece));
  request.on('end', () => {
    if (request.method !== 'POST' || !request.url.endsWith('/responses')) {
      response.writeHead(404, { 'content-type': 'application/json' });
      return response.end('{}');
    }
    try {
      return stream(response, reply(JSON.parse(body)));
    } catch (error) {
      console.error(error);
      response.writeHead(400, { 'content-type': 'application/json' });
      return response.end(JSON.stringify({ error: { message: String(error) } }));
    }
  });
});

server.listen(0, '127.0.0.1', () => {
  const file = process.argv[2];
  writeFileSync(`${file}.new`, `${server.address().port}\n`);
  renameSync(`${file}.new`, file);
});
process.stdin.on('end', () => process.exit(0)).resume();
