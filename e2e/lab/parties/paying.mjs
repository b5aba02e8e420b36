// Pays URL?n for n from 0 to COUNT-1, one after the other, with the reference payer, and prints as JSON the milliseconds that each
// took, and those of computing for all.
// Usage: node paying.mjs URL COUNT PRIVATE-KEY (hex, of play money only)
import { ExactEvmScheme } from '@x402/evm';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { privateKeyToAccount } from 'viem/accounts';

const [url, count, key] = process.argv.slice(2);
const pay = wrapFetchWithPayment(fetch, new x402Client().register('eip155:*', new ExactEvmScheme(privateKeyToAccount(key))));
const took = [];
const before = process.cpuUsage();
for (let n = 0; n < Number(count); n++) {
  const started = performance.now();
  const response = await pay(`${url}?${n}`);
  await response.text();
  if (response.status !== 200 || !response.headers.get('payment-response')) throw new Error(`payment ${n}: ${response.status}`);
  took.push(performance.now() - started);
}
const { user, system } = process.cpuUsage(before);
console.log(JSON.stringify({ took, cpu: (user + system) / 1000 }));
