//go:build chromium

package pages

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"x402-wallet/internal/must"

	"github.com/stretchr/testify/require"
)

// browser is one page of a real Chromium, driven over its debugging pipe
// (https://chromedevtools.github.io/devtools-protocol/).
type browser struct {
	t       *testing.T
	in      io.Writer
	session string

	mu        sync.Mutex
	last      int
	waiting   map[int]chan message
	loaded    chan struct{}
	requests  []string // everything that it asked for
	complains []string // errors of the console, refusals of the content security policy, exceptions
}

type message struct {
	ID        int                       `json:"id,omitempty"`
	SessionID string                    `json:"sessionId,omitempty"`
	Method    string                    `json:"method,omitempty"`
	Params    json.RawMessage           `json:"params,omitempty"`
	Result    json.RawMessage           `json:"result,omitempty"`
	Error     *struct{ Message string } `json:"error,omitempty"`
}

// noise is what Chromium says where there is no desktop.
var noise = regexp.MustCompile(`(?m)^.*dbus/.*\n`)

const patience = time.Minute // axe-core on a long page, on a machine that does other things

func open(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	require.NotEmpty(t, program, "the screenshots need Chromium: apt-get install -y chromium")
	toIt, out, err := os.Pipe()
	require.NoError(t, err)
	in, fromIt, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--user-data-dir="+t.TempDir(),
		"--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{toIt, fromIt}
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(t, cmd.Start())
	toIt.Close()
	fromIt.Close()
	b := &browser{t: t, in: out, waiting: map[int]chan message{}, loaded: make(chan struct{}, 100)}
	go b.listen(in)
	t.Cleanup(func() {
		b.do("Browser.close", nil, nil)
		over := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		over.Stop()
		if t.Failed() {
			t.Log(noise.ReplaceAllString(said.String(), ""))
		}
	})
	var target struct{ TargetID, SessionID string }
	b.do("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	b.do("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &target)
	b.session = target.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.do(domain+".enable", nil, nil)
	}
	return b
}

func (b *browser) listen(in io.Reader) {
	lines := bufio.NewReader(in)
	for {
		text, err := lines.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		if m.ID != 0 {
			b.waiting[m.ID] <- m
			delete(b.waiting, m.ID)
		} else {
			b.event(m)
		}
		b.mu.Unlock()
	}
}

func (b *browser) event(m message) {
	var p struct {
		Request          struct{ URL string }
		Entry            struct{ Level, Text, URL string }
		Type             string
		ExceptionDetails struct{ Text string }
	}
	_ = json.Unmarshal(m.Params, &p)
	switch m.Method {
	case "Page.loadEventFired":
		b.loaded <- struct{}{}
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, p.Request.URL)
	case "Log.entryAdded":
		if p.Entry.Level == "error" || p.Entry.Level == "warning" {
			b.complains = append(b.complains, p.Entry.Text+" "+p.Entry.URL)
		}
	case "Runtime.consoleAPICalled":
		if p.Type == "error" || p.Type == "warning" {
			b.complains = append(b.complains, string(m.Params))
		}
	case "Runtime.exceptionThrown":
		b.complains = append(b.complains, p.ExceptionDetails.Text)
	}
}

func (b *browser) do(method string, params, into any) {
	b.t.Helper()
	answer := make(chan message, 1)
	b.mu.Lock()
	b.last++
	m := message{ID: b.last, SessionID: b.session, Method: method}
	if strings.HasPrefix(method, "Browser.") {
		m.SessionID = ""
	}
	b.waiting[m.ID] = answer
	b.mu.Unlock()
	if params != nil {
		m.Params, _ = json.Marshal(params)
	}
	text := must.Get(json.Marshal(m))(b.t)
	must.Get(b.in.Write(append(text, 0)))(b.t)
	select {
	case got := <-answer:
		require.Nil(b.t, got.Error, "%s: %v", method, got.Error)
		if into != nil {
			require.NoError(b.t, json.Unmarshal(got.Result, into))
		}
	case <-time.After(patience):
		b.t.Fatalf("%s: no answer", method)
	}
}

// leads does what makes the browser load another page, and waits for that.
func (b *browser) leads(how func()) {
	b.t.Helper()
	for len(b.loaded) > 0 {
		<-b.loaded
	}
	how()
	select {
	case <-b.loaded:
	case <-time.After(patience):
		b.t.Fatal("no page was loaded")
	}
}

func (b *browser) visit(url string) {
	b.t.Helper()
	b.leads(func() { b.do("Page.navigate", map[string]any{"url": url}, nil) })
}

func (b *browser) eval(code string, into any) {
	b.t.Helper()
	var out struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct{ Exception struct{ Description string } }
	}
	b.do("Runtime.evaluate", map[string]any{"expression": code, "awaitPromise": true, "returnByValue": true},
		&out)
	require.Nil(b.t, out.ExceptionDetails, "%v", out.ExceptionDetails)
	if into != nil {
		require.NoError(b.t, json.Unmarshal(out.Result.Value, into))
	}
}

