// A facilitator that is a program: settle-command.mjs NODE_URL verify|settle|supported. It has a request of the reference facilitator's
// HTTP on stdin and prints its answer.
import { x402Facilitator } from '@x402/core/facilitator';
import { toFacilitatorEvmSigner } from '@x402/evm';
import { ExactEvmScheme } from '@x402/evm/exact/facilitator';
import { createWalletClient, http, publicActions } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { EVM, EVM_ACCOUNTS, viemChain } from './world.mjs';

const [node, request] = process.argv.slice(2);
const account = privateKeyToAccount(EVM_ACCOUNTS.facilitator.key);
const client = createWalletClient({ account, chain: viemChain, transport: http(node), pollingInterval: 25 }).extend(publicActions);
const facilitator = new x402Facilitator();
facilitator.register(EVM.network, new ExactEvmScheme(toFacilitatorEvmSigner({ ...client, address: account.address })));

async function read(stream) {
  let text = '';
  for await (const piece of stream) text += piece;
  return JSON.parse(text);
}

async function answer() {
  if (request === 'supported') return facilitator.getSupported();
  const { paymentPayload, paymentRequirements } = await read(process.stdin);
  return request === 'settle' ? facilitator.settle(paymentPayload, paymentRequirements) : facilitator.verify(paymentPayload, paymentRequirements);
}

process.stdout.write(JSON.stringify(await answer(), (_, value) => (typeof value === 'bigint' ? String(value) : value)));
