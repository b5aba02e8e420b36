package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mdp/qrterminal/v3"
	"golang.org/x/term"

	"x402-wallet/tools"
	"x402-wallet/wallet"
	"x402-wallet/x402"
)

// The rules of the UI:
//  1. What a program may read goes to stdout; everything said to a person about it goes to stderr.
//  2. With --json, or when stdout is not a terminal, stdout is one JSON document, the tool's own. Of pay and
//     call it is the content, and JSON only with --json.
//  3. An error says what was attempted, what would have passed, and what to do; in JSON it is
//     the tools' object.
//  4. Colour only on a terminal and never as the only sign.
//  5. A stranger's text is printed with its control characters escaped, so that it cannot drive
//     the terminal.
//  6. Nothing is asked that can be found out, and nothing secret is echoed.
//  7. An answer that could not be written is a failure: a pipe that broke must not look like
//     nothing to tell.
type ui struct {
	out  *output
	err  io.Writer
	json bool
	page bool // the owner is asked on a page
	// given is what the owner typed last, where keeps says that this command needs it twice, as for a change
	// of two files; nil: nothing yet. No question is answered with it but by who asks for it by name.
	given []byte
	keeps bool
	line  string // the command, as it was typed

	terminal           bool // stdout is one
	errTerminal        bool // stderr is one
	colorOut, colorErr bool
	columns            int // of the terminal that stdout is; 0: it is none, or does not say

	progress  *time.Timer // of what takes long
	prompting atomic.Bool // a person is being asked
}

func newUI(stdout *os.File, stderr io.Writer, noColor bool) *ui {
	u := &ui{out: &output{w: stdout}, err: stderr, terminal: isTerminal(stdout),
		errTerminal: isTerminal(stderr)}
	u.colorOut, u.colorErr = u.terminal && !noColor, u.errTerminal && !noColor
	if width, _, err := term.GetSize(int(stdout.Fd())); u.terminal && err == nil {
		u.columns = width
	}
	return u
}

func isTerminal(w any) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// output remembers the first failure of its writer.
type output struct {
	w   io.Writer
	bad error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.w.Write(p)
	if err != nil && o.bad == nil {
		o.bad = err
	}
	return n, err
}

// note tells the person something beside the answer.
func (u *ui) note(format string, args ...any) { fmt.Fprintf(u.err, format+"\n", args...) }

func (u *ui) warn(list []string) {
	for _, warning := range list {
		u.note("%s %s", paint(u.colorErr, yellow, "warning:"), safe(warning))
	}
}

func (u *ui) say(format string, args ...any) { fmt.Fprintf(u.out, format+"\n", args...) }

func (u *ui) printJSON(v any) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := u.out.Write(tools.Visible(text.Bytes()))
	return err
}

// answer prints what a command answers: v for a program, by show for a person.
func (u *ui) answer(v any, show func()) error {
	if u.json {
		return u.printJSON(v)
	}
	show()
	return nil
}

// answerChecked is answer of a command that fails unless ok.
func (u *ui) answerChecked(v any, ok bool, show func()) error {
	err := u.answer(v, show)
	if err == nil && !ok {
		return exitError(exitFailed)
	}
	return err
}

// answerLine is answer where a person gets one line.
func (u *ui) answerLine(v any, format string, args ...any) error {
	return u.answer(v, func() { u.say(format, args...) })
}

// problem prints an error: for a program on stdout, for a person on stderr.
func (u *ui) problem(e *x402.Error) {
	if u.json && u.out.bad == nil && u.printJSON(tools.ErrorOf(e)) == nil {
		return
	}
	u.note("%s %s", paint(u.colorErr, red, string(e.Code)+":"), indent(e.Message))
	if reasons, ok := e.Details["options"].([]map[string]any); ok && len(reasons) > 1 {
		// why none of several ways to pay will do
		for _, r := range reasons {
			network, _ := r["network"].(string)
			u.note("  - option %v%s: %s", r["option"], safe(on(network)), indent(fmt.Sprint(r["why"])))
		}
	}
	if e.Hint != "" {
		u.note("  %s", indent(e.Hint))
	}
	said, next := e.Message+" "+e.Hint, e.NextStep()
	if e.Next == nil {
		next.Say = "" // the message, or no more than the command
	}
	u.nextStep(next, said)
	if e.PaymentID != "" {
		u.note("  payment %s; see x402-wallet show %s", e.PaymentID, e.PaymentID)
	}
}

// nextStep prints what can be done about an error, and was not said.
func (u *ui) nextStep(next x402.Next, said string) {
	for _, text := range []string{next.Why, next.Say} {
		if text != "" && !strings.Contains(said, text) {
			u.note("  %s", indent(text))
		}
	}
	if next.Do == x402.Wait && next.At != "" {
		u.note("  not before %s", next.At)
	}
	if next.Command != "" && !strings.Contains(said, next.Command) {
		u.note("  what to do: %s", safe(next.Command))
	}
}

