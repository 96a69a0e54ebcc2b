// `agentvfs serve mcp` through the package @modelcontextprotocol/sdk of npm.
//
// Arguments: the program, a Python, odd.py, and where the workspace `mcp` is mounted. Throws where something is not
// as it must be.

import assert from 'node:assert/strict';
import { readFileSync, existsSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const [agentvfs, python, odd, mount] = process.argv.slice(2);
const env = { ...process.env };
// Half of the client's own patience: a call must end by an answer.
const options = { timeout: 30_000 };

async function session(command, args, work) {
    const client = new Client({ name: 'test', version: '1' });
    await client.connect(new StdioClientTransport({ command, args, env }));
    try {
        await work(client);
    } finally {
        await client.close();
    }
}

async function call(client, name, args = {}) {
    const result = await client.callTool({ name, arguments: args }, undefined, options);
    assert(!result.isError, `${name}: ${JSON.stringify(result)}`);
    return { text: result.content[0].text, call: result._meta?.['agentvfs/call'] };
}

const server = ['serve', 'mcp', '-w', 'mcp'];
await session(agentvfs, server, async (client) => {
    const { tools } = await client.listTools();
    const destructive = tools.filter((tool) => tool.annotations.destructiveHint).map((tool) => tool.name);
    assert.deepEqual(destructive, ['export']);
    await call(client, 'checkpoint', { label: 'npm' });
    const wrote = await call(client, 'write_file', { path: 'npm', content: 'zwölf\n' });
    assert.equal(readFileSync(`${mount}/npm`, 'utf8'), 'zwölf\n');
    assert.equal((await call(client, 'tool_diff', { call: wrote.call })).text, 'A\tnpm');
    assert.match((await call(client, 'blame', { path: 'npm' })).text, /write_file/);
    await call(client, 'tool_undo', { call: wrote.call });
    assert(!existsSync(`${mount}/npm`));
    await call(client, 'undo');
    assert(existsSync(`${mount}/npm`));
    await call(client, 'redo');
    assert(!existsSync(`${mount}/npm`));
    await call(client, 'write_file', { path: 'README', content: 'oops' });
    await call(client, 'restore', { paths: ['README'] });
    assert.equal(readFileSync(`${mount}/README`, 'utf8'), 'a project\n');
    assert.match((await call(client, 'branch_list')).text, /^main\t/);
    console.log(`mcp: npm: ${tools.length} tools`);
});

const refused = {
    surrogate: 'base64',
    number: 'send larger ones as texts',
    nested: '127 deep',
    bytes: 'base64',
    long: 'with append',
};
await session(python, [odd, agentvfs, ...server], async (client) => {
    for (const [mark, hint] of Object.entries(refused)) {
        const args = { path: 'odd', content: `@${mark}@` };
        const result = await client.callTool({ name: 'write_file', arguments: args }, undefined, options);
        const text = result.content[0].text;
        assert(result.isError && text.startsWith('agentvfs: ') && text.includes(hint), `${mark}: ${text}`);
    }
    assert(!existsSync(`${mount}/odd`));
    assert.equal((await call(client, 'read_file', { path: 'README' })).text, 'a project\n');
    console.log('mcp: npm: what cannot be read is answered');
});
