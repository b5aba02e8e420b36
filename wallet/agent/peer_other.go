//go:build !linux && !darwin

package agent

import "net"

const (
	supported     = false
	maxSocketPath = 0
)

func samePeer(net.Conn) error { return unsupported() }
