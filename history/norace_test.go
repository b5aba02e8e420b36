//go:build !race

package history

// filters is how many TestListIsWhatALookAtEachPaymentFinds tries.
const filters = 500
