package app

import (
	"context"
	"io"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
	"x402-wallet/internal/steps"
	"x402-wallet/x402"
)

// logHandler writes the log in the format of the moment: the rules that name one are read after the first
// lines, and may change. It implements slog.Handler.
type logHandler struct {
	inJSON *atomic.Bool // shared by all that came from one
	text   slog.Handler
	json   slog.Handler
}

func newLogHandler(out io.Writer, level slog.Level) *logHandler {
	o := &slog.HandlerOptions{Level: level}
	return &logHandler{inJSON: &atomic.Bool{}, text: slog.NewTextHandler(out, o),
		json: slog.NewJSONHandler(out, o)}
}

func (h *logHandler) isJSON() bool { return h != nil && h.inJSON.Load() }

// write sets the format: that of the environment, or else of the rules.
func (h *logHandler) write(env environ.Env, rules string) {
	if h == nil { // whoever opened the home has a log of their own
		return
	}
	format := rules
	if env.LogFormat == config.LogText || env.LogFormat == config.LogJSON {
		format = env.LogFormat
	}
	h.inJSON.Store(format == config.LogJSON)
}

func (h *logHandler) Enabled(ctx context.Context, l slog.Level) bool { return h.text.Enabled(ctx, l) }

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	if h.isJSON() {
		return h.json.Handle(ctx, r)
	}
	return h.text.Handle(ctx, r)
}

func (h *logHandler) WithAttrs(list []slog.Attr) slog.Handler {
	return &logHandler{inJSON: h.inJSON, text: h.text.WithAttrs(list), json: h.json.WithAttrs(list)}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{inJSON: h.inJSON, text: h.text.WithGroup(name), json: h.json.WithGroup(name)}
}

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
