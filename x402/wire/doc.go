// Package wire reads and writes what sellers and buyers send each other: challenges in their dialects of
// HTTP and MCP, payments, receipts, signed offers.
//
// What must stay true: everything a stranger sent is read strictly or not at all, and the raw bytes
// of a chosen option are echoed as they came. Nothing in this package does I/O. The process that signs does
// not import it: it reads what the ledger holds.
//
// The files: dialect.go and mcp.go (where a challenge stands, over HTTP and over MCP), challenge.go (what it
// says), payload.go (the answer), settlement.go and channel_count.go (receipts), mpp.go and auth.go (the
// same in MPP), siwxoffer.go (what a seller asks to sign in), offer.go and did.go (what sellers sign
// besides), other_protocols.go (other ways to be paid, by name).
package wire
