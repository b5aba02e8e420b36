// A client that answers what it is asked. usage: asked.mjs URL NAME; prints {initialize, can, ask, updated} and ends.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';

const [url, name] = process.argv.slice(2);
const client = new Client({ name, version: '1' }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { city: name } }));
client.setRequestHandler(CreateMessageRequestSchema, async () => ({ model: 'm', role: 'assistant', content: { type: 'text', text: `of ${name}` } }));
client.setRequestHandler(ListRootsRequestSchema, async () => ({ roots: [{ uri: `file:///${name}` }] }));
const updated = new Promise((done) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => done(params.uri)));
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const call = async (tool) => (await client.callTool({ name: tool, arguments: {} })).content[0].text;
const out = { initialize: client.getServerCapabilities(), can: JSON.parse(await call('can')), ask: await call('ask') };
await client.subscribeResource({ uri: 'weather://today' });
await call('touch');
out.updated = await updated;
console.log(JSON.stringify(out));
await client.close();
