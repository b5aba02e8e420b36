// Token-2022 mints with extensions, made as their issuers make them: by the instructions of the token program itself. The package comes
// with @x402/svm, which builds its own transactions with it.
import {
  AccountState, ExtensionType, getEnableMemoTransfersInstruction, getInitializeMint2Instruction, getMintSize, getPauseInstruction,
  getPreInitializeInstructionsForMintExtensions, getReallocateInstruction, getSetTransferFeeInstruction,
} from '@solana-program/token-2022';
import { AccountRole, generateKeyPairSigner, getStructEncoder, getU32Encoder, getU64Encoder, getAddressEncoder } from '@solana/kit';

const TOKEN_2022 = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';
const SYSTEM = '11111111111111111111111111111111';
const fee = (basisPoints) => ({ epoch: 0n, maximumFee: 1_000_000n, transferFeeBasisPoints: basisPoints });

/** The extensions of a mint by the tests' names for them, each with its value. */
const EXTENSIONS = {
  transferFee: (basisPoints, authority) => ({
    __kind: 'TransferFeeConfig', transferFeeConfigAuthority: authority, withdrawWithheldAuthority: authority, withheldAmount: 0n,
    olderTransferFee: fee(basisPoints), newerTransferFee: fee(basisPoints),
  }),
  transferHook: (programId, authority) => ({ __kind: 'TransferHook', authority, programId: programId || SYSTEM }),
  pausable: (paused, authority) => ({ __kind: 'PausableConfig', authority, paused }),
  nonTransferable: () => ({ __kind: 'NonTransferable' }),
  bornFrozen: () => ({ __kind: 'DefaultAccountState', state: AccountState.Frozen }),
  permanentDelegate: (_, authority) => ({ __kind: 'PermanentDelegate', delegate: authority }),
  mintCloseAuthority: (_, authority) => ({ __kind: 'MintCloseAuthority', closeAuthority: authority }),
  confidential: (_, authority) => ({
    __kind: 'ConfidentialTransferMint', authority: { __option: 'Some', value: authority }, autoApproveNewAccounts: true,
    auditorElgamalPubkey: { __option: 'None' },
  }),
  confidentialFee: (_, authority) => ({ // where there are both transferFee and confidential
    __kind: 'ConfidentialTransferFee', authority: { __option: 'Some', value: authority }, elgamalPubkey: authority,
    harvestToMintEnabled: true, withheldAmount: new Uint8Array(64),
  }),
};

const createAccount = (payer, account, lamports, space) => ({
  programAddress: SYSTEM,
  accounts: [{ address: payer.address, role: AccountRole.WRITABLE_SIGNER, signer: payer }, { address: account.address, role: AccountRole.WRITABLE_SIGNER, signer: account }],
  data: getStructEncoder([['op', getU32Encoder()], ['lamports', getU64Encoder()], ['space', getU64Encoder()], ['owner', getAddressEncoder()]])
    .encode({ op: 0, lamports, space, owner: TOKEN_2022 }),
});

/** The instructions that make a new mint, {mint, instructions}. */
export async function newMint(rpc, authority, decimals, wanted) {
  const mint = await generateKeyPairSigner();
  const extensions = Object.entries(wanted).map(([name, value]) => EXTENSIONS[name](value, authority.address));
  const space = BigInt(getMintSize(extensions.length ? extensions : undefined));
  return {
    mint: mint.address,
    instructions: [
      createAccount(authority, mint, await rpc.getMinimumBalanceForRentExemption(space).send(), space),
      ...getPreInitializeInstructionsForMintExtensions(mint.address, extensions),
      getInitializeMint2Instruction({ mint: mint.address, decimals, mintAuthority: authority.address, freezeAuthority: authority.address }),
    ],
  };
}

/** The issuer stops all transfers. */
export const pause = (mint, authority) => getPauseInstruction({ mint, authority });

/** The issuer sets another fee; it is in force two epochs later. */
export const setFee = (mint, authority, basisPoints) => getSetTransferFeeInstruction({
  mint, transferFeeConfigAuthority: authority, transferFeeBasisPoints: basisPoints, maximumFee: 1_000_000n });

/** The owner of a token account takes nothing without a memo before it. */
export const requireMemo = (token, owner) => [
  getReallocateInstruction({ token, payer: owner, owner, newExtensionTypes: [ExtensionType.MemoTransfer] }),
  getEnableMemoTransfersInstruction({ token, owner }),
];
