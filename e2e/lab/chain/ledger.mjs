// A Solana ledger on the real SVM of npm litesvm, with the real SPL Token, Token-2022, associated token and memo programs.
// LiteSVM runs transactions; slots, the life of blockhashes and the memory of what landed are added here as a cluster has them.
import { lamports } from '@solana/kit';
import { LiteSVM } from 'litesvm';
import internal from 'litesvm/dist/internal.js';
import { instructionErrorName, transactionErrorName } from './errors.mjs';
import { isTokenAccount, mintBytes, readTokenAccount, readTransaction, toBase58, toBytes } from './layout.mjs';

const SLOT_MS = 400;
const FIRST_SLOT = 1000;
/**
 * A cluster skips slots, so its block height stays behind. A blockhash expires by height: who compares a slot with
 * lastValidBlockHeight believes a payment dead that still can land. Here such a mistake shows at once.
 */
const SKIPPED_SLOTS = 300;
export const BLOCKHASH_BLOCKS = 150; // MAX_PROCESSING_AGE
const REMEMBERED_BLOCKHASHES = 2 * BLOCKHASH_BLOCKS;

/** Errors of transactions that no block would hold: nobody could be made to pay for them. */
const NEVER_LANDS = new Set(['SignatureFailure', 'SanitizeFailure', 'InsufficientFundsForFee', 'AccountNotFound', 'AlreadyProcessed']);

export class Ledger {
  #svm = new LiteSVM().withTransactionHistory(1_000_000n).withBlockhashCheck(false); // blockhashes are checked here, by age
  #startedAt = Date.now();
  #advanced = 0;
  #blockhashes = new Map(); // blockhash -> block height, oldest first
  #newest = { slot: -1, blockhash: '' };
  #landed = new Map(); // signature -> {slot, time, error, meta, bytes, transaction, before, after}

  // ---- time

