// Tempo on this machine: anvil with Tempo's rules (the real TIP-20, fee and nonce precompiles), and sellers of mppx.
// usage: tempo.mjs '{}'; prints {"node", "http", "mcp", "control", "shop", "network"} and ends with its standard input.
//
//   /goods        tempo/charge in pathUSD, the seller pays the fee     /usdc        the same in USDC.e
//   /own-fee      the buyer pays the fee                               /usdc-own-fee
//   /push         the buyer sends the transaction                      /session     tempo/session alone
//   /custom       a challenge whose request is changed by control {"request": {…}} (a member null: left out), with {"expires"}
//   mcp           the tool "weather", as error -32042
//
// POST control:
//   {"fund": address, "token", "amount"}          from an account that has the most there can be
//   {"balance": [token, address]}                 → {"balance": "1000"}
//   {"mine": n} | {"later": seconds}              blocks; the chain's clock
//   {"lose": n}                                   the next n paid answers are cut off after they were settled
//   {"down": "before" | "after" | ""}             the sellers' node fails before or after it took a transaction
//   {"forget": true}                              the sellers forget what they were shown
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { Challenge } from 'mppx';
import { Mppx, Store, Transport, tempo as pays } from 'mppx/server';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { createClient, http, pad, publicActions, stringToHex, toHex } from 'viem';
import { mnemonicToAccount } from 'viem/accounts';
import { Actions } from 'viem/tempo';
import { tempo as mainnet } from 'viem/tempo/chains';
import { Part } from '../lib/part.mjs';
import { answerJson, listen, readBody } from '../lib/serve.mjs';

const PATH_USD = '0x20c0000000000000000000000000000000000000';
const ALPHA_USD = '0x20c0000000000000000000000000000000000001';
const USDC = '0x20C000000000000000000000b9537d11c60E8b50';
const PRICE = '0.01';
const REALM = '127.0.0.1';
const secretKey = 'a secret of the lab, forty letters long..';

// anvil's accounts have 2^64-1 units of pathUSD each
const account = (addressIndex) => mnemonicToAccount('test test test test test test test test test test test junk', { addressIndex });
const bank = account(0), sponsor = account(8), shop = account(19).address;

// ---- the chain: the newest rules that anvil 1.7.1 knows; its default ones lack transactions that expire

const arch = { x64: 'amd64' }[process.arch] ?? process.arch;
const binary = fileURLToPath(new URL(`../chain/node_modules/@foundry-rs/anvil-${process.platform}-${arch}/bin/anvil`, import.meta.url));
process.env.HOME = fs.mkdtempSync(path.join(os.tmpdir(), 'x402-tempo-'));
const command = [binary, '--network', 'tempo', '--hardfork', 'T4', '--chain-id', '4217', '--host', '127.0.0.1', '--port', '0'];
const anvil = await Part.start('anvil (Tempo)', command, {
  portsIn: (out) => out.match(/Listening on 127\.0\.0\.1:(\d+)/)?.slice(1), onEnd: (message) => { console.error(message); process.exit(1); },
});
const end = async () => {
  await anvil.stop();
  fs.rmSync(process.env.HOME, { recursive: true, force: true });
  process.exit(0);
};
process.stdin.on('end', end).resume();
process.on('SIGTERM', end);

const connect = () => createClient({ chain: mainnet, transport: http(anvil.url(), { retryCount: 0 }), pollingInterval: 20 });
const chain = connect().extend(publicActions);
const rpc = (method, ...params) => chain.request({ method, params });

/** Puts a token at USDC.e's address: a precompile answers where code 0xef lies, so storage is all that it needs. */
async function placeUsdc() {
  const dump = JSON.parse(gunzipSync(Buffer.from((await rpc('anvil_dumpState')).slice(2), 'hex')));
  const { storage } = Object.entries(dump.accounts).find(([address]) => address.toLowerCase() === ALPHA_USD)[1];
  const shortText = (text) => `0x${stringToHex(text, { size: 31 }).slice(2)}${(2 * text.length).toString(16).padStart(2, '0')}`;
  await rpc('anvil_setCode', USDC, '0xef');
  for (const [slot, value] of Object.entries(storage)) {
    const word = pad(toHex(BigInt(value)));
    await rpc('anvil_setStorageAt', USDC, pad(toHex(BigInt(slot))), word === shortText('AlphaUSD') ? shortText('USDC.e') : word);
  }
  // fees in USDC.e are changed into the validator's token
  const pool = { userTokenAddress: USDC, validatorTokenAddress: PATH_USD, validatorTokenAmount: 1_000_000_000_000n, to: bank.address };
  await Actions.amm.mintSync(chain, { account: bank, feeToken: PATH_USD, gas: 3_000_000n, ...pool });
}
await placeUsdc();

/**
 * Tempo has a block every half second, anvil one for each transaction, a second after the one before. So its clock is set right before
 * something is sold: a new block where it is late, and a wait where it is ahead.
 */
let shifted = 0; // by {"later"}
async function onTime() {
  const { timestamp } = await chain.getBlock();
  const ahead = Number(timestamp) - shifted - Date.now() / 1000;
  if (ahead < -2) await rpc('anvil_mine', '0x1');
  if (ahead > 5) await new Promise((done) => { setTimeout(done, 1000 * (ahead - 2)); });
}

// ---- the sellers

const state = { lose: 0, down: '', request: {}, expires: '', paid: 0 };

