// A plain MCP server on stdio that knows nothing of money. usage: plain.mjs LOG
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { journal, TOOLS } from './goods.mjs';

const note = journal(process.argv[2]);
const server = new McpServer({ name: 'plain', version: '1.0.0' });
for (const name of ['echo', 'boom', 'hello']) {
  const { description, schema, run } = TOOLS[name];
  server.registerTool(name, { description, inputSchema: schema }, async (args) => { note('run', { seller: 'plain', tool: name }); return run(args); });
}
await server.connect(new StdioServerTransport());
process.stdin.on('end', () => process.exit(0));
