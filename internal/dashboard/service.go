package dashboard

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"x402-wallet/internal/loopback"
	"x402-wallet/internal/passkey"
	"x402-wallet/internal/passkey/invitation"
	"x402-wallet/tools"
)

// Service are the owner's pages at a service, for any browser that reaches its origin: signing in by a
// passkey, the dashboard behind it, and what is open to whoever has its link: the question about one
// approval, whose id nobody can guess, and the making of a passkey. Its passphrase is typed nowhere here.
type Service struct {
	*Server
	checker *passkey.Checker
	links   *invitation.Links
	addr    string // that is listened to, "127.0.0.1:8402"; "": it is not asked for by that
	open    http.Handler

	sessions sessions
	wrong    tools.Guesses // answers of passkeys
}

// ServiceOptions are what the service's pages are made of besides.
type ServiceOptions struct {
	Origin  string // under which browsers reach them, and passkeys are theirs (passkey.RPID)
	Address string // that is listened to, where that is this machine's own
	Checker *passkey.Checker
	Links   *invitation.Links
}

// NewService are the pages of a service. Of Options it needs no Approve.
func NewService(so ServiceOptions, o Options) *Service {
	_, host, _ := strings.Cut(so.Origin, "://")
	server, behind := newServer(so.Origin, host, o)
	s := &Service{Server: server, checker: so.Checker, links: so.Links, addr: so.Address}
	server.service = s
	behind.HandleFunc("POST /approvals/{id}/challenge", s.with(approvalChallenge))
	behind.HandleFunc("POST /signout", s.with(signOut))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.signInPage)
	mux.HandleFunc("POST /signin/challenge", s.signInChallenge)
	mux.HandleFunc("POST /signin", s.signIn)
	mux.HandleFunc("GET /approvals/{id}", s.openly(approval))
	mux.HandleFunc("POST /approvals/{id}/challenge", s.withOpenly(approvalChallenge))
	mux.HandleFunc("POST /approvals/{id}", s.withOpenly(decide))
	mux.HandleFunc("GET /passkeys/add/{token}", s.addPage)
	mux.HandleFunc("POST /passkeys/add/{token}/challenge", s.addChallenge)
	mux.HandleFunc("POST /passkeys/add/{token}", s.add)
	mux.HandleFunc("GET /icon.svg", s.icon)
	mux.HandleFunc("GET /passkey.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write(script)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.say(w, http.StatusNotFound, "There is no such page.")
	})
	s.open = mux
	return s
}

const formTime = 10 * time.Second

// ServeHTTP says who may look.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	loopback.Headers(w.Header(), style, "img-src 'self'")
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTime))
	defer func() { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }()
	refused := s.door.Check(r)
	switch {
	case errors.Is(refused, loopback.ErrHost):
		s.misnamed(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		s.say(w, http.StatusMethodNotAllowed, "This page does not take that kind of request.")
	case refused != nil:
		s.refuse(w, r, refused)
	case strings.HasPrefix(r.URL.Path, s.place+"/"):
		s.behind(w, r)
	default:
		s.open.ServeHTTP(w, r)
	}
}

// misnamed leads who typed this machine's address to its name, and nobody else anywhere: a name that was made
// to resolve to this machine gets no page.
func (s *Service) misnamed(w http.ResponseWriter, r *http.Request) {
	isAddress := s.addr != "" && r.Host == s.addr
	if isAddress && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		to := s.origin + (&url.URL{Path: r.URL.Path}).EscapedPath()
		http.Redirect(w, r, to, http.StatusTemporaryRedirect) //nolint:gosec // our own origin
		return
	}
	s.refuse(w, r, loopback.ErrHost)
}

func (s *Service) behind(w http.ResponseWriter, r *http.Request) {
	switch {
	case fromElsewhere(r):
		s.refuse(w, r, loopback.ErrOrigin)
	case s.signedIn(r):
		s.pages.ServeHTTP(w, r)
	case r.Method == http.MethodPost:
		s.say(w, http.StatusForbidden, "You are not signed in any more. Nothing was changed.")
	default:
		http.Redirect(w, r, s.origin+"/", http.StatusSeeOther) //nolint:gosec // our own
	}
}

// openly is a page for whoever has its link, without what else the wallet's pages show.
func (s *Service) openly(f func(*look) (frame, error)) http.HandlerFunc {
	return s.withOpenly(showing(f))
}

// withOpenly is with for them. What is wrong is the owner's to know.
func (s *Service) withOpenly(f func(*look) error) http.HandlerFunc {
	return s.using(func(l *look) error {
		l.open = true
		return f(l)
	}, func(w http.ResponseWriter, err error) {
		s.o.log().Info("a page of the service could not be shown", "why", err)
		if isMissing(err) {
			s.say(w, http.StatusNotFound, "There is no such question.")
			return
		}
		s.say(w, http.StatusServiceUnavailable, "This cannot be shown now. The service's log says why.")
	})
}

// browserCookie names a browser: a passkey's answer is good in the one that asked for it.
const browserCookie = "x402-wallet-browser"

// maxBrowser bounds that name; those that are given have 26 bytes.
const maxBrowser = 64

// cookieName is a cookie's name: over TLS one that nobody but this very host can set.
func (s *Service) cookieName(name string) string {
	if s.isTLS() {
		return "__Host-" + name
	}
	return name
}

func (s *Service) isTLS() bool { return strings.HasPrefix(s.origin, "https://") }

func (s *Service) setCookie(w http.ResponseWriter, name, value, path string) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // Secure where it can be: not at localhost, over HTTP
		Name: s.cookieName(name), Value: value, Path: path, HttpOnly: true, Secure: s.isTLS(),
		SameSite: http.SameSiteStrictMode,
	})
}

// browser names the browser of a request; "" does one that has no name yet, and gets one.
func (s *Service) browser(w http.ResponseWriter, r *http.Request) string {
	given, err := r.Cookie(s.cookieName(browserCookie))
	if err == nil && len(given.Value) <= maxBrowser {
		return given.Value
	}
	if w != nil {
		s.setCookie(w, browserCookie, rand.Text(), "/")
	}
	return ""
}
