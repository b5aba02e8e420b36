// The hand of the tests in the lab: POST /lab/<op> with a JSON object, answered with JSON; {error} with status 400 when it failed.
// Amounts are decimal strings in atomic units both ways. Everything is done with the reference libraries, never with the wallet.
import { getBase58Decoder } from '@solana/kit';
import { answerJson, readBody } from '../lib/serve.mjs';
import { ataOf } from './svm.mjs';
import { EVM_ACCOUNTS, solanaKeypair, solanaSigner } from './world.mjs';

/**
 * The operations. `gates` are the public doors of the parts by name, `behind` the parts' own addresses by the same names (a log can
 * be read of a part whose gate is shut).
 */
export function operations({ evm, svm, gates, behind }) {
  // The payers take longest to load, and most tests have a wallet of their own to pay with.
  let created;
  const payer = () => (created ??= import('./payers.mjs').then(({ Payer }) => Payer.create(svm.url)));

  const named = (map, name) => {
    if (!Object.hasOwn(map, name)) throw new Error(`no part "${name}", there are ${Object.keys(map).join(', ')}`);
    return map[name];
  };
  const ask = async (name, path, body) => {
    const init = body && { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
    const response = await fetch(`${named(behind, name)}${path}`, init);
    if (!response.ok) throw new Error(`${name}${path}: ${response.status}`);
    return response.json();
  };

  return {
    // EVM
    evmMint: async ({ to, amount }) => ({ transaction: await evm.mint(to, amount) }),
    evmBalance: async ({ address }) => ({ amount: await evm.balanceOf(address) }),
    evmSpentNonces: async ({ from }) => ({ nonces: await evm.usedNonces(from) }),
    evmNonceSpent: async ({ from, nonce }) => ({ spent: await evm.isNonceSpent(from, nonce) }),
    evmApprovePermit2: async ({ owner, amount }) => { await evm.approvePermit2(owner, amount); },
    evmAllowanceOfPermit2: async ({ owner }) => ({ amount: await evm.allowanceOfPermit2(owner) }),
    evmPermitUsed: async ({ owner, nonce }) => ({ spent: await evm.isPermitUsed(owner, nonce) }),
    evmInvalidatePermit: async ({ owner, nonce }) => { await evm.invalidatePermit(owner, nonce); },
    evmSettlePermit: async ({ payload, as, amount }) => ({ transaction: await evm.settlePermit(payload, as, amount) }),
    evmTransfers: async ({ transaction }) => ({ transfers: await evm.transfersIn(transaction) }),
    evmMine: async ({ blocks }) => { await evm.mine(blocks); },
    evmIncreaseTime: async ({ seconds }) => ({ snapshot: await evm.increaseTime(seconds) }),
    evmRevert: async ({ snapshot }) => { await evm.revert(snapshot); },

    // Solana. Owners are the name of a lab key or the 64 numbers of a keypair file where they have to sign.
    svmKey: async ({ name }) => ({ address: (await solanaSigner(name)).address, keypair: await solanaKeypair(name) }),
    svmAta: async ({ owner, mint }) => ({ account: await ataOf(owner, mint) }),
    svmAirdrop: async ({ address, lamports }) => ({ transaction: await svm.airdrop(address, lamports) }),
    svmFund: async ({ owner, mint, amount }) => ({ account: await svm.fund(owner, amount, mint) }),
    svmBalance: async ({ owner, mint }) => ({ amount: await svm.balanceOf(owner, mint) }),
    svmTokenAccount: ({ account }) => svm.tokenAccount(account),
    svmDelegate: async ({ owner, delegate, amount, mint }) => ({ account: await svm.delegate(owner, delegate, amount, mint) }),
    svmRevoke: async ({ owner, mint }) => ({ account: await svm.revoke(owner, mint) }),
    svmNewMint: async ({ extensions }) => ({ mint: await svm.newMint(extensions) }),
    svmPause: async ({ mint }) => { await svm.pause(mint); },
    svmSetFee: async ({ mint, basisPoints }) => { await svm.setFee(mint, basisPoints); },
    svmRequireMemo: async ({ owner, mint }) => { await svm.requireMemo(owner, mint); },
    svmFreeze: async ({ account }) => { await svm.setFrozen(account, true); },
    svmThaw: async ({ account }) => { await svm.setFrozen(account, false); },
    svmChanges: async ({ transaction }) => ({ changes: await svm.changesIn(transaction) }),
    svmTransfers: async ({ account }) => ({ transfers: await svm.historyOf(account) }),
    svmAdvanceSlots: async ({ slots }) => ({ slot: await svm.advanceSlots(slots) }),

    // The parties
    inject: ({ part, fault }) => ask(part, '/lab/inject', fault ?? {}),
    catalogue: ({ part, resource }) => ask(part, '/lab/catalogue', resource),
    log: async ({ part }) => ({ entries: await ask(part, '/lab/log') }),
    resetLogs: async () => {
      const parties = Object.keys(behind).filter((name) => name !== 'evm' && name !== 'svm');
      await Promise.all(parties.map((name) => ask(name, '/lab/reset', {})));
    },
    stopPart: async ({ part }) => { await named(gates, part).down(); },
    hangPart: async ({ part }) => { await named(gates, part).hang(); },
    startPart: async ({ part }) => { await named(gates, part).up(); },

    // The reference payers, with the lab's client
    payV2: async ({ url, method, headers, body }) => (await payer()).pay(url, { method, headers, body }),
    settle: async ({ facilitator, price }) => (await payer()).settle(facilitator, price),
    payV1: async ({ url, network }) => {
      const { payV1 } = await import('../v1/payer-v1.mjs');
      const key = network.startsWith('solana') ? getBase58Decoder().decode(new Uint8Array(await solanaKeypair('client'))) : EVM_ACCOUNTS.client.key;
      return payV1(url, { network, key, svmUrl: svm.url });
    },
    svmDelegatedPayment: async (wanted) => {
      const { delegatedPayment } = await import('./payers.mjs');
      return { header: await delegatedPayment(svm, wanted) };
    },
  };
}

/** Serves the operations. */
export const controlHandler = (ops) => async (request, response) => {
  const op = request.url.match(/^\/lab\/(\w+)$/)?.[1];
  if (request.method !== 'POST' || !op || !Object.hasOwn(ops, op)) return answerJson(response, 404, { error: `no operation ${request.method} ${request.url}` });
  try {
    const result = await ops[op](JSON.parse(await readBody(request) || '{}'));
    return answerJson(response, 200, result ?? {});
  } catch (error) {
    return answerJson(response, 400, { error: error.message });
  }
};