func on(network string) string {
	if network == "" {
		return ""
	}
	return " on " + x402.NetworkName(network)
}

// indent is safe for a text of several lines, the second and later ones further in.
func indent(s string) string { return strings.ReplaceAll(safeText(s), "\n", "\n  ") }

// wrap breaks text into rows of at most so many columns; words stay whole.
func wrap(text string, columns int) (rows []string) {
	row := ""
	for _, word := range strings.Split(text, " ") {
		if row != "" && utf8.RuneCountInString(row)+1+utf8.RuneCountInString(word) > columns {
			rows = append(rows, row)
			row = word
			continue
		}
		row = strings.TrimPrefix(row+" "+word, " ")
	}
	return append(rows, row)
}

// ANSI colours.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	bold   = "1"
	dim    = "2"
)

func paint(colored bool, color, text string) string {
	if !colored {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// table prints aligned columns. Rows may end early; no header is none.
func (u *ui) table(header []string, rows [][]string) { u.painted(header, rows, nil) }

// painted is table with colours: of says the colour of a cell, "" for none. They are put on after
// the columns were aligned, which does not count them.
func (u *ui) painted(header []string, rows [][]string, of func(row, column int) string) {
	shown := [][]string{}
	if header != nil {
		shown = append(shown, header)
	}
	for _, row := range rows {
		cells := make([]string, max(len(row), len(header)))
		for i := range row {
			cells[i] = safe(row[i])
		}
		shown = append(shown, cells)
	}
	var widths []int
	for _, row := range shown {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for r, row := range shown {
		var line strings.Builder
		gap := 0
		for c, cell := range row {
			color := ""
			switch {
			case header != nil && r == 0:
				color = bold
			case of != nil:
				color = of(r-len(shown)+len(rows), c)
			}
			if cell == "" {
				gap += widths[c] + 2
				continue
			}
			line.WriteString(strings.Repeat(" ", gap) + paint(u.colorOut && color != "", color, cell))
			gap = widths[c] - utf8.RuneCountInString(cell) + 2
		}
		u.say("%s", line.String())
	}
}

// each is f of every element; never nil, so that JSON has a list.
func each[T, U any](list []T, f func(T) U) []U {
	out := make([]U, 0, len(list))
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// qr prints a QR code. On a terminal with colours it is black on white whatever the terminal's own
// are: some readers do not know the inverse.
func (u *ui) qr(text string) {
	var code bytes.Buffer
	qrterminal.GenerateHalfBlock(text, qrterminal.L, &code)
	for line := range strings.Lines(code.String()) {
		u.say("%s", paint(u.colorOut, "97;40", strings.TrimSuffix(line, "\n")))
	}
}

func moment(rfc3339 string) string {
	t, err := time.Parse(time.RFC3339, rfc3339)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.DateTime)
}

// safe escapes what could drive a terminal or reorder text, as Go and JSON would write it: control,
// format and private characters, line and paragraph separators, and bytes that are no text.
// Newlines stay only in content (safeText).
func safe(s string) string { return escape(s, "") }

// safeText is safe for text of several lines; tabs stay too.
func safeText(s string) string { return escape(strings.ReplaceAll(s, "\r\n", "\n"), "\n\t") }

func escape(s, keep string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], string(utf8.RuneError)):
			// one byte that is no text
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case strings.ContainsRune(keep, r) || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl,
			unicode.Zp):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
	}
	return b.String()
}

// patience is how long a command is silent before it says what it waits for, and repeat how long
// before it says so again.
const (
	patience = time.Second
	repeat   = 5 * time.Second
)

// waiting tells a person on stderr what takes long, if it does, and that it still does; the
// returned function ends it.
func (u *ui) waiting(what string) (done func()) {
	return u.waitingFor(func() string { return what })
}

// waitingFor is waiting for what changes meanwhile.
func (u *ui) waitingFor(what func() string) (done func()) {
	if !u.errTerminal {
		return func() {}
	}
	began := time.Now()
	var ended atomic.Bool
	u.progress = time.AfterFunc(patience, func() {
		if waited := time.Since(began); waited < repeat {
			u.note("%s ...", what())
		} else {
			u.note("%s ... (%d s)", what(), waited/time.Second)
		}
		if !ended.Load() {
			u.progress.Reset(repeat)
		}
	})
	return func() {
		ended.Store(true)
		u.progress.Stop()
	}
}

// asking keeps that quiet while a person is asked, so that nothing is written into the prompt.
func (u *ui) asking(source wallet.Passphrase) wallet.Passphrase {
	return func(ctx context.Context) ([]byte, error) {
		if u.progress != nil && u.progress.Stop() {
			defer u.progress.Reset(patience)
		}
		u.prompting.Store(true)
		given, err := source(ctx)
		u.prompting.Store(ctx.Err() != nil) // who left it stays there
		if ctx.Err() != nil && u.errTerminal {
			u.note("") // the prompt's own line has no end
		}
		return given, err
	}
}
