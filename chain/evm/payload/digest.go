package payload

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/crypto"

	"x402-wallet/chain/evm/message"
	"x402-wallet/x402"
	"x402-wallet/x402/money"
)

// The digests that signatures are over (EIP-712), and the JSON of messages. Package wallet has code of its
// own for the digests.

// The EIP-712 types, spelled as they are hashed (Permit2's SignatureTransfer; @x402/evm 2.27). Permit2's
// domain has no version. Members of a struct's type come in the order of their names.
const (
	permit2DomainType = "EIP712Domain(string name,uint256 chainId,address verifyingContract)"
	permit2Name       = "Permit2"
	tokenPermissions  = "TokenPermissions(address token,uint256 amount)"
	exactWitness      = "Witness(address to,uint256 validAfter)"
	uptoWitness       = "Witness(address to,address facilitator,uint256 validAfter)"
	depositWitness    = "DepositWitness(bytes32 channelId)"
	witnessTransfer   = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender," +
		"uint256 nonce,uint256 deadline,"
)

// transferType is the EIP-712 type, spelled as it is hashed (EIP-3009).
const transferType = "TransferWithAuthorization(address from,address to,uint256 value,uint256 " +
	"validAfter,uint256 validBefore,bytes32 nonce)"

// ReceiveType is that of a deposit into a channel (EIP-3009).
const ReceiveType = "ReceiveWithAuthorization(address from,address to,uint256 value,uint256 " +
	"validAfter,uint256 validBefore,bytes32 nonce)"

// Digest is what is signed for a: keccak256(0x1901 ‖ domainSeparator ‖ hashStruct) (EIP-712), in
// the domain that the registry knows for asset. The chain id is the one in asset.Network.
func Digest(asset x402.AssetInfo, a message.Authorization3009) (digest [32]byte, err error) {
	return digestOf(transferType, asset, a)
}

// digestOf is Digest of one of EIP-3009's two messages, which differ in their names alone.
func digestOf(messageType string, asset x402.AssetInfo, a message.Authorization3009) (digest [32]byte,
	err error) {
	domain, err := message.DomainSeparator(asset)
	if err != nil {
		return digest, err
	}
	from, errFrom := message.ParseAddress(a.From)
	to, errTo := message.ParseAddress(a.To)
	if err := errors.Join(errFrom, errTo); err != nil {
		return digest, err
	}
	if a.ValidAfter < 0 || a.ValidBefore < 0 {
		return digest, errors.New("a time before 1970")
	}
	value := a.Value.Bytes32()
	hashed := crypto.Keccak256(crypto.Keccak256([]byte(messageType)), message.Word(from), message.Word(to),
		value[:],
		message.WordOfUint(uint64(a.ValidAfter)), message.WordOfUint(uint64(a.ValidBefore)), a.Nonce[:])
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], hashed), nil
}

// authorizationJSON is the message in JSON, its keys in the reference client's order.
type authorizationJSON struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Value       string `json:"value"`
	ValidAfter  string `json:"validAfter"`
	ValidBefore string `json:"validBefore"`
	Nonce       string `json:"nonce"`
}

// EncodeAuthorization writes the `authorization` object.
func EncodeAuthorization(a message.Authorization3009) ([]byte, error) {
	return json.Marshal(authorizationJSON{
		From: a.From, To: a.To, Value: a.Value.String(),
		ValidAfter: strconv.FormatInt(a.ValidAfter, 10), ValidBefore: strconv.FormatInt(a.ValidBefore, 10),
		Nonce: "0x" + hex.EncodeToString(a.Nonce[:]),
	})
}

// ChargeNonce is the nonce of the only payment that a challenge of MPP can be answered with: of two, the
// token takes one (draft-evm-charge; mppx 0.11).
func ChargeNonce(c *x402.Charge) [32]byte {
	return crypto.Keccak256Hash([]byte(c.ID), []byte(c.Realm))
}

// permitType is the EIP-712 type of EIP-2612, in the token's own domain.
const permitType = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"

