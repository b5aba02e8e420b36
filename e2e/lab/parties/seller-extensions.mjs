// The reference seller with the extensions of @x402/extensions: sign-in-with-x, payment-identifier and offer-receipt.
// usage: seller-extensions.mjs '{facilitator, evmPayTo, svmPayTo, origin}', origin where buyers do not come to it itself; prints {"http": URL, "control": URL, "signer": …} and ends with its input.
//
//   /evm /svm       $0.001; who signs in as the payer gets it again; the offer and the receipt are signed by EIP-712
//   /jws/evm …      the same, signed by JWS with a did:key
//   /member         sells nothing, and asks to sign in
//   /plain          $0.001 with payment-identifier alone: whoever shows an id again gets the answer of that payment
//
// POST control {"lose": n, "hold": n, "tamper": bool, "signIn": bool}: the next n paid answers are cut off, or never come, after they were settled;
// offers are changed after they were signed; false refuses who signs in. {"holdSignIn": n}: the next n that sign in get no answer.
// It answers with what was seen: {settled, granted, replayed, held, ids}.
import { decodePaymentSignatureHeader } from '@x402/core/http';
import { HTTPFacilitatorClient } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { paymentMiddleware, x402ResourceServer } from '@x402/express';
import {
  createEIP712OfferReceiptIssuer, createJWSOfferReceiptIssuer, createOfferReceiptExtension, declareOfferReceiptExtension,
} from '@x402/extensions/offer-receipt';
import { declarePaymentIdentifierExtension, extractPaymentIdentifier, paymentIdentifierResourceServerExtension } from '@x402/extensions/payment-identifier';
import { InMemorySIWxStorage, createSIWxResourceServerExtension, declareSIWxExtension } from '@x402/extensions/sign-in-with-x';
import { ExactSvmScheme } from '@x402/svm/exact/server';
import { getBase58Decoder } from '@solana/kit';
import crypto from 'node:crypto';
import express from 'express';
import { privateKeyToAccount } from 'viem/accounts';
import { answerJson, listen, options, readBody } from '../lib/serve.mjs';
import { EVM, EVM_ACCOUNTS, SVM } from './world.mjs';

const { facilitator, evmPayTo, svmPayTo, origin: outside } = options();
const state = { lose: 0, hold: 0, holdSignIn: 0, tamper: false, signIn: true };
const seen = { settled: 0, granted: 0, replayed: 0, held: 0, ids: [] };

// The origin is part of what is signed, and known once the port is.
let app;
const port = await listen((request, response) => app(request, response));
const here = `http://127.0.0.1:${port}`, origin = outside ?? here;

const storage = new InMemorySIWxStorage();
const hasPaid = storage.hasPaid.bind(storage);
storage.hasPaid = (...about) => state.signIn && hasPaid(...about);
const used = new Set();
Object.assign(storage, { hasUsedNonce: (nonce) => used.has(nonce), recordNonce: (nonce) => used.add(nonce) });

const account = privateKeyToAccount(EVM_ACCOUNTS.client.key);
const byEIP712 = createEIP712OfferReceiptIssuer(`did:pkh:eip155:1:${account.address}`, (typed) => account.signTypedData(typed));

const { privateKey, publicKey } = crypto.generateKeyPairSync('ed25519');
const multikey = Buffer.concat([Buffer.from([0xed, 0x01]), Buffer.from(publicKey.export({ format: 'jwk' }).x, 'base64url')]);
const did = `did:key:z${getBase58Decoder().decode(multikey)}`;
const byJWS = createJWSOfferReceiptIssuer(`${did}#${did.slice(8)}`, {
  kid: `${did}#${did.slice(8)}`, format: 'jws', algorithm: 'EdDSA',
  sign: async (data) => crypto.sign(null, data, privateKey).toString('base64url'),
});

/** An issuer whose offers say another amount than was signed, while that is asked for. */
const tampering = (issuer) => ({
  ...issuer,
  async issueOffer(...about) {
    const offer = await issuer.issueOffer(...about);
    return state.tamper && offer.payload ? { ...offer, payload: { ...offer.payload, validUntil: offer.payload.validUntil + 86400 } } : offer;
  },
});

const resources = (issuer) => {
  const server = new x402ResourceServer(new HTTPFacilitatorClient({ url: facilitator }))
    .register('eip155:*', new ExactEvmScheme())
    .register('solana:*', new ExactSvmScheme());
  server.onAfterSettle(async ({ result }) => { if (result.success) seen.settled++; });
  for (const extension of [paymentIdentifierResourceServerExtension, createOfferReceiptExtension(tampering(issuer)),
    createSIWxResourceServerExtension({ origin, storage, onEvent: ({ type }) => { if (type === 'access_granted') seen.granted++; } })]) {
    server.registerExtension(extension);
  }
  return server;
};

const evm = { scheme: 'exact', network: EVM.network, payTo: evmPayTo, price: '$0.001' };
const svm = { scheme: 'exact', network: SVM.network, payTo: svmPayTo, price: '$0.001' };
const identified = { 'payment-identifier': declarePaymentIdentifierExtension(true) };
const sells = (accepts) => ({
  description: 'weather', mimeType: 'application/json', accepts,
  extensions: { ...declareSIWxExtension({ statement: 'Sign in to read it again' }), ...declareOfferReceiptExtension(), ...identified },
});

app = express();
app.post('/lab/control', async (request, response) => {
  Object.assign(state, JSON.parse(await readBody(request)));
  answerJson(response, 200, seen);
});

app.use((request, _, next) => {
  if (!request.get('sign-in-with-x') || state.holdSignIn === 0) return next();
  state.holdSignIn--;
  seen.held++;
  return undefined;
});

// As the extension's documentation has it: an id that was paid with is answered as it was then.
const answers = new Map();
app.use((request, response, next) => {
  const shown = request.get('payment-signature');
  const id = shown && extractPaymentIdentifier(decodePaymentSignatureHeader(shown));
  if (!id) return next();
  seen.ids.push(id);
  const known = answers.get(id);
  if (known) {
    seen.replayed++;
    return response.writeHead(200, known.headers).end(known.body);
  }
  const end = response.end.bind(response);
  response.end = (chunk, ...rest) => {
    if (response.statusCode === 200) {
      answers.set(id, { headers: response.getHeaders(), body: chunk });
      if (state.lose > 0) {
        state.lose--;
        return request.socket.destroy();
      }
      if (state.hold > 0) {
        state.hold--;
        return undefined;
      }
    }
    return end(chunk, ...rest);
  };
  return next();
});

app.use(paymentMiddleware({ 'GET /jws/evm': sells(evm), 'GET /jws/svm': sells(svm) }, resources(byJWS)));
app.use(paymentMiddleware({
  'GET /evm': sells(evm),
  'GET /svm': sells(svm),
  'GET /plain': { description: 'weather', mimeType: 'application/json', accepts: evm, extensions: identified },
  'GET /member': {
    description: 'for those who are known', accepts: [],
    extensions: declareSIWxExtension({ network: [SVM.network, EVM.network], statement: 'Who is there?' }),
  },
}, resources(byEIP712)));
app.use((request, response) => response.json({ ok: true, path: request.path }));

process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify({ http: here, control: `${here}/lab/control`, signer: account.address, did }));
