// How Solana's JSON-RPC shows accounts, transactions and amounts.
import { TOKEN, isMint, isTokenAccount, readMint, readTokenAccount, toBase58, toBase64 } from './layout.mjs';

/** A token amount; `uiAmountString` without trailing zeros. */
export function tokenAmount(amount, decimals) {
  const digits = String(amount).padStart(decimals + 1, '0');
  const whole = digits.slice(0, digits.length - decimals), fraction = digits.slice(digits.length - decimals).replace(/0+$/, '');
  return { amount: String(amount), decimals, uiAmount: Number(amount) / 10 ** decimals, uiAmountString: fraction ? `${whole}.${fraction}` : whole };
}

export class Describe {
  constructor(ledger) { this.ledger = ledger; }

  decimalsOf(mint) {
    const account = this.ledger.account(mint);
    return account.exists ? readMint(account.data).decimals : 0;
  }

  account(account, { encoding = 'base58', dataSlice: { offset = 0, length } = {} } = {}) {
    if (!account.exists) return null;
    const bytes = account.data.slice(offset, length === undefined ? undefined : offset + length);
    // A node answers an encoding that it cannot do for this account, and base64+zstd here, with base64.
    const data = (encoding === 'jsonParsed' && this.#parsed(account)) || (encoding === 'base58' ? [toBase58(bytes), 'base58'] : [toBase64(bytes), 'base64']);
    return { data, executable: account.executable, lamports: Number(account.lamports), owner: account.programAddress, rentEpoch: 0, space: account.data.length };
  }

  /** jsonParsed, for mints and token accounts only. */
  #parsed(account) {
    const { programAddress, data } = account;
    const shown = (type, info) => ({ program: programAddress === TOKEN ? 'spl-token' : 'spl-token-2022', space: data.length, parsed: { type, info } });
    if (isMint(account)) {
      const mint = readMint(data);
      return shown('mint', { ...mint, supply: String(mint.supply) });
    }
    if (!isTokenAccount(account)) return undefined;
    const { amount, delegate, delegatedAmount, ...info } = readTokenAccount(data);
    const decimals = this.decimalsOf(info.mint);
    const delegation = delegate && { delegate, delegatedAmount: tokenAmount(delegatedAmount, decimals) };
    return shown('account', { ...info, tokenAmount: tokenAmount(amount, decimals), ...delegation });
  }

  /** A landed transaction, as getTransaction gives it. */
  transaction(record, { encoding = 'json', maxSupportedTransactionVersion } = {}) {
    const { transaction, bytes, before = [], after = [], meta, error } = record;
    const forms = {
      json: () => ({
        signatures: transaction.signatures,
        message: {
          header: transaction.header,
          accountKeys: transaction.accountKeys,
          recentBlockhash: transaction.recentBlockhash,
          instructions: transaction.instructions,
          ...(transaction.version !== 'legacy' && { addressTableLookups: [] }),
        },
      }),
      base64: () => [toBase64(bytes), 'base64'],
      base58: () => [toBase58(bytes), 'base58'],
    };
    return {
      slot: record.slot,
      blockTime: Math.floor(record.time / 1000),
      ...(maxSupportedTransactionVersion !== undefined && { version: transaction.version }),
      transaction: forms[encoding](),
      meta: {
        err: error,
        status: status(error),
        fee: 5000 * transaction.signatures.length,
        computeUnitsConsumed: Number(meta.computeUnitsConsumed()),
        logMessages: meta.logs(),
        innerInstructions: innerInstructions(meta),
        preBalances: before.map(({ lamports }) => lamports),
        postBalances: after.map(({ lamports }) => lamports),
        preTokenBalances: this.#tokenBalances(before),
        postTokenBalances: this.#tokenBalances(after),
        loadedAddresses: { readonly: [], writable: [] },
        rewards: [],
      },
    };
  }

  #tokenBalances(balances) {
    return balances.flatMap(({ token }, accountIndex) => (token
      ? [{ accountIndex, mint: token.mint, owner: token.owner, programId: token.programId, uiTokenAmount: tokenAmount(token.amount, this.decimalsOf(token.mint)) }]
      : []));
  }
}

export const status = (error) => (error ? { Err: error } : { Ok: null });

export const innerInstructions = (meta) => meta.innerInstructions()
  .map((group, index) => ({
    index,
    instructions: group.map((inner) => {
      const instruction = inner.instruction();
      return { programIdIndex: instruction.programIdIndex(), accounts: [...instruction.accounts()], data: toBase58(instruction.data()), stackHeight: inner.stackHeight() };
    }),
  }))
  .filter(({ instructions }) => instructions.length);
