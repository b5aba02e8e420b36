//go:build !linux

package wallet

import "context"

func hardened() int { return 0 }

func standing(bool) int { return 0 }

func wiped(context.Context) int { return 0 }

func withoutLockedMemory(context.Context) int { return 0 }
