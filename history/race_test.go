//go:build race

package history

// filters is how many TestListIsWhatALookAtEachPaymentFinds tries: the race detector makes SQLite, which is Go here, twenty times slower.
const filters = 100
