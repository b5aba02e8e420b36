// What a facilitator does for erc20ApprovalGasSponsoring: it brings a buyer's own approval to the chain, in front of what it settles.
import { parseTransaction, recoverTransactionAddress } from 'viem';

/** Sends one transaction after the other: a buyer's, as it is signed, or a call of the facilitator's, by `sendTransaction`. */
export function sponsoring(client, sendTransaction) {
  const done = async (hash) => {
    const { status } = await client.waitForTransactionReceipt({ hash });
    if (status !== 'success') throw new Error(`transaction ${hash}: ${status}`);
    return hash;
  };
  /** The buyer is sent the coins that its gas lacks. */
  async function sponsor(serializedTransaction) {
    const { gas, maxFeePerGas } = parseTransaction(serializedTransaction), buyer = await recoverTransactionAddress({ serializedTransaction });
    const lacks = gas * maxFeePerGas - await client.getBalance({ address: buyer });
    if (lacks > 0n) await done(await sendTransaction({ to: buyer, value: lacks }));
    return client.sendRawTransaction({ serializedTransaction });
  }
  return async (transactions) => {
    const hashes = [];
    for (const transaction of transactions) {
      hashes.push(await done(await (typeof transaction === 'string' ? sponsor(transaction) : sendTransaction(transaction))));
    }
    return hashes;
  };
}
