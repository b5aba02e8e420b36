// Sellers of MPP on the reference servers, mppx and @solana/mpp, which settle on the lab's chains by themselves.
// usage: seller.mjs '{evm, svm, payTo: {evm, svm}}'; prints {"http": URL, "mcp": URL, "control": URL} and ends with its standard input.
//
//   /evm       evm/charge, and x402 in the same 402      /evm-only   MPP alone
//   /solana    solana/charge, the seller pays the fee    /foreign    evm/charge for another realm
//   mcp        the tool "weather", evm/charge, as error -32042
//
// POST control {"lose": n}: the next n paid answers are cut off after they were settled. {"settled"} counts settlements.
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import {
  createKeyPairSignerFromPrivateKeyBytes, getBase58Decoder, getCompiledTransactionMessageDecoder, getTransactionDecoder,
} from '@solana/kit';
import * as solana from '@solana/mpp/server';
import fs from 'node:fs';
import crypto from 'node:crypto';
import { Mppx, Transport, evm } from 'mppx/server';
import { createWalletClient, http as viemHttp, publicActions } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { answerJson, listen, options, readBody } from '../lib/serve.mjs';

const { evm: evmNode, svm: svmNode, payTo } = options();
const USDC = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const MINT = '4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU';
const MEMO = 'MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr';
const TOKEN = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';
const PRICE = { dollars: '0.001', atomic: '1000' };
const secretKey = 'a secret of the lab, forty letters long..';
const chain = { id: 84532, name: 'Base Sepolia', nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 }, rpcUrls: { default: { http: [] } } };

const state = { lose: 0, settled: 0 };

// ---- EVM: the seller brings the authorization to the token itself, with an account of anvil's (index 9) for the gas

const { abi } = JSON.parse(fs.readFileSync(new URL('../contracts/TestUSDC.json', import.meta.url), 'utf8'));
const gas = createWalletClient({
  account: privateKeyToAccount('0x2a871d0798f97d79848a013d4936a73bf4cc922c825d33c1cf7073dff6d409c6'),
  chain, transport: viemHttp(evmNode), pollingInterval: 20,
}).extend(publicActions);
// the form with the signature's bytes, of the two that the token has
const settling = abi.filter(({ name, inputs }) => name === 'transferWithAuthorization' && inputs.length === 7);

let last = Promise.resolve(); // one after the other: the account's nonces
async function settle({ payload: { from, to, value, validAfter, validBefore, nonce, signature } }) {
  const args = [from, to, BigInt(value), BigInt(validAfter), BigInt(validBefore), nonce, signature];
  const landed = last.then(async () => {
    const hash = await gas.writeContract({ address: USDC, abi: settling, functionName: 'transferWithAuthorization', args });
    const { status } = await gas.waitForTransactionReceipt({ hash });
    if (status !== 'success') throw new Error(`${hash} failed`);
    state.settled++;
    return { reference: hash };
  });
  last = landed.catch(() => {});
  return landed;
}

const onEVM = () => evm.charge({
  currency: USDC, chainId: chain.id, decimals: 6, authorization: { name: 'USDC', version: '2' }, recipient: payTo.evm, settle,
});

// ---- Solana: @solana/mpp reads a transaction as jsonParsed, which the lab's node does not give

function parsed({ programAddressIndex, accountIndices = [], data }, keys) {
  const programId = keys[programAddressIndex];
  const accounts = accountIndices.map((index) => keys[index]);
  const bytes = Buffer.from(data);
  if (programId === MEMO) return { programId, program: 'spl-memo', parsed: bytes.toString() };
  if (programId !== TOKEN) return { programId, accounts, data: getBase58Decoder().decode(bytes) };
  const [source, mint, destination, authority] = accounts;
  const tokenAmount = { amount: String(bytes.readBigUInt64LE(1)), decimals: bytes[9] };
  return { programId, program: 'spl-token', parsed: { type: 'transferChecked', info: { source, mint, destination, authority, tokenAmount } } };
}

async function askNode(query) {
  const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(query) };
  return (await fetch(svmNode, init)).json();
}

