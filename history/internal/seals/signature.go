package seals

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"x402-wallet/history/internal/memory"
	"x402-wallet/history/sqldb"
	"x402-wallet/x402/money"
)

// Signature is what a sealed row says of one, and the terms of its payment.
type Signature struct {
	ID          string         `json:"id"`  // of the payment
	Row         string         `json:"row"` // history.Payment.digest
	SessionCap  *money.Dollars `json:"sessionCap,omitempty"`
	Created     int64          `json:"created"` // microseconds
	Key         string         `json:"key,omitempty"`
	Unique      string         `json:"unique"`              // hash of its nonce or our signature
	Evidence    string         `json:"evidence"`            // digest of what the chain is asked by
	SignedBytes string         `json:"sha256,omitempty"`    // digest of what was signed, if it is not stored yet
	Stored      string         `json:"stored"`              // audit.StoredDigest
	Submitted   bool           `json:"submitted,omitempty"` // it may leave: the record has the payload
	Voucher     *Voucher       `json:"voucher,omitempty"`
	Fact        *Fact          `json:"fact,omitempty"`

	Terms
}

// Fact is a value that a scheme seals under a name.
type Fact struct {
	Name  string `json:"name"`
	Value []byte `json:"value"`
}

// GivenBack is what a sealed row says of a signature whose money is free again: all of it, because it
// expired, or what was not charged.
type GivenBack struct {
	Unique    string    `json:"unique"`
	Charged   string    `json:"charged,omitempty"`  // what was less than was signed for
	Returned  int64     `json:"returned,omitempty"` // of its price
	Signature Signature `json:"signature"`
}

// Read is what a sealed row's detail holds: a Signature, or a GivenBack.
func Read[T Signature | GivenBack](detail string) (d T, err error) {
	err = json.Unmarshal([]byte(detail), &d)
	return d, err
}

// Terms are those columns of a payment, all in its digest, that sums and memory are made of.
type Terms struct {
	Session  string        `json:"session"`
	Agent    string        `json:"agent,omitempty"`
	Host     string        `json:"host"`
	Network  string        `json:"network"`
	Asset    string        `json:"asset"`
	PayTo    string        `json:"payTo"`
	Resource string        `json:"resource"`
	Price    money.Dollars `json:"price"`
}

// Voucher is how far a sealed row takes a channel.
type Voucher struct {
	Service  string `json:"service"`
	Key      string `json:"key"`
	Position string `json:"position"`
}

func (g Signature) created() time.Time { return sqldb.FromMicros(g.Created) }

// The owner's rules about payees and prices go by what was signed, whatever became of it: a person who agreed
// to a payee is not asked again because that payment expired.

// PayeeKey names who was paid.
func PayeeKey(network, payTo string) []byte {
	return memory.Key("payee", network, payee(network, payTo))
}

// SellerKey names whom a host had paid last.
func SellerKey(host, network, asset string) []byte { return memory.Key("seller", host, network, asset) }

// PaidHereKey names who was paid for a host.
func PaidHereKey(host, network, asset, payTo string) []byte {
	return memory.Key("paid here", host, network, asset, payee(network, payTo))
}

// PriceKey names what a resource cost last.
func PriceKey(resource string) []byte { return memory.Key("price", resource) }

// IdempotencyKey is an agent's; callers without a name have theirs in common.
func IdempotencyKey(agent, key string) []byte { return memory.Key("idempotency key", key, agent) }

// SignInKey names a host that was signed in at.
func SignInKey(host string) []byte { return memory.Key("signed in", host) }

// ExpiredKey names a payment whose signature expired.
func ExpiredKey(payment string) []byte { return memory.Key("expired", payment) }

// ChargedKey names a payment that was charged less than was signed for.
func ChargedKey(payment string) []byte { return memory.Key("charged", payment) }

// ChannelKey names how far a channel has come.
func ChannelKey(service, key string) []byte { return memory.Key("channel", service, key) }

// FactKey names a scheme's fact.
func FactKey(name string) []byte { return memory.Key("fact", name) }

// payee is the payTo as payments are compared by it.
func payee(network, payTo string) string { return money.NewAsset(network, payTo).Address }

// Entry is what the memory keeps of a voucher.
func (v *Voucher) Entry() memory.Entry {
	return memory.Entry{Key: ChannelKey(v.Service, v.Key), Value: []byte(v.Position)}
}

// Remembered is what a signature adds to the memory.
func (g Signature) Remembered() []memory.Entry {
	yes := []byte{1}
	if g.PayTo == "" { // a sign-in: nobody is paid, and no price is one to compare with
		return []memory.Entry{{Key: SignInKey(g.Host), Value: yes}}
	}
	entries := []memory.Entry{
		{Key: PayeeKey(g.Network, g.PayTo), Value: yes},
		{Key: PaidHereKey(g.Host, g.Network, g.Asset, g.PayTo), Value: yes},
		{Key: SellerKey(g.Host, g.Network, g.Asset), Value: []byte(g.PayTo)},
	}
	if g.Price > 0 { // a voucher's was counted with its deposit, and is no price to compare with
		entries = append(entries, memory.Entry{Key: PriceKey(g.Resource),
			Value: binary.BigEndian.AppendUint64(nil, uint64(g.Price))})
	}
	if g.Key != "" {
		entries = append(entries, memory.Entry{Key: IdempotencyKey(g.Agent, g.Key), Value: []byte(g.ID)})
	}
	if g.Voucher != nil {
		entries = append(entries, g.Voucher.Entry())
	}
	if g.Fact != nil {
		entries = append(entries, memory.Entry{Key: FactKey(g.Fact.Name), Value: g.Fact.Value})
	}
	return entries
}
