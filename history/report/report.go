// Package report is the ledger for people and agents: lists of payments, what they came to, and what books
// are made of. Nothing that decides about money asks it, and it writes nothing but notes for the books.
//
// The files: list.go (payments that match a filter, and their sums; what waits for a person), spending.go
// (sums over time), events.go (what the audit chain says), books.go (all payments of a range), notes.go
// (names of sessions, payments of other wallets).
package report
