// A strict seller of the X-Payment-Required dialects, in which the wallet settles and proves it with a transaction id.
// No reference program speaks them, so this one believes nothing but the chain.
//   /ozskr/v2 /ozskr/v2evm   402 with X-Payment-Required: base64 of a V2 PaymentRequired without resource and extra
//   /ozskr/v1 /ozskr/v1evm   402 with X-Payment-Amount, -Recipient, -Token, -Network
// Asked again with X-Payment-Signature: <transaction id> it looks the transaction up: it must have moved exactly the price in the
// asset to payTo, and an id is good once. Its payTo is nobody else's, so a payment to another seller is no proof here.
import express from 'express';
import { keepLog } from '../lib/serve.mjs';
import { ataOf } from './svm.mjs';
import { EVM, SVM } from './world.mjs';

const AMOUNT = '1000';

/** The challenge of each dialect, as headers. */
const dialects = {
  v2: (price) => {
    const required = { x402Version: 2, error: 'Payment required', accepts: [{ scheme: 'exact', ...price, maxTimeoutSeconds: 60 }] };
    return { 'X-Payment-Required': Buffer.from(JSON.stringify(required)).toString('base64') };
  },
  v1: ({ network, amount, asset, payTo }) => ({
    'X-Payment-Amount': amount,
    'X-Payment-Recipient': payTo,
    'X-Payment-Token': asset,
    'X-Payment-Network': network,
  }),
};

const sum = (amounts) => amounts.reduce((total, amount) => total + amount, 0n);

/** How each chain spells a transaction id, and what a transaction brought the payee. */
const onEvm = (evm, payTo) => ({
  price: { network: EVM.network, amount: AMOUNT, asset: EVM.asset, payTo },
  idOf: (text) => text.toLowerCase().match(/^0x[0-9a-f]{64}$/)?.[0], // one id, however its hex is spelled
  received: async (id) => sum((await evm.transfersIn(id)).filter(({ to }) => to === payTo).map(({ amount }) => amount)),
});
const onSvm = (svm, payTo) => ({
  price: { network: SVM.network, amount: AMOUNT, asset: SVM.mint, payTo },
  idOf: (text) => text.match(/^[1-9A-HJ-NP-Za-km-z]{86,88}$/)?.[0],
  received: async (id) => {
    const account = await ataOf(payTo, SVM.mint);
    return sum((await svm.changesIn(id)).filter((change) => change.account === account).map(({ change }) => change));
  },
});

export function ozskrSeller({ evm, svm, evmPayTo, svmPayTo }) {
  const spent = new Set();

  /** Takes a transaction id as payment and gives null, or the reason why not. */
  async function refusal(text, { price, idOf, received }) {
    if (!text) return 'payment required';
    const id = idOf(text);
    if (!id) return 'not a transaction id';
    const amount = await received(id).catch(() => 0n);
    if (amount !== BigInt(price.amount)) return `the chain shows ${amount} received, not ${price.amount}`;
    if (spent.has(id)) return 'this transaction has already been used';
    spent.add(id); // nothing was awaited since the question: of two requests at once only one gets here
    return null;
  }

  const app = express();
  keepLog(app);
  const sell = (path, dialect, chain) => app.get(path, async (request, response) => {
    const reason = await refusal(request.get('X-Payment-Signature'), chain);
    if (reason) response.status(402).set(dialects[dialect](chain.price)).json({ error: reason });
    else response.json({ ok: true, path });
  });
  sell('/ozskr/v2', 'v2', onSvm(svm, svmPayTo));
  sell('/ozskr/v2evm', 'v2', onEvm(evm, evmPayTo));
  sell('/ozskr/v1', 'v1', onSvm(svm, svmPayTo));
  sell('/ozskr/v1evm', 'v1', onEvm(evm, evmPayTo));
  app.get('/free', (_, response) => response.json({ ok: true, path: '/free' }));
  return app;
}
