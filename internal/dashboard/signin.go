package dashboard

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"x402-wallet/internal/loopback"
	"x402-wallet/internal/passkey"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

const (
	// sessionLife and sessionIdle bound how long a passkey's yes to signing in is good: a day at the desk,
	// and half an hour away from it.
	sessionLife = 12 * time.Hour
	sessionIdle = 30 * time.Minute
	// maxSessions bounds those at a time; the oldest gives way.
	maxSessions = 100
	// maxAnswer bounds a form with a passkey's answer, each byte as %XX.
	maxAnswer = 3*passkey.MaxAnswer + maxForm
)

// noAnswer is said of a form that the script did not fill.
const noAnswer = "The form could not be read. Open the page again, with scripts allowed."

// sessions are the browsers that are signed in, by the hash of their cookie.
type sessions struct {
	mu   sync.Mutex
	list map[[sha256.Size]byte]*session
}

type session struct {
	passkey       passkey.Key // that signed in; the session ends when the rules do not have it any more
	name          string
	began, looked time.Time
}

func (s *sessions) begin(name string, k passkey.Key, now time.Time) (cookie string) {
	cookie = rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.list == nil {
		s.list = map[[sha256.Size]byte]*session{}
	}
	var oldest [sha256.Size]byte
	for id, each := range s.list {
		if each.over(now) {
			delete(s.list, id)
		} else if first, ok := s.list[oldest]; !ok || each.looked.Before(first.looked) {
			oldest = id
		}
	}
	if len(s.list) >= maxSessions {
		delete(s.list, oldest)
	}
	s.list[sha256.Sum256([]byte(cookie))] = &session{passkey: k, name: name, began: now, looked: now}
	return cookie
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.began) >= sessionLife || now.Sub(s.looked) >= sessionIdle
}

// of is the passkey that signed a cookie's session in; looks: a person does, which keeps it.
func (s *sessions) of(cookie string, now time.Time, looks bool) (name string, k passkey.Key, ok bool) {
	id := sha256.Sum256([]byte(cookie))
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.list[id]
	if !ok {
		return "", k, false
	}
	if found.over(now) {
		delete(s.list, id)
		return "", k, false
	}
	if looks {
		found.looked = now
	}
	return found.name, found.passkey, true
}

func (s *sessions) end(cookie string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.list, sha256.Sum256([]byte(cookie)))
}

// signedIn reports whether a request's browser is, by a passkey that the rules still have.
func (s *Service) signedIn(r *http.Request) bool {
	given, err := r.Cookie(s.cookieName(cookie))
	if err != nil {
		return false
	}
	name, k, ok := s.sessions.of(given.Value, s.o.Now(), !updatesItself(r))
	if !ok {
		return false
	}
	wallet, done, err := s.o.Wallet(r.Context())
	if err != nil {
		return false
	}
	defer done()
	now, err := known(r.Context(), wallet)
	return err == nil && now[name] == k
}

// known are the passkeys of the rules in force, if these are the owner's. Without a key their seal cannot be
// checked: then they are those that the ledger says were sealed, which is enough to look at that ledger.
func known(ctx context.Context, w *tools.Wallet) (map[string]passkey.Key, error) {
	guard := w.Engine.Guard
	err := guard.CheckConfig(ctx)
	if err == nil && !w.Keys.Locked() {
		err = guard.VerifySeals(ctx)
	}
	if err != nil {
		return nil, err
	}
	return w.Passkeys, nil
}

func (s *Service) signInPage(w http.ResponseWriter, r *http.Request) {
	if s.signedIn(r) { // over TLS, where the cookie goes along
		http.Redirect(w, r, s.origin+s.place+"/", http.StatusSeeOther)
		return
	}
	s.browser(w, r)
	s.show(w, http.StatusOK, frame{Title: "Sign in", Open: true, Script: true, Body: signInBody})
}

func aboutSignIn(browser string) [sha256.Size]byte { return passkey.About("sign in", browser) }

func (s *Service) signInChallenge(w http.ResponseWriter, r *http.Request) {
	browser := s.browser(nil, r)
	if browser == "" {
		s.answerJSON(w, http.StatusForbidden, problemJSON("This page is too old. Load it again."))
		return
	}
	s.ask(w, s.checker.Challenge(aboutSignIn(browser)))
}

// signIn begins a session for a passkey's yes.
func (s *Service) signIn(w http.ResponseWriter, r *http.Request) {
	form, err := loopback.Form(w, r, maxAnswer)
	browser := s.browser(nil, r)
	if err != nil || browser == "" || form.Get("answer") == "" {
		s.say(w, http.StatusBadRequest, noAnswer)
		return
	}
	wallet, done, err := s.o.Wallet(r.Context())
	if err != nil {
		s.refused(w, r, err)
		return
	}
	defer done()
	keys, err := known(r.Context(), wallet)
	if err != nil {
		s.o.log().Warn("nobody is signed in by a passkey", "why", err)
		s.refused(w, r, err)
		return
	}
	name, err := s.checker.Check(keys, aboutSignIn(browser), []byte(form.Get("answer")))
	if err != nil {
		s.refused(w, r, err)
		return
	}
	path := s.place
	if s.isTLS() {
		path = "/" // as __Host- has to; there a cookie is no other port's of a stranger's
	}
	s.o.log().Info("signed in", "passkey", name)
	s.setCookie(w, cookie, s.sessions.begin(name, keys[name], s.o.Now()), path)
	http.Redirect(w, r, s.origin+s.place+"/", http.StatusSeeOther)
}

func signOut(l *look) error {
	form, _ := loopback.Form(l.w, l.r, maxForm)
	if !same(form.Get("shown"), l.freezeToken()) {
		l.say(l.w, http.StatusBadRequest, "The form could not be read. Nothing was changed.")
		return nil
	}
	if given, err := l.r.Cookie(l.service.cookieName(cookie)); err == nil {
		l.service.sessions.end(given.Value)
	}
	http.Redirect(l.w, l.r, l.origin+"/", http.StatusSeeOther)
	return nil
}

// refused says that a passkey's answer was not taken; why is for the log alone, so that nobody learns which
// passkeys there are.
func (s *Service) refused(w http.ResponseWriter, r *http.Request, why error) {
	s.o.log().Warn("a passkey's answer was refused", "from", r.RemoteAddr, "why", why)
	if s.wrong.TooMany(r.RemoteAddr, s.o.Now()) {
		s.say(w, http.StatusTooManyRequests, "Too many wrong answers. Wait a minute.")
		return
	}
	s.show(w, http.StatusForbidden, frame{Title: "Not taken", Open: true,
		Body: refusedBody(s.whyRefused(why))})
}

// whyRefused is what may be told of it.
func (*Service) whyRefused(err error) string {
	switch {
	case x402.HasCode(err, x402.WalletLocked):
		return "The wallet is locked: unlock it first, as the service's user (x402-wallet unlock)."
	case x402.HasCode(err, x402.PolicyUnsealed):
		return "The owner's rules are not sealed as they are: see x402-wallet policy show."
	}
	return "The passkey's answer was not taken. Nothing was changed. It is good once, for five minutes."
}
