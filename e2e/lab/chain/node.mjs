// A Solana devnet node: JSON-RPC over HTTP on ledger.mjs. Options: {mints: [{mint, program, authority, decimals}]}
// As on a cluster: 400 ms slots, a blockhash lives 150 blocks, height stays behind slots, preflight refuses what would fail, a dead
// transaction vanishes in silence. Not as on a cluster: what lands is final at once; no WebSocket, no address lookup tables.
// A method outside the list is refused, like an option that would need more than is here: better than an answer that misleads.
import { options, serveRpc } from '../lib/serve.mjs';
import { Describe, innerInstructions, status, tokenAmount } from './describe.mjs';
import { isTokenAccount, readMint, readTokenAccount, TOKEN_PROGRAMS, toBytes } from './layout.mjs';
import { BLOCKHASH_BLOCKS, Ledger } from './ledger.mjs';

const DEVNET_GENESIS = 'EtWTRABZaYq6iMfeYKouRu166VU2xqa1wcaWoxPkrZBG'; // its first 32 characters are the CAIP-2 reference

/** An error of JSON-RPC; codes -32001…-32016 are Solana's (rpc-client-api/src/custom_error.rs). */
class RpcError extends Error {
  constructor(code, message, data) { super(message); Object.assign(this, { code, data }); }
}
const invalid = (message) => new RpcError(-32602, `Invalid param: ${message}`);

const ledger = new Ledger();
const describe = new Describe(ledger);
for (const mint of options().mints) ledger.placeMint(mint);

const inContext = (value) => ({ context: { apiVersion: '2.2.0', slot: ledger.slot() }, value });

function existing(address, what) {
  const account = ledger.account(address);
  if (!account.exists) throw invalid(`could not find ${what}`);
  return account;
}

const showAll = (accounts, form) => accounts.map((account) => ({ pubkey: account.address, account: describe.account(account, form) }));

function tokenAccounts(belongs, { programId, mint }, form) {
  const accounts = (programId ? [programId] : TOKEN_PROGRAMS).flatMap((program) => ledger.accountsOf(program));
  const wanted = accounts.filter((account) => {
    if (!isTokenAccount(account)) return false;
    const token = readTokenAccount(account.data);
    return belongs(token) && (!mint || token.mint === mint);
  });
  return inContext(showAll(wanted, form));
}

function programAccounts([program, { filters = [], withContext, ...form } = {}]) {
  const passes = ({ dataSize, memcmp }) => ({ data }) => {
    if (dataSize !== undefined) return data.length === dataSize;
    const wanted = Buffer.from(toBytes(memcmp.bytes, memcmp.encoding));
    return wanted.equals(data.slice(memcmp.offset, memcmp.offset + wanted.length));
  };
  const rows = showAll(filters.reduce((accounts, filter) => accounts.filter(passes(filter)), ledger.accountsOf(program)), form);
  return withContext ? inContext(rows) : rows;
}

function simulateTransaction([text, { encoding, ...how } = {}]) {
  const { error, meta, logs } = ledger.simulate(toBytes(text, encoding), how);
  const { blockhash, lastValidBlockHeight } = ledger.latestBlockhash();
  return inContext({
    err: error,
    logs,
    accounts: null,
    returnData: null,
    unitsConsumed: meta ? Number(meta.computeUnitsConsumed()) : 0,
    innerInstructions: meta && how.innerInstructions ? innerInstructions(meta) : null,
    ...(how.replaceRecentBlockhash && { replacementBlockhash: { blockhash, lastValidBlockHeight } }),
  });
}

function sendTransaction([text, { encoding, skipPreflight } = {}]) {
  const bytes = toBytes(text, encoding);
  const signature = ledger.signatureOf(bytes);
  if (!skipPreflight) preflight(bytes, signature);
  ledger.execute(bytes);
  return signature;
}

/** What a node checks before it forwards a transaction. */
function preflight(bytes, signature) {
  const { error, logs } = ledger.find(signature) ? { error: 'AlreadyProcessed', logs: [] } : ledger.simulate(bytes, { sigVerify: true });
  if (!error) return;
  if (error === 'SignatureFailure') throw new RpcError(-32003, 'Transaction signature verification failure');
  const data = { err: error, logs, unitsConsumed: 0, returnData: null, accounts: null };
  throw new RpcError(-32002, `Transaction simulation failed: ${JSON.stringify(error)}`, data);
}

