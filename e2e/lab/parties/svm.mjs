// The Solana chain from outside: play money in, delegations, balances and evidence out. Uses @solana/kit and @solana-program/token,
// not the wallet, so that it can judge the wallet.
import crypto from 'node:crypto';
import { getSetComputeUnitLimitInstruction, getSetComputeUnitPriceInstruction } from '@solana-program/compute-budget';
import {
  TOKEN_PROGRAM_ADDRESS, findAssociatedTokenPda, getApproveCheckedInstruction, getCreateAssociatedTokenIdempotentInstruction,
  getFreezeAccountInstruction, getMintToInstruction, getRevokeInstruction, getThawAccountInstruction, getTransferCheckedInstruction,
} from '@solana-program/token';
import {
  appendTransactionMessageInstructions, createKeyPairSignerFromBytes, createSolanaRpc, createTransactionMessage,
  getBase64EncodedWireTransaction, partiallySignTransactionMessageWithSigners, pipe, setTransactionMessageFeePayer,
  setTransactionMessageFeePayerSigner, setTransactionMessageLifetimeUsingBlockhash, signTransactionMessageWithSigners,
} from '@solana/kit';
import { newMint, pause, requireMemo, setFee } from './token2022.mjs';
import { SVM, solanaSigner } from './world.mjs';

const TOKEN_2022_PROGRAM_ADDRESS = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';
const MEMO_PROGRAM_ADDRESS = 'MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr';
const PLENTY = 100_000_000_000n; // lamports
const { decimals } = SVM;

const mints2022 = new Set([SVM.mint2022]); // and those that tests make
export const programOf = (mint) => (mints2022.has(mint) ? TOKEN_2022_PROGRAM_ADDRESS : TOKEN_PROGRAM_ADDRESS);

/** The mints of the lab, for the node to place. */
export async function mints() {
  const { address: authority } = await solanaSigner('mint-authority');
  return [SVM.mint, SVM.mint2022].map((mint) => ({ mint, program: programOf(mint), authority, decimals }));
}

export async function ataOf(owner, mint = SVM.mint) {
  const [ata] = await findAssociatedTokenPda({ owner, mint, tokenProgram: programOf(mint) });
  return ata;
}

/** A signer from the name of one of the lab's keys or from the 64 numbers of a keypair file. */
const signerOf = (key) => (Array.isArray(key) ? createKeyPairSignerFromBytes(new Uint8Array(key)) : solanaSigner(key));

/** A memo that makes a transaction unlike any other; an equal one of the same slot would count as the same. */
const uniqueMemo = () => ({ programAddress: MEMO_PROGRAM_ADDRESS, accounts: [], data: new TextEncoder().encode(crypto.randomUUID()) });

export class SvmChain {
  constructor(url) {
    this.url = url;
    this.rpc = createSolanaRpc(url);
  }

