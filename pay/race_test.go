//go:build race

package pay

// manyOpen is how many open payments TestThousandsOfOpenPayments makes: the race detector makes SQLite, which is Go here, twenty times
// slower.
const manyOpen = 1_000
