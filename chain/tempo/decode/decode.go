// Package decode reads payments on Tempo from their very bytes: a signed transaction of type 0x76, or what is
// signed of one that nobody has signed yet.
//
// What must stay true: it shares no code with package tempo, which builds payments, nor with go-ethereum, by
// which they are built. So whoever compares the bytes with the order before they are signed does not ask the
// builder what it built. And bytes are read in one way only: another spelling of the same payment is refused.
//
// The files: decode.go (the transaction), rlp.go (the encoding that it is written in).
package decode

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"

	"x402-wallet/x402/money"
	"x402-wallet/x402/signatures"
)

// Payment is a transaction that does nothing but transfer one token, read. Addresses, memos and hashes are 0x
// and hexadecimal in lower case.
type Payment struct {
	ChainID                 uint64
	Tip, MaxFee             uint64 // for each gas, in 10^-18 dollars
	Gas                     uint64
	Token                   string
	Transfers               []Transfer   // at least one; the first has a memo
	Total                   money.Amount // of all transfers
	NonceKey                [32]byte     // all ones unless Rules.AnyNonceKey
	Nonce                   uint64       // likewise 0
	ValidBefore, ValidAfter uint64       // Unix seconds; ValidAfter may be 0
	SellerPaysFee           bool         // by a signature that is added
	FeeToken                string       // of a fee that the payer bears; "" leaves it to the chain
	SignHash                [32]byte     // what is signed
	// Sender is who signed; "": it is not signed.
	Sender string
	// Hash is the transaction's on the chain; "" where it is not signed, or the seller signs it yet.
	Hash string
}

// Transfer is one call of the token.
type Transfer struct {
	To     string
	Amount money.Amount
	Memo   string // "": none
}

// Fee is the most that the network may take of the account that bears it, in units of a token (6 decimals).
func (p Payment) Fee() money.Amount {
	const perUnit = 1_000_000_000_000 // 10^-18 dollars
	high, low := bits.Mul64(p.Gas, p.MaxFee)
	if high >= perUnit {
		return money.NewAmount(math.MaxUint64)
	}
	units, rest := bits.Div64(high, low, perUnit)
	if rest > 0 && units < math.MaxUint64 {
		units++
	}
	return money.NewAmount(units)
}

// ErrLayout says that bytes are not a payment in the one layout that is read.
var ErrLayout = errors.New("not a payment's transaction on Tempo")

func layout(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrLayout, fmt.Sprintf(format, args...))
}

const (
	transactionType = 0x76
	// maxTransaction bounds what is read, in bytes: a payment with ten splits has 1,700.
	maxTransaction = 4 << 10
	// fields are those that are signed.
	fields = 13
	// signatureSize is that of a signature in a transaction, and signatureHead what RLP writes before it.
	signatureSize = 65
	signatureHead = 2
	maxTransfers  = 11 // the recipient's, and of ten splits
	addressSize   = 20
	wordSize      = 32
)

// Functions of a token: transferWithMemo(address,uint256,bytes32), transfer(address,uint256).
const (
	selectTransferWithMemo = "\x95\x77\x7d\x59"
	selectTransfer         = "\xa9\x05\x9c\xbb"
)

// expiring is the nonce key of transactions that expire.
var expiring = [32]byte(bytes.Repeat([]byte{0xff}, 32))

// Rules widen what is read.
type Rules struct {
	// AnyNonceKey reads transactions that have an order among those of their key, too.
	AnyNonceKey bool
}

// Transaction reads a signed transaction in the form of draft-tempo-charge, and says who signed it. One that
// a seller who bears the fee has signed too is refused, as is the form 0x78 in which mppx's buyers send it.
func (r Rules) Transaction(signed []byte) (p Payment, err error) {
	top, err := open(signed)
	if err != nil {
		return p, err
	}
	list, err := top.items(fields + 1)
	if err != nil {
		return p, err
	}
	last := list[fields]
	if last.isList || len(last.body) != signatureSize {
		return p, layout("its last item is not a signature of secp256k1")
	}
	body := top.body[:len(top.body)-signatureHead-signatureSize]
	p, err = r.Message(append([]byte{transactionType}, longList(body)...))
	if err != nil {
		return p, err
	}
	signature := [signatureSize]byte(last.body)
	if v := signature[signatureSize-1]; v != 27 && v != 28 {
		return p, layout("v of its signature is neither 27 nor 28")
	}
	sender, err := signatures.RecoverEVM(p.SignHash, signature) // refuses s in the upper half
	if err != nil {
		return p, layout("its signature is none")
	}
	p.Sender = strings.ToLower(sender)
	if !p.SellerPaysFee {
		hash := signatures.Keccak256(signed)
		p.Hash = hexOf(hash[:])
	}
	return p, nil
}

