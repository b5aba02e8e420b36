package app

import (
	"context"
	"net"
	"strings"

	"x402-wallet/cli"
	"x402-wallet/internal/metrics"
	"x402-wallet/internal/relay"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

// listenMetrics opens the place where metrics are read, if there is to be one, and puts its address into
// doors. A socket is for the service's user and its group; an address of this machine is for all its users,
// who see then what each agent pays.
func listenMetrics(ctx context.Context, doors *cli.Doors) (net.Listener, error) {
	if doors.Metrics == "" {
		return nil, nil
	}
	if strings.Contains(doors.Metrics, "/") {
		return relay.Listen(ctx, doors.Metrics, 0o660)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", doors.Metrics)
	if err != nil {
		return nil, x402.Errorf(x402.SetupFailed, "no metrics can be served at %s: %w", doors.Metrics, err)
	}
	at := l.Addr().(*net.TCPAddr)
	if !at.IP.IsLoopback() {
		_ = l.Close()
		return nil, x402.Errorf(x402.InvalidArgument, "%s can be reached from other machines, and metrics "+
			"are for whoever reaches them", doors.Metrics).
			WithHint("give 127.0.0.1:PORT, or the path of a socket")
	}
	doors.Metrics = "http://" + at.String() + "/metrics"
	return l, nil
}

// standing is how a server stands, as metrics say it.
func standing(s *tools.Server) func(context.Context) (metrics.Standing, error) {
	return func(ctx context.Context) (metrics.Standing, error) {
		now, err := s.Standing(ctx)
		return metrics.Standing(now), err
	}
}
