// A reference client of MPP pays one request: mppx with {url, key}, or @solana/mpp with {url, svm, keypair} (of a Solana keypair file).
// Prints {"status", "body", "receipt", "credential"}, of which the last is its Authorization, and ends with its standard input.
import { createKeyPairSignerFromBytes } from '@solana/kit';
import { solana } from '@solana/mpp/client';
import { Receipt } from 'mppx';
import { Mppx, evm } from 'mppx/client';
import { privateKeyToAccount } from 'viem/accounts';
import { options } from '../lib/serve.mjs';

const { url, key, svm, keypair } = options();
const method = svm
  ? solana.charge({ signer: await createKeyPairSignerFromBytes(new Uint8Array(keypair)), rpcUrl: svm, computeUnitLimit: 20_000 })
  : evm.charge({
    account: privateKeyToAccount(key), currencies: ['0x036CbD53842c5426634e7929541eC2318f3dCF7e'], networks: [84532],
    authorization: { name: 'USDC', version: '2' },
  });
let credential;
const { fetch: paying } = Mppx.create({
  polyfill: false,
  methods: [method],
  fetch: (where, init) => {
    credential = new Headers(init?.headers).get('authorization') ?? credential;
    return fetch(where, init);
  },
  // our own answer offers x402 as well: the challenge of MPP is the one to be answered here
  orderChallenges: (list) => list.filter(({ challenge }) => !challenge[Symbol.for('mppx.x402.challenge')]),
});
const response = await paying(url);
const receipt = response.headers.get('payment-receipt');
process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify({
  status: response.status, body: await response.text(), receipt: receipt && Receipt.deserialize(receipt), credential,
}));
