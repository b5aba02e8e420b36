// The reference facilitator (x402Facilitator of @x402/core with exact on EVM and Solana, V2 and V1) at several doors that fail
// independently. Options: {doors, evm, svm, anyLayout}
// anyLayout: on Solana also what is not in the layout of x402, found by simulation (@x402/svm's enableSmartWalletVerification), where a
// token program may be called directly.
//   POST /verify /settle   GET /supported /discovery/resources /discovery/search?query= /health     all below /facilitator too
//   GET /lab/log           [{op, request, answer, failed, ms}], oldest first. `answer` is the true one, whatever was sent
//   POST /lab/reset        forgets log and fault
//   POST /lab/inject       a fault, or {} for none:
//     op        verify | settle | supported; absent: each of them
//     n         how many calls it hits; absent: all
//     delayMs   wait this long
//     drop      break the connection
//     status    answer so, with `body`
//     after     do the work first, then delay, drop or answer: the money has moved and nobody is told
//     lie       fields that replace those of the true answer
//   POST /lab/catalogue    a resource to list in discovery
import { createSolanaRpc } from '@solana/kit';
import { x402Facilitator } from '@x402/core/facilitator';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { UptoEvmScheme } from '@x402/evm/upto/facilitator';
import { ExactEvmSchemeV1 } from '@x402/evm/exact/v1/facilitator';
import { createErc20ApprovalGasSponsoringExtension } from '@x402/extensions';
import { BAZAAR, extractDiscoveryInfo } from '@x402/extensions/bazaar';
import { toFacilitatorSvmSigner } from '@x402/svm';
import { ExactSvmScheme } from '@x402/svm/exact/facilitator';
import { ExactSvmSchemeV1 } from '@x402/svm/exact/v1/facilitator';
import express from 'express';
import { createWalletClient, http, publicActions } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { options, serve } from '../lib/serve.mjs';
import { sponsoring } from './sponsor.mjs';
import { EVM, EVM_ACCOUNTS, SVM, solanaSigner, viemChain } from './world.mjs';

const { doors, evm: evmUrl, svm: svmUrl, anyLayout } = options();
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const plain = (value) => JSON.parse(JSON.stringify(value, (_, field) => (typeof field === 'bigint' ? String(field) : field)));

// ---- the facilitator

const account = privateKeyToAccount(EVM_ACCOUNTS.facilitator.key);
const client = createWalletClient({ account, chain: viemChain, transport: http(evmUrl), pollingInterval: 25 }).extend(publicActions);

// One send after the other, each with the chain's own count of transactions: a send that fails leaves no gap that the next waits behind.
let last = Promise.resolve();
function inTurn(send) {
  const sent = last.then(send);
  last = sent.catch(() => {});
  return sent;
}
const sendTransaction = (transaction) => inTurn(() => client.sendTransaction(transaction));

function evmSigner() {
  return toFacilitatorEvmSigner({
    address: account.address,
    readContract: (call) => client.readContract({ ...call, args: call.args ?? [] }),
    writeContract: (call) => inTurn(() => client.writeContract({ ...call, args: call.args ?? [] })),
    verifyTypedData: (data) => client.verifyTypedData(data),
    sendTransaction,
    waitForTransactionReceipt: (query) => client.waitForTransactionReceipt(query),
    getCode: (query) => client.getCode(query),
  });
}

async function svmSigner() {
  const rpc = createSolanaRpc(svmUrl);
  return toFacilitatorSvmSigner(await solanaSigner('facilitator'), { [SVM.network]: rpc, 'solana-devnet': rpc });
}

/** Hosted facilitators refuse some limit under 100,000 (coinbase/cdp-sdk#795, x402-foundation/x402#3351); the reference one any, if it is told. */
const MAX_COMPUTE_UNITS = 50_000;

const facilitator = new x402Facilitator();
const [onEvm, onSvm] = [evmSigner(), await svmSigner()];
facilitator.register(EVM.network, new ExactEvmScheme(onEvm)).register(EVM.network, new UptoEvmScheme(onEvm)).registerV1(['base-sepolia'], new ExactEvmSchemeV1(onEvm));
const layouts = anyLayout && { enableSmartWalletVerification: true, smartWalletAllowedPrograms: ['TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA'] };
facilitator.register(SVM.network, new ExactSvmScheme(onSvm, undefined, { maxComputeUnits: MAX_COMPUTE_UNITS, ...layouts })).registerV1(['solana-devnet'], new ExactSvmSchemeV1(onSvm));

