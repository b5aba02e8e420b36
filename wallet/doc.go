// Package wallet keeps the agent's keys: unlocking the keystore file, and what it signs. It exists so
// that one thing stays true whatever the rest of the program does: a private key never leaves this package
// and those below it. There is no accessor, no log line and no error text that carries one; what comes out
// are addresses, signatures and seals, and, to the person at the terminal, the recovery phrase.
//
// The process that signs imports this package and its internal ones alone. What only the owner's commands
// need is in packages beside it: owner (making a keystore, and changing it), imported (keys from files of
// other wallets, and what their owner signs with them), recovery (recovery phrases), terminal (who types a
// passphrase) and unlock (where else one comes from). What payment channels have signed, which the unlock
// agent does not sign, is in nuwa. A key passes between them in the types of internal/guarded, which only a
// function of that package opens, or against its leave, so that the rest of the program can hand such a value
// on and never read it. None of them imports anything else of ours but ownfile and pattern: whoever reads
// these packages has seen all that touches a key. arch_test.go holds both.
//
// A wallet is one directory holding keystore.json, with one Ed25519 key for Solana, one secp256k1 key for EVM
// chains, the same of each further account, and one HMAC key that seals the owner's rules:
//
//	w, err := owner.Create(ctx, dir, terminal.AskTwice(), owner.Options{})
//	w, err := wallet.Open(dir)          // the addresses are known, the keys are not
//	w.Sources = []wallet.Passphrase{unlock.File(path)} // asked at the first signature
//	sig, err := w.SignEVM(ctx, transfer)
//
// The files: wallet.go (open), account.go (its other accounts), unlock.go (whom it asks, and when it locks
// again), passphrase.go (the sources), kinds.go (all that is ever signed, read once more) with solana.go,
// batch.go, permit2.go, pull.go, approve.go and signin.go beside it, order.go (who signs), harden_linux.go.
// Below internal: keystore (the encrypted file, and what is in it), curve (how keys sign, and their
// addresses), guarded (where secrets lie), record (how the keystore has a phrase), piece and strictjson
// (reading), coded (errors: every error but a context's own has a public code, by Code() string, and what to
// do about it, by Hint() string).
//
// # The file
//
// JSON, strict to the letter: see [Open] for what is refused. From the passphrase (NFC) and the salt, scrypt
// makes 64 bytes: 0–31 are the AES-256-GCM key, 32–63 the HMAC-SHA-256 key of the commitment. The header
// (every field but ciphertext and commitment) is the additional authenticated data, in this form, each line
// ended by \n, byte strings in base64:
//
//	x402-wallet-keystore <version>
//	kdf scrypt <n> <r> <p> <salt>
//	cipher aes-256-gcm <nonce>
//	key solana <base58 address>
//	key evm <EIP-55 address>
//	created <RFC 3339, UTC, whole seconds>
//	account <name> <index> <base58 address> <EIP-55 address>
//
// The last line is there for each further account (account.go). The version is 1. The commitment is
// HMAC(header ‖ ciphertext): GCM alone is not key-committing. The plaintext is the JSON in
// internal/keystore/keys.go, with the recovery phrase that the keys come from (record.Phrase) where there is
// one: how long the ciphertext is tells that. The addresses that a locked wallet shows are the header's and
// become certain only when the wallet is unlocked.
//
// # In constant time
//
// Signing with either key, and deriving a public key from a secret one, takes the same time and reads the
// same memory whatever the key and the nonce are: crypto/ed25519 as it is, and internal/curve on the
// library's field and scalar arithmetic. HMACs are compared by hmac.Equal. Not in constant time, and not in
// need of it: what verifies signatures, and everything about public keys and messages. Not in constant time
// although it is secret: base64 and base58 of a key when a keystore or another wallet's file is read,
// hexadecimal of an imported one, NFC of the passphrase, and the words of a phrase, each once and at the
// owner's word.
//
// # What locking and wiping cannot promise
//
// Keys, the plaintext of the keystore and the passphrase's NFC form are held in pages that the system is
// asked to keep out of swap and core files ([LockedMemory] says whether it does), and cleared when the wallet
// locks. Copies that are not ours lie elsewhere, for the time they are needed or until their memory is used
// again: the expanded key that crypto/ed25519 caches until the next collection after a lock, the AES key
// schedule, scrypt's memory and the strings that PBKDF2 makes of the passphrase, the passphrase as its source
// gave it, a key that is imported, registers, and a stack that the collector shrinks at that moment. A
// machine that hibernates writes all of its memory to the disk. TestWipedFromMemory looks: of the EVM key
// there is one copy while it is held, and none after; of the Solana key at most one is left after locking,
// and of the passphrase two. [Harden] keeps other processes of the same user and core files away from that
// memory; root is out of reach.
package wallet
