// Package dashboard is a page of this machine for the wallet's owner: what was spent, on whom, what
// is left of each budget, what is unfinished, what waits for them, and everything that was ever
// paid. It is made of HTML and inline SVG; there is no script in it.
//
// The files: dashboard.go (who may look, pages), overview.go (what goes on now; plot.go draws it), money.go
// (balances, addresses), approval.go and freeze.go (what a person decides), history.go (what was paid).
// The HTML of a page is in the file of its name and _html.go. frame_html.go is around every page,
// parts_html.go has what several pages show.
//
// What must stay true: only the browser that opened the one-time address is answered, and only
// under that very name; looking changes nothing, and needs no key; stopping all payments needs none
// either; approving one takes the passphrase typed into its form, for exactly what that form showed. What
// strangers wrote is text, and letters that cannot be seen are written out.
//
// The dashboard holds no key and asks for none: the passphrase is handed to one function
// (Options.Approve), which opens the keystore, seals the row as `x402-wallet approve` does, and
// wipes it.
package dashboard

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed" // the style sheet, the script and the icon
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	g "maragu.dev/gomponents"

	"x402-wallet/history"
	"x402-wallet/internal/loopback"
	"x402-wallet/tools"
	"x402-wallet/x402"
)

// Options are what the page is made of.
type Options struct {
	// Wallet is the wallet under its rules as they are now; done ends its use.
	Wallet func(ctx context.Context) (w *tools.Wallet, done func(), err error)
	// Approve records the owner's approval of a payment exactly as it was shown to them; passphrase
	// is wiped afterwards. A wrong one is INVALID_PASSPHRASE.
	Approve func(ctx context.Context, store *history.Store, shown history.Approval, passphrase []byte) error
	Version string
	Log     *slog.Logger     // nil: nothing is logged
	Idle    time.Duration    // without a look it ends; 0: never
	Now     func() time.Time // nil: time.Now
}

// Server is one dashboard: one address, one browser.
type Server struct {
	URL string // opens it, once

	o            Options
	origin, host string // under which it is answered
	door         loopback.Door
	// the first part of every path. Cookies do not tell ports apart: another server of this machine
	// would be sent ours
	place string
	token string // the last part of URL
	key   string // the cookie that whoever opened it has
	form  []byte // the key of what a form showed
	pages http.Handler

	service *Service // nil: it is the page of one browser

	mu     sync.Mutex
	opened bool
	looked time.Time // last, by who opened it

	reading sync.Mutex // of balances: one request asks the nodes, the others wait for it
	read    balances

	deciding sync.Mutex // one passphrase at a time: each takes the KDF's memory
	wrong    int        // passphrases in a row
}

// New is a dashboard at a listener's address.
func New(at net.Addr, o Options) *Server {
	s, _ := newServer("http://"+at.String(), at.String(), o)
	s.token, s.key = rand.Text(), rand.Text()
	s.URL = s.origin + s.place + "/" + s.token
	return s
}

// newServer has the pages, and no door to them yet.
func newServer(origin, host string, o Options) (s *Server, mux *http.ServeMux) {
	if o.Now == nil {
		o.Now = time.Now
	}
	s = &Server{o: o, origin: origin, host: host, place: "/" + strings.ToLower(rand.Text()[:10]),
		form: []byte(rand.Text()), looked: o.Now()}
	s.door = loopback.Door{Hosts: loopback.Only(host), Origin: origin, Refuse: s.refuse}
	mux = http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.page(overview))
	mux.HandleFunc("GET /money", s.page(addMoney))
	mux.HandleFunc("GET /freeze", s.page(freezePage))
	mux.HandleFunc("POST /freeze", s.with(freeze))
	mux.HandleFunc("GET /history", s.page(list))
	mux.HandleFunc("GET /payments/{id}", s.page(payment))
	mux.HandleFunc("GET /approvals/{id}", s.page(approval))
	mux.HandleFunc("POST /approvals/{id}", s.with(decide))
	mux.HandleFunc("GET /payments/{id}/content", s.with(content))
	mux.HandleFunc("GET /payments/{id}/receipt", s.with(receiptOf))
	mux.HandleFunc("GET /export", s.with(export))
	mux.HandleFunc("GET /icon.svg", s.icon)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.say(w, http.StatusNotFound, "There is no such page.")
	})
	s.pages = http.StripPrefix(s.place, mux)
	return s, mux
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

func (*Server) icon(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "image/svg+xml")
	_, _ = w.Write(icon)
}

// ErrIdle says that nobody looked for as long as Options.Idle.
var ErrIdle = errors.New("nobody viewed the dashboard any more")