func (b *browser) text() (text string) {
	b.t.Helper()
	b.eval(`document.body.innerText`, &text)
	return text
}

func (b *browser) press(key string) {
	b.t.Helper()
	k := map[string]any{"type": "keyDown", "key": key, "code": key,
		"windowsVirtualKeyCode": map[string]int{"Tab": 9, "Enter": 13}[key]}
	if key == "Enter" {
		k["text"] = "\r"
	}
	b.do("Input.dispatchKeyEvent", k, nil)
	k["type"] = "keyUp"
	b.do("Input.dispatchKeyEvent", k, nil)
}

func (b *browser) click(selector string) {
	b.t.Helper()
	var at [2]float64
	b.eval(fmt.Sprintf(`(r => [r.x + 20, r.y + r.height / 2])(document.querySelector(%q).getBoundingClientRect())`,
		selector), &at)
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		b.do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at[0], "y": at[1],
			"button": "left", "clickCount": 1}, nil)
	}
}

func (b *browser) write(text string) { b.do("Input.insertText", map[string]any{"text": text}, nil) }

// tabTo presses Tab until something is focused whose name contains a text; what is focused has to
// be seen to be.
func (b *browser) tabTo(name string) {
	b.t.Helper()
	for range 40 {
		b.press("Tab")
		var focused struct{ Name, Outline string }
		b.eval(
			`(e => ({Name: (e.labels?.[0]?.innerText ?? e.innerText ?? ""), Outline: getComputedStyle(e).outlineStyle}))(document.activeElement)`, &focused)
		if strings.Contains(focused.Name, name) {
			require.NotEqual(b.t, "none", focused.Outline, "the focus on %q is not seen", name)
			return
		}
	}
	b.t.Fatalf("no way by keyboard to %q", name)
}

type look struct {
	name  string
	width int
	dark  bool
}

var looks = []look{{"light", 1280, false}, {"dark", 1280, true}, {"narrow", 390, false},
	{"narrow-dark", 390, true}}

// shoot keeps pictures of the page, and checks each of the looks; glance only the two that differ
// most.
func (b *browser) shoot(name string)  { b.as(name, looks) }
func (b *browser) glance(name string) { b.as(name, []look{looks[0], looks[3]}) }

func (b *browser) as(name string, looks []look) {
	b.t.Helper()
	for _, l := range looks {
		scheme := "light"
		if l.dark {
			scheme = "dark"
		}
		b.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": l.width, "height": 900,
			"deviceScaleFactor": 1, "mobile": l.width < 500}, nil)
		b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{
			{"name": "prefers-color-scheme", "value": scheme}, {"name": "prefers-reduced-motion",
				"value": "reduce"}}}, nil)
		var wide []string
		b.eval(fmt.Sprintf(
			`document.documentElement.scrollWidth <= %d ? [] : [...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > %[1]d).map(e => e.outerHTML.slice(0, 200)).slice(0, 5).concat("wide")`, l.width), &wide)
		require.Empty(b.t, wide, "%s %s is wider than the screen", name, l.name)
		if len(looks) < 4 || l.name != "narrow-dark" {
			// its colours are those of dark, its order that of narrow
			b.accessible(name + " " + l.name)
		}
		b.picture(name + "-" + l.name)
	}
	b.do("Emulation.clearDeviceMetricsOverride", nil, nil)
	b.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{}}, nil)
}

func (b *browser) picture(name string) {
	b.t.Helper()
	var page struct {
		CSSContentSize struct{ Width, Height float64 } `json:"cssContentSize"`
	}
	b.do("Page.getLayoutMetrics", nil, &page)
	var shot struct{ Data string }
	b.do("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true, "clip": map[string]any{
		"x": 0, "y": 0, "width": page.CSSContentSize.Width, "height": page.CSSContentSize.Height,
		"scale": 1}}, &shot)
	png := must.Get(base64.StdEncoding.DecodeString(shot.Data))(b.t)
	require.NoError(b.t, os.WriteFile(*pictures+"/"+name+".png", png, 0o600))
}

// accessible asks axe-core, by the rules of WCAG 2.2 A and AA and its own of good practice.
func (b *browser) accessible(what string) {
	b.t.Helper()
	var there bool
	b.eval(`typeof axe === "object"`, &there)
	if !there {
		code, err := os.ReadFile("../lab/axe/node_modules/axe-core/axe.min.js")
		require.NoError(b.t, err, "run e2e/lab/prep.sh axe")
		b.eval(string(code)+"; true", nil)
	}
	var found []string
	b.eval(
		`axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`, &found)
	require.Empty(b.t, found, what)
}

// quiet fails on whatever the browser complained of, and on whatever it asked anybody else for.
func (b *browser) quiet(host string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complains { // a wrong passphrase is answered with 403
		require.Contains(b.t, c, "status of 403 (Forbidden) http://"+host)
	}
	require.NotEmpty(b.t, b.requests)
	for _, url := range b.requests {
		// of a date field, its own icon
		ours := strings.HasPrefix(url, "http://"+host+"/") || strings.HasPrefix(url, "data:")
		require.True(b.t, ours, "it asked for %s", url)
	}
}
