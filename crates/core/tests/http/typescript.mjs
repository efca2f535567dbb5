// The official TypeScript client calls tools over HTTP: `node typescript.mjs FOLDER URL`, with its packages in
// FOLDER.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

const [folder, url] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ToolListChangedNotificationSchema } = require('@modelcontextprotocol/sdk/types.js');

const client = new Client({ name: 'typescript', version: '1' });
const changed = new Promise(resolve => client.setNotificationHandler(ToolListChangedNotificationSchema, resolve));
const transport = new StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);

const { tools } = await client.listTools();
assert(tools.some(tool => tool.name === 'test_simple_text'));
const said = await client.callTool({ name: 'test_simple_text' });
assert.equal(said.content[0].text, 'This is a simple text response for testing.');
const failed = await client.callTool({ name: 'test_error_handling' });
assert.equal(failed.isError, true);

const steps = [];
const onprogress = ({ progress }) => steps.push(progress);
await client.callTool({ name: 'test_tool_with_progress' }, undefined, { onprogress });
assert.deepEqual(steps, [0, 50, 100]);

await client.callTool({ name: 'test_trigger_tool_change' });
await changed;
await assert.rejects(client.callTool({ name: 'nobody' }), /there is no tool `nobody`/);
await transport.terminateSession();
await client.close();
console.log('the client in TypeScript: everything worked');
