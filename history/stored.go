package history

import (
	"errors"
	"io"
	"math"
	"strconv"
	"strings"

	"x402-wallet/x402/money"
)

// storedPayment is a payment as the tables have it: of what is packed, and of the unique key, what the audit
// chain says of them. Its texts are parts of the pages that they were read from.
type storedPayment struct {
	seq, created, updated, usd                int64
	id, session, agent, state, proof          string
	key                                       string // "": none
	method, url, host, network, asset, symbol string
	payTo, transaction, facilitator, note     string
	record, unique, receipt, chain            string
	untrue, delivered, prefixLength           int64
	charged                                   string
	returned                                  int64  // of usd
	prefix                                    string // of the URL: what sums are kept by
	terms                                     string // Payment.digest of the columns
	isFound                                   bool   // x402_history finds it by what it is, and adds it up so
	content                                   *storedContent
}

// The kinds of the tables' columns: see isOfKind.
const (
	paymentKinds = "#ttttiibT" + "tttttttttt" + "ittbBttBB" + "tittii" + "tit"
	searchKinds  = "#tittit"
	contentKinds = "#itiibit"
	bodyKinds    = "#b"
)

// storedReader goes through the payments, with what the tables beside have of each.
type storedReader struct {
	payments                 *tree
	search, contents, bodies *beside
	texts                    keptTexts
}

// beside is a table in which there may be a row of a payment's number.
type beside struct {
	*tree
	isTaken bool // the row that it stands at: the next one is read when it is asked for
	done    bool
}

// storedPayments begins to read the payments behind a number; io.EOF: there is none.
func (t *tx) storedPayments(after int64) (next func() (*storedPayment, error), err error) {
	r := &storedReader{texts: keptTexts{}}
	r.payments, err = t.openTree("payments", paymentKinds, after)
	if err == nil {
		r.search, err = t.openBeside("payment_search", searchKinds, after, false)
	}
	if err == nil {
		r.contents, err = t.openBeside("contents", contentKinds, after, false)
	}
	if err == nil {
		r.bodies, err = t.openBeside("bodies", bodyKinds, after, true)
	}
	return r.next, err
}

// openBeside opens such a table.
func (t *tx) openBeside(table, kinds string, after int64, isBrief bool) (*beside, error) {
	rows, err := t.openTree(table, kinds, after)
	if err != nil {
		return nil, err
	}
	rows.isBrief = isBrief
	return &beside{tree: rows, isTaken: true}, nil
}

// of reports whether there is a row of a payment, and takes it. One of a payment before, which nobody took,
// is refused.
func (b *beside) of(payment int64) (bool, error) {
	if b.isTaken {
		err := b.next()
		b.done = errors.Is(err, io.EOF)
		if err != nil && !b.done {
			return false, err
		}
	}
	if !b.done && b.row.number < payment {
		return false, b.ofNone()
	}
	b.isTaken = !b.done && b.row.number == payment
	return b.isTaken, nil
}

func (b *beside) ofNone() error {
	return corrupt("row %d of %s is of no payment that the audit chain has", b.row.number, b.table)
}

func (r *storedReader) next() (*storedPayment, error) {
	err := r.payments.next()
	if errors.Is(err, io.EOF) {
		for _, b := range []*beside{r.search, r.contents, r.bodies} {
			isThere, err := b.of(math.MaxInt64)
			if err != nil || isThere {
				return nil, cmpOr(err, b.ofNone())
			}
		}
	}
	if err != nil {
		return nil, err
	}
	p := storedFrom(&r.payments.row)
	r.texts.keep(&p.session, &p.agent, &p.host, &p.network, &p.symbol, &p.prefix)
	isFound, err := r.search.of(p.seq)
	if err == nil {
		p.isFound = isFound && p.isFoundBy(&r.search.row)
		p.content, err = r.content(p.seq)
	}
	return p, err
}

