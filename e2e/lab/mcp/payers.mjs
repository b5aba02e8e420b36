// Reference clients that pay MCP tools: they prove the sellers right, and pay the wallet's own paywall.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import { x402Client } from '@x402/core/client';
import { registerExactEvmScheme } from '@x402/evm/exact/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { ExactSvmScheme } from '@x402/svm';
import { withX402Client } from 'agents/x402';
import { createPublicClient, http } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';

/** A connected MCP client: to a URL, or to a [command, …args] that it starts. */
async function connect(target) {
  const client = new Client({ name: 'reference-payer', version: '1.0.0' });
  await client.connect(Array.isArray(target)
    ? new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env, stderr: 'ignore' })
    : new StreamableHTTPClientTransport(new URL(target)));
  return client;
}

/** A reference wallet with an EVM key ("0x…"), by upto too where a node is given, and with a Solana one (32 bytes in hex) and its node. */
async function wallet({ key, evmNode, solanaKey, solanaNode }) {
  const client = new x402Client();
  if (evmNode) {
    const account = privateKeyToAccount(key), chain = createPublicClient({ transport: http(evmNode) });
    client.register('eip155:*', new UptoEvmScheme({
      address: account.address, signTypedData: (message) => account.signTypedData(message), readContract: (call) => chain.readContract(call),
    }));
  }
  if (key) registerExactEvmScheme(client, { signer: privateKeyToAccount(key) });
  if (solanaKey) client.register('solana:*', new ExactSvmScheme(await createKeyPairSignerFromPrivateKeyBytes(Buffer.from(solanaKey, 'hex')), { rpcUrl: solanaNode }));
  return client;
}

/** The PaymentRequired in a tool's result or in a JSON-RPC error; undefined if nothing is asked. */
export function challengeIn({ result, error }) {
  if (error) return error.code === 402 ? error.data : undefined;
  if (!result?.isError) return undefined;
  const text = () => { try { return JSON.parse(result.content[0].text); } catch { return undefined; } };
  return [result.structuredContent, result._meta?.['x402/error'], text()].find((found) => found?.x402Version && Array.isArray(found.accepts));
}

/** {result} or {error}, never thrown. */
async function ask(client, params) {
  try { return { result: await client.callTool(params) }; } catch (error) { return { error }; }
}

const PAYERS = {
  /** The specification's retry: @x402/core and the MCP SDK, the payment as an object. twice: with the same payment, at the same time. */
  async spec({ target, tool, args, twice, ...keys }) {
    const client = await connect(target);
    try {
      const first = await ask(client, { name: tool, arguments: args });
      const challenge = challengeIn(first);
      if (!challenge) return first;
      const payload = await (await wallet(keys)).createPaymentPayload(challenge);
      const paid = () => ask(client, { name: tool, arguments: args, _meta: { 'x402/payment': payload } });
      const [answer, other] = await Promise.all([paid(), twice && paid()]);
      return { challenge, ...answer, other };
    } finally { await client.close(); }
  },

  /** Cloudflare's withX402Client. */
  async cloudflare({ target, tool, args, key }) {
    const client = withX402Client(await connect(target), { account: privateKeyToAccount(key), network: 'base-sepolia' });
    let challenge;
    try {
      const calling = { callTool: (params) => client.callTool(async (accepts) => { challenge = { accepts }; return true; }, params) };
      return { ...(await ask(calling, { name: tool, arguments: args })), challenge };
    } finally { await client.close(); }
  },

  /** x402-mcp's withPayment over the AI SDK's client. */
  async 'x402-mcp'(call) {
    const { payWithX402Mcp } = await import('../mcp-v1/payer.mjs');
    return payWithX402Mcp({ ...call, challengeIn });
  },
};

export const payWith = (payer, call) => PAYERS[payer](call);
