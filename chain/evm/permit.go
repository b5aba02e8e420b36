package evm

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The extension eip2612GasSponsoring: Permit2 may move a token only after its holder has approved that, and
// where the token knows EIP-2612 a signature does it, which the facilitator brings to the chain together with
// the payment. It is signed with such a payment alone, for Permit2 alone and for the payment's amount.

// permitType is the EIP-712 type of EIP-2612, in the token's own domain.
const permitType = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"

// Permit is EIP-2612's message: it lets Permit2 move Value of the owner's token.
type Permit struct {
	Owner    string // EIP-55
	Value    money.Amount
	Nonce    money.Amount // the token's nonces(owner)
	Deadline int64        // Unix seconds
}

// PermitDigest is what is signed for p in the domain that the registry knows for asset; the spender is always
// Permit2.
func PermitDigest(asset x402.AssetInfo, p Permit) (digest [32]byte, err error) {
	domain, err := domainSeparator(asset)
	if err != nil {
		return digest, err
	}
	owner, err := parseAddress(p.Owner)
	if err != nil {
		return digest, err
	}
	if p.Deadline < 0 {
		return digest, errors.New("a time before 1970")
	}
	value, nonce := p.Value.Bytes32(), p.Nonce.Bytes32()
	message := crypto.Keccak256(crypto.Keccak256([]byte(permitType)), wordOf(owner),
		wordOf(common.HexToAddress(Permit2Address)), value[:], nonce[:], wordOfUint(uint64(p.Deadline)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], message), nil
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

// encodePermit is the extension with what a buyer adds to it: {"info":{…}}.
func encodePermit(asset x402.AssetInfo, p Permit, signature [65]byte) (json.RawMessage, error) {
	return json.Marshal(map[string]permitJSON{"info": {
		From: p.Owner, Asset: common.HexToAddress(asset.Address).Hex(), Spender: Permit2Address,
		Amount: p.Value.String(), Nonce: p.Nonce.String(), Deadline: strconv.FormatInt(p.Deadline, 10),
		Signature: hexText(signature[:]),
	}})
}

// RecoverPermit reads the info of the extension in a payment, {"info":{…}}, and checks that its owner
// signed it in the domain of asset, for Permit2. Members that a seller put there stay unread.
func RecoverPermit(asset x402.AssetInfo, extension []byte) (p Permit, err error) {
	var sent struct {
		Info map[string]json.RawMessage `json:"info"`
	}
	if err := x402.DecodeStrict(extension, maxExtension, &sent); err != nil {
		return p, fmt.Errorf("%w: the extension: %w", errPayload, err)
	}
	var texts [6]string
	for i, name := range []string{"from", "asset", "spender", "amount", "nonce", "deadline"} {
		if json.Unmarshal(sent.Info[name], &texts[i]) != nil {
			return p, fmt.Errorf("%w: %s is no string", errPayload, name)
		}
	}
	var errs [6]error
	p.Owner, errs[0] = Address(texts[0])
	token, errToken := Address(texts[1])
	spender, errSpender := Address(texts[2])
	errs[1], errs[2] = errToken, errSpender
	p.Value, errs[3] = money.ParseAmount(texts[3])
	p.Nonce, errs[4] = money.ParseAmount(texts[4])
	p.Deadline, errs[5] = parseSeconds(texts[5])
	if err := errors.Join(errs[:]...); err != nil {
		return p, fmt.Errorf("%w: the permit: %w", errPayload, err)
	}
	if !sameAddress(token, asset.Address) || !sameAddress(spender, Permit2Address) {
		return p, fmt.Errorf("%w: it is for another token, or another spender than Permit2", errPayload)
	}
	signature, err := decodeSignature(sent.Info["signature"])
	if err != nil {
		return p, err
	}
	digest, err := PermitDigest(asset, p)
	if err != nil {
		return p, fmt.Errorf("%w: %w", errPayload, err)
	}
	return p, signedBy(p.Owner, digest, signature)
}

// maxExtension bounds an extension that is read, in bytes: a seller's schema may be in it.
const maxExtension = 16 << 10

func hexText(b []byte) string { return "0x" + hex.EncodeToString(b) }
