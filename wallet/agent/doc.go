// Package agent is who signs: the wallet in this process, or the unlock agent, a process that holds
// the unlocked keys and is asked over a Unix socket in the home (SPEC §3).
//
// What must stay true: like ssh-agent it never hands a key out, and it signs nothing on somebody's
// word. It is given the message and the payment's id, never a digest, reads the message itself, and
// signs it only if it is the payment that it found reserved in the ledger, under the owner's rules,
// once. So a process of the same user can get out of it what the owner allowed, and nothing else:
// no key, no other payee, no sum past a limit. What it signed it also adds up by itself, because
// that process can write to the ledger's file.
//
// The files: client.go (who asks, and the wallet's own signers), server.go (the socket), check.go
// (what is signed), tally.go (what was).
package agent
