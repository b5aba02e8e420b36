// Lists a wallet's tools through the reference MCP client whose package lies beside this file, and makes calls: those of mounted tools
// by their own names, of others by x402_call_tool. Input: {command, env, mounted, calls: [{id, server, tool, arguments}]}, where mounted
// is how many mounted tools there are to be, and an id is the last word of a tool's description. It prints {tools, answers}.
import { readFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';

const { command, env, mounted, calls } = JSON.parse(readFileSync(0, 'utf8'));
const client = new Client({ name: 'mounted', version: '1' }, { capabilities: {} });
await client.connect(new StdioClientTransport({ command, args: ['mcp'], env }));
let tools = [];
const shown = () => tools.filter(({ name }) => !name.startsWith('x402_'));
for (let tries = 0; tries < 60 && shown().length < mounted; tries++) {
  if (tries) await new Promise((resolve) => setTimeout(resolve, 500)); // a server that is late
  ({ tools } = await client.listTools());
}
const names = new Map(shown().map(({ name, description }) => [description.split(' ').at(-1), name]));
const answers = {};
const work = async () => {
  for (let call = calls.pop(); call; call = calls.pop()) {
    const { id, ...given } = call;
    const direct = names.get(id);
    const params = direct ? { name: direct, arguments: given.arguments } : { name: 'x402_call_tool', arguments: given };
    try { answers[id] = { direct: !!direct, result: await client.callTool(params) }; }
    catch (error) { answers[id] = { direct: !!direct, error: String(error.message).slice(0, 300) }; }
  }
};
await Promise.all([work(), work(), work(), work()]);
await client.close();
console.log(JSON.stringify({ tools, answers }));