// ---- discovery: what paid resources declared of themselves

const catalogue = new Map(); // url -> resource

facilitator.registerExtension(createErc20ApprovalGasSponsoringExtension({ ...onEvm, sendTransactions: sponsoring(client, sendTransaction) }));
facilitator.registerExtension(BAZAAR).onAfterVerify(async ({ result, paymentPayload, requirements }) => {
  const found = result.isValid && extractDiscoveryInfo(paymentPayload, requirements);
  if (!found) return;
  const { resourceUrl: resource, x402Version, discoveryInfo } = found;
  catalogue.set(resource, { resource, type: 'http', x402Version, accepts: [requirements], discoveryInfo, lastUpdated: new Date().toISOString() });
});

function listResources({ query }, response) {
  const limit = Number(query.limit ?? 100), offset = Number(query.offset ?? 0);
  const items = [...catalogue.values()];
  response.json(plain({ x402Version: 2, items: items.slice(offset, offset + limit), pagination: { limit, offset, total: items.length } }));
}

function searchResources({ query }, response) {
  if (!query.query) return response.status(400).json({ error: 'query is required' });
  const words = query.query.toLowerCase().split(/\s+/), limit = Number(query.limit ?? 20);
  const found = [...catalogue.values()].filter((item) => words.some((word) => JSON.stringify(plain(item)).toLowerCase().includes(word)));
  return response.json(plain({ x402Version: 2, resources: found.slice(0, limit), pagination: { limit, cursor: null } }));
}

// ---- a door

/** The fault injected at a door, counted down. */
class Fault {
  #now = null;

  set(fault) { this.#now = Object.keys(fault ?? {}).length ? { n: Infinity, ...fault } : null; }

  take(op) {
    const fault = this.#now;
    if (!fault || (fault.op && fault.op !== op)) return {};
    if (--fault.n <= 0) this.#now = null;
    return fault;
  }
}

/** Delays, then fails if the fault says so; tells whether it did. */
async function strike({ delayMs, drop, status, body }, response) {
  if (delayMs) await sleep(delayMs);
  if (drop) response.socket.destroy();
  else if (status) response.status(status).json(body ?? { error: 'injected' });
  return Boolean(drop || status);
}

function door() {
  const fault = new Fault();
  let log = [];

  const route = (op, work) => async (request, response) => {
    const entry = { op, request: request.body };
    const started = performance.now();
    log.push(entry);
    const injected = fault.take(op);
    try {
      if (!injected.after && await strike(injected, response)) { entry.failed = 'before'; return; }
      entry.answer = plain(await work(request.body ?? {}));
      if (injected.after && await strike(injected, response)) { entry.failed = 'after'; return; }
      response.json({ ...entry.answer, ...injected.lie });
    } catch (error) {
      entry.failed = error.message;
      response.status(error.status ?? 500).json({ error: error.message });
    } finally {
      entry.ms = performance.now() - started;
    }
  };
  const withPayment = (op) => route(op, ({ paymentPayload, paymentRequirements }) => {
    if (!paymentPayload || !paymentRequirements) throw Object.assign(new Error('missing paymentPayload or paymentRequirements'), { status: 400 });
    return facilitator[op](paymentPayload, paymentRequirements);
  });

  const routes = express.Router();
  routes.post('/verify', withPayment('verify'));
  routes.post('/settle', withPayment('settle'));
  routes.get('/supported', route('supported', () => facilitator.getSupported()));
  routes.get('/discovery/resources', listResources);
  routes.get('/discovery/search', searchResources);
  routes.get('/health', (_, response) => response.json({ status: 'ok' }));
  routes.get('/lab/log', (_, response) => response.json(log));
  routes.post('/lab/reset', (_, response) => { fault.set(null); log = []; response.json({}); });
  routes.post('/lab/inject', ({ body }, response) => { fault.set(body); response.json({}); });
  routes.post('/lab/catalogue', ({ body }, response) => { catalogue.set(body.resource, body); response.json({}); });

  return express().use(express.json({ limit: '1mb' })).use('/facilitator', routes).use('/', routes);
}

await serve(...Array.from({ length: doors }, door));
