package payload

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/ethereum/go-ethereum/common"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// EncodePermit2 joins the very bytes that were checked with the signature over them.
func EncodePermit2(authorization []byte, signature [65]byte) (json.RawMessage, error) {
	return json.Marshal(struct {
		Signature     string          `json:"signature"`
		Authorization json.RawMessage `json:"permit2Authorization"`
	}{message.Hex(signature[:]), authorization})
}

// RecoverPermit2 reads a payload of Permit2 strictly, as Recover does one of EIP-3009: both keys and no
// other, the signature made by permit2Authorization.from for that network. A well formed payload that
// somebody else signed is an ErrSignature. It asks no chain: allowance, balance, nonce, times, payee,
// amount, token and facilitator are the caller's to compare. Signatures of contracts (ERC-1271) are not
// read: they need a node.
func RecoverPermit2(network string, payload []byte) (from string, a message.Permit2Authorization, err error) {
	if len(payload) > message.MaxPayload {
		return "", a, fmt.Errorf("%w: longer than %d bytes", message.ErrPayload, message.MaxPayload)
	}
	parts, err := message.Members(payload, "permit2Authorization", "signature")
	if err != nil {
		return "", a, err
	}
	if a, err = message.DecodePermit2(parts[0]); err != nil {
		return "", a, err
	}
	signature, err := decodeSignature(parts[1])
	if err != nil {
		return "", a, err
	}
	digest, err := Permit2Digest(network, a)
	if err != nil {
		return "", a, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	return a.From, a, signedBy(a.From, digest, signature)
}

func decodeSignature(raw json.RawMessage) (signature [65]byte, err error) {
	var text string
	err = json.Unmarshal(raw, &text)
	if err == nil {
		err = message.DecodeHex(signature[:], text)
	}
	if err != nil {
		err = fmt.Errorf("%w: signature: %w", message.ErrPayload, err)
	}
	return signature, err
}

func signedBy(address string, digest [32]byte, signature [65]byte) error {
	signer, err := message.SignerOf(digest, signature)
	if err == nil && !message.SameAddress(signer.Hex(), address) {
		err = fmt.Errorf("%w: it is by %s", message.ErrSignature, signer.Hex())
	}
	return err
}

// IsPermit2 reports whether a payload says that it is one of Permit2; whether it is, RecoverPermit2 says.
func IsPermit2(payload []byte) bool {
	var all map[string]json.RawMessage
	if x402.DecodeStrict(payload, message.MaxPayload, &all) != nil {
		return false
	}
	_, is := all["permit2Authorization"]
	return is
}

// permitJSON is what a buyer adds to the extension's info.
type permitJSON struct {
	From      string `json:"from"`
	Asset     string `json:"asset"`
	Spender   string `json:"spender"`
	Amount    string `json:"amount"`
	Nonce     string `json:"nonce"`
	Deadline  string `json:"deadline"`
	Signature string `json:"signature"`
}

// EncodePermit is the extension with what a buyer adds to it: {"info":{…}}.
func EncodePermit(asset x402.AssetInfo, p message.Permit, signature [65]byte) (json.RawMessage, error) {
	return json.Marshal(map[string]permitJSON{"info": {
		From: p.Owner, Asset: common.HexToAddress(asset.Address).Hex(), Spender: message.Permit2Address,
		Amount: p.Value.String(), Nonce: p.Nonce.String(), Deadline: strconv.FormatInt(p.Deadline, 10),
		Signature: message.Hex(signature[:]),
	}})
}

// RecoverPermit reads the info of the extension in a payment, {"info":{…}}, and checks that its owner
// signed it in the domain of asset, for Permit2. Members that a seller put there stay unread.
func RecoverPermit(asset x402.AssetInfo, extension []byte) (p message.Permit, err error) {
	var sent struct {
		Info map[string]json.RawMessage `json:"info"`
	}
	if err := x402.DecodeStrict(extension, maxExtension, &sent); err != nil {
		return p, fmt.Errorf("%w: the extension: %w", message.ErrPayload, err)
	}
	var texts [6]string
	for i, name := range []string{"from", "asset", "spender", "amount", "nonce", "deadline"} {
		if json.Unmarshal(sent.Info[name], &texts[i]) != nil {
			return p, fmt.Errorf("%w: %s is no string", message.ErrPayload, name)
		}
	}
	var errs [6]error
	p.Owner, errs[0] = message.Address(texts[0])
	token, errToken := message.Address(texts[1])
	spender, errSpender := message.Address(texts[2])
	errs[1], errs[2] = errToken, errSpender
	p.Value, errs[3] = money.ParseAmount(texts[3])
	p.Nonce, errs[4] = money.ParseAmount(texts[4])
	p.Deadline, errs[5] = message.ParseSeconds(texts[5])
	if err := errors.Join(errs[:]...); err != nil {
		return p, fmt.Errorf("%w: the permit: %w", message.ErrPayload, err)
	}
	if !message.SameAddress(token, asset.Address) || !message.SameAddress(spender, message.Permit2Address) {
		return p, fmt.Errorf("%w: it is for another token, or another spender than Permit2",
			message.ErrPayload)
	}
	signature, err := decodeSignature(sent.Info["signature"])
	if err != nil {
		return p, err
	}
	digest, err := PermitDigest(asset, p)
	if err != nil {
		return p, fmt.Errorf("%w: %w", message.ErrPayload, err)
	}
	return p, signedBy(p.Owner, digest, signature)
}

// maxExtension bounds an extension that is read, in bytes: a seller's schema may be in it.
const maxExtension = 16 << 10

// approvalJSON is what a buyer adds to the extension's info.
type approvalJSON struct {
	From              string `json:"from"`
	Asset             string `json:"asset"`
	Spender           string `json:"spender"`
	Amount            string `json:"amount"`
	SignedTransaction string `json:"signedTransaction"`
}

// EncodeApproval is the extension with what a buyer adds to it: {"info":{…}}, once the signature is shown to
// be the payer's.
func EncodeApproval(d message.PermitDraft, signature [65]byte) (json.RawMessage, error) {
	tx, err := ApprovalTransaction(d)
	if err != nil {
		return nil, err
	}
	a := d.Authorization
	signed, _, err := tx.Signed(signature, a.From)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]approvalJSON{"info": {From: a.From, Asset: a.Token,
		Spender: message.Permit2Address, Amount: a.Amount.String(), SignedTransaction: message.Hex(signed)}})
}
