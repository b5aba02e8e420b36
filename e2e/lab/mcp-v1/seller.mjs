// The paid MCP server of npm x402-mcp 0.0.5: V1, _meta["x402.payment"] in base64.
import { createPaidMcpHandler } from 'x402-mcp/server';
import { z } from 'zod';

/** Handler for http.createServer. `tools` as in ../mcp/goods.mjs; their schemas are of another zod, so only the names of their fields are used. */
export function x402McpHandler({ tools, facilitator, payTo, note }) {
  const handle = createPaidMcpHandler((server) => {
    for (const [name, { price, description, schema, run }] of Object.entries(tools)) {
      const shape = Object.fromEntries(Object.keys(schema).map((field) => [field, z.string().optional()]));
      const handler = async (args) => { note('run', { tool: name }); return run(args); };
      if (price) server.paidTool(name, description, { price: Number(price) / 1e6 }, shape, {}, handler);
      else server.tool(name, description, shape, handler);
    }
  }, { serverInfo: { name: 'seller-x402-mcp', version: '1.0.0' } }, { recipient: payTo.evm, facilitator: { url: facilitator }, network: 'base-sepolia', disableSse: true });

  return async (req, res) => {
    const parts = [];
    for await (const part of req) parts.push(part);
    const body = Buffer.concat(parts);
    const answer = await handle(new Request(`http://${req.headers.host}${req.url}`, {
      method: req.method, headers: req.headers, ...(body.length && { body }),
    }));
    res.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body) for await (const part of answer.body) res.write(part);
    res.end();
  };
}
