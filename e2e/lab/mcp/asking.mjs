// A plain MCP server over streamable HTTP that asks its client back, in requests of before 2026-07-28, each session for itself.
// It knows nothing of money, prints its URL, and ends with its input.
import http from 'node:http';
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CreateMessageResultSchema, SubscribeRequestSchema, UnsubscribeRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { say } from './goods.mjs';

const sessions = new Map(), subscribed = new Set();

function shop() {
  const mcp = new McpServer({ name: 'asking', version: '1' }, { capabilities: { logging: {}, resources: { subscribe: true } } });
  const ask = async (_, extra) => {
    const requestedSchema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };
    const said = await mcp.server.elicitInput({ message: 'Which city?', requestedSchema }); // on the session's own stream
    const params = { messages: [{ role: 'user', content: { type: 'text', text: 'a word' } }], maxTokens: 5 };
    const sampled = await extra.sendRequest({ method: 'sampling/createMessage', params }, CreateMessageResultSchema); // on the call's
    const { roots } = await mcp.server.listRoots();
    return say(`${said.content.city} ${sampled.content.text} ${roots[0].uri}`);
  };
  for (const name of ['search', 'ask']) mcp.registerTool(name, { description: 'asks back', inputSchema: {} }, ask);
  mcp.registerTool('can', { description: 'what the client can', inputSchema: {} }, async () => say(JSON.stringify(mcp.server.getClientCapabilities())));
  mcp.registerTool('touch', { description: 'changes the resource', inputSchema: {} }, async () => {
    for (const s of sessions.values()) if (subscribed.has(s.mcp)) await s.mcp.server.sendResourceUpdated({ uri: 'weather://today' });
    return say('touched');
  });
  mcp.registerResource('today', 'weather://today', {}, async (uri) => ({ contents: [{ uri: uri.href, text: 'dry' }] }));
  mcp.server.setRequestHandler(SubscribeRequestSchema, async () => { subscribed.add(mcp); return {}; });
  mcp.server.setRequestHandler(UnsubscribeRequestSchema, async () => { subscribed.delete(mcp); return {}; });
  return mcp;
}

const server = http.createServer(async (request, response) => {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.transport.handleRequest(request, response);
  if (request.headers['mcp-session-id']) return response.writeHead(404).end();
  const mcp = shop();
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID, onsessioninitialized: (id) => sessions.set(id, { mcp, transport }), onsessionclosed: (id) => sessions.delete(id),
  });
  await mcp.connect(transport);
  await transport.handleRequest(request, response);
});
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/mcp`));
process.stdin.resume().on('end', () => process.exit(0));
