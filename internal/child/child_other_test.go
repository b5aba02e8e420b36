//go:build !linux

package child

func play([]string) (code int, played bool) { return 0, false }
