//go:build !race

package pay

const isRace = false
