//go:build !linux && !darwin

package socket

const (
	Supported = false
	maxPath   = 0
)

func peerUser(int) (uint32, error) { return 0, ErrUnsupported }