// storedFrom is the payment in a row.
func storedFrom(v *record) *storedPayment {
	p := &storedPayment{seq: v.number, id: v.text(1), session: v.text(2), state: v.text(3), proof: v.text(4),
		created: v.int(5), updated: v.int(6), key: v.text(8), method: v.text(9), url: v.text(10),
		host: v.text(12), network: v.text(13), asset: v.text(16), symbol: v.text(17), usd: v.int(19),
		payTo: v.text(20), record: digestOf([]byte(v.text(22))), unique: encodeDigest([]byte(v.text(23))),
		transaction: v.text(24), facilitator: v.text(25), receipt: digestOrNone(v.text(26)),
		chain: digestOrNone(v.text(27)), note: v.text(28), untrue: v.int(29), delivered: v.int(32),
		prefixLength: v.int(33), charged: v.text(34), returned: v.int(35), agent: v.text(36)}
	if p.key == "" && !v.isNull(8) {
		p.key = "empty" // which it never is
	}
	p.prefix = firstCharacters(p.url, p.prefixLength)
	p.terms = encodeDigest(link(nil, p.usd, p.id, p.session, v.text(7), p.method, p.url, v.text(11), p.host,
		p.network, v.text(14), v.text(15), p.asset, p.symbol, v.text(18), p.payTo,
		strconv.FormatInt(p.prefixLength, 10), v.text(21), p.agent))
	return p
}

func digestOrNone(data string) string {
	if data == "" {
		return ""
	}
	return digestOf([]byte(data))
}

// isFoundBy compares a payment with its row of payment_search.
func (p *storedPayment) isFoundBy(v *record) bool {
	usd := p.usd - p.returned
	if State(p.state) == Failed {
		usd = 0
	}
	return isLower(v.text(1), p.url) && v.int(2) == usd && v.text(3) == p.state && v.text(4) == p.symbol &&
		v.int(5) == p.prefixLength && v.text(6) == p.agent && p.prefixLength <= characters(p.url)
}

// isLower reports whether a text is another one in small letters, as SQLite makes it: those of ASCII.
func isLower(text, of string) bool {
	if len(text) != len(of) {
		return false
	}
	for i, c := range []byte(of) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if text[i] != c {
			return false
		}
	}
	return true
}

// firstCharacters are a text's first characters, as SQLite counts them.
func firstCharacters(text string, characters int64) string {
	for i, b := range []byte(text) {
		if b&0xC0 != 0x80 {
			characters--
		}
		if characters < 0 {
			return text[:i]
		}
	}
	return text
}

// keptTexts are texts that many payments have: a copy of each, without the page that it was read from.
type keptTexts map[string]string

// maxKeptTexts bounds them.
const maxKeptTexts = 1 << 14

func (k keptTexts) keep(texts ...*string) {
	for _, text := range texts {
		known, isKnown := k[*text]
		if !isKnown {
			if len(k) == maxKeptTexts {
				clear(k)
			}
			known = strings.Clone(*text)
			k[known] = known
		}
		*text = known
	}
}

// signedTerms are Payment.terms of the columns.
func (p *storedPayment) signedTerms() terms {
	return Payment{Session: p.session, Agent: p.agent, Host: p.host, Network: p.network, Asset: p.asset, PayTo: p.payTo,
		Method: p.method, URL: p.url, Price: money.Dollars(p.usd)}.terms()
}

// storedContent is a row of contents, and of bodies: the bytes themselves are compared by VerifyContent, and
// when they are given out.
type storedContent struct {
	status, truncated, size, spare int64
	typ, removed                   string
	sha256                         string // as the audit chain has it
	length                         int64  // of the bytes that are there; -1: there are none
}

// content is that of a payment; nil: it has none.
func (r *storedReader) content(payment int64) (c *storedContent, err error) {
	is, err := r.contents.of(payment)
	if err != nil || !is {
		return nil, err
	}
	v := &r.contents.row
	c = &storedContent{status: v.int(1), typ: v.text(2), truncated: v.int(3), size: v.int(4),
		sha256: encodeDigest([]byte(v.text(5))), spare: v.int(6), removed: v.text(7), length: -1}
	isThere, err := r.bodies.of(payment)
	if err == nil && isThere {
		c.length = int64(r.bodies.row.values[1].length())
	}
	return c, err
}

// agrees reports whether a payment's content, or none (nil), is what the audit chain says was bought, where
// it says anything.
func (c *storedContent) agrees(p *storedPayment, bought contentDetail) bool {
	if c == nil || bought.SHA256 == "" {
		return c == nil && bought.SHA256 == ""
	}
	spare := p.delivered == 1 || State(p.state) == Failed || c.status < 200 || c.status > 299
	return c.truncated>>1 == 0 && c.spare>>1 == 0 && (c.spare == 1) == spare &&
		(c.removed == "") == (c.length == c.size) && (c.removed == "" || c.length < 0) &&
		bought == contentDetail{SHA256: c.sha256, Bytes: c.size, Status: c.status, Type: c.typ,
			Truncated: c.truncated == 1}
}
