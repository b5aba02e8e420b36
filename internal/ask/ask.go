// Package ask asks the person at this machine for the passphrase on a page of the loopback interface,
// where no terminal is at hand: an agent's host opens its URL (MCP's URL-mode elicitation).
//
// What must stay true: what is typed reaches this process and nobody else. The page is served on
// 127.0.0.1 to whoever has its random token, names this very host, and posts from this very page; it
// loads nothing, can be framed by nobody, is used once, and is gone after five minutes. The
// passphrase is handed to one function and kept nowhere.
package ask

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"html"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"x402-wallet/internal/loopback"
)

const (
	// Expiry is how long a page waits for its person.
	Expiry = 5 * time.Minute
	// maxTries is how many wrong passphrases a page takes. Each costs the KDF's second besides.
	maxTries = 3
	// maxForm bounds what is posted: a passphrase of 1024 bytes, each as %XX, and the rest of it.
	maxForm = 4 << 10
	// maxLines and maxText bound what is shown. A longer question is not asked, rather than cut.
	maxLines, maxText = 200, 8 << 10
	// farewell is how long the last answer may take to reach the browser.
	farewell = 2 * time.Second
)

// How a page can end without an answer.
var (
	ErrExpired  = errors.New("nobody answered on the page within " + Expiry.String())
	ErrDeclined = errors.New("the person declined on the page")
)

// Ask serves the page and answers its URL. What the person types goes to check, which must not keep
// it and whose slice is wiped afterwards; what check says to the person is its error's text, and
// whether another try may help: then the page asks again, three times in all. title and lines are
// shown as they are, with control and format characters replaced.
//
// wait returns when the page is gone: nil once check was content, else check's last error,
// ErrDeclined, ErrExpired, or the context's error. Ending ctx takes the page away.
func Ask(ctx context.Context, title string, lines []string,
	check func(passphrase []byte) (again bool, err error)) (page string, wait func() error, err error) {
	isLong := func(line string) bool { return len(line) > maxText }
	if len(lines) > maxLines || isLong(title) || slices.ContainsFunc(lines, isLong) {
		return "", nil, errors.New("there is more to look at than a page shows: use a terminal")
	}
	listener, err := loopback.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	p := &question{host: listener.Addr().String(), token: rand.Text(), title: title, lines: lines,
		check: check, over: make(chan struct{})}
	server := loopback.Door{Hosts: loopback.Only(p.host), Origin: "http://" + p.host,
		Refuse: p.refuse}.PageServer(p)
	go func() { _ = server.Serve(listener) }()
	ctx, cancel := context.WithTimeoutCause(ctx, Expiry, ErrExpired)
	done := make(chan error, 1)
	go func() {
		defer cancel()
		select {
		case <-p.over:
		case <-ctx.Done():
			p.mu.Lock()
			p.finish(context.Cause(ctx))
			p.mu.Unlock()
		}
		leave, stop := context.WithTimeout(context.WithoutCancel(ctx), farewell)
		defer stop()
		if server.Shutdown(leave) != nil {
			_ = server.Close()
		}
		done <- p.outcome
	}()
	return "http://" + p.host + "/" + p.token, func() error { return <-done }, nil
}

type question struct {
	host, token string
	title       string
	lines       []string
	check       func([]byte) (again bool, err error)

	mu      sync.Mutex // one answer at a time
	tries   int
	over    chan struct{} // closed when outcome is set
	outcome error
}

// finish sets the outcome, the first time; the caller holds mu.
func (q *question) finish(err error) {
	if !q.finished() {
		q.outcome = err
		close(q.over)
	}
}

func (q *question) finished() bool {
	select {
	case <-q.over:
		return true
	default:
		return false
	}
}

func (q *question) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	loopback.Headers(w.Header(), style)
	given := strings.TrimPrefix(r.URL.Path, "/")
	switch {
	case subtle.ConstantTimeCompare([]byte(given), []byte(q.token)) != 1:
		q.say(w, http.StatusNotFound, "This is not the page you are looking for.")
	case r.Method == http.MethodGet:
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.finished() {
			q.gone(w)
			return
		}
		q.form(w, http.StatusOK, "")
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, POST")
		q.say(w, http.StatusMethodNotAllowed, "This page does not take that kind of request.")
	default:
		q.answer(w, r)
	}
}

// refuse answers what came by another name, or from another page.
func (q *question) refuse(w http.ResponseWriter, _ *http.Request, why error) {
	loopback.Headers(w.Header(), style)
	if errors.Is(why, loopback.ErrHost) {
		q.say(w, http.StatusMisdirectedRequest, "This is not the page you are looking for.")
		return
	}
	q.say(w, http.StatusForbidden, "This was not sent from the wallet's own page.")
}

func (q *question) answer(w http.ResponseWriter, r *http.Request) {
	form, err := loopback.Form(w, r, maxForm)
	passphrase := []byte(form.Get("passphrase"))
	defer clear(passphrase)
	if err != nil || !form.Has("passphrase") {
		q.say(w, http.StatusBadRequest, "The form could not be read.")
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.finished():
		q.gone(w)
		return
	case form.Has("decline"):
		q.say(w, http.StatusOK, "Declined. Nothing was changed; you can close this page.")
		q.finish(ErrDeclined)
		return
	}
	again, err := q.check(passphrase)
	q.tries++
	switch {
	case err == nil:
		q.say(w, http.StatusOK, "Done. You can close this page.")
		q.finish(nil)
	case again && q.tries < maxTries:
		q.form(w, http.StatusForbidden, err.Error())
	default:
		q.say(w, http.StatusForbidden, "That did not work: "+err.Error())
		q.finish(err)
	}
}

func (q *question) gone(w http.ResponseWriter) {
	q.say(w, http.StatusGone, "This page was already used, or has expired. You can close it.")
}

const (
	style = `body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;padding:0 1em;color:#111;background:#fff}` +
		`li{overflow-wrap:anywhere}input,button{font:inherit;padding:.4em .6em}input{width:100%;box-sizing:border-box;margin:.5em 0}` +
		`.bad{color:#a00}footer{margin-top:3em;color:#555;font-size:.85em}`
	head = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>x402-wallet</title><style>` + style + `</style>`
	foot = `<footer>This page comes from x402-wallet on your own machine. It can be used once. Type your passphrase only if you asked for this yourself or know what it is for.</footer></html>`
)

// form shows the question; problem is what was wrong with the last answer.
func (q *question) form(w http.ResponseWriter, status int, problem string) {
	var b strings.Builder
	b.WriteString(head + "<h1>" + shown(q.title) + "</h1><ul>")
	for _, line := range q.lines {
		b.WriteString("<li>" + shown(line) + "</li>")
	}
	b.WriteString("</ul>")
	if problem != "" {
		b.WriteString(`<p class="bad" role="alert">` + shown(problem) + "</p>")
	}
	b.WriteString(`<form method="post" autocomplete="off"><label>Passphrase of the wallet<input type="password" name="passphrase" autofocus autocomplete="off" maxlength="1024"></label>` +
		`<button>Confirm</button> <button name="decline" value="1">Decline</button></form>` + foot)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, b.String())
}

func (q *question) say(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = io.WriteString(w, head+"<p>"+shown(text)+"</p>"+foot)
}

// shown makes any text harmless in HTML and to the eye: one line, in which what cannot be seen, or
// turns text around, is replaced.
func shown(text string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, text))
}
