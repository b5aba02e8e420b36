//go:build !race

package pay

// manyOpen is how many open payments TestThousandsOfOpenPayments makes.
const manyOpen = 10_000
