package receipt

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	tempotx "x402-wallet/chain/tempo"
	tempo "x402-wallet/chain/tempo/decode"
	"x402-wallet/x402"
)

// transfer is the signed transaction of a payment on Tempo.
func (r *examined) transfer() (t tempo.Payment, err error) {
	var inner struct {
		Signature string `json:"signature"`
	}
	if err := json.Unmarshal(r.payload, &inner); err != nil {
		return t, errors.New("no transaction is signed")
	}
	signed, err := hex.DecodeString(strings.TrimPrefix(inner.Signature, "0x"))
	if err != nil {
		return t, errors.New("no transaction is signed")
	}
	t, err = tempo.Rules{}.Transaction(signed)
	if err == nil && len(t.Transfers) != 1 {
		err = errors.New("what is signed pays several")
	}
	return t, err
}

// onTempo compares the signed transaction with the payment, which is the transfer and what the network took.
func (r *examined) onTempo() error {
	t, err := r.transfer()
	if err != nil {
		return err
	}
	p, most := r.Payment, t.Total
	if !t.SellerPaysFee {
		most, _ = most.Add(t.Fee())
	}
	chain, _ := x402.ChainID(p.Network)
	switch {
	case !strings.EqualFold(t.Sender, p.Payer):
		return fmt.Errorf("%s signed it", t.Sender)
	case !strings.EqualFold(t.Transfers[0].To, p.PayTo):
		return fmt.Errorf("what is signed pays %s", t.Transfers[0].To)
	case !strings.EqualFold(t.Token, r.token.Address) || t.ChainID != chain:
		return fmt.Errorf("what is signed is of %s on eip155:%d", t.Token, t.ChainID)
	case p.Amount.Cmp(t.Total) < 0 || p.Amount.Cmp(most) > 0:
		return fmt.Errorf("what is signed is from %s to %s", t.Total, most)
	case p.UpTo != nil && p.UpTo.Cmp(most) > 0:
		return fmt.Errorf("what is signed is at most %s", most)
	}
	return nil
}

// memo compares the memo of the transfer with the challenge.
func (r *examined) memo(c *x402.Charge) error {
	t, err := r.transfer()
	if err != nil {
		return err
	}
	wanted := c.Memo
	if wanted == "" {
		wanted = tempotx.Memo(c.Realm, "", c.ID).Hex()
	}
	if t.Transfers[0].Memo != wanted {
		return errors.New("another challenge was answered")
	}
	return nil
}
