package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"x402-wallet/history"
	"x402-wallet/internal/loopback"
)

// freezePage shows what freezing does, and its button. It tightens, so it takes no passphrase; lifting it
// does, and is done in a terminal.
func freezePage(l *look) (frame, error) {
	return frame{Title: "Stop all payments", Here: "freeze", Body: freezeBody(l.freezeToken())}, nil
}

// freezeToken binds the form to this dashboard.
func (s *Server) freezeToken() string {
	sum := hmac.New(sha256.New, s.form)
	sum.Write([]byte("freeze"))
	return hex.EncodeToString(sum.Sum(nil))
}

// freeze stops every payment of every process, and has the freeze noted where nobody takes it back unseen.
func freeze(l *look) error {
	form, _ := loopback.Form(l.w, l.r, maxForm) // what cannot be read is nobody's form
	if !same(form.Get("shown"), l.freezeToken()) {
		l.say(l.w, http.StatusBadRequest, "The form could not be read. Nothing was changed.")
		return nil
	}
	ctx := context.WithoutCancel(l.r.Context())
	why := history.Freeze{By: "owner", Why: "the owner stopped it on the dashboard"}
	if err := l.wallet.Store.Freeze(ctx, why); err != nil {
		return err
	}
	if guard := l.wallet.Engine.Guard; guard != nil {
		_ = guard.CheckpointIfUnlocked(ctx) // it is frozen with or without
	}
	http.Redirect(l.w, l.r, l.place+"/", http.StatusSeeOther)
	return nil
}
