// The EVM chain from outside: play money in, balances and evidence out. Uses viem, not the wallet, so that it can judge the wallet.
import fs from 'node:fs';
import { createTestClient, http, parseEventLogs, publicActions, walletActions } from 'viem';
import { EVM, EVM_ACCOUNTS, viemChain } from './world.mjs';

const { abi, code } = JSON.parse(fs.readFileSync(new URL('../contracts/TestUSDC.json', import.meta.url), 'utf8'));

/** Blocks after which one is final: two epochs of anvil's 32 slots, and one for "past it". */
const UNTIL_FINAL = 2 * 32 + 1;

export class EvmChain {
  constructor(url) {
    this.client = createTestClient({ mode: 'anvil', chain: viemChain, transport: http(url), pollingInterval: 20, cacheTime: 0 })
      .extend(publicActions).extend(walletActions);
    this.token = { address: EVM.asset, abi };
  }

  /** Puts TestUSDC at USDC's address. */
  async deploy() {
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

  async revert(snapshot) {
    const { address } = EVM_ACCOUNTS.facilitator;
    const nonce = await this.client.getTransactionCount({ address });
    await this.client.revert({ id: snapshot });
    // The facilitator counts its transactions itself; with the chain's count back at the snapshot's, its next would wait for ever.
    await this.client.setNonce({ address, nonce });
  }
}
