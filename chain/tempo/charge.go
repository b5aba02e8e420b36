package tempo

import (
	"bytes"
	"slices"
	"time"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The networks.
const (
	Mainnet uint64 = 4217
	Testnet uint64 = 42431 // Moderato
)

const (
	// maxRequest is the longest request of a challenge, in bytes (mppx 0.11).
	maxRequest = 16 << 10
	maxSplits  = 10
)

// Charge is what a challenge asks for.
type Charge struct {
	ChainID       uint64
	Amount        money.Amount // in units of the token, all splits in it
	Currency      common.Address
	Recipient     common.Address
	Splits        []Transfer
	SellerPaysFee bool
	// Pull: the seller may be given a signed transaction. Push: or the hash of one that the payer has sent.
	Pull, Push bool
	// Memo is one that the request names. mppx's sellers name none, and take none but that of Memo.
	Memo    *common.Hash
	Expires time.Time
}

type request struct {
	Amount    string `json:"amount"`
	Currency  string `json:"currency"`
	Recipient string `json:"recipient"`
	Details   struct {
		ChainID  uint64   `json:"chainId"`
		FeePayer bool     `json:"feePayer"`
		Splits   []split  `json:"splits"`
		Modes    []string `json:"supportedModes"`
		Memo     string   `json:"memo"`
	} `json:"methodDetails"`
}

type split struct {
	Amount    string `json:"amount"`
	Recipient string `json:"recipient"`
	Memo      string `json:"memo"`
}

// ReadCharge reads the request of a challenge, in JSON, that ends at expires. Whether that is over, and
// whether the owner has the token, is the caller's to say. Every error is INVALID_REQUIREMENT.
func ReadCharge(text []byte, expires time.Time) (c Charge, err error) {
	var r request
	if err := x402.DecodeStrict(text, maxRequest, &r); err != nil {
		return c, invalid("the request cannot be read: %w", err)
	}
	switch id := r.Details.ChainID; {
	case id == 0:
		return c, invalid("the request names no chainId: the main net and the test net are told apart by it")
	case id != Mainnet && id != Testnet:
		return c, invalid("the chain %d is not Tempo, nor its test net", id)
	case expires.IsZero():
		return c, invalid("the challenge does not say when it expires")
	}
	c = Charge{ChainID: r.Details.ChainID, SellerPaysFee: r.Details.FeePayer, Expires: expires}
	c.Amount, err = readAmount(r.Amount)
	if err != nil {
		return c, err
	}
	c.Currency, err = message.ParseAddress(r.Currency)
	if err != nil || !isToken(c.Currency) {
		return c, invalid("the currency is not the address of a TIP-20 token")
	}
	c.Recipient, err = readRecipient(r.Recipient)
	if err != nil {
		return c, err
	}
	modes := r.Details.Modes
	c.Pull = modes == nil || slices.Contains(modes, "pull")
	c.Push = modes == nil || slices.Contains(modes, "push")
	if !c.Pull && !c.Push {
		return c, invalid("supportedModes has neither pull nor push")
	}
	c.Memo, err = readMemo(r.Details.Memo)
	if err != nil {
		return c, err
	}
	err = c.readSplits(r.Details.Splits)
	return c, err
}

// readSplits reads what others than the recipient get of the amount.
func (c *Charge) readSplits(splits []split) error {
	if len(splits) > maxSplits {
		return invalid("more than %d splits", maxSplits)
	}
	var sum money.Amount
	for _, s := range splits {
		amount, err := readAmount(s.Amount)
		if err != nil {
			return err
		}
		to, err := readRecipient(s.Recipient)
		if err != nil {
			return err
		}
		memo, err := readMemo(s.Memo)
		if err != nil {
			return err
		}
		next, fits := sum.Add(amount)
		if !fits || next.Cmp(c.Amount) >= 0 {
			return invalid("the splits leave the recipient nothing of the amount")
		}
		sum = next
		c.Splits = append(c.Splits, Transfer{To: to, Amount: amount, Memo: memo})
	}
	return nil
}

// Transfers are what the charge is paid by: the first is the recipient's, with memo, and then each split.
func (c Charge) Transfers(memo common.Hash) []Transfer {
	rest := c.Amount
	for _, s := range c.Splits {
		rest = rest.SubFloor(s.Amount)
	}
	return append([]Transfer{{To: c.Recipient, Amount: rest, Memo: &memo}}, c.Splits...)
}

// readAmount reads units. A charge of none asks for a proof of who asks, which is no transaction.
func readAmount(text string) (money.Amount, error) {
	amount, err := money.ParseAmount(text)
	if err != nil {
		return amount, invalid("an amount is not a decimal of units: %w", err)
	}
	if amount.IsZero() {
		return amount, invalid("an amount is zero")
	}
	return amount, nil
}

func readRecipient(text string) (common.Address, error) {
	address, err := message.ParseAddress(text)
	if err != nil || address == (common.Address{}) {
		return address, invalid("a recipient is not an address")
	}
	return address, nil
}

// readMemo reads an optional memo.
func readMemo(text string) (*common.Hash, error) {
	if text == "" {
		return nil, nil
	}
	var memo common.Hash
	if err := message.DecodeHex(memo[:], text); err != nil {
		return nil, invalid("a memo is not 32 bytes in hexadecimal")
	}
	return &memo, nil
}

// isToken reports whether an address is one of TIP-20, which all begin with 20c0 and ten zero bytes.
func isToken(address common.Address) bool {
	return bytes.HasPrefix(address[:], append([]byte{0x20, 0xc0}, make([]byte, 10)...))
}

func invalid(format string, args ...any) *x402.Error {
	return x402.Errorf(x402.InvalidRequirement, "MPP tempo/charge: "+format, args...)
}
