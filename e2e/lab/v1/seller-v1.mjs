// The reference seller of x402 V1, x402-express. Options: {facilitator, evmPayTo, svmPayTo}
import express from 'express';
import { paymentMiddleware } from 'x402-express';
import { keepLog, options, serve } from '../lib/serve.mjs';

const { facilitator: url, evmPayTo, svmPayTo } = options();

const app = express();
keepLog(app);
app.use(paymentMiddleware(evmPayTo, { 'GET /v1/evm': { price: '$0.001', network: 'base-sepolia' } }, { url }));
app.use(paymentMiddleware(svmPayTo, { 'GET /v1/svm': { price: '$0.001', network: 'solana-devnet' } }, { url }));
for (const path of ['/free', '/v1/evm', '/v1/svm']) {
  app.get(path, ({ query }, response) => response.json({ ok: true, path, query }));
}

await serve(app);
