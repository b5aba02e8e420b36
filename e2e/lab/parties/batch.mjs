// A seller of batch-settlement on the reference packages, @x402/evm's server and facilitator in one process, on the lab's EVM chain, where
// it puts the contracts at their addresses. Options: {evm, payTo}; prints {"http": URL, "control": URL, "facilitator": URL}, the last of which
// is that facilitator by itself, for sellers elsewhere, and ends with its standard input.
//
//   /paid             batch-settlement, price 1000, minDeposit 10,000      /dear     minDeposit 500,000
//   /either           that, and exact at the same price                     /slow     withdrawDelay of seven days
//   /fail             the handler fails: nothing is charged
//   /permit2          deposits by Permit2          /permit2/sponsored, /permit2/erc20   and the seller brings its approval
//
// POST control {"lose": n}     the next n paid answers are cut off after they were made
//              {"hold": n}     the next n paid answers are made and never come
//              {"forget": 1}   the seller starts anew, and knows of channels what the chain says
//              {"deaf": n}     the next n times the seller does not hear that the facilitator settled
//              {"forge": n}    the next n challenges after a payment claim to have charged so much more, with a voucher nobody signed
//              {"overcharge": n}  the next n receipts say that more was charged than the price
//              {"authorizer": n}  who signs for the receiver: one of anvil's accounts
//              {"claim": true}    what was charged is claimed and paid out
// answers {"sent": [functions that the facilitator called], "asked": n, "vouchers": [ceilings that came], "hold": left}, since it was asked last.
import fs from 'node:fs';
import { x402Facilitator } from '@x402/core/facilitator';
import { x402ResourceServer } from '@x402/core/server';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { BatchSettlementEvmScheme as BatchFacilitator } from '@x402/evm/batch-settlement/facilitator';
import { BatchSettlementEvmScheme as BatchServer } from '@x402/evm/batch-settlement/server';
import { ExactEvmScheme as ExactFacilitator } from '@x402/evm/exact/facilitator';
import { ExactEvmScheme as ExactServer } from '@x402/evm/exact/server';
import { paymentMiddleware } from '@x402/express';
import {
  createErc20ApprovalGasSponsoringExtension, declareEip2612GasSponsoringExtension, declareErc20ApprovalGasSponsoringExtension,
} from '@x402/extensions';
import express from 'express';
import { createTestClient, createWalletClient, http, publicActions } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import { answerJson, listen, options, readBody } from '../lib/serve.mjs';
import { sponsoring } from './sponsor.mjs';
import { EVM, viemChain } from './world.mjs';

const { evm, payTo } = options();
const PLACES = {
  TestBatchSettlement: '0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003',
  TestBatchCollector: '0x4020806089470a89826cB9fB1f4059150b550004',
  TestBatchPermitCollector: '0x4020425FAf3B746C082C2f942b4E5159887B0005',
  TestBatchMulticall: '0xcA11bde05977b3631167028862bE2a173976CA11',
};
const transport = http(evm);
const chain = createTestClient({ mode: 'anvil', chain: viemChain, transport });
const codes = JSON.parse(fs.readFileSync(new URL('../contracts/TestBatchSettlement.json', import.meta.url), 'utf8'));
for (const [name, address] of Object.entries(PLACES)) await chain.setCode({ address, bytecode: codes[name] });

const account = (addressIndex) => mnemonicToAccount('test test test test test test test test test test test junk', { addressIndex });
const state = { lose: 0, hold: 0, deaf: 0, forge: 0, overcharge: 0, authorizer: 5, sent: [], asked: 0, vouchers: [] };

// ---- the facilitator, which says what it sent

const gas = createWalletClient({ account: account(8), chain: viemChain, transport, pollingInterval: 20 }).extend(publicActions);
const sendTransaction = (transaction) => { state.sent.push('transaction'); return gas.sendTransaction(transaction); };
const signer = toFacilitatorEvmSigner({
  address: gas.account.address,
  readContract: (call) => gas.readContract({ ...call, args: call.args ?? [] }),
  writeContract: (call) => { state.sent.push(call.functionName); return gas.writeContract({ ...call, args: call.args ?? [] }); },
  verifyTypedData: (data) => gas.verifyTypedData(data),
  sendTransaction,
  waitForTransactionReceipt: (query) => gas.waitForTransactionReceipt(query),
  getCode: (query) => gas.getCode(query),
});
const authorizers = new Map();
const authorizer = (index) => {
  if (!authorizers.has(index)) {
    const of = account(index);
    authorizers.set(index, { address: of.address, signTypedData: (message) => of.signTypedData(message) });
  }
  return authorizers.get(index);
};

// ---- a shop for each authorizer: its server's memory of channels is its own

