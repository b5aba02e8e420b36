package relay

import (
	"context"
	"errors"
	"io/fs"
	"net"

	"x402-wallet/internal/socket"
	"x402-wallet/x402"
)

// Listen makes a service's socket; home as for socket.Listen. One that a killed service left is replaced;
// where a service listens, the error is SETUP_FAILED.
func Listen(ctx context.Context, path string, mode fs.FileMode, home string) (net.Listener, error) {
	err := socket.CheckPath(path)
	if errors.Is(err, socket.ErrUnsupported) {
		return nil, x402.Errorf(x402.SetupFailed, "nothing can be served on this system: %w", err)
	}
	if err == nil {
		var conn net.Conn
		conn, err = connect(ctx, path, home)
		switch {
		case err == nil:
			_ = conn.Close()
			return nil, x402.Errorf(x402.SetupFailed, "a service listens at %s already", path).
				WithHint("end it, or choose another --socket")
		case errors.Is(err, ErrNone):
			err = nil
		}
	}
	var l net.Listener
	if err == nil {
		l, err = socket.Listen(ctx, path, mode, home)
	}
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "make the service's socket: %w", err).
			WithHint("choose another place for it with --socket")
	}
	return l, nil
}