  slot() { return FIRST_SLOT + this.#advanced + Math.floor((Date.now() - this.#startedAt) / SLOT_MS); }
  blockHeight() { return this.slot() - SKIPPED_SLOTS; }

  /** Lets that many slots pass at once. */
  advance(slots) {
    this.#advanced += slots;
    this.latestBlockhash();
    return this.slot();
  }

  /** The blockhash of this slot, with the last block height at which it is valid. Also moves the SVM's clock. */
  latestBlockhash() {
    const slot = this.slot();
    if (slot !== this.#newest.slot) {
      this.#svm.expireBlockhash();
      this.#newest = { slot, blockhash: this.#svm.latestBlockhash() };
      this.#blockhashes.set(this.#newest.blockhash, this.blockHeight());
      if (this.#blockhashes.size > REMEMBERED_BLOCKHASHES) this.#blockhashes.delete(this.#blockhashes.keys().next().value);
      const clock = this.#svm.getClock();
      clock.slot = BigInt(slot);
      clock.unixTimestamp = BigInt(Math.floor(Date.now() / 1000));
      this.#svm.setClock(clock);
    }
    const { blockhash } = this.#newest;
    return { blockhash, lastValidBlockHeight: this.#blockhashes.get(blockhash) + BLOCKHASH_BLOCKS };
  }

  isAlive(blockhash) {
    const height = this.#blockhashes.get(blockhash);
    return height !== undefined && this.blockHeight() - height <= BLOCKHASH_BLOCKS;
  }

  // ---- accounts

  /** {exists, address, data, lamports, programAddress, executable} */
  account(address) { return this.#svm.getAccount(address); }
  accountsOf(program) { return this.#svm.getProgramAccounts(program).map((account) => ({ ...account, exists: true })); }
  balance(address) { return Number(this.#svm.getBalance(address) ?? 0n); }
  rentExemption(bytes) { return Number(this.#svm.minimumBalanceForRentExemption(BigInt(bytes))); }

  /** Puts a mint without extensions at an address. */
  placeMint({ mint, program, authority, decimals }) {
    const data = mintBytes(authority, decimals);
    const rent = lamports(BigInt(this.rentExemption(data.length)));
    this.#svm.setAccount({ address: mint, data, executable: false, lamports: rent, programAddress: program, space: BigInt(data.length) });
  }

  /** Gives lamports; answers with the transaction's signature. */
  airdrop(address, amount) {
    this.#svm.expireBlockhash(); // or a second airdrop of the same amount would be the very same transaction
    const result = this.#svm.airdrop(address, lamports(BigInt(amount)));
    if (!result || failed(result)) throw new Error('airdrop failed');
    const signature = toBase58(result.signature());
    this.#landed.set(signature, { slot: this.slot(), time: Date.now(), error: null, meta: result });
    return signature;
  }

  // ---- transactions

  /** Runs without effect. Gives {error, meta, logs}; error is null or as JSON-RPC has it. */
  simulate(bytes, { sigVerify = false, replaceRecentBlockhash = false } = {}) {
    const { blockhash } = this.latestBlockhash();
    const transaction = readTransaction(bytes);
    if (replaceRecentBlockhash) bytes = replaceBlockhash(bytes, transaction, blockhash);
    else if (!this.isAlive(transaction.recentBlockhash)) return { error: 'BlockhashNotFound', logs: [] };
    const svm = this.#svm.inner;
    svm.setSigverify(sigVerify);
    try {
      const result = transaction.version === 'legacy' ? svm.simulateLegacyTransaction(bytes) : svm.simulateVersionedTransaction(bytes);
      const meta = result.meta();
      return { error: failed(result) ? errorJson(result.err()) : null, meta, logs: meta.logs() };
    } finally {
      svm.setSigverify(true);
    }
  }

  /** Executes. Silent like a cluster: a transaction that is known or dead changes nothing and says nothing. */
  execute(bytes) {
    this.latestBlockhash();
    const transaction = readTransaction(bytes);
    const [signature] = transaction.signatures;
    if (this.#landed.has(signature) || !this.isAlive(transaction.recentBlockhash)) return;
    const svm = this.#svm.inner;
    const before = this.#balances(transaction.accountKeys);
    const result = transaction.version === 'legacy' ? svm.sendLegacyTransaction(bytes) : svm.sendVersionedTransaction(bytes);
    const error = failed(result) ? errorJson(result.err()) : null;
    if (NEVER_LANDS.has(error)) return;
    const meta = error ? result.meta() : result;
    const after = this.#balances(transaction.accountKeys);
    this.#landed.set(signature, { slot: this.slot(), time: Date.now(), error, meta, bytes, transaction, before, after });
  }

  signatureOf(bytes) { return readTransaction(bytes).signatures[0]; }
  find(signature) { return this.#landed.get(signature); }
  get transactionCount() { return this.#landed.size; }

  /** What landed with that account among its keys, newest first: [[signature, record]]. */
  transactionsOf(address) {
    return [...this.#landed].filter(([, { transaction }]) => transaction?.accountKeys.includes(address)).reverse();
  }

  /** Lamports and token balance of each key, as they are now. */
  #balances(keys) {
    return keys.map((key) => {
      const account = this.account(key);
      const token = account.exists && isTokenAccount(account) ? { programId: account.programAddress, ...readTokenAccount(account.data) } : null;
      return { lamports: account.exists ? Number(account.lamports) : 0, token };
    });
  }
}

const failed = (result) => result instanceof internal.FailedTransactionMetadata;

function replaceBlockhash(bytes, { blockhashAt }, blockhash) {
  const changed = bytes.slice();
  changed.set(toBytes(blockhash), blockhashAt);
  return changed;
}

/** A litesvm error in JSON-RPC's words. */
function errorJson(error) {
  if (typeof error === 'number') return transactionErrorName(error);
  switch (error.constructor?.name) {
    case 'TransactionErrorInstructionError': {
      const cause = error.err();
      if (typeof cause === 'number') return { InstructionError: [error.index, instructionErrorName(cause)] };
      return { InstructionError: [error.index, cause.code === undefined ? 'BorshIoError' : { Custom: cause.code }] };
    }
    case 'TransactionErrorInsufficientFundsForRent': return { InsufficientFundsForRent: { account_index: error.accountIndex } };
    case 'TransactionErrorDuplicateInstruction': return { DuplicateInstruction: error.index };
    default: return String(error);
  }
}
