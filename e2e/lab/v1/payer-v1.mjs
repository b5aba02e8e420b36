// The reference payer of x402 V1, x402-fetch.
import { createSigner, decodeXPaymentResponse, wrapFetchWithPayment } from 'x402-fetch';

/** Pays for a URL with `key` (0x… hex on EVM, base58 on Solana) on `network` (a V1 name). */
export async function payV1(url, { network, key, svmUrl }) {
  const pay = wrapFetchWithPayment(fetch, await createSigner(network, key), undefined, undefined, { svmConfig: { rpcUrl: svmUrl } });
  const response = await pay(url);
  const receipt = response.headers.get('x-payment-response');
  return { status: response.status, body: await response.text(), receipt: receipt && decodeXPaymentResponse(receipt) };
}