const farewell = 2 * time.Second

// Serve answers until ctx ends, or nobody looks any more: ErrIdle.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	server := s.door.PageServer(http.HandlerFunc(s.answer))
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	err := s.wait(ctx, failed)
	leave, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer stop()
	if server.Shutdown(leave) != nil {
		_ = server.Close()
	}
	return err
}

func (s *Server) wait(ctx context.Context, failed <-chan error) error {
	for {
		var idle <-chan time.Time
		if s.o.Idle > 0 {
			s.mu.Lock()
			left := s.o.Idle - s.o.Now().Sub(s.looked)
			s.mu.Unlock()
			if left <= 0 {
				return ErrIdle
			}
			idle = time.After(left)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return err
		case <-idle:
		}
	}
}

// answer says who may look, in one place.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	loopback.Headers(w.Header(), style, "img-src 'self'")
	rest, here := strings.CutPrefix(r.URL.Path, s.place+"/")
	switch {
	case !here:
		s.say(w, http.StatusNotFound, "This is not the page you are looking for.")
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		s.say(w, http.StatusMethodNotAllowed, "This page does not take that kind of request.")
	case r.Method == http.MethodGet && same(rest, s.token):
		s.open(w, r)
	case !s.knows(r):
		s.say(w, http.StatusForbidden, "This browser did not open the dashboard. Open the address that "+
			"x402-wallet dashboard printed; if it was used, run the command again.")
	case fromElsewhere(r):
		s.refuse(w, r, loopback.ErrOrigin)
	default:
		if !updatesItself(r) {
			s.mu.Lock()
			s.looked = s.o.Now()
			s.mu.Unlock()
		}
		s.pages.ServeHTTP(w, r)
	}
}

// refuse answers what came by another name, or from another page.
func (s *Server) refuse(w http.ResponseWriter, _ *http.Request, why error) {
	loopback.Headers(w.Header(), style, "img-src 'self'")
	if errors.Is(why, loopback.ErrHost) {
		s.say(w, http.StatusMisdirectedRequest, "This is not the page you are looking for.")
		return
	}
	s.say(w, http.StatusForbidden, "This request did not come from the wallet's own page.")
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// The page of what goes on now loads itself again, without a script. Pages with something to type do not: it
// would be lost.
const (
	updateEvery = 20 * time.Second
	byItself    = "auto" // marks such a look: nobody need be there
	standsStill = "off"  // a person does not want it
)

func updatesItself(r *http.Request) bool { return r.URL.Query().Get("update") == byItself }

// update has the browser load the page again, unless the dashboard would have ended by then: the last
// page stays.
func (l *look) update(f *frame) {
	query := l.r.URL.Query()
	f.Still = query.Get("update") == standsStill
	l.mu.Lock()
	ends := l.looked.Add(l.o.Idle)
	l.mu.Unlock()
	last := l.o.Idle > 0 && !l.o.Now().Add(updateEvery).Before(ends)
	if f.Still || last {
		return
	}
	query.Set("update", byItself)
	f.Every = int(updateEvery / time.Second)
	l.w.Header().Set("Refresh", fmt.Sprintf("%d; url=%s/?%s", f.Every, l.place, query.Encode()))
}

// fromElsewhere reports whether a browser says that another site, or another port of this machine,
// leads here: to a browser, ports of one host are the same site.
func fromElsewhere(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

const cookie = "x402-wallet"

func (s *Server) knows(r *http.Request) bool {
	given, err := r.Cookie(cookie)
	return err == nil && same(given.Value, s.key)
}

// open takes the token, once, and gives the cookie for it.
func (s *Server) open(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Sec-Purpose") != "" { // a browser's guess of what its person will open
		s.say(w, http.StatusServiceUnavailable, "Not yet.")
		return
	}
	s.mu.Lock()
	first := !s.opened
	s.opened = true
	s.mu.Unlock()
	switch {
	case !first && !s.knows(r):
		s.say(w, http.StatusGone, "This address was used already: it opens the dashboard in one browser, "+
			"once. Run x402-wallet dashboard again for another.")
		return
	case first:
		http.SetCookie(w, &http.Cookie{ //nolint:gosec // not Secure: it is HTTP
			Name: cookie, Value: s.key, Path: s.place, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		})
	}
	if fromElsewhere(r) {
		// a strict cookie does not go along where another site led here: a click from our own page
		// takes it
		s.show(w, http.StatusOK, frame{Title: "Continue", Body: ready})
		return
	}
	http.Redirect(w, r, s.place+"/", http.StatusSeeOther)
}

// with gives a handler the open wallet; what it returns as an error is shown.
func (s *Server) with(f func(*look) error) http.HandlerFunc { return s.using(f, s.problem) }

// using is with, with who says what is wrong.
func (s *Server) using(f func(*look) error, problem func(http.ResponseWriter, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		wallet, done, err := s.o.Wallet(r.Context())
		if err == nil {
			defer done()
			if err = wallet.Store.InPlace(); err == nil {
				err = f(&look{Server: s, w: w, r: r, wallet: wallet})
			}
		}
		if err != nil {
			problem(w, err)
		}
	}
}

// page is with for what is shown.
func (s *Server) page(f func(*look) (frame, error)) http.HandlerFunc { return s.with(showing(f)) }

func showing(f func(*look) (frame, error)) func(*look) error {
	return func(l *look) error {
		shown, err := f(l)
		if err != nil {
			return err
		}
		return l.show(http.StatusOK, shown)
	}
}

type look struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	wallet *tools.Wallet
	open   bool // to whoever has the page's link
}

