// mppx's client pays one request. usage: payer.mjs '{url, key}'; prints {"status", "body", "receipt"} and ends with its standard input.
import { Receipt } from 'mppx';
import { Mppx, evm } from 'mppx/client';
import { privateKeyToAccount } from 'viem/accounts';
import { options } from '../lib/serve.mjs';

const { url, key } = options();
const { fetch: paying } = Mppx.create({
  polyfill: false,
  methods: [evm.charge({
    account: privateKeyToAccount(key), currencies: ['0x036CbD53842c5426634e7929541eC2318f3dCF7e'], networks: [84532],
    authorization: { name: 'USDC', version: '2' },
  })],
  // our own answer offers x402 as well: the challenge of MPP is the one to be answered here
  orderChallenges: (list) => list.filter(({ challenge }) => !challenge[Symbol.for('mppx.x402.challenge')]),
});
const response = await paying(url);
const receipt = response.headers.get('payment-receipt');
process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify({
  status: response.status, body: await response.text(), receipt: receipt && Receipt.deserialize(receipt),
}));