function shop(index) {
  const judge = new x402Facilitator().register(EVM.network, new BatchFacilitator(signer, authorizer(index)))
    .register(EVM.network, new ExactFacilitator(signer))
    .registerExtension(createErc20ApprovalGasSponsoringExtension({ ...signer, sendTransactions: sponsoring(gas, sendTransaction) }));
  const asked = {
    verify: (payload, accepted) => judge.verify(payload, accepted),
    settle: async (payload, accepted) => {
      const settled = await judge.settle(payload, accepted);
      if (state.deaf > 0) {
        state.deaf--;
        throw new Error('the facilitator did not answer');
      }
      return settled;
    },
    getSupported: async () => judge.getSupported(),
  };
  const scheme = new BatchServer(payTo, {});
  const server = new x402ResourceServer(asked).register(EVM.network, scheme).register(EVM.network, new ExactServer());
  const price = { amount: '1000', asset: EVM.asset, extra: { name: EVM.name, version: EVM.version } };
  const sells = (scheme, extra = {}) => ({ scheme, network: EVM.network, payTo, maxTimeoutSeconds: 60,
    price: { ...price, extra: { ...price.extra, ...extra } }, extra });
  const byPermit2 = (extensions) => ({ accepts: [sells('batch-settlement', { assetTransferMethod: 'permit2' })], extensions });
  const app = express();
  app.use(paymentMiddleware({
    'GET /paid': { accepts: [sells('batch-settlement')] },
    'GET /fail': { accepts: [sells('batch-settlement')] },
    'GET /dear': { accepts: [sells('batch-settlement', { minDeposit: '500000' })] },
    'GET /slow': { accepts: [sells('batch-settlement')] },
    'GET /either': { accepts: [sells('batch-settlement'), sells('exact')] },
    'GET /permit2': byPermit2(),
    'GET /permit2/sponsored': byPermit2(declareEip2612GasSponsoringExtension()),
    'GET /permit2/erc20': byPermit2(declareErc20ApprovalGasSponsoringExtension()),
  }, server));
  for (const path of ['/paid', '/dear', '/slow', '/either', '/permit2', '/permit2/sponsored', '/permit2/erc20']) {
    app.get(path, ({ query }, response) => response.json({ ok: true, path, query }));
  }
  app.get('/fail', (_, response) => response.status(500).json({ error: 'the handler failed' }));
  return { app, scheme, asked, judge };
}
const shops = new Map();
const current = () => {
  if (!shops.has(state.authorizer)) shops.set(state.authorizer, shop(state.authorizer));
  return shops.get(state.authorizer);
};

// ---- what a liar changes on the way, and what is lost

const decoded = (text) => JSON.parse(Buffer.from(text, 'base64').toString());
const encoded = (value) => Buffer.from(JSON.stringify(value)).toString('base64');

function changed(name, value, url) {
  if (name.toLowerCase() === 'payment-required' && url === '/slow') {
    const challenge = decoded(value);
    challenge.accepts[0].extra.withdrawDelay = 7 * 24 * 3600;
    return encoded(challenge);
  }
  if (name.toLowerCase() === 'payment-required' && state.forge > 0) {
    const challenge = decoded(value), [first] = challenge.accepts, at = first.extra.channelState;
    if (!at) return value;
    state.forge--;
    at.chargedCumulativeAmount = String(BigInt(at.chargedCumulativeAmount) + 5000n);
    first.extra.voucherState = { signedMaxClaimable: at.chargedCumulativeAmount, signature: `0x${'1b'.repeat(65)}` };
    return encoded(challenge);
  }
  if (name.toLowerCase() === 'payment-response' && state.overcharge > 0) {
    state.overcharge--;
    const receipt = decoded(value);
    receipt.extra.chargedAmount = '2000';
    return encoded(receipt);
  }
  return value;
}

function front(request, response) {
  state.asked++;
  const paid = request.headers['payment-signature'];
  if (paid) state.vouchers.push(decoded(paid).payload.voucher?.maxClaimableAmount);
  const set = response.setHeader.bind(response);
  response.setHeader = (name, value) => set(name, typeof value === 'string' ? changed(name, value, request.url) : value);
  if (paid && (state.lose > 0 || state.hold > 0)) {
    const end = response.end.bind(response);
    response.end = (...args) => {
      if (response.statusCode !== 200) return end(...args);
      if (state.hold > 0) {
        state.hold--;
        return response;
      }
      state.lose--;
      return request.socket.destroy();
    };
  }
  current().app(request, response);
}

async function control(request, response) {
  const { claim, forget, ...wanted } = JSON.parse(await readBody(request) || '{}');
  Object.assign(state, wanted);
  if (forget) shops.clear();
  if (claim) {
    const manager = current().scheme.createChannelManager(current().asked, EVM.network, EVM.asset);
    await manager.claimAndSettle({});
  }
  const { sent, asked, vouchers, hold } = state;
  Object.assign(state, { sent: [], asked: 0, vouchers: [] });
  answerJson(response, 200, { sent, asked, vouchers, hold });
}

/** The facilitator alone, for a seller that is another program. */
async function facilitate(request, response) {
  const { judge, asked } = current();
  const { paymentPayload, paymentRequirements } = JSON.parse(await readBody(request) || '{}');
  const does = {
    '/supported': () => judge.getSupported(),
    '/verify': () => judge.verify(paymentPayload, paymentRequirements),
    '/settle': () => asked.settle(paymentPayload, paymentRequirements),
  }[request.url];
  try {
    answerJson(response, 200, await does());
  } catch {
    request.socket.destroy(); // it was deaf: nobody hears of what it settled
  }
}

const address = (port) => `http://127.0.0.1:${port}`;
const said = { http: address(await listen(front)), control: address(await listen(control)), facilitator: address(await listen(facilitate)) };
process.stdin.on('end', () => process.exit(0)).resume();
console.log(JSON.stringify(said));
