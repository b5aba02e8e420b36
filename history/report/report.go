// Package report is the ledger for people and agents: lists of payments, what they came to, and what books
// are made of. It only reads, and nothing that decides about money asks it.
//
// The files: list.go (payments that match a filter, and their sums), books.go (all payments of a range,
// names of sessions, payments of other wallets), spending.go (sums over time).
package report