// Message reads what is signed of a transaction, as strictly.
func (r Rules) Message(unsigned []byte) (p Payment, err error) {
	top, err := open(unsigned)
	if err != nil {
		return p, err
	}
	list, err := top.items(fields)
	if err != nil {
		return p, err
	}
	numbers := slices.Concat(list[:4], list[7:10])
	for i, into := range []*uint64{&p.ChainID, &p.Tip, &p.MaxFee, &p.Gas, &p.Nonce, &p.ValidBefore,
		&p.ValidAfter} {
		*into, err = numbers[i].number()
		if err != nil {
			return p, err
		}
	}
	calls, accessList, nonceKey, authorizations := list[4], list[5], list[6], list[12]
	switch {
	case !accessList.isEmptyList():
		return p, layout("it has an access list")
	case !authorizations.isEmptyList():
		return p, layout("it has authorizations")
	case p.ValidBefore == 0:
		return p, layout("it has no end (validBefore)")
	case p.ValidAfter >= p.ValidBefore:
		return p, layout("it ends before it begins")
	}
	if err := p.readNonceKey(nonceKey, r); err != nil {
		return p, err
	}
	if err := p.readFeePayer(list[10], list[11]); err != nil {
		return p, err
	}
	p.SignHash = signatures.Keccak256(unsigned)
	err = p.readCalls(calls)
	return p, err
}

// open reads the type and the one list behind it.
func open(data []byte) (top item, err error) {
	if len(data) == 0 || len(data) > maxTransaction || data[0] != transactionType {
		return top, layout("not of type 0x76, or too long")
	}
	top, rest, err := next(data[1:])
	if err == nil && len(rest) != 0 {
		err = layout("something is behind its end")
	}
	return top, err
}

func (i item) isEmptyList() bool { return i.isList && len(i.body) == 0 }

// number reads an integer.
func (i item) number() (uint64, error) {
	if i.isList {
		return 0, layout("a list is where a number belongs")
	}
	return number(i.body)
}

// readNonceKey reads a number of 256 bits. Of transactions that expire each has the nonce 0.
func (p *Payment) readNonceKey(key item, r Rules) error {
	tooLong := len(key.body) > len(p.NonceKey)
	if key.isList || tooLong || bytes.HasPrefix(key.body, []byte{0}) {
		return layout("its nonce key is no number")
	}
	copy(p.NonceKey[len(p.NonceKey)-len(key.body):], key.body)
	isExpiring := p.NonceKey == expiring
	if (!isExpiring && !r.AnyNonceKey) || (isExpiring && p.Nonce != 0) {
		return layout("its nonce is not that of transactions that expire")
	}
	return nil
}

// readFeePayer reads who bears the fee, in which token. A seller who does chooses it.
func (p *Payment) readFeePayer(token, payer item) (err error) {
	p.SellerPaysFee = bytes.Equal(payer.body, []byte{0})
	if payer.isList || (len(payer.body) != 0 && !p.SellerPaysFee) {
		return layout("a fee payer's signature or address")
	}
	if !token.isList && len(token.body) == 0 {
		return nil
	}
	p.FeeToken, err = token.token()
	if err == nil && p.SellerPaysFee {
		err = layout("it names the token of a fee that it does not pay")
	}
	return err
}

// token reads the address of a TIP-20 token: 20c0, ten zero bytes, and eight others.
func (i item) token() (string, error) {
	prefix := append([]byte{0x20, 0xc0}, make([]byte, 10)...)
	if i.isList || len(i.body) != addressSize || !bytes.HasPrefix(i.body, prefix) {
		return "", layout("not the address of a TIP-20 token")
	}
	return hexOf(i.body), nil
}

// readCalls reads the transfers. All are of one token, and have no value.
func (p *Payment) readCalls(calls item) error {
	list, err := calls.all()
	if err != nil {
		return err
	}
	if len(list) == 0 || len(list) > maxTransfers {
		return layout("%d calls", len(list))
	}
	for i, call := range list {
		parts, err := call.items(3)
		if err != nil {
			return err
		}
		to, value, data := parts[0], parts[1], parts[2]
		token, err := to.token()
		if err != nil {
			return err
		}
		if value.isList || len(value.body) != 0 {
			return layout("a call has a value")
		}
		transfer, err := data.transfer()
		if err != nil {
			return err
		}
		total, fits := p.Total.Add(transfer.Amount)
		switch {
		case i == 0 && transfer.Memo == "":
			return layout("its first call is not transferWithMemo")
		case i > 0 && token != p.Token:
			return layout("it transfers two tokens")
		case !fits:
			return layout("its amounts are more than 256 bits")
		}
		p.Token, p.Total, p.Transfers = token, total, append(p.Transfers, transfer)
	}
	return nil
}

// transfer reads the data of a call.
func (i item) transfer() (t Transfer, err error) {
	text := string(i.body)
	words, hasMemo := strings.CutPrefix(text, selectTransferWithMemo)
	count := 3
	if !hasMemo {
		words, count = strings.TrimPrefix(text, selectTransfer), 2
	}
	if i.isList || len(words) == len(text) || len(words) != count*wordSize {
		return t, layout("a call is no transfer")
	}
	const gap = wordSize - addressSize
	if words[:gap] != strings.Repeat("\x00", gap) {
		return t, layout("a transfer's recipient is no address")
	}
	t.To = hexOf([]byte(words[gap:wordSize]))
	t.Amount, _ = money.AmountFromBytes([]byte(words[wordSize : 2*wordSize]))
	if hasMemo {
		t.Memo = hexOf([]byte(words[2*wordSize:]))
	}
	return t, nil
}

func hexOf(b []byte) string { return "0x" + hex.EncodeToString(b) }