// PermitDigest is what is signed for p in the domain that the registry knows for asset; the spender is always
// Permit2.
func PermitDigest(asset x402.AssetInfo, p message.Permit) (digest [32]byte, err error) {
	domain, err := message.DomainSeparator(asset)
	if err != nil {
		return digest, err
	}
	owner, err := message.ParseAddress(p.Owner)
	if err != nil {
		return digest, err
	}
	if p.Deadline < 0 {
		return digest, errors.New("a time before 1970")
	}
	value, nonce := p.Value.Bytes32(), p.Nonce.Bytes32()
	hashed := crypto.Keccak256(crypto.Keccak256([]byte(permitType)), message.Word(owner),
		message.Word(common.HexToAddress(message.Permit2Address)), value[:], nonce[:],
		message.WordOfUint(uint64(p.Deadline)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain[:], hashed), nil
}

// Permit2Digest is what is signed for a on a network: keccak256(0x1901 ‖ domainSeparator ‖ hashStruct)
// (EIP-712). A spender that is none of x402's, or with the witness of another one, is an error.
func Permit2Digest(network string, a message.Permit2Authorization) (digest [32]byte, err error) {
	chain, err := message.ChainID(network)
	if err != nil {
		return digest, err
	}
	_, errFrom := message.ParseAddress(a.From)
	token, errToken := message.ParseAddress(a.Token)
	spender, errSpender := message.ParseAddress(a.Spender)
	if err := errors.Join(errFrom, errToken, errSpender); err != nil {
		return digest, err
	}
	if a.ValidAfter < 0 || a.Deadline < 0 {
		return digest, errors.New("a time before 1970")
	}
	witness, kinds, err := witnessOf(a)
	if err != nil {
		return digest, err
	}
	amount := a.Amount.Bytes32()
	permitted := crypto.Keccak256(crypto.Keccak256([]byte(tokenPermissions)), message.Word(token), amount[:])
	hashed := crypto.Keccak256(crypto.Keccak256([]byte(witnessTransfer+kinds)), permitted,
		message.Word(spender), a.Nonce[:], message.WordOfUint(uint64(a.Deadline)), witness)
	domain := crypto.Keccak256(crypto.Keccak256([]byte(permit2DomainType)),
		crypto.Keccak256([]byte(permit2Name)), message.WordOfUint(chain),
		message.Word(common.HexToAddress(message.Permit2Address)))
	return crypto.Keccak256Hash([]byte{0x19, 0x01}, domain, hashed), nil
}

// permit2JSON is the message in JSON, its keys in the reference client's order.
type permit2JSON struct {
	From      string        `json:"from"`
	Permitted permittedJSON `json:"permitted"`
	Spender   string        `json:"spender"`
	Nonce     string        `json:"nonce"`
	Deadline  string        `json:"deadline"`
	Witness   witnessJSON   `json:"witness"`
}

type permittedJSON struct {
	Token  string `json:"token"`
	Amount string `json:"amount"`
}

type witnessJSON struct {
	To          string `json:"to"`
	Facilitator string `json:"facilitator,omitempty"`
	ValidAfter  string `json:"validAfter"`
}

// EncodePermit2Authorization writes the `permit2Authorization` object.
func EncodePermit2Authorization(a message.Permit2Authorization) ([]byte, error) {
	return json.Marshal(permit2JSON{
		From: a.From, Permitted: permittedJSON{Token: a.Token, Amount: a.Amount.String()}, Spender: a.Spender,
		Nonce: message.AmountOf(a.Nonce[:]).String(), Deadline: strconv.FormatInt(a.Deadline, 10),
		Witness: witnessJSON{To: a.To, Facilitator: a.Facilitator,
			ValidAfter: strconv.FormatInt(a.ValidAfter, 10)},
	})
}

// ApprovalTransaction is the transaction that d's signer signs.
func ApprovalTransaction(d message.PermitDraft) (tx message.Transaction, err error) {
	chain, err := message.ChainID(d.Asset.Network)
	if err != nil {
		return tx, err
	}
	a, g := d.Authorization, d.Transaction
	return message.Transaction{ChainID: chain, Nonce: g.Nonce, Gas: g.Gas, Tip: g.Tip, MaxFee: g.MaxFee,
		To: common.HexToAddress(a.Token).Bytes(),
		Data: ApproveData(common.HexToAddress(message.Permit2Address),
			a.Amount)}, nil
}

// PermitDigests are those of the permit, and of the approval that goes with it if there is one.
func PermitDigests(d message.PermitDraft) ([][32]byte, error) {
	switch {
	case d.Approval != nil:
		approval, err := PermitDigest(d.Asset, *d.Approval)
		return [][32]byte{d.Digest, approval}, err
	case d.Transaction != nil:
		tx, err := ApprovalTransaction(d)
		if err != nil {
			return nil, err
		}
		unsigned, err := tx.Encode()
		return [][32]byte{d.Digest, crypto.Keccak256Hash(unsigned)}, err
	}
	return [][32]byte{d.Digest}, nil
}

// witnessOf is hashStruct of the witness, and the end of the message's type, which names it.
func witnessOf(a message.Permit2Authorization) (hash []byte, kinds string, err error) {
	isDeposit := message.SameAddress(a.Spender, message.PermitCollector)
	if isDeposit && a.To == "" && a.Facilitator == "" && a.ValidAfter == 0 && a.Channel != (common.Hash{}) {
		return crypto.Keccak256(crypto.Keccak256([]byte(depositWitness)), a.Channel[:]),
			"DepositWitness witness)" + depositWitness + tokenPermissions, nil
	}
	to, err := message.ParseAddress(a.To)
	if err != nil {
		return nil, "", fmt.Errorf("the payee: %w", err)
	}
	after, kind := message.WordOfUint(uint64(a.ValidAfter)), exactWitness
	isPayment := a.Channel == (common.Hash{})
	switch {
	case isPayment && message.SameAddress(a.Spender, message.ExactProxy) && a.Facilitator == "":
		hash = crypto.Keccak256(crypto.Keccak256([]byte(kind)), message.Word(to), after)
	case isPayment && a.IsUpto():
		facilitator, err := message.ParseAddress(a.Facilitator)
		if err != nil {
			return nil, "", fmt.Errorf("the facilitator: %w", err)
		}
		kind = uptoWitness
		hash = crypto.Keccak256(crypto.Keccak256([]byte(kind)), message.Word(to), message.Word(facilitator),
			after)
	default:
		return nil, "", errors.New("the spender is none of x402's, or its witness another's")
	}
	return hash, "Witness witness)" + tokenPermissions + kind, nil
}

// CheckChannel refuses a voucher that is not signed by who signs for the channel, and a deposit that is
// not signed by its payer.
func CheckChannel(m message.Channel, s message.Signatures) error {
	id, err := message.ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return err
	}
	digest, err := message.VoucherDigest(m.Asset.Network, id, m.Ceiling)
	if err != nil {
		return err
	}
	by, err := message.SignerOf(digest, s.Voucher)
	if err != nil || !message.SameAddress(by.Hex(), m.Config.PayerAuthorizer) {
		return fmt.Errorf("the voucher: %w: %w", message.ErrSignature, err)
	}
	if m.Deposit == nil {
		return nil
	}
	return CheckDeposit(m.Asset, m.Config, *m.Deposit, s.Deposit)
}

