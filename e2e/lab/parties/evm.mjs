// The EVM chain from outside: play money in, balances and evidence out. Uses viem, not the wallet, so that it can judge the wallet.
import fs from 'node:fs';
import { createTestClient, http, parseEventLogs, publicActions, walletActions } from 'viem';
import { EVM, EVM_ACCOUNTS, PERMIT2, viemChain } from './world.mjs';

const built = (name) => JSON.parse(fs.readFileSync(new URL(`../contracts/${name}.json`, import.meta.url), 'utf8'));
const { abi, code } = built('TestUSDC');
const permit2 = built('TestPermit2');

/** Blocks after which one is final: two epochs of anvil's 32 slots, and one for "past it". */
const UNTIL_FINAL = 2 * 32 + 1;

export class EvmChain {
  constructor(url) {
    this.client = createTestClient({ mode: 'anvil', chain: viemChain, transport: http(url), pollingInterval: 20, cacheTime: 0 })
      .extend(publicActions).extend(walletActions);
    this.token = { address: EVM.asset, abi };
  }

  /** Puts TestUSDC at USDC's address, and Permit2 with what belongs to it at theirs. */
  async deploy() {
    await Promise.all(Object.entries(PERMIT2).map(([name, address]) => this.client.setCode({ address, bytecode: permit2[name].code })));
    await this.client.setCode({ address: EVM.asset, bytecode: code });
    await this.call('initialize', [EVM.name, EVM.version]);
  }

  read(functionName, args = []) { return this.client.readContract({ ...this.token, functionName, args }); }

  /** Calls the token as one of anvil's accounts; throws the contract's reason if it refuses. */
  async call(functionName, args, account = EVM_ACCOUNTS.minter.address) {
    const hash = await this.client.writeContract({ ...this.token, functionName, args, account });
    const { status } = await this.client.waitForTransactionReceipt({ hash });
    if (status !== 'success') throw new Error(`${functionName}: ${status}`);
    return hash;
  }

  mint(to, amount) { return this.call('mint', [to, BigInt(amount)]); }
  balanceOf(address) { return this.read('balanceOf', [address]); }
  isNonceSpent(from, nonce) { return this.read('authorizationState', [from, nonce]); }

  /** EIP-3009 nonces that `from` has really used, oldest first. */
  async usedNonces(from) {
    const events = await this.client.getContractEvents({ ...this.token, eventName: 'AuthorizationUsed', args: { authorizer: from }, fromBlock: 0n });
    return events.map(({ args, transactionHash }) => ({ nonce: args.nonce, transaction: transactionHash }));
  }

  /** Calls a contract of Permit2's as any account, whose key nobody needs to have here. */
  async callPermit2(name, functionName, args, account) {
    return this.as(account, { address: PERMIT2[name], abi: permit2[name].abi, functionName, args });
  }

  /** Calls a contract as an account that anvil plays, with gas that it is given. */
  async as(account, call) {
    await this.client.setBalance({ address: account, value: 10n ** 18n });
    await this.client.impersonateAccount({ address: account });
    const hash = await this.client.writeContract({ ...call, account });
    await this.client.stopImpersonatingAccount({ address: account });
    const { status } = await this.client.waitForTransactionReceipt({ hash });
    if (status !== 'success') throw new Error(`${call.functionName}: ${status}`);
    return hash;
  }

  /** Lets Permit2 move an owner's tokens. */
  approvePermit2(owner, amount) {
    return this.as(owner, { ...this.token, functionName: 'approve', args: [PERMIT2.TestPermit2, BigInt(amount)] });
  }

  allowanceOfPermit2(owner) { return this.read('allowance', [owner, PERMIT2.TestPermit2]); }

  async isPermitUsed(owner, nonce) {
    const word = await this.client.readContract({
      address: PERMIT2.TestPermit2, abi: permit2.TestPermit2.abi, functionName: 'nonceBitmap', args: [owner, BigInt(nonce) >> 8n],
    });
    return ((word >> (BigInt(nonce) & 255n)) & 1n) === 1n;
  }

  /** The owner makes a nonce useless. */
  invalidatePermit(owner, nonce) {
    const n = BigInt(nonce);
    return this.callPermit2('TestPermit2', 'invalidateUnorderedNonces', [n >> 8n, 1n << (n & 255n)], owner);
  }

  /** Settles a payment (the `payload` of a V2 payment) as an account; upto's for `amount`. */
  settlePermit({ signature, permit2Authorization: { permitted, nonce, deadline, from, witness } }, account, amount) {
    const permit = { permitted: { token: permitted.token, amount: BigInt(permitted.amount) }, nonce: BigInt(nonce), deadline: BigInt(deadline) };
    if (!witness.facilitator) {
      return this.callPermit2('TestExactProxy', 'settle', [permit, from, { ...witness, validAfter: BigInt(witness.validAfter) }, signature], account);
    }
    const signed = { ...witness, validAfter: BigInt(witness.validAfter) };
    return this.callPermit2('TestUptoProxy', 'settle', [permit, BigInt(amount), from, signed, signature], account);
  }

  /** What a transaction moved of our token. Empty when it failed or is not there. */
  async transfersIn(transaction) {
    const receipt = await this.client.getTransactionReceipt({ hash: transaction }).catch(() => null);
    const logs = (receipt?.logs ?? []).filter(({ address }) => address.toLowerCase() === EVM.asset.toLowerCase());
    return parseEventLogs({ abi, eventName: 'Transfer', logs }).map(({ args: { from, to, value } }) => ({ from, to, amount: value }));
  }

  /** Makes blocks; without a number as many as make the present final. */
  mine(blocks = UNTIL_FINAL) { return this.client.mine({ blocks }); }

  /**
   * Moves the chain's clock on, and makes that moment final. Gives a snapshot for revert(), because the chain would stay ahead of
   * everybody's clock and refuse each later payment as expired.
   */
  async increaseTime(seconds) {
    const snapshot = await this.client.snapshot();
    await this.client.increaseTime({ seconds });
    await this.mine();
    return snapshot;
  }

  async revert(snapshot) { await this.client.revert({ id: snapshot }); }
}
