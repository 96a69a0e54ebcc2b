// Models' APIs as Claude Code and Codex ask them: whatever is said, the calls of a script are made, and then it is done.
//
//   node turns-api.mjs SCRIPT PORT_FILE     writes its port there; ends with its standard input
//
// SCRIPT is JSON: turns by name, each a list of rounds, each a list of calls { id, name, input } that are made together. The
// turn is the last word of the form turn-NAME that the user has said.
import { createServer } from 'node:http';
import { readFileSync, renameSync, writeFileSync } from 'node:fs';

const turns = JSON.parse(readFileSync(process.argv[2], 'utf8'));

// The round that comes next: one for each answer to calls since the turn began.
function round(messages, isPrompt, answers) {
  const begin = messages.findLastIndex((m) => isPrompt(m));
  const name = [...JSON.stringify(messages[begin] ?? '').matchAll(/turn-(\w+)/g)].at(-1)?.[1];
  const done = messages.slice(begin + 1).reduce((sum, m) => sum + answers(m), 0);
  let left = done;
  for (const calls of turns[name] ?? []) {
    if (left <= 0) return calls;
    left -= calls.length;
  }
  return [];
}

const USAGE = { input_tokens: 1, output_tokens: 1 };

const claude = {
  blocks(request) {
    const parts = (m) => (Array.isArray(m.content) ? m.content : [{ type: 'text', text: m.content }]);
    const isPrompt = (m) => m.role === 'user' && parts(m).some((b) => b.type === 'text' && /turn-\w/.test(b.text));
    const answers = (m) => parts(m).filter((b) => b.type === 'tool_result').length;
    // Small questions beside the work (a title, a summary) have no tools.
    const has = (request.tools ?? []).some((tool) => tool.name === 'Bash');
    const calls = has ? round(request.messages, isPrompt, answers) : [];
    if (calls.length === 0) return [{ type: 'text', text: 'All done.' }];
    return calls.map((call) => ({ type: 'tool_use', ...call }));
  },
  message: (request, content, stop) => ({
    id: `msg_${Math.random()}`, type: 'message', role: 'assistant', model: request.model, content,
    stop_reason: stop, stop_sequence: null, usage: USAGE,
  }),
  answer(request, response) {
    const blocks = claude.blocks(request);
    const stop = blocks[0].type === 'tool_use' ? 'tool_use' : 'end_turn';
    if (!request.stream) return json(response, 200, claude.message(request, blocks, stop));
    const send = sender(response);
    send('message_start', { message: claude.message(request, [], null) });
    blocks.forEach((block, index) => {
      const isTool = block.type === 'tool_use';
      const empty = isTool ? { ...block, input: {} } : { type: 'text', text: '' };
      const delta = isTool
        ? { type: 'input_json_delta', partial_json: JSON.stringify(block.input) }
        : { type: 'text_delta', text: block.text };
      send('content_block_start', { index, content_block: empty });
      send('content_block_delta', { index, delta });
      send('content_block_stop', { index });
    });
    send('message_delta', { delta: { stop_reason: stop, stop_sequence: null }, usage: USAGE });
    send('message_stop', {});
    response.end();
  },
};

const codex = {
  item(tools, { id, input }) {
    const tool = tools.find((t) => /^(exec_command|shell_command|shell)$/.test(t.name ?? ''));
    if (!tool) throw new Error(`no shell tool among ${JSON.stringify(tools.map((t) => t.name ?? t.type))}`);
    const words = { exec_command: { cmd: input.command }, shell_command: { command: input.command } };
    const args = words[tool.name] ?? { command: ['bash', '-c', input.command] };
    return { type: 'function_call', id: `fc_${id}`, call_id: id, name: tool.name, arguments: JSON.stringify(args) };
  },
  answer(request, response) {
    const isPrompt = (i) => i.type === 'message' && i.role === 'user' && /turn-\w/.test(JSON.stringify(i.content));
    const calls = round(request.input, isPrompt, (i) => Number(i.type === 'function_call_output'));
    const words = { type: 'output_text', text: 'All done.', annotations: [] };
    const last = { type: 'message', role: 'assistant', id: 'msg_1', status: 'completed', content: [words] };
    const items = calls.length ? calls.map((call) => codex.item(request.tools ?? [], call)) : [last];
    const send = sender(response);
    send('response.created', { response: { id: 'resp_1' } });
    items.forEach((item, output_index) => send('response.output_item.done', { output_index, item }));
    const usage = { ...USAGE, total_tokens: 2 };
    send('response.completed', { response: { id: 'resp_1', status: 'completed', output: items, usage } });
    response.end();
  },
};

function json(response, status, data) {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify(data));
}

function sender(response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  return (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
}

const server = createServer((request, response) => {
  let body = '';
  request.on('data', (piece) => (body += piece));
  request.on('end', () => {
    const path = request.url.split('?')[0];
    try {
      if (path === '/v1/messages/count_tokens') return json(response, 200, { input_tokens: 1 });
      if (path === '/v1/messages') return claude.answer(JSON.parse(body), response);
      if (path.endsWith('/responses') && request.method === 'POST') return codex.answer(JSON.parse(body), response);
      return json(response, 404, { type: 'error', error: { type: 'not_found_error', message: path } });
    } catch (error) {
      console.error(error);
      return json(response, 400, { error: { message: String(error) } });
    }
  });
});

server.listen(0, '127.0.0.1', () => {
  const file = process.argv[3];
  writeFileSync(`${file}.new`, `${server.address().port}\n`);
  renameSync(`${file}.new`, file);
});
process.stdin.on('end', () => process.exit(0)).resume();