// show fills the frame with what every page has.
func (l *look) show(status int, f frame) error {
	if l.open {
		f.Open = true
		l.service.browser(l.w, l.r)
	} else if err := l.standing(&f); err != nil {
		return err
	}
	l.Server.show(l.w, status, f)
	return nil
}

// frame is a page: its own body, and what every page has around it.
type frame struct {
	Title          string
	Body           func(*frame) g.Node
	Here           string // the entry of the navigation
	Base, Version  string
	Now            time.Time
	Alerts         []alert // the page's own come last
	Locked, Frozen bool
	// approvals that the person is asked for, and those that were decided and are still valid
	Waiting, Decided []history.Approval
	Known            bool // the person may look: there is a navigation
	Open             bool // whoever has its link may look: there is none
	Script           bool // it asks a passkey
	Service          bool
	SignOut          string // the token of its form
	Every            int    // seconds after which the page loads itself again; 0: it does not
	Still            bool   // because the person does not want it
}

// alert is what the person has to know, and what they can do about it.
type alert struct {
	Grave bool
	What  string
	Do    string // a sentence
	Run   string // a command; "": none
}

// problem shows an error: to the person who owns the wallet its cause is no secret.
func (s *Server) problem(w http.ResponseWriter, err error) {
	coded := *x402.AsError(err)
	status := http.StatusConflict
	switch coded.Code {
	case x402.InvalidArgument:
		status = http.StatusNotFound
	case x402.LedgerCorrupt, x402.LedgerUnavailable, x402.HistoryFailed:
		status = http.StatusInternalServerError
	case x402.Internal:
		status = http.StatusInternalServerError
		coded.Message = strings.TrimPrefix(err.Error(), string(coded.Code)+": ")
	}
	s.show(w, status, frame{Title: "This cannot be shown", Known: true, Body: problemBody(coded)})
}

func (s *Server) say(w http.ResponseWriter, status int, text string) {
	s.show(w, status, frame{Title: "Not here", Body: sentence(text)})
}

func (s *Server) show(w http.ResponseWriter, status int, f frame) {
	f.Version, f.Now, f.Service = s.o.Version, s.o.Now().UTC(), s.service != nil
	if !f.Open && (f.Known || s.service == nil) {
		f.Base = s.place // which nobody learns who may not look
	}
	if f.Known && f.Service {
		f.SignOut = s.freezeToken()
	}
	if f.Script {
		loopback.Headers(w.Header(), style, "img-src 'self'", "script-src 'self'", "connect-src 'self'")
	}
	var page bytes.Buffer
	_ = f.document().Render(&page) // a buffer takes everything
	w.WriteHeader(status)
	// over the finished page, where no field can be forgotten
	_, _ = w.Write(tools.Visible(bytes.ToValidUTF8(page.Bytes(), []byte("\ufffd"))))
}

//go:embed pages/style.css
var style string

//go:embed pages/icon.svg
var icon []byte

//go:embed pages/passkey.js
var script []byte

func isMissing(err error) bool {
	return errors.Is(err, history.ErrNotFound) || x402.HasCode(err, x402.InvalidArgument)
}

// missing is what to say of an error where it is that there is no such thing.
func missing(err error, format string, args ...any) error {
	if errors.Is(err, history.ErrNotFound) {
		return x402.Errorf(x402.InvalidArgument, format, args...)
	}
	return err
}

// short is the beginning of a text that may be long; where it counts, all of it is shown.
func short(most int, text string) string {
	runes := []rune(text)
	if len(runes) <= most {
		return text
	}
	return string(runes[:most-1]) + "…"
}