function getTransaction([signature, form = {}]) {
  const { encoding, maxSupportedTransactionVersion: most } = typeof form === 'string' ? { encoding: form } : form;
  if (encoding === 'jsonParsed') throw invalid('this node does not parse instructions');
  const record = ledger.find(signature);
  if (!record?.transaction) return null; // unknown, or an airdrop, which LiteSVM makes itself
  const { version } = record.transaction;
  if (version !== 'legacy' && !(most >= version)) {
    throw new RpcError(-32015, `Transaction version (${version}) is not supported by the requesting client. Please try the request again with the following configuration parameter: "maxSupportedTransactionVersion": ${version}`);
  }
  return describe.transaction(record, { encoding, maxSupportedTransactionVersion: most });
}

function getSignaturesForAddress([address, { limit = 1000, before, until } = {}]) {
  let rows = ledger.transactionsOf(address);
  const positionOf = (wanted) => rows.findIndex(([signature]) => signature === wanted);
  if (until && positionOf(until) >= 0) rows = rows.slice(0, positionOf(until));
  if (before) rows = rows.slice(positionOf(before) + 1);
  return rows.slice(0, limit).map(([signature, { slot, time, error }]) => (
    { signature, slot, err: error, memo: null, blockTime: Math.floor(time / 1000), confirmationStatus: 'finalized' }));
}

function signatureStatus(signature) {
  const record = ledger.find(signature);
  return record ? { slot: record.slot, confirmations: null, err: record.error, status: status(record.error), confirmationStatus: 'finalized' } : null;
}

serveRpc({
  getHealth: () => 'ok',
  getVersion: () => ({ 'solana-core': '2.2.0', 'feature-set': 1 }),
  getGenesisHash: () => DEVNET_GENESIS,

  getSlot: () => ledger.slot(),
  getBlockHeight: () => ledger.blockHeight(),
  getBlockTime: () => Math.floor(Date.now() / 1000),
  getEpochInfo: () => ({ absoluteSlot: ledger.slot(), blockHeight: ledger.blockHeight(), epoch: 0, slotIndex: ledger.slot(), slotsInEpoch: 432_000, transactionCount: ledger.transactionCount }),
  getLatestBlockhash: () => inContext(ledger.latestBlockhash()),
  isBlockhashValid: ([blockhash]) => inContext(ledger.isAlive(blockhash)),

  getAccountInfo: ([address, form]) => inContext(describe.account(ledger.account(address), form)),
  getMultipleAccounts: ([addresses, form]) => inContext(addresses.map((address) => describe.account(ledger.account(address), form))),
  getProgramAccounts: programAccounts,
  getBalance: ([address]) => inContext(ledger.balance(address)),
  getMinimumBalanceForRentExemption: ([bytes]) => ledger.rentExemption(bytes),
  getTokenAccountsByOwner: ([owner, filter, form]) => tokenAccounts((token) => token.owner === owner, filter, form),
  getTokenAccountsByDelegate: ([delegate, filter, form]) => tokenAccounts((token) => token.delegate === delegate, filter, form),
  getTokenAccountBalance: ([address]) => {
    const { amount, mint } = readTokenAccount(existing(address, 'account').data);
    return inContext(tokenAmount(amount, describe.decimalsOf(mint)));
  },
  getTokenSupply: ([mint]) => {
    const { supply, decimals } = readMint(existing(mint, 'mint').data);
    return inContext(tokenAmount(supply, decimals));
  },

  getFeeForMessage: ([message]) => {
    const [first, second] = Buffer.from(message, 'base64');
    return inContext(5000 * (first & 0x80 ? second : first)); // the number of signatures, behind the version byte if there is one
  },
  getRecentPrioritizationFees: () => [],
  requestAirdrop: ([address, amount]) => ledger.airdrop(address, amount),
  simulateTransaction,
  sendTransaction,
  getSignatureStatuses: ([signatures]) => inContext(signatures.map(signatureStatus)),
  getTransaction,
  getSignaturesForAddress,

  /** Not Solana's: lets slots pass. BLOCKHASH_BLOCKS + 1 kill every payment that is signed but has not landed. */
  lab_advanceSlots: ([slots = BLOCKHASH_BLOCKS + 1]) => ledger.advance(slots),
}, (method) => new RpcError(-32601, `Method not found: ${method}`));
