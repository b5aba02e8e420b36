// The reference seller of today, @x402/express, with one route and no log: for measuring. Options: {facilitator, payTo}
import { HTTPFacilitatorClient } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { paymentMiddleware, x402ResourceServer } from '@x402/express';
import express from 'express';
import { options, serve } from '../lib/serve.mjs';

const { facilitator, payTo } = options();

const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: facilitator })).register('eip155:*', new ExactEvmScheme());
const app = express();
app.use(paymentMiddleware({
  'GET /weather': { description: 'weather', mimeType: 'application/json', accepts: { scheme: 'exact', network: 'eip155:84532', payTo, price: '$0.001' } },
}, server));
app.get('/weather', (_, response) => response.json({ weather: 'sunny', celsius: 21 }));

await serve(app);
