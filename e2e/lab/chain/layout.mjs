// The byte layouts of Solana that the node reads itself: wire transactions, SPL mints and token accounts.
// Sources: Solana's "Transactions" and "Versioned Transactions" documentation; spl-token's state.rs, whose first 82 and 165 bytes
// Token-2022 shares.
import { getAddressDecoder, getAddressEncoder, getBase58Decoder, getBase58Encoder } from '@solana/kit';

export const TOKEN = 'TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA';
export const TOKEN_2022 = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';
export const TOKEN_PROGRAMS = [TOKEN, TOKEN_2022];

const MINT_BYTES = 82;
const TOKEN_ACCOUNT_BYTES = 165;
const ACCOUNT_TYPE_AT = 165; // in Token-2022 accounts with extensions: 1 a mint, 2 a token account

const base58 = { encode: getBase58Encoder(), decode: getBase58Decoder() };
const address = { encode: getAddressEncoder(), decode: getAddressDecoder() };

export const toBase58 = (bytes) => base58.decode.decode(bytes);
export const toBase64 = (bytes) => Buffer.from(bytes).toString('base64');
export const toBytes = (text, encoding = 'base58') => new Uint8Array(encoding === 'base64' ? Buffer.from(text, 'base64') : base58.encode.encode(text));

const addressAt = (data, offset) => address.decode.decode(data.slice(offset, offset + 32));
const u64At = (data, offset) => new DataView(data.buffer, data.byteOffset).getBigUint64(offset, true);
/** An optional address: a u32 flag, then 32 bytes. */
const maybeAddressAt = (data, offset) => (data[offset] === 1 ? addressAt(data, offset + 4) : null);

/** An initialized mint without supply or extensions, whose authority may mint and freeze. */
export function mintBytes(authority, decimals) {
  const data = new Uint8Array(MINT_BYTES);
  const key = address.encode.encode(authority);
  data[0] = 1;
  data.set(key, 4); // mint authority
  data[44] = decimals;
  data[45] = 1; // initialized
  data[46] = 1;
  data.set(key, 50); // freeze authority
  return data;
}

const isType = (type, bytes) => ({ exists, programAddress, data }) => exists !== false && TOKEN_PROGRAMS.includes(programAddress)
  && (data.length === bytes || (data.length > ACCOUNT_TYPE_AT && data[ACCOUNT_TYPE_AT] === type));
export const isMint = isType(1, MINT_BYTES);
export const isTokenAccount = isType(2, TOKEN_ACCOUNT_BYTES);

export const readMint = (data) => ({
  mintAuthority: maybeAddressAt(data, 0),
  supply: u64At(data, 36),
  decimals: data[44],
  isInitialized: data[45] === 1,
  freezeAuthority: maybeAddressAt(data, 46),
});

export const readTokenAccount = (data) => ({
  mint: addressAt(data, 0),
  owner: addressAt(data, 32),
  amount: u64At(data, 64),
  delegate: maybeAddressAt(data, 72),
  state: ['uninitialized', 'initialized', 'frozen'][data[108]],
  isNative: data[109] === 1,
  delegatedAmount: u64At(data, 121),
});

/** Takes a wire transaction apart. `blockhashAt` is where its blockhash lies, for a simulation that replaces it. */
export function readTransaction(bytes) {
  let at = 0;
  const byte = () => bytes[at++];
  const take = (count) => bytes.slice(at, at += count);
  const length = () => { // compact-u16: seven bits a byte, the lowest first
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const next = byte();
      value |= (next & 0x7f) << shift;
      if (!(next & 0x80)) return value;
    }
  };
  const list = (read) => Array.from({ length: length() }, read);

  const signatures = list(() => toBase58(take(64)));
  const versioned = (bytes[at] & 0x80) !== 0;
  const version = versioned ? byte() & 0x7f : 'legacy';
  const [numRequiredSignatures, numReadonlySignedAccounts, numReadonlyUnsignedAccounts] = take(3);
  const accountKeys = list(() => toBase58(take(32)));
  const blockhashAt = at;
  const recentBlockhash = toBase58(take(32));
  const instructions = list(() => ({
    programIdIndex: byte(),
    accounts: [...take(length())],
    data: toBase58(take(length())),
    stackHeight: null,
  }));
  const header = { numRequiredSignatures, numReadonlySignedAccounts, numReadonlyUnsignedAccounts };
  return { signatures, version, header, accountKeys, blockhashAt, recentBlockhash, instructions };
}
