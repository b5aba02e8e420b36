package history

import (
	"encoding/json"

	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// storedPayment is a payment as its row has it: of the evidence, and of the unique key, what the audit chain
// says of them.
type storedPayment struct {
	seq, created, updated, usd                int64
	id, session, agent, state, proof          string
	key                                       string // empty if it has none
	method, url, host, network, asset, symbol string
	payTo, transaction, facilitator, note     string
	stored, unique, receipt, chain            string
	untrue, delivered                         int64
	charged                                   string
	returned                                  int64  // of usd
	terms                                     string // Payment.digest of the columns
	content                                   *contentOf
}

const selectStoredPayment = `SELECT seq, id, session, state, proof, created_at, updated_at, fingerprint,
	coalesce(idempotency_key, ''), method, url, target, host, network, scheme, dialect, asset, symbol, amount,
	usd, pay_to, source, requirement, coalesce(payload, ''), coalesce(evidence, ''), coalesce(unique_key, ''),
	transaction_id, facilitator, coalesce(receipt, ''), coalesce(chain_proof, ''), note, false_receipt,
	delivered, charged, returned, agent FROM payments`

func scanStoredPayment(row sqldb.Row) (*storedPayment, error) {
	p := &storedPayment{}
	var fingerprint, target, scheme, dialect, amount, source string
	var requirement, payload, evidence, unique, receipt, chain string
	err := row.Scan(&p.seq, &p.id, &p.session, &p.state, &p.proof, &p.created, &p.updated, &fingerprint,
		&p.key, &p.method, &p.url, &target, &p.host, &p.network, &scheme, &dialect, &p.asset, &p.symbol,
		&amount, &p.usd, &p.payTo, &source, &requirement, &payload, &evidence, &unique, &p.transaction,
		&p.facilitator, &receipt, &chain, &p.note, &p.untrue, &p.delivered, &p.charged, &p.returned, &p.agent)
	p.stored, p.unique = storedDigest(requirement, payload, evidence), encodeDigest([]byte(unique))
	p.receipt, p.chain = digestOrNone(receipt), digestOrNone(chain)
	p.terms = encodeDigest(link(nil, p.usd, p.id, p.session, fingerprint, p.method, p.url, target, p.host,
		p.network, scheme, dialect, p.asset, p.symbol, amount, p.payTo, source, p.agent))
	return p, err
}

func digestOrNone(data string) string {
	if data == "" {
		return ""
	}
	return digestOf([]byte(data))
}

// signedTerms are Payment.terms of the columns.
func (p *storedPayment) signedTerms() terms {
	return Payment{Session: p.session, Agent: p.agent, Host: p.host, Network: p.network, Asset: p.asset,
		PayTo: p.payTo, Method: p.method, URL: p.url, Price: money.Dollars(p.usd)}.terms()
}

// contentOf is a row of contents, and of bodies: the bytes themselves are compared by VerifyContent, and when
// they are given out.
type contentOf struct {
	status, truncated, size, spare int64
	typ, removed                   string
	sha256                         string // as the audit chain has it
	length                         int64  // of the bytes, or -1 if they are gone
}

// contentUse is how many bytes of content are stored, and how many of them nobody got yet.
type contentUse struct{ Stored, Owed int64 }

// use is what it adds to the sums of contents; it may be nil.
func (c *contentOf) use() (u contentUse) {
	if c == nil || c.removed != "" {
		return u
	}
	u.Stored = c.size
	if c.spare != 1 {
		u.Owed = c.size
	}
	return u
}

// agrees reports whether a payment's content, which is nil if it has none, is what the audit chain says was
// bought.
func (c *contentOf) agrees(p *storedPayment, bought ContentDetail) bool {
	if c == nil || bought.SHA256 == "" {
		return c == nil && bought.SHA256 == ""
	}
	spare := p.delivered == 1 || State(p.state) == Failed || !IsGood(c.status)
	return c.truncated>>1 == 0 && c.spare>>1 == 0 && (c.spare == 1) == spare &&
		(c.removed == "") == (c.length == c.size) && (c.removed == "" || c.length < 0) &&
		bought == ContentDetail{SHA256: c.sha256, Bytes: c.size, Status: c.status, Type: c.typ,
			Truncated: c.truncated == 1}
}

// step is what the details of a payment's events hold.
type step struct {
	reservedDetail
	Unique    string
	Submitted bool
	Why       string // of a hold that was released
	Charged   string // what was less than was signed for
	Returned  int64  // of its price
	outcomeDetail
	ContentDetail
}

func readStep(text string) (d step, err error) {
	err = json.Unmarshal([]byte(text), &d)
	return d, err
}

func readSignature(text string) (g signature, err error) {
	err = json.Unmarshal([]byte(text), &g)
	return g, err
}
