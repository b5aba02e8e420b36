//go:build !linux

package wallet

func hardened() int { return 0 }

func standing(bool) int { return 0 }
