package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"

	"x402-wallet/history"
	"x402-wallet/internal/loopback"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/x402"
)

func problemJSON(text string) map[string]string { return map[string]string{"problem": text} }

func (s *Service) answerJSON(w http.ResponseWriter, status int, what any) {
	text, err := json.Marshal(what)
	if err != nil {
		status, text = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func (s *Service) ask(w http.ResponseWriter, challenge []byte) {
	options, err := passkey.RequestOptions(s.origin, challenge)
	if err != nil {
		s.answerJSON(w, http.StatusInternalServerError, problemJSON(err.Error()))
		return
	}
	s.answerJSON(w, http.StatusOK, json.RawMessage(options))
}

// approvalChallenge asks a passkey for a yes or a no to exactly what the form showed.
func approvalChallenge(l *look) error {
	s := l.service
	form, _ := loopback.Form(l.w, l.r, maxForm) // what cannot be read is nobody's form
	browser := s.browser(nil, l.r)
	if browser == "" {
		s.answerJSON(l.w, http.StatusBadRequest, problemJSON("This page is too old. Load it again."))
		return nil
	}
	q, err := l.question(l.r.PathValue("id"))
	if err != nil {
		return err
	}
	if !same(form.Get("shown"), q.Shown) || !q.Open {
		s.answerJSON(l.w, http.StatusConflict, problemJSON("This changed after it was shown to you. Load "+
			"the page again, and check it before you decide."))
		return nil
	}
	if form.Get("decision") == "deny" {
		s.ask(l.w, s.checker.Challenge(aboutDenial(q.Approval, browser)))
		return nil
	}
	challenge, err := l.wallet.ByPasskey.Challenge(l.r.Context(), q.Approval, browser)
	if err != nil {
		s.o.log().Warn("no passkey is asked for an approval", "approval", q.ID, "why", err)
		s.answerJSON(l.w, http.StatusConflict, problemJSON(s.whyRefused(err)))
		return nil
	}
	s.ask(l.w, challenge)
	return nil
}

func aboutDenial(a history.Approval, browser string) [sha256.Size]byte {
	digest := a.ShownDigest()
	return passkey.About("deny", a.ID, hex.EncodeToString(digest[:]), browser)
}

// decideByPasskey records what a passkey said. An error that errRefused is tells nobody more.
func (l *look) decideByPasskey(shown history.Approval, decision string, answer []byte) error {
	ctx, browser := context.WithoutCancel(l.r.Context()), l.service.browser(nil, l.r)
	if decision == "approve" {
		return l.wallet.ByPasskey.Approve(ctx, shown, browser, answer)
	}
	keys, err := known(ctx, l.wallet)
	if err != nil {
		return err
	}
	if _, err := l.service.checker.Check(keys, aboutDenial(shown, browser), answer); err != nil {
		return x402.Errorf(x402.PolicyDenied, "this is no answer of the owner's passkeys: %w", err)
	}
	_, err = l.wallet.Store.Deny(ctx, shown.ID, "owner")
	return err
}

// adding is the page behind a link of x402-wallet passkeys add.
type adding struct {
	Token, Name string
	Problem     string
	Done        bool
}

func (s *Service) addPage(w http.ResponseWriter, r *http.Request) {
	token := r.PathValue("token")
	name, _, err := s.links.Options(r.Context(), token)
	if err != nil {
		s.noLink(w)
		return
	}
	s.browser(w, r)
	s.showAdding(w, http.StatusOK, adding{Token: token, Name: name})
}

func (s *Service) showAdding(w http.ResponseWriter, status int, a adding) {
	s.show(w, status, frame{Title: "Add a passkey", Open: true, Script: true, Body: a.body})
}

func (s *Service) noLink(w http.ResponseWriter) {
	s.say(w, http.StatusGone, "No terminal waits for this link: it is good once, for ten minutes, while "+
		"x402-wallet passkeys add waits. Run it again for another.")
}

func (s *Service) addChallenge(w http.ResponseWriter, r *http.Request) {
	_, options, err := s.links.Options(r.Context(), r.PathValue("token"))
	if err != nil {
		s.answerJSON(w, http.StatusGone, problemJSON("No terminal waits for this link any more."))
		return
	}
	s.answerJSON(w, http.StatusOK, json.RawMessage(options))
}

// add hands what the browser made to the terminal, where the owner's passphrase makes it a rule.
func (s *Service) add(w http.ResponseWriter, r *http.Request) {
	form, err := loopback.Form(w, r, maxAnswer)
	if err != nil || form.Get("answer") == "" {
		s.say(w, http.StatusBadRequest, noAnswer)
		return
	}
	shown := adding{Token: r.PathValue("token")}
	shown.Name, err = s.links.Made(r.Context(), shown.Token, []byte(form.Get("answer")))
	switch {
	case errors.Is(err, invitation.ErrNoLink):
		s.noLink(w)
	case err != nil:
		shown.Problem = "This passkey cannot be taken: " + err.Error() + "."
		s.showAdding(w, http.StatusForbidden, shown)
	default:
		shown.Done = true
		s.showAdding(w, http.StatusOK, shown)
	}
}
