// The reference payer, @x402/fetch, and what it cannot do: a payment from a token account that is delegated to the payer.
import { ExactEvmScheme } from '@x402/evm';
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm';
import { privateKeyToAccount } from 'viem/accounts';
import { EVM, EVM_ACCOUNTS, SVM, solanaSigner } from './world.mjs';

/** The lab's client, who pays on both chains. */
export class Payer {
  static async create(svmUrl) {
    const payer = new Payer();
    payer.client = new x402Client()
      .register('eip155:*', new ExactEvmScheme(privateKeyToAccount(EVM_ACCOUNTS.client.key)))
      .register('solana:*', new ExactSvmScheme(await solanaSigner('client'), { rpcUrl: svmUrl }));
    return payer;
  }

  /** Pays for a URL where the seller settles: {status, body, receipt, ms}. */
  async pay(url, init) {
    const started = performance.now();
    const response = await wrapFetchWithPayment(fetch, this.client)(url, init);
    const body = await response.text();
    const receipt = response.headers.get('payment-response');
    return { status: response.status, body, receipt: receipt && decodePaymentResponseHeader(receipt), ms: performance.now() - started };
  }

  /** Pays {network, asset, payTo, amount} where the payer settles: signs, and posts to the facilitator's /settle. */
  async settle(facilitator, price) {
    const { kinds } = await (await fetch(`${facilitator}/supported`)).json();
    const { extra } = kinds.find(({ x402Version, scheme, network }) => x402Version === 2 && scheme === 'exact' && network === price.network);
    const domain = price.network === EVM.network ? { name: EVM.name, version: EVM.version } : {};
    const paymentRequirements = { scheme: 'exact', ...price, maxTimeoutSeconds: 60, extra: { ...extra, ...domain } };
    const paymentPayload = await this.client.createPaymentPayload({ x402Version: 2, accepts: [paymentRequirements] });
    const body = JSON.stringify({ x402Version: 2, paymentPayload, paymentRequirements });
    const response = await fetch(`${facilitator}/settle`, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    const answer = await response.json();
    if (!answer.success) throw new Error(`settle: ${response.status} ${JSON.stringify(answer)}`);
    return answer;
  }
}

/** Asks for a URL and gives the PAYMENT-SIGNATURE header that pays for it from `account` (null: nothing to pay on Solana). */
export async function delegatedPayment(svm, { url, account, delegate }) {
  const challenge = (await fetch(url)).headers.get('payment-required');
  if (!challenge) return null;
  const { x402Version, resource, accepts } = JSON.parse(Buffer.from(challenge, 'base64'));
  const accepted = accepts.find(({ network }) => network === SVM.network);
  if (!accepted) return null;
  const payload = { transaction: await svm.delegatedTransfer(accepted, account, delegate) };
  return Buffer.from(JSON.stringify({ x402Version, resource, accepted, payload })).toString('base64');
}
