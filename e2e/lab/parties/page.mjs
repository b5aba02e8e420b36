// A web page that buys with the reference payer: buy(URL, PRIVATE-KEY) (hex, of play money only) says what came.
import { ExactEvmScheme } from '@x402/evm';
import { decodePaymentResponseHeader, wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

globalThis.buy = async (url, key) => {
  const client = new x402Client().register('eip155:*', new ExactEvmScheme(privateKeyToAccount(key)));
  try {
    const response = await wrapFetchWithPayment(fetch.bind(globalThis), client)(url);
    const receipt = response.headers.get('payment-response');
    return { status: response.status, text: await response.text(), paid: receipt ? decodePaymentResponseHeader(receipt).success : false };
  } catch (e) {
    return { status: 0, text: String(e), paid: false };
  }
};
