package app

import (
	"context"
	"log/slog"

	"x402-wallet/internal/steps"
)

// observer is who is told of calls and sales: the log, the owner's collector and metrics, where they are to
// be. nil: nobody, and then nothing is noted.
func (a *app) observer(h openHome) func(steps.Report) {
	var list []func(steps.Report)
	level := slog.LevelDebug // in text, which people read, it is for who looks for faults
	if a.format.isJSON() {
		level = slog.LevelInfo
	}
	if a.log.Enabled(context.Background(), level) {
		list = append(list, func(r steps.Report) { logCall(a.log, level, r) })
	}
	if h.spans != nil {
		list = append(list, h.spans.Add)
	}
	if a.watch != nil {
		list = append(list, a.watch)
	}
	if len(list) == 0 {
		return nil
	}
	labels := agentLabels(h.rules)
	return func(r steps.Report) {
		r.Label = labels[r.Agent]
		for _, told := range list {
			told(r)
		}
	}
}
