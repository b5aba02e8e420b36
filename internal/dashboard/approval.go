package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"x402-wallet/history"
	"x402-wallet/internal/loopback"
	"x402-wallet/x402"
)

const (
	// maxTries is how many wrong passphrases in a row one dashboard takes. Each costs the KDF's
	// second besides.
	maxTries = 3
	// maxForm bounds what is posted: a passphrase of 1024 bytes, each as %XX, and the rest of the
	// form.
	maxForm = 4 << 10
)

// question is one approval, as it is shown.
type question struct {
	history.Approval
	Shown   string // what the form says of it
	Open    bool   // something can be decided
	Over    bool   // no passphrase is taken any more
	Problem string
}

func approval(l *look) (frame, error) {
	q, err := l.question(l.r.PathValue("id"))
	return q.frame(), err
}

func (q question) frame() frame {
	return frame{Template: "approval", Title: "Approval", Here: "overview", Page: q}
}

func (l *look) question(id string) (q question, err error) {
	a, err := l.wallet.Store.Approval(l.r.Context(), id)
	if err != nil {
		return q, missing(err, "there is no approval %q", id)
	}
	if a.State != history.Used && !l.o.Now().Before(a.Expires) {
		a.State = history.Expired
	}
	l.deciding.Lock()
	defer l.deciding.Unlock()
	open := a.State != history.Used && a.State != history.Expired
	return question{Approval: a, Shown: l.shown(a), Open: open, Over: l.wrong >= maxTries}, nil
}

// shown binds a form to this dashboard and to everything that it showed: a row that changed since
// is another question.
func (s *Server) shown(a history.Approval) string {
	sum := hmac.New(sha256.New, s.form)
	fmt.Fprintf(sum, "%#v", []any{a.ID, a.Quote, a.State, a.Created.UnixMicro(), a.Expires.UnixMicro(),
		a.Host, a.Method, a.URL, a.Network, a.Asset, a.Symbol, a.Amount.String(), a.Price, a.PayTo, a.Why,
		a.Agent, a.Since})
	return hex.EncodeToString(sum.Sum(nil))
}

// decide records the person's decision. Approving takes the passphrase; denying does not.
func decide(l *look) error {
	id := l.r.PathValue("id")
	form, err := loopback.Form(l.w, l.r, maxForm)
	if err != nil {
		l.say(l.w, http.StatusBadRequest, "The form could not be read.")
		return nil
	}
	passphrase := []byte(form.Get("passphrase"))
	defer clear(passphrase)
	q, err := l.question(id)
	if err != nil {
		return err
	}
	again := func(status int, problem string) error {
		q.Problem = problem
		return l.show(status, q.frame())
	}
	switch decision := form.Get("decision"); {
	case !same(form.Get("shown"), q.Shown):
		return again(http.StatusConflict,
			"This changed after it was shown to you. Check it again before you decide.")
	case !q.Open:
		return again(http.StatusConflict, "")
	case decision == "deny":
		_, err = l.wallet.Store.Deny(context.WithoutCancel(l.r.Context()), id, "owner")
	case decision == "approve" && len(passphrase) == 0:
		return again(http.StatusForbidden, "Type the passphrase. Nothing was approved.")
	case decision == "approve":
		err = l.approve(q.Approval, passphrase)
	default:
		l.say(l.w, http.StatusBadRequest, "The form could not be read.")
		return nil
	}
	switch {
	case x402.HasCode(err, x402.InvalidPassphrase):
		if q, err = l.question(id); err != nil {
			return err
		}
		return again(http.StatusForbidden, "That was not the passphrase. Nothing was approved.")
	case errors.Is(err, history.ErrDecided): // meanwhile
	case err != nil:
		return err
	}
	http.Redirect(l.w, l.r, l.place+"/approvals/"+id, http.StatusSeeOther)
	return nil
}

// approve tries one passphrase at a time, and no more than maxTries wrong ones in a row.
func (l *look) approve(shown history.Approval, passphrase []byte) error {
	l.deciding.Lock()
	defer l.deciding.Unlock()
	if l.wrong >= maxTries {
		return x402.Errorf(x402.InvalidPassphrase, "too many wrong passphrases")
	}
	err := l.o.Approve(context.WithoutCancel(l.r.Context()), l.wallet.Store, shown, passphrase)
	switch {
	case err == nil:
		l.wrong = 0
	case x402.HasCode(err, x402.InvalidPassphrase):
		l.wrong++
	}
	return err
}