  async #message(setFeePayer, instructions) {
    const { value: lifetime } = await this.rpc.getLatestBlockhash().send();
    return pipe(
      createTransactionMessage({ version: 0 }),
      setFeePayer,
      (m) => setTransactionMessageLifetimeUsingBlockhash(lifetime, m),
      (m) => appendTransactionMessageInstructions(instructions, m),
    );
  }

  /** Signs and sends one transaction; throws unless it landed and succeeded. */
  async #send(payer, instructions) {
    const message = await this.#message((m) => setTransactionMessageFeePayerSigner(payer, m), [...instructions, uniqueMemo()]);
    const wire = getBase64EncodedWireTransaction(await signTransactionMessageWithSigners(message));
    const signature = await this.rpc.sendTransaction(wire, { encoding: 'base64' }).send();
    const { value: [status] } = await this.rpc.getSignatureStatuses([signature]).send();
    if (!status || status.err) throw new Error(`transaction failed: ${JSON.stringify(status, (_, field) => (typeof field === 'bigint' ? String(field) : field))}`);
    return signature;
  }

  airdrop(address, lamports = PLENTY) { return this.rpc.requestAirdrop(address, BigInt(lamports)).send(); }

  /** Creates the owner's token account where needed and mints to it. Gives the account. */
  async fund(owner, amount = 0, mint = SVM.mint) {
    const authority = await solanaSigner('mint-authority');
    const ata = await ataOf(owner, mint), programAddress = programOf(mint);
    await this.#send(authority, [
      getCreateAssociatedTokenIdempotentInstruction({ payer: authority, owner, mint, ata, tokenProgram: programAddress }),
      ...(BigInt(amount) ? [getMintToInstruction({ mint, token: ata, mintAuthority: authority, amount: BigInt(amount) }, { programAddress })] : []),
    ]);
    return ata;
  }

  /** The owner (a key) lets `delegate` (an address) spend `amount` of its token account. Gives the account. */
  async delegate(ownerKey, delegate, amount, mint = SVM.mint) {
    const owner = await signerOf(ownerKey);
    const source = await ataOf(owner.address, mint);
    await this.airdrop(owner.address);
    await this.#send(owner, [
      getApproveCheckedInstruction({ source, mint, delegate, owner, amount: BigInt(amount), decimals }, { programAddress: programOf(mint) }),
    ]);
    return source;
  }

  /** The owner (a key) takes the delegation back. Gives the account. */
  async revoke(ownerKey, mint = SVM.mint) {
    const owner = await signerOf(ownerKey);
    const source = await ataOf(owner.address, mint);
    await this.airdrop(owner.address);
    await this.#send(owner, [getRevokeInstruction({ source, owner }, { programAddress: programOf(mint) })]);
    return source;
  }

  /** A new Token-2022 mint with extensions (token2022.mjs). Gives its address. */
  async newMint(extensions) {
    const authority = await solanaSigner('mint-authority');
    const { mint, instructions } = await newMint(this.rpc, authority, decimals, extensions);
    await this.#send(authority, instructions);
    mints2022.add(mint);
    return mint;
  }

  /** The issuer stops all transfers of a mint. */
  async pause(mint) {
    const authority = await solanaSigner('mint-authority');
    await this.#send(authority, [pause(mint, authority)]);
  }

  /** The issuer sets another transfer fee, in force two epochs later. */
  async setFee(mint, basisPoints) {
    const authority = await solanaSigner('mint-authority');
    await this.#send(authority, [setFee(mint, authority, basisPoints)]);
  }

  /** The owner (a key) takes nothing any more without a memo before it. */
  async requireMemo(ownerKey, mint) {
    const owner = await signerOf(ownerKey);
    await this.airdrop(owner.address);
    await this.#send(owner, requireMemo(await ataOf(owner.address, mint), owner));
  }

  /** The issuer freezes a token account, or thaws it. */
  async setFrozen(account, frozen) {
    const owner = await solanaSigner('mint-authority');
    const { mint, program: programAddress } = await this.tokenAccount(account);
    const instruction = frozen ? getFreezeAccountInstruction : getThawAccountInstruction;
    await this.#send(owner, [instruction({ account, mint, owner }, { programAddress })]);
  }

  /** A token account; {exists: false} where there is none. */
  async tokenAccount(account) {
    const { value } = await this.rpc.getAccountInfo(account, { encoding: 'jsonParsed' }).send();
    const info = value?.data?.parsed?.info;
    if (!info?.tokenAmount) return { exists: false, amount: 0n, delegatedAmount: 0n };
    return {
      exists: true,
      program: value.owner,
      mint: info.mint,
      owner: info.owner,
      state: info.state,
      amount: BigInt(info.tokenAmount.amount),
      delegate: info.delegate,
      delegatedAmount: BigInt(info.delegatedAmount?.amount ?? 0),
    };
  }

  async balanceOf(owner, mint) { return (await this.tokenAccount(await ataOf(owner, mint))).amount; }

  /** What a landed transaction changed: [{account, owner, mint, change}]. Empty when it failed or is not there. */
  async changesIn(signature) {
    const transaction = await this.rpc.getTransaction(signature, { encoding: 'json', maxSupportedTransactionVersion: 0 }).send();
    if (!transaction || transaction.meta.err) return [];
    const { transaction: { message: { accountKeys } }, meta: { preTokenBalances, postTokenBalances } } = transaction;
    const before = new Map(preTokenBalances.map(({ accountIndex, uiTokenAmount }) => [accountIndex, BigInt(uiTokenAmount.amount)]));
    return postTokenBalances
      .map(({ accountIndex, mint, owner, uiTokenAmount }) => (
        { account: accountKeys[accountIndex], owner, mint, change: BigInt(uiTokenAmount.amount) - (before.get(accountIndex) ?? 0n) }))
      .filter(({ change }) => change !== 0n);
  }

  /** Everything that ever changed a token account, oldest first: [{transaction, change}]. */
  async historyOf(account) {
    const rows = await this.rpc.getSignaturesForAddress(account).send();
    const all = await Promise.all(rows.reverse().map(async ({ signature }) => (
      (await this.changesIn(signature)).filter((change) => change.account === account).map(({ change }) => ({ transaction: signature, change })))));
    return all.flat();
  }

  /** Lets slots pass; 151 kill every payment that is signed but has not landed. */
  async advanceSlots(slots) {
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'lab_advanceSlots', params: [slots] });
    const response = await fetch(this.url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
    const { result, error } = await response.json();
    if (error) throw new Error(error.message);
    return result;
  }

  /**
   * A payment from `source` signed by its delegate, as the base64 transaction of an x402 payload. By hand, because the reference
   * client derives the payer's own token account and cannot pay from another's.
   */
  async delegatedTransfer({ asset, payTo, amount, extra: { feePayer } }, source, delegateKey) {
    const authority = await signerOf(delegateKey);
    const message = await this.#message((m) => setTransactionMessageFeePayer(feePayer, m), [
      getSetComputeUnitLimitInstruction({ units: 20_000 }),
      getSetComputeUnitPriceInstruction({ microLamports: 1n }),
      getTransferCheckedInstruction(
        { source, mint: asset, destination: await ataOf(payTo, asset), authority, amount: BigInt(amount), decimals },
        { programAddress: programOf(asset) },
      ),
      uniqueMemo(),
    ]);
    return getBase64EncodedWireTransaction(await partiallySignTransactionMessageWithSigners(message));
  }

  /** What every lab starts with: lamports for who pays fees, token accounts for payees, money for the reference payer. */
  async seed() {
    const [authority, facilitator, client, payTo, ozskrPayTo] = await Promise.all(
      ['mint-authority', 'facilitator', 'client', 'pay-to', 'ozskr-pay-to'].map(async (name) => (await solanaSigner(name)).address));
    for (const address of [authority, facilitator, client]) await this.airdrop(address);
    for (const mint of [SVM.mint, SVM.mint2022]) {
      await this.fund(client, 1_000_000_000, mint);
      await this.fund(payTo, 0, mint);
      await this.fund(ozskrPayTo, 0, mint);
    }
  }
}