// ChannelDigests are those of the voucher, of the deposit that goes with it, and of the deposit's approval,
// as far as they are there.
func ChannelDigests(m message.Channel) (digests [][32]byte, err error) {
	id, err := message.ChannelID(m.Asset.Network, m.Config)
	if err != nil {
		return nil, err
	}
	voucher, err := message.VoucherDigest(m.Asset.Network, id, m.Ceiling)
	if err != nil || m.Deposit == nil {
		return [][32]byte{voucher}, err
	}
	deposit, err := DepositDigest(m.Asset, m.Config, *m.Deposit)
	if err != nil || !m.Deposit.ByPermit2 {
		return [][32]byte{voucher, deposit}, err
	}
	d, err := m.PermitDraft()
	if err != nil {
		return nil, err
	}
	d.Digest = deposit
	permits, err := PermitDigests(d)
	return append([][32]byte{voucher}, permits...), err
}

// DepositDigest is what its payer signs for a deposit into a channel.
func DepositDigest(asset x402.AssetInfo, c x402.ChannelConfig, d message.Deposit) (digest [32]byte,
	err error) {
	if d.ByPermit2 {
		permit, err := d.Permit(asset.Network, c)
		if err != nil {
			return digest, err
		}
		return Permit2Digest(asset.Network, permit)
	}
	a, err := d.Authorization(asset.Network, c)
	if err != nil {
		return digest, err
	}
	return digestOf(ReceiveType, asset, a)
}

// CheckDeposit refuses a deposit into a channel that is not signed by its payer.
func CheckDeposit(asset x402.AssetInfo, c x402.ChannelConfig, d message.Deposit, signature [65]byte) error {
	digest, err := DepositDigest(asset, c, d)
	if err != nil {
		return err
	}
	by, err := message.SignerOf(digest, signature)
	if err != nil || !message.SameAddress(by.Hex(), c.Payer) {
		return fmt.Errorf("the deposit: %w: %w", message.ErrSignature, err)
	}
	return nil
}

// selectApprove is of approve(address,uint256).
var selectApprove = []byte{0x09, 0x5e, 0xa7, 0xb3}

// ApproveData calls approve of a token (ERC-20): the spender may move an amount from now on.
func ApproveData(spender common.Address, amount money.Amount) []byte {
	word := amount.Bytes32()
	return slices.Concat(selectApprove, message.Word(spender), word[:])
}

// RecoverDigest is who signed a digest, in EIP-55, with the rules of today's tokens (SignerOf).
func RecoverDigest(digest [32]byte, signature [65]byte) (address string, err error) {
	by, err := message.SignerOf(digest, signature)
	if err != nil {
		return "", err
	}
	return by.Hex(), nil
}
