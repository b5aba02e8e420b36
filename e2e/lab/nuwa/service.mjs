// The unmodified npm server, @nuwa-ai/payment-kit 0.7.0: createFastMcpServer, or ExpressPaymentKit; each a service DID of its own.
// usage: service.mjs mcp|http PORT ROOCH_URL     (a child of up.mjs; tells it "ready" over IPC, its own output is noise)
// Tools: hello {name} free, echo {text} 1e9 pUSD ($0.001 = 10,000,000 RGas units), pricey {} 5e12 pUSD ($5).
import net from 'node:net';
import { z } from 'zod';
import { RGAS, party } from './keys.mjs';

const [kind, port, rpcUrl] = process.argv.slice(2);

// the kit listens on every interface; here it gets loopback
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function onLoopback(first, ...rest) {
  const callback = rest.find((each) => typeof each === 'function');
  const wanted = typeof first === 'object' && first !== null ? first.port : first;
  return listen.call(this, { port: Number(wanted), host: '127.0.0.1' }, callback);
};

const service = await party(`service-${kind}`);
const common = { serviceId: `lab-${kind}`, signer: service.signer, rpcUrl, network: 'local', defaultAssetId: RGAS };

if (kind === 'mcp') {
  const { createFastMcpServer } = await import('@nuwa-ai/payment-kit/mcp');
  const app = await createFastMcpServer({ ...common, port: Number(port) });
  app.freeTool({ name: 'hello', description: 'free greeting', parameters: { name: z.string().optional() }, execute: async ({ name }) => ({ hello: name ?? 'world' }) });
  app.paidTool({ name: 'echo', description: 'gives the text back', pricePicoUSD: 1_000_000_000n, parameters: { text: z.string() }, execute: async ({ text }) => ({ echo: text }) });
  app.paidTool({ name: 'pricey', description: 'costs five dollars', pricePicoUSD: 5_000_000_000_000n, parameters: {}, execute: async () => ({ pricey: 'done' }) });
  await app.start();
} else {
  const { default: express } = await import('express');
  const { createExpressPaymentKit } = await import('@nuwa-ai/payment-kit/express');
  const kit = await createExpressPaymentKit({ ...common, basePath: '/payment-channel' });
  const app = express().use(express.json());
  kit.get('/api/echo', { pricing: '1000000000' }, (req, res) => res.json({ echo: req.query.q ?? null }));
  kit.get('/api/free', { pricing: '0' }, (_, res) => res.json({ ok: true }));
  app.use(kit.router);
  await new Promise((done) => app.listen(Number(port), done));
}
process.on('disconnect', () => process.exit(0)); // with its parent
process.send?.({ ready: true });