async function nodeAnswer(query) {
  const [signature, how] = query.params ?? [];
  if (query.method !== 'getTransaction' || how?.encoding !== 'jsonParsed') return askNode(query);
  const answer = await askNode({ ...query, params: [signature, { ...how, encoding: 'base64' }] });
  if (answer.result) {
    const { messageBytes } = getTransactionDecoder().decode(Buffer.from(answer.result.transaction[0], 'base64'));
    const message = getCompiledTransactionMessageDecoder().decode(messageBytes);
    const instructions = message.instructions.map((instruction) => parsed(instruction, message.staticAccounts));
    answer.result.transaction = { message: { instructions } };
  }
  return answer;
}

const rpcUrl = `http://127.0.0.1:${await listen(async (request, response) => {
  answerJson(response, 200, await nodeAnswer(JSON.parse(await readBody(request))));
})}`;

/** The lab's Solana key of a name (../parties/world.mjs, in this set's @solana/kit). */
const signerOf = (name) => createKeyPairSignerFromPrivateKeyBytes(crypto.createHash('sha256').update(`x402-wallet lab: ${name}`).digest());
const onSolana = solana.charge({
  recipient: payTo.svm, currency: MINT, decimals: 6, network: 'devnet', signer: await signerOf('facilitator'), rpcUrl,
});

// ---- the shops

const shop = (method, realm, more) => Mppx.create({ methods: [method], secretKey, realm, ...more });
const shops = {
  '/evm': { shop: shop(onEVM(), '127.0.0.1'), charge: { amount: PRICE.dollars } },
  '/evm-only': { shop: shop(onEVM(), '127.0.0.1'), charge: { amount: PRICE.dollars }, alone: true },
  '/foreign': { shop: shop(onEVM(), 'bank.example'), charge: { amount: PRICE.dollars }, alone: true },
  '/solana': { shop: shop(onSolana, '127.0.0.1'), charge: { amount: PRICE.atomic, currency: MINT, externalId: 'order-42' } },
};

const httpPort = await listen(async (request, response) => {
  const url = new URL(request.url, 'http://127.0.0.1');
  const place = shops[url.pathname];
  if (!place) return answerJson(response, 404, { error: 'no such resource' });
  const headers = new Headers();
  for (const [name, value] of Object.entries(request.headers)) headers.set(name, String(value));
  const result = await place.shop.charge(place.charge)(new Request(url, { method: request.method, headers }));
  const answer = result.status === 402 ? result.challenge : result.withReceipt(Response.json({ weather: 'sunny', at: url.pathname }));
  if (answer.status === 200 && state.lose > 0) {
    state.lose--;
    return response.destroy();
  }
  const out = Object.fromEntries(answer.headers);
  if (place.alone) delete out['payment-required'];
  response.writeHead(answer.status, out).end(Buffer.from(await answer.arrayBuffer()));
});

// mppx's evm.charge has an HTTP transport of its own, which wins over the one asked for
const overMCP = shop({ ...onEVM(), transport: Transport.mcpSdk() }, 'MPP Payment', { transport: Transport.mcpSdk() });

const mcpPort = await listen(async (request, response) => {
  const server = new Server({ name: 'mpp', version: '1' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: 'weather', inputSchema: { type: 'object' } }] }));
  server.setRequestHandler(CallToolRequestSchema, async (_, extra) => {
    const result = await overMCP.charge({ amount: PRICE.dollars })(extra);
    if (result.status === 402) throw result.challenge;
    return result.withReceipt({ content: [{ type: 'text', text: 'sunny' }] });
  });
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on('close', () => { transport.close(); server.close(); });
  await server.connect(transport);
  await transport.handleRequest(request, response);
});

const controlPort = await listen(async (request, response) => {
  Object.assign(state, JSON.parse(await readBody(request) || '{}'));
  answerJson(response, 200, state);
});

process.stdin.on('end', () => process.exit(0)).resume();
const at = (port) => `http://127.0.0.1:${port}`;
console.log(JSON.stringify({ http: at(httpPort), mcp: `${at(mcpPort)}/mcp`, control: at(controlPort) }));
