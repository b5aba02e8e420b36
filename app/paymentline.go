package app

import (
	"context"
	"log/slog"
	"math"
	"time"

	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

const maxHost = 120

// logCall writes the line of a payment or a sale. What came to no payment and is no failure has none.
func logCall(log *slog.Logger, level slog.Level, r steps.Report) {
	if r.PaymentID == "" && r.Code == "" {
		return
	}
	attrs := make([]slog.Attr, 0, 16)
	text := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	text("id", r.PaymentID)
	text("agent", r.Agent)
	text("label", r.Label)
	text("tool", r.Tool)
	text("outcome", r.Outcome)
	text("state", r.State)
	text("code", r.Code)
	text("network", r.Network)
	text("scheme", r.Scheme)
	text("host", x402.BriefTo(r.Host, maxHost))
	if r.PaymentID != "" {
		text("price", r.Price.String())
		text("asset", r.Asset)
	}
	if r.Trace.Sampled {
		text("trace", r.Trace.ID.String())
	}
	attrs = append(attrs, slog.Float64("ms", milliseconds(r.Took)), slog.Any("steps", byStep(r.Steps)))
	log.LogAttrs(context.Background(), level, string(r.Kind), attrs...)
}

// byStep is how long each step took in all, in milliseconds, in the order in which they first ended. A step
// that failed says so.
func byStep(list []steps.Step) slog.Value {
	var names []steps.Name
	took, codes := map[steps.Name]time.Duration{}, map[steps.Name]string{}
	for _, s := range list {
		if _, known := took[s.Name]; !known {
			names = append(names, s.Name)
		}
		took[s.Name] += s.Took
		if s.Code != "" {
			codes[s.Name] = s.Code
		}
	}
	var attrs []slog.Attr
	for _, name := range names {
		attrs = append(attrs, slog.Float64(string(name), milliseconds(took[name])))
		if code := codes[name]; code != "" {
			attrs = append(attrs, slog.String(string(name)+"_code", code))
		}
	}
	return slog.GroupValue(attrs...)
}

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*100) / 100
}
