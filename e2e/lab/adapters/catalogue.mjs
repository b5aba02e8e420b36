// The paid routes that the reference's own end-to-end servers have on EVM and Solana, sold by each of its adapters that npm has: Express,
// Hono, and Next.js, of which the adapter runs, not the server. Options: {facilitators, payTo: {evm, svm}}; prints {"express": URL,
// "hono": URL, "next": URL, "paths": [...]} and ends with its standard input.
import { serve as serveHono } from '@hono/node-server';
import { HTTPFacilitatorClient, x402ResourceServer } from '@x402/core/server';
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { UptoEvmScheme } from '@x402/evm/upto/server';
import * as onExpress from '@x402/express';
import { declareEip2612GasSponsoringExtension, declareErc20ApprovalGasSponsoringExtension } from '@x402/extensions';
import * as onHono from '@x402/hono';
import { ExactSvmScheme } from '@x402/svm/exact/server';
import express from 'express';
import { Hono } from 'hono';
import { createRequire } from 'node:module';
import { listen, options } from '../lib/serve.mjs';
import { EVM, SVM } from '../parties/world.mjs';

const require = createRequire(import.meta.url); // next names no modules for import
const onNext = require('@x402/next'), { NextRequest, NextResponse } = require('next/server');
const { facilitators, payTo } = options();
const server = new x402ResourceServer(facilitators.map((url) => new HTTPFacilitatorClient({ url })))
  .register(EVM.network, new ExactEvmScheme())
  .register(EVM.network, new UptoEvmScheme())
  .register(EVM.network, new BatchSettlementEvmScheme(payTo.evm, {}))
  .register(SVM.network, new ExactSvmScheme());

// ---- what is sold

const CHARGED = '1000'; // by upto, of at most twice as much
const sponsored = { eip2612: declareEip2612GasSponsoringExtension(), erc20: declareErc20ApprovalGasSponsoringExtension() };

function evm(scheme, method, sponsoring) {
  const price = { asset: EVM.asset, amount: scheme === 'upto' ? '2000' : '1000' };
  const extra = { name: EVM.name, version: EVM.version, ...(method && { assetTransferMethod: method }) };
  const accepts = { scheme, network: EVM.network, payTo: payTo.evm, price: { ...price, extra }, maxTimeoutSeconds: 60, extra };
  return { accepts, extensions: sponsored[sponsoring] };
}

const routes = {
  '/exact/evm/eip3009': evm('exact'),
  '/exact/svm': { accepts: { scheme: 'exact', network: SVM.network, payTo: payTo.svm, price: '$0.001' } },
  '/batch-settlement/evm/eip3009': evm('batch-settlement'),
};
for (const scheme of ['exact', 'upto', 'batch-settlement']) {
  routes[`/${scheme}/evm/permit2-erc20ApprovalGasSponsoring`] = evm(scheme, 'permit2', 'erc20');
  routes[`/${scheme}/evm/permit2-eip2612GasSponsoring`] = evm(scheme, 'permit2', 'eip2612');
  routes[`/${scheme}/evm/permit2`] = evm(scheme, 'permit2');
}
const paths = Object.keys(routes);
const byMethod = Object.fromEntries(paths.map((path) => [`GET ${path}`, routes[path]]));
const isUpto = (path) => path.startsWith('/upto/');

// ---- who sells it

const app = express();
app.use(onExpress.paymentMiddleware(byMethod, server));
for (const path of paths) {
  app.get(path, (_, response) => {
    if (isUpto(path)) onExpress.setSettlementOverrides(response, { amount: CHARGED });
    response.json({ ok: true, path });
  });
}

const hono = new Hono();
hono.use(onHono.paymentMiddleware(byMethod, server));
for (const path of paths) {
  hono.get(path, (context) => {
    if (isUpto(path)) onHono.setSettlementOverrides(context, { amount: CHARGED });
    return context.json({ ok: true, path });
  });
}

const handlers = Object.fromEntries(paths.map((path) => [path, onNext.withX402(async () => {
  const response = NextResponse.json({ ok: true, path });
  if (isUpto(path)) onNext.setSettlementOverrides(response, { amount: CHARGED });
  return response;
}, routes[path], server)]));

async function next(request, response) {
  const url = new URL(request.url, `http://${request.headers.host}`), handler = handlers[url.pathname];
  if (!handler) { response.writeHead(404).end(); return; }
  const answer = await handler(new NextRequest(url, { method: request.method, headers: request.headers }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
}

const [expressPort, nextPort, honoPort] = await Promise.all([listen(app), listen(next), new Promise((done) => {
  serveHono({ fetch: hono.fetch, hostname: '127.0.0.1', port: 0 }, ({ port }) => done(port));
})]);
process.stdin.on('end', () => process.exit(0)).resume();
const at = (port) => `http://127.0.0.1:${port}`;
console.log(JSON.stringify({ express: at(expressPort), hono: at(honoPort), next: at(nextPort), paths }));
