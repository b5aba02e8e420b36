// What the paid MCP servers sell, and the till that takes the money: it asks, verifies and settles with @x402/core and a real facilitator.
import fs from 'node:fs';
import { HTTPFacilitatorClient, x402ResourceServer } from '@x402/core/server';
import { ExactEvmScheme } from '@x402/evm/exact/server';
import { ExactSvmScheme } from '@x402/svm/exact/server';
import { z } from 'zod';

const NETWORK = { 1: 'base-sepolia', 2: 'eip155:84532' };
const SOLANA = 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1';
const USDC = '0x036CbD53842c5426634e7929541eC2318f3dCF7e';
const PRICE = 1000n; // atomic USDC

export const say = (text) => ({ content: [{ type: 'text', text }] });
export const dollars = (atomic) => Number(atomic) / 1e6;

export const TOOLS = {
  echo: { price: PRICE, description: 'gives the text back', schema: { text: z.string() }, run: ({ text }) => say(`echo: ${text}`) },
  boom: { price: PRICE, description: 'always fails', schema: {}, run: () => ({ isError: true, ...say('boom: the tool failed') }) },
  pricey: { price: 50_000_000n, description: 'costs fifty dollars', schema: {}, run: () => say('pricey: done') },
  hello: { price: 0n, description: 'free greeting', schema: { name: z.string().optional() }, run: ({ name }) => say(`hello ${name ?? 'world'}`) },
};

/** Writes an event to the log that the judge reads, and that outlives the server. */
export const journal = (file) => (event, data) => fs.appendFileSync(file, `${JSON.stringify({ event, ...data })}\n`);

export class Till {
  /** payTo: {evm, svm}; svm may be missing, and V1 sells on EVM only. */
  constructor({ version, facilitator, payTo }) {
    Object.assign(this, { version, payTo });
    this.facilitator = new HTTPFacilitatorClient({ url: facilitator });
    this.server = new x402ResourceServer(this.facilitator).register('eip155:*', new ExactEvmScheme()).register('solana:*', new ExactSvmScheme());
  }

  async accepts(name, { price = TOOLS[name].price, payTo = this.payTo } = {}) {
    if (this.version === 1) {
      return [{
        scheme: 'exact', network: NETWORK[1], maxAmountRequired: String(price), resource: `mcp://tool/${name}`, description: TOOLS[name].description,
        mimeType: 'application/json', payTo: payTo.evm, maxTimeoutSeconds: 300, asset: USDC, extra: { name: 'USDC', version: '2' },
      }];
    }
    await (this.ready ??= this.server.initialize());
    const on = (network, to) => this.server.buildPaymentRequirements({ scheme: 'exact', network, payTo: to, price: `$${dollars(price)}` });
    return [...await on(NETWORK[2], payTo.evm), ...(payTo.svm ? await on(SOLANA, payTo.svm) : [])];
  }

  async challenge(name, error, terms) {
    const accepts = await this.accepts(name, terms);
    const resource = { url: `mcp://tool/${name}`, description: TOOLS[name].description, mimeType: 'application/json' };
    return { x402Version: this.version, error, ...(this.version === 2 && { resource }), accepts };
  }

  /** {requirement} or {why}. */
  async verify(payload, name) {
    if (typeof payload !== 'object' || payload?.x402Version !== this.version) return { why: 'invalid_x402_version' };
    const accepts = await this.accepts(name);
    const requirement = this.version === 2
      ? this.server.findMatchingRequirements(accepts, payload)
      : accepts.find(({ scheme, network }) => scheme === payload.scheme && network === payload.network);
    if (!requirement) return { why: 'No matching payment requirements' };
    try {
      const { isValid, invalidReason } = await this.facilitator.verify(payload, requirement);
      return isValid ? { requirement } : { why: invalidReason };
    } catch (error) { return { why: error.message }; }
  }

  async settle(payload, requirement) {
    try { return await this.facilitator.settle(payload, requirement); }
    catch (error) { return { success: false, errorReason: error.message, transaction: '', network: requirement.network }; }
  }
}
