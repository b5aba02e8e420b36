package app

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"

	"x402-wallet/internal/config"
	"x402-wallet/internal/config/environ"
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
