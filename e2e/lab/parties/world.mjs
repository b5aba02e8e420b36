// Who and what there is in the lab: networks, tokens, accounts. Every key is public; none of them may ever hold money.
import crypto from 'node:crypto';
import { createKeyPairSignerFromPrivateKeyBytes, getAddressEncoder } from '@solana/kit';

/** Base Sepolia with USDC; name and version are those of its EIP-712 domain. */
export const EVM = {
  chainId: 84532,
  network: 'eip155:84532',
  asset: '0x036CbD53842c5426634e7929541eC2318f3dCF7e',
  name: 'USDC',
  version: '2',
};

/** Where Permit2, x402's proxies and Multicall3 are on every chain, by the names of contracts/TestPermit2.sol. */
export const PERMIT2 = {
  TestPermit2: '0x000000000022D473030F116dDEE9F6B43aC78BA3',
  TestExactProxy: '0x402085c248EeA27D92E8b30b2C58ed07f9E20001',
  TestUptoProxy: '0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002',
  TestMulticall: '0xcA11bde05977b3631167028862bE2a173976CA11',
};

/** The same for viem. Its own list of chains takes longer to load than the rest of the lab's clients together. */
export const viemChain = {
  id: EVM.chainId,
  name: 'Base Sepolia',
  nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
  rpcUrls: { default: { http: [] } },
};

/** Solana's devnet with USDC (SPL Token) and PYUSD (Token-2022), both of 6 decimals. */
export const SVM = {
  network: 'solana:EtWTRABZaYq6iMfeYKouRu166VU2xqa1',
  mint: '4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU',
  mint2022: 'CXk2AMBfi3TwaEL2468s6zP8xq9NxTXjp9gjMgzeUynM',
  decimals: 6,
};

/** Accounts of the mnemonic that anvil, hardhat and their documentation share ("test test … junk"), by index. */
export const EVM_ACCOUNTS = {
  minter: { address: '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266' }, // 0; anvil signs for it
  facilitator: { // 1
    address: '0x70997970C51812dc3A010C7d01b50e0d17dc79C8',
    key: '0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d',
  },
  client: { // 2, the reference payer
    address: '0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC',
    key: '0x5de4111afa1a4b94908f83103eb1f1706367c2e68ca870fc3fb9a804cdab365a',
  },
  payTo: { address: '0x90F79bf6EB2c4f870365E785982E1f101E93b906' }, // 3
  ozskrPayTo: { address: '0x15d34AAf54267DB7D7c367839AAf71A00a2C6A65' }, // 4
};

const secretOf = (name) => crypto.createHash('sha256').update(`x402-wallet lab: ${name}`).digest();

/** The lab's Solana key of a name. Any name has one: "client" is the reference payer, tests make up owners as they need them. */
export const solanaSigner = (name) => createKeyPairSignerFromPrivateKeyBytes(secretOf(name));

/** The same key as the 64 numbers of a Solana keypair file. */
export async function solanaKeypair(name) {
  const { address } = await solanaSigner(name);
  return [...secretOf(name), ...getAddressEncoder().encode(address)];
}
