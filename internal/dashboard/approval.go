package dashboard

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
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

type question struct {
	history.Approval
	Shown   string // what the form says of it
	Passkey bool   // it is decided by one
	Locked  bool   // and the wallet has to be unlocked first
	Open    bool   // something can be decided
	Over    bool   // no passphrase is taken any more
	Problem string
}

func approval(l *look) (frame, error) {
	q, err := l.question(l.r.PathValue("id"))
	return q.frame(), err
}

func (q question) frame() frame {
	return frame{Title: "Approval", Here: "overview", Script: q.Passkey && q.Open, Body: q.body}
}

func (l *look) question(id string) (q question, err error) {
	a, err := l.wallet.Store.Asked(l.r.Context(), id)
	if err != nil {
		return q, missing(err, "there is no approval %q", id)
	}
	if a.State != history.Used && !l.o.Now().Before(a.Expires) {
		a.State = history.Expired
	}
	l.deciding.Lock()
	defer l.deciding.Unlock()
	q = question{Approval: a, Shown: l.shown(a), Over: l.wrong >= maxTries, Passkey: l.service != nil}
	q.Open = a.State != history.Used && a.State != history.Expired
	q.Locked = q.Passkey && l.wallet.Keys.Locked() && !l.wallet.UnlocksItself
	return q, nil
}

// shown binds a form to this dashboard and to everything that it showed: a row that changed since
// is another question.
func (s *Server) shown(a history.Approval) string {
	sum := hmac.New(sha256.New, s.form)
	digest := a.ShownDigest()
	sum.Write(digest[:])
	return hex.EncodeToString(sum.Sum(nil))
}

// decide records the person's decision. Approving takes the passphrase; denying does not.
func decide(l *look) error {
	id := l.r.PathValue("id")
	most := int64(maxForm)
	if l.service != nil {
		most = maxAnswer
	}
	form, err := loopback.Form(l.w, l.r, most)
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
	case decision != "approve" && decision != "deny":
		l.say(l.w, http.StatusBadRequest, "The form could not be read.")
		return nil
	case l.open, l.service != nil && decision == "approve":
		err = l.decideByPasskey(q.Approval, decision, []byte(form.Get("answer")))
	case decision == "deny":
		_, err = l.wallet.Store.Deny(context.WithoutCancel(l.r.Context()), id, "owner")
	case len(passphrase) == 0:
		return again(http.StatusForbidden, "Type the passphrase. Nothing was approved.")
	default:
		err = l.approve(q.Approval, passphrase)
	}
	switch {
	case x402.HasCode(err, x402.InvalidPassphrase):
		if q, err = l.question(id); err != nil {
			return err
		}
		return again(http.StatusForbidden, "That was not the passphrase. Nothing was approved.")
	case errors.Is(err, history.ErrDecided): // meanwhile
	case err != nil && l.service != nil:
		l.service.refused(l.w, l.r, err)
		return nil
	case err != nil:
		return err
	}
	base := l.place
	if l.open {
		base = ""
	}
	http.Redirect(l.w, l.r, base+"/approvals/"+id, http.StatusSeeOther)
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
