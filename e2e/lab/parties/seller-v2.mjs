// The reference seller of today, @x402/express. Options: {facilitator, evmPayTo, svmPayTo}
// Every route answers with any query string.
import { HTTPFacilitatorClient } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { UptoEvmScheme } from '@x402/evm/upto/server';
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from '@x402/express';
import { declareEip2612GasSponsoringExtension, declareErc20ApprovalGasSponsoringExtension } from '@x402/extensions';
import { bazaarResourceServerExtension, declareDiscoveryExtension } from '@x402/extensions/bazaar';
import { ExactSvmScheme } from '@x402/svm/exact/server';
import express from 'express';
import { keepLog, options, serve } from '../lib/serve.mjs';
import { EVM, SVM } from './world.mjs';

const { facilitator, evmPayTo, svmPayTo } = options();

const evm = (price, extra) => ({ scheme: 'exact', network: EVM.network, payTo: evmPayTo, price, extra });
const svm = (price, extra) => ({ scheme: 'exact', network: SVM.network, payTo: svmPayTo, price, extra });
const discoverable = declareDiscoveryExtension({ output: { example: { ok: true }, schema: { properties: { ok: { type: 'boolean' } } } } });
const byPermit2 = (description, extensions) => ({
  description, accepts: evm('$0.001', { assetTransferMethod: 'permit2' }), mimeType: 'application/json', extensions,
});
/** Up to $0.02; the handler says what it comes to. */
const upto = (description, extensions, more) => ({
  description, mimeType: 'application/json', extensions,
  accepts: { ...evm('$0.02', { assetTransferMethod: 'permit2' }), scheme: 'upto', ...more },
});
/** 1000 atomic units of the mint that the query names, to whom it names. */
const asked = {
  price: ({ adapter }) => ({ asset: adapter.getQueryParam('mint') ?? SVM.mint2022, amount: '1000' }),
  payTo: ({ adapter }) => adapter.getQueryParam('payTo') ?? svmPayTo,
};
const sells = (description, ...accepts) => ({ description, accepts, mimeType: 'application/json', extensions: discoverable });

const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: facilitator }))
  .register('eip155:*', new ExactEvmScheme())
  .register('eip155:*', new UptoEvmScheme())
  .register('solana:*', new ExactSvmScheme());
server.registerExtension(bazaarResourceServerExtension);

const app = express();
keepLog(app);
app.use(paymentMiddleware({
  'GET /evm': sells('weather, paid on EVM', evm('$0.001')),
  'GET /svm': sells('weather, paid on Solana', svm('$0.001')),
  'GET /svm/memo': sells('weather, paid on Solana with the seller\'s memo', svm('$0.001', { memo: 'order 4711' })),
  'GET /svm2022': sells('weather, paid in a Token-2022 asset', svm({ asset: SVM.mint2022, amount: '1000' })),
  'GET /svm2022/any': sells('weather, paid in the mint that the query names', { ...svm(), ...asked }),
  'GET /svm2022/orEvm': sells('weather, paid in the mint that the query names, or on EVM', { ...svm(), ...asked }, evm('$0.002')),
  'GET /multi': sells('weather, paid on either', svm('$0.001'), evm('$0.002')),
  'GET /evm/expensive': sells('a report', evm('$50')),
  'GET /fail500': sells('verified, then the handler fails: nothing is settled', evm('$0.001')),
  'GET /upfront500': sells('settled, then the handler fails: paid and not served', evm('$0.001', { paymentFlow: 'upfront' })),
  'GET /permit2': byPermit2('weather, paid by Permit2'),
  'GET /permit2/sponsored': byPermit2('weather, paid by Permit2, which the seller has approved', declareEip2612GasSponsoringExtension()),
  'GET /permit2/erc20': byPermit2('weather, for which the seller sends an approval', declareErc20ApprovalGasSponsoringExtension()),
  'GET /upto': upto('weather, by what it costs: ?charge='),
  'GET /upto/sponsored': upto('weather, by what it costs, which the seller has approved', declareEip2612GasSponsoringExtension()),
  'GET /upto/short': upto('weather, by what it costs, soon', declareEip2612GasSponsoringExtension(), { maxTimeoutSeconds: 20 }),
  'POST /search': {
    description: 'what was looked for', accepts: evm('$0.001'), mimeType: 'application/json',
    extensions: declareDiscoveryExtension({ bodyType: 'json', input: { q: 'weather' }, inputSchema: { properties: { q: { type: 'string' } }, required: ['q'] } }),
  },
  'POST /echo': { description: 'what was posted', accepts: evm('$0.001'), mimeType: 'application/json' },
}, server));

for (const path of ['/free', '/evm', '/svm', '/svm/memo', '/svm2022', '/svm2022/any', '/svm2022/orEvm', '/multi', '/evm/expensive']) {
  app.get(path, ({ query }, response) => response.json({ ok: true, path, query }));
}
for (const path of ['/permit2', '/permit2/sponsored', '/permit2/erc20']) {
  app.get(path, ({ query }, response) => response.json({ ok: true, path, query }));
}
for (const path of ['/upto', '/upto/sponsored', '/upto/short']) {
  app.get(path, ({ query }, response) => {
    setSettlementOverrides(response, { amount: query.charge ?? '7000' });
    response.json({ ok: true, path, query });
  });
}
for (const path of ['/fail500', '/upfront500']) {
  app.get(path, (_, response) => response.status(500).json({ error: 'the handler failed' }));
}
app.post('/search', express.json(), ({ body }, response) => response.json({ found: body.q }));
app.post('/echo', express.text({ type: () => true }), ({ method, body, headers }, response) => {
  response.json({ method, body, contentType: headers['content-type'] });
});

await serve(app);
