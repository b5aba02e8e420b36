// A reference client of MPP pays one request: mppx with {url, key}, on Tempo with {url, key, tempo} (its node), or @solana/mpp with
// {url, svm, keypair} (of a Solana keypair file). With {keep: true} it signs, and shows nobody what.
// Prints {"status", "body", "receipt", "credential"}, of which the last is its Authorization, and ends with its standard input.
import { createKeyPairSignerFromBytes } from '@solana/kit';
import { solana } from '@solana/mpp/client';
import { Receipt } from 'mppx';
import { Mppx, evm, tempo as onTempo } from 'mppx/client';
import { createClient, http } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { tempo as tempoChain } from 'viem/tempo/chains';
import { options } from '../lib/serve.mjs';

const { url, key, svm, keypair, tempo, keep } = options();
const method = tempo
  ? onTempo.charge({ account: privateKeyToAccount(key), getClient: () => createClient({ chain: tempoChain, transport: http(tempo) }) })
  : svm ? solana.charge({ signer: await createKeyPairSignerFromBytes(new Uint8Array(keypair)), rpcUrl: svm, computeUnitLimit: 20_000 })
  : evm.charge({
    account: privateKeyToAccount(key), currencies: ['0x036CbD53842c5426634e7929541eC2318f3dCF7e'], networks: [84532],
    authorization: { name: 'USDC', version: '2' },
  });
let credential;
const { fetch: paying } = Mppx.create({
  polyfill: false,
  methods: [method],
  fetch: (where, init) => {
    const shown = new Headers(init?.headers).get('authorization');
    credential = shown ?? credential;
    return keep && shown ? new Response() : fetch(where, init);
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
