// The reference client with its extensions buys at an HTTP seller, and verifies what the seller signed.
// usage: buyer.mjs '{url, node, key, visits: [{path, scheme, id, signIn}]}'; prints [{status, body, receipt, offers, signed, error}], one of
// each visit, and ends with its standard input.
//   scheme   the only one the client knows: "exact", "upto" or "batch-settlement"; absent: it pays nothing
//   refund   it asks back what is left in its channel
//   forget   it forgets its channels first
//   id       its payment-identifier
//   signIn   it tries to sign in first
//   again    the same payment as at the visit before: its headers, sent again
import { ExactEvmScheme } from '@x402/evm';
import { BatchSettlementEvmScheme } from '@x402/evm/batch-settlement/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import {
  decodeSignedOffers, extractOffersFromPaymentRequired, extractReceiptFromResponse, findAcceptsObjectFromSignedOffer,
  verifyOfferSignatureJWS, verifyReceiptMatchesOffer, verifyReceiptSignatureJWS,
} from '@x402/extensions/offer-receipt';
import { appendPaymentIdentifierToExtensions } from '@x402/extensions/payment-identifier';
import { createSIWxClientExtension } from '@x402/extensions/sign-in-with-x';
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client, x402HTTPClient } from '@x402/fetch';
import { createPublicClient, http } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { options } from '../lib/serve.mjs';
import { viemChain } from './world.mjs';

const { url, node, key, visits } = options();
const account = privateKeyToAccount(key);
const chain = createPublicClient({ chain: viemChain, transport: http(node) });
const signer = {
  address: account.address,
  signTypedData: (message) => account.signTypedData(message),
  readContract: (call) => chain.readContract(call),
};
let channels = new BatchSettlementEvmScheme(signer);
const schemes = { exact: () => new ExactEvmScheme(signer), upto: () => new UptoEvmScheme(signer), 'batch-settlement': () => channels };

/** The verified payload of an offer or a receipt, and who signed it. */
async function verified(statement, jws) {
  const header = JSON.parse(Buffer.from(statement.signature.split('.')[0], 'base64url'));
  return { signer: header.kid, payload: await jws(statement) };
}

let last; // the headers of the last request that was paid

async function visit({ path, scheme, id, signIn, again, refund, forget }) {
  if (forget) channels = new BatchSettlementEvmScheme(signer);
  if (refund) return { status: 200, receipt: await channels.refund(url + path) };
  const said = {};
  const fetching = async (input, init) => {
    const request = new Request(input, init);
    if (request.headers.has('payment-signature')) last = Object.fromEntries(request.headers);
    const response = await fetch(request);
    if (response.status === 402) said.asked = JSON.parse(Buffer.from(response.headers.get('payment-required'), 'base64'));
    return response;
  };
  const client = new x402Client();
  if (scheme) client.register('eip155:*', schemes[scheme]());
  if (signIn) client.registerExtension(createSIWxClientExtension({ signers: [account] }));
  const paying = new x402HTTPClient(client);
  if (id) client.onBeforePaymentCreation(async ({ paymentRequired }) => { appendPaymentIdentifierToExtensions(paymentRequired.extensions, id); });
  const buying = wrapFetchWithPayment(fetching, signIn ? paying : client);
  const response = again ? await fetch(url + path, { headers: last }) : await buying(url + path);
  const header = response.headers.get('payment-response');
  const offers = said.asked ? extractOffersFromPaymentRequired(said.asked) : [];
  const checked = await Promise.all(offers.map((offer) => verified(offer, verifyOfferSignatureJWS)));
  const receipt = extractReceiptFromResponse(response);
  const matching = decodeSignedOffers(offers).find((offer) => scheme && offer.scheme === scheme);
  return {
    status: response.status,
    body: await response.text(),
    receipt: header && decodePaymentResponseHeader(header),
    error: said.asked?.error,
    offers: checked.map(({ signer: by, payload }, i) => ({ signer: by, payload, isAsked: Boolean(findAcceptsObjectFromSignedOffer(offers[i], said.asked.accepts)) })),
    signed: receipt && {
      ...await verified(receipt, verifyReceiptSignatureJWS),
      isOfOffer: Boolean(matching) && verifyReceiptMatchesOffer(receipt, matching, [account.address]),
    },
  };
}

const all = [];
for (const one of visits) all.push(await visit(one).catch((error) => ({ status: 0, error: String(error) })));
process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify(all));
