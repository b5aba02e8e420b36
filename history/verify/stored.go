package verify

import (
	"x402-wallet/history"
	"x402-wallet/history/internal/audit"
	"x402-wallet/history/internal/seals"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// stored is a payment as its row has it: of the evidence, and of the unique key, what the audit chain says of
// them.
type stored struct {
	number, created, updated, usd             int64
	id, session, agent, state, proof          string
	key                                       string // empty if it has none
	method, url, host, network, asset, symbol string
	payTo, transaction, facilitator, note     string
	record, unique, receipt, chainProof       string // digests
	untrue, delivered                         int64
	charged                                   string
	returned                                  int64    // of usd
	terms                                     string   // the digest of the columns that never change
	content                                   *content // nil: none
}

const selectStored = `SELECT seq, id, session, state, proof, created_at, updated_at, fingerprint,
	coalesce(idempotency_key, ''), method, url, target, host, network, scheme, dialect, asset, symbol, amount,
	usd, pay_to, source, requirement, coalesce(payload, ''), coalesce(evidence, ''), coalesce(unique_key, ''),
	transaction_id, facilitator, coalesce(receipt, ''), coalesce(chain_proof, ''), note, false_receipt,
	delivered, charged, returned, agent FROM payments`

func scanStored(row sqldb.Row) (*stored, error) {
	p := &stored{}
	var fingerprint, target, scheme, dialect, amount, source string
	var requirement, payload, evidence, unique, receipt, chainProof string
	err := row.Scan(&p.number, &p.id, &p.session, &p.state, &p.proof, &p.created, &p.updated, &fingerprint,
		&p.key, &p.method, &p.url, &target, &p.host, &p.network, &scheme, &dialect, &p.asset, &p.symbol,
		&amount, &p.usd, &p.payTo, &source, &requirement, &payload, &evidence, &unique, &p.transaction,
		&p.facilitator, &receipt, &chainProof, &p.note, &p.untrue, &p.delivered, &p.charged, &p.returned,
		&p.agent)
	p.record = audit.StoredDigest(requirement, payload, evidence)
	p.unique = audit.EncodeDigest([]byte(unique))
	p.receipt, p.chainProof = digestOrNone(receipt), digestOrNone(chainProof)
	p.terms = audit.EncodeDigest(audit.Link(nil, p.usd, p.id, p.session, fingerprint, p.method, p.url, target,
		p.host, p.network, scheme, dialect, p.asset, p.symbol, amount, p.payTo, source, p.agent))
	return p, err
}

func digestOrNone(data string) string {
	if data == "" {
		return ""
	}
	return audit.Digest([]byte(data))
}

// signedTerms are what a signature says of the columns.
func (p *stored) signedTerms() seals.Terms {
	return seals.Terms{Session: p.session, Agent: p.agent, Host: p.host, Network: p.network, Asset: p.asset,
		PayTo: p.payTo, Resource: history.Payment{Host: p.host, Method: p.method, URL: p.url}.Resource(),
		Price: money.Dollars(p.usd)}
}

// content is a row of contents, and of bodies: the bytes themselves Content compares.
type content struct {
	status, truncated, size, spare int64
	typ, headers, removed          string
	sha256                         string // as the audit chain has it
	length                         int64  // of the bytes, or -1 if they are gone
}

const selectContent = `SELECT payment, http_status, type, headers, truncated, size, sha256, spare, removed,
	coalesce((SELECT length(body) FROM bodies WHERE bodies.payment = contents.payment), -1) FROM contents`

func scanContent(row sqldb.Row) (payment int64, c *content, err error) {
	c = &content{}
	var digest []byte
	err = row.Scan(&payment, &c.status, &c.typ, &c.headers, &c.truncated, &c.size, &digest, &c.spare,
		&c.removed, &c.length)
	c.sha256 = audit.EncodeDigest(digest)
	return payment, c, err
}

// agrees reports whether a payment's content is what the audit chain says was bought.
func (c *content) agrees(p *stored, bought audit.ContentDetail) bool {
	if c == nil || bought.SHA256 == "" {
		return c == nil && bought.SHA256 == ""
	}
	isGood := c.status >= 200 && c.status <= 299
	spare := p.delivered == 1 || p.state == audit.FailedEvent || !isGood
	return c.truncated>>1 == 0 && c.spare>>1 == 0 && (c.spare == 1) == spare &&
		(c.removed == "") == (c.length == c.size) && (c.removed == "" || c.length < 0) &&
		bought == audit.ContentDetail{SHA256: c.sha256, Bytes: c.size, Status: c.status, Type: c.typ,
			Headers: c.headers, Truncated: c.truncated == 1}
}

// contentUse is the row of content_use: how many bytes are stored, and of these, how many nobody got yet.
type contentUse struct{ stored, owed int64 }

// add adds a content, unless its bytes were removed.
func (u *contentUse) add(c *content) {
	if c == nil || c.removed != "" {
		return
	}
	u.stored += c.size
	if c.spare != 1 {
		u.owed += c.size
	}
}
