// Package wallet keeps the agent's keys: the keystore file, the ways to unlock it, and what it
// signs. It exists so that one thing stays true whatever the rest of the program does: a private
// key never leaves this package. There is no accessor, no export, no log line and no error text
// that carries one; what comes out are addresses, signatures and seals.
//
// A wallet is one directory holding keystore.json, with one Ed25519 key for Solana, one secp256k1
// key for EVM chains, and one HMAC key that seals the owner's rules:
//
//	w, err := wallet.Create(ctx, dir, wallet.FromTerminalTwice(), wallet.Options{})
//	w, err := wallet.Open(dir)          // the addresses are known, the keys are not
//	w.Sources = []wallet.Passphrase{wallet.FromFile(path)} // asked at the first signature
//	sig, err := w.SignEVM(ctx, transfer)
//
// The way through: wallet.go (create, open, a new passphrase), unlock.go (who is asked, and when it
// locks again), kinds.go (all that is ever signed, read once more) with solana.go and channel.go
// beside it, keystore.go (the encrypted file) and store.go (how it is written), passphrase.go and
// terminal.go (where a passphrase comes from), import.go, harden_linux.go. Every error but a
// context's own has a public code, by Code() string, and what to do about it, by Hint() string.
//
// # The file
//
// JSON as in SPEC §3, strict to the letter: see [Open] for what is refused. From the passphrase
// (NFC) and the salt, scrypt makes 64 bytes: 0–31 are the AES-256-GCM key, 32–63 the HMAC-SHA-256
// key of the commitment. The header (every field but ciphertext and commitment) is the additional
// authenticated data, in this form, each line ended by \n, byte strings in base64:
//
//	x402-wallet-keystore 1
//	kdf scrypt <n> <r> <p> <salt>
//	cipher aes-256-gcm <nonce>
//	key solana <base58 address>
//	key evm <EIP-55 address>
//	created <RFC 3339, UTC, whole seconds>
//
// The commitment is HMAC(header ‖ ciphertext): GCM alone is not key-committing.
// The plaintext is the JSON in keys.go. The addresses that a locked wallet
// shows are the header's and become certain only when the wallet is unlocked.
//
// # What wiping cannot promise
//
// Keys and passphrases are held in byte arrays and cleared when the wallet locks. Go may still have
// copied them: stacks that grew, the AES key schedule, the expanded key that crypto/ed25519 caches
// until the next collection, the buffer in which secp256k1 makes its nonce, the string that PBKDF2
// makes of the passphrase. TestWipedFromMemory looks: ours are gone, at most one such copy of each
// is left until its memory is used again. [Harden] keeps other processes of the same user and core
// files away from that memory; root is out of reach.
package wallet
