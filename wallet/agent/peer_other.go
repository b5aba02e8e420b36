//go:build !linux && !darwin

package agent

const (
	supported     = false
	maxSocketPath = 0
)

func peerUser(int) (uint32, error) { return 0, unsupported() }