/**
 * The chain as the sellers see it. anvil 1.7.1 takes the fee of an eth_call from the sender although a fee payer is named, and runs nothing
 * of a list of calls; both are mended here.
 */
function sellersChain() {
  const client = connect();
  const ask = client.request;
  const withoutFee = ({ feePayer, feeToken, gas, gasPrice, maxFeePerGas, maxPriorityFeePerGas, ...call }) => call;
  const failing = () => { throw Object.assign(new Error('the node is down'), { code: -32000 }); };
  client.request = async (query, options) => {
    const { method, params } = query;
    if (method.startsWith('eth_sendRawTransaction')) {
      if (state.down === 'before') failing();
      const answer = await ask(query, options);
      return state.down === 'after' ? failing() : answer;
    }
    if (method !== 'eth_call') return ask(query, options);
    const [call, ...rest] = params;
    if (call.calls?.length === 1) {
      const [{ to, data }] = call.calls;
      await ask({ method, params: [{ from: call.from, to, data }, ...rest] }, options);
    }
    return ask({ method, params: [call.feePayer ? withoutFee(call) : call, ...rest] }, options);
  };
  return client;
}
const client = sellersChain();

let shops;
function openShops() {
  const store = Store.memory();
  const charge = (more) => pays.charge({ currency: PATH_USD, recipient: shop, store, getClient: () => client, ...more });
  const open = (more, rest) => Mppx.create({ methods: [charge(more)], secretKey, realm: REALM, ...rest });
  shops = {
    '/goods': open({ feePayer: sponsor }), '/own-fee': open({}), '/push': open({ supportedModes: ['push'] }),
    '/usdc': open({ feePayer: sponsor, currency: USDC }), '/usdc-own-fee': open({ currency: USDC }),
    mcp: open({ feePayer: sponsor }, { transport: Transport.mcpSdk() }),
  };
}
openShops();

/** A seller's challenge with another request, and an id that is right for it. */
function changed(response) {
  const { request, realm, method, intent, expires } = Challenge.fromResponse(response);
  const merged = { ...request, ...state.request, methodDetails: { ...request.methodDetails, ...state.request.methodDetails } };
  const strip = (object) => Object.fromEntries(Object.entries(object).filter(([, value]) => value !== null));
  const asked = { ...strip(merged), methodDetails: strip(merged.methodDetails) };
  const challenge = Challenge.from({ secretKey, realm, method, intent, request: asked, expires: state.expires || expires });
  return new Response('{}', { status: 402, headers: { 'www-authenticate': Challenge.serialize(challenge) } });
}

const session = new Response('{}', { status: 402, headers: { 'www-authenticate': Challenge.serialize(Challenge.from({
  secretKey, realm: REALM, method: 'tempo', intent: 'session', expires: '2099-01-01T00:00:00Z',
  request: { amount: '1000', currency: PATH_USD, recipient: shop, unitType: 'request', methodDetails: { chainId: 4217 } },
})) } });

const httpPort = await listen(async (request, response) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) headers.set(name, String(value));
  const asked = new Request(url, { method: request.method, headers });
  let answer;
  await onTime();
  if (url.pathname === '/session') answer = session.clone();
  else {
    const place = shops[url.pathname === '/custom' ? '/goods' : url.pathname];
    if (!place) return answerJson(response, 404, { error: 'no such resource' });
    let result;
    try {
      result = await place.charge({ amount: PRICE })(asked);
    } catch (error) {
      return answerJson(response, 500, { error: String(error) });
    }
    answer = result.status === 402 ? result.challenge : result.withReceipt(Response.json({ goods: 'here', at: url.pathname }));
    if (answer.status === 402 && url.pathname === '/custom') answer = changed(answer);
  }
  if (answer.status === 200) state.paid++;
  if (answer.status === 200 && state.lose > 0) {
    state.lose--;
    return response.destroy();
  }
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
});

const mcpPort = await listen(async (request, response) => {
  const server = new Server({ name: 'mpp', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: 'weather', inputSchema: { type: 'object' } }] }));
  server.setRequestHandler(CallToolRequestSchema, async (_, extra) => {
    const result = await shops.mcp.charge({ amount: PRICE })(extra);
    if (result.status === 402) throw result.challenge;
    return result.withReceipt({ content: [{ type: 'text', text: 'sunny' }] });
  });
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on('close', () => { transport.close(); server.close(); });
  await server.connect(transport);
  await transport.handleRequest(request, response);
});

const controlPort = await listen(async (request, response) => {
  try {
    const { fund, token = PATH_USD, amount, balance, mine, later, forget, ...rest } = JSON.parse(await readBody(request) || '{}');
    Object.assign(state, rest);
    if (forget) openShops();
    if (fund) await Actions.token.transferSync(chain, { account: bank, amount: BigInt(amount), to: fund, token, feeToken: PATH_USD });
    if (later) await rpc('evm_increaseTime', later);
    shifted += later ?? 0;
    if (mine || later) await rpc('anvil_mine', toHex(mine ?? 1));
    const found = balance && (await Actions.token.getBalance(chain, { token: balance[0], account: balance[1] })).amount;
    answerJson(response, 200, { ...state, balance: found });
  } catch (error) {
    answerJson(response, 500, { error: String(error) });
  }
});

const at = (port) => `http://127.0.0.1:${port}`;
console.log(JSON.stringify({
  node: anvil.url(), http: at(httpPort), mcp: `${at(mcpPort)}/mcp`, control: at(controlPort), shop, network: 'eip155:4217', pathUSD: PATH_USD, usdc: USDC,
}));
