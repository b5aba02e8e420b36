// Another signer of an owner's: signs typed data (eth_signTypedData_v4) by viem. Options: {key, data}; prints {"signature": "0x…"}.
import { privateKeyToAccount } from 'viem/accounts';
import { options } from '../lib/serve.mjs';

const { key, data } = options();
const { EIP712Domain: _, ...types } = data.types;
console.log(JSON.stringify({ signature: await privateKeyToAccount(key).signTypedData({ ...data, types }) }));
process.stdin.on('end', () => process.exit(0)).resume();
