package wallet

import (
	"bytes"
	"context"
	"strings"
	"time"

	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
)

// A payment by Permit2: one transfer of one token to one payee, or into one channel of this wallet's, by a
// contract of x402's that can do nothing else with it. Who may draw on the permit, and in which contract, is
// written here and comes from nobody.

// The contracts, at these addresses on every chain.
const (
	permit2Contract = "0x000000000022D473030F116dDEE9F6B43aC78BA3"
	exactProxy      = "0x402085c248EeA27D92E8b30b2C58ed07f9E20001"
	uptoProxy       = "0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002"
	// permitCollector has deposits moved into channels (batch.go).
	permitCollector = "0x4020425FAf3B746C082C2f942b4E5159887B0005"
)

// PermitTransfer is the message of a payment by Permit2. Addresses are 0x and 40 hex digits in any letter
// case.
type PermitTransfer struct {
	ChainID   uint64
	Token     string
	From, To  string
	Value     [32]byte // atomic units, big endian
	NotBefore uint64   // Unix seconds
	Deadline  uint64   // Unix seconds
	Nonce     [32]byte
	// Facilitator is the only account that may settle it, and for less than Value if it likes; "": anybody
	// may, for exactly Value.
	Facilitator string
	// Into is the channel of this wallet that it deposits into, in place of To; nil: it pays To.
	Into *PaymentChannel
	// Approval and ApprovalGas let Permit2 move Value of the token, one by EIP-2612 until Deadline, the
	// other by a transaction of From; nil: it may already.
	Approval    *TokenApproval
	ApprovalGas *ApprovalGas
}

// TokenApproval is an approval by EIP-2612. All else in it is the payment's: its value, owner and deadline,
// and Permit2 as the spender.
type TokenApproval struct {
	Name, Version string // of the token's EIP-712 domain
	Nonce         [32]byte
}

// ApprovalGas is what the transaction of an approval has of its own (Permit2Approval). All else in it is the
// payment's.
type ApprovalGas struct {
	Nonce, Gas  uint64
	Tip, MaxFee [32]byte // wei for each gas, big endian
}

// SignPermit2 signs t with the secp256k1 key, as SignEVM does a transfer, and its approval if it has one.
// Errors: "the wallet does not sign this" for what is not a payment out of this wallet that ends within a
// day; those of [Wallet.Unlock].
func (a *Account) SignPermit2(ctx context.Context, t PermitTransfer) (permit, approval [65]byte, err error) {
	if err := t.check(a.self().evm, a.wallet.now()); err != nil {
		return permit, approval, err
	}
	permits, err := t.order()
	if err != nil {
		return permit, approval, err
	}
	var approves Order
	if g := t.ApprovalGas; g != nil {
		approves, err = Permit2Approval{ChainID: t.ChainID, Nonce: g.Nonce, Gas: g.Gas, Tip: g.Tip,
			MaxFee: g.MaxFee, Token: t.Token, Amount: t.Value}.order(t.From)
	} else if t.Approval != nil {
		approves, err = t.approvalOrder()
	}
	if err != nil {
		return permit, approval, err
	}
	permit, err = a.signEVM(ctx, permits)
	if err != nil || (t.Approval == nil && t.ApprovalGas == nil) {
		return permit, approval, err
	}
	approval, err = a.signEVM(ctx, approves)
	return permit, approval, err
}

// check refuses everything but a payment out of the account self that is valid now.
func (t *PermitTransfer) check(self string, now time.Time) error {
	seconds := uint64(max(now.Unix(), 0))
	parties := t.checkParties
	if t.Into != nil {
		parties = t.checkDeposit
	}
	if err := parties(self); err != nil {
		return err
	}
	switch {
	case t.Value == [32]byte{}:
		return coded.Unsupported("it pays nothing")
	case t.ChainID == 0:
		return coded.Unsupported("it names no chain")
	case t.Deadline <= seconds || t.Deadline > seconds+uint64(maxLife/time.Second) || t.NotBefore > seconds:
		return coded.Unsupported("it is not valid now, or for longer than %v", maxLife)
	case t.Approval != nil && t.ApprovalGas != nil:
		return coded.Unsupported("it is approved twice")
	case t.Approval != nil && (t.Approval.Name == "" || t.Approval.Version == ""):
		return coded.Unsupported("its approval names no token")
	}
	return nil
}

// checkParties refuses what another pays, what pays nobody, and what nobody could settle.
func (t *PermitTransfer) checkParties(self string) error {
	token, from, to := curve.AddressWord(t.Token), curve.AddressWord(t.From), curve.AddressWord(t.To)
	facilitator := curve.AddressWord(t.Facilitator)
	var zero [32]byte
	switch {
	case token == nil || from == nil || to == nil || bytes.Equal(token, zero[:]):
		return coded.Unsupported("an address in it is not one")
	case t.Facilitator != "" && (facilitator == nil || bytes.Equal(facilitator, zero[:])):
		return coded.Unsupported("who may settle it is no address")
	case !bytes.Equal(from, curve.AddressWord(self)):
		return coded.Unsupported("it spends from another account than this wallet's")
	case bytes.Equal(to, from) || bytes.Equal(to, zero[:]) || bytes.Equal(to, token):
		return coded.Unsupported("it pays nobody")
	case isPermit2s(to) || isPermit2s(token):
		return coded.Unsupported("it pays a contract of Permit2's")
	}
	return nil
}

// checkDeposit refuses what is no deposit of this wallet's into a channel of its own.
func (t *PermitTransfer) checkDeposit(self string) error {
	if err := t.Into.check(self); err != nil {
		return err
	}
	token := curve.AddressWord(t.Token)
	switch {
	case t.Into.Payer != "" || !bytes.Equal(curve.AddressWord(t.From), curve.AddressWord(self)):
		return coded.Unsupported("the channel is an owner's, who signs for it themselves")
	case t.Into.ChainID != t.ChainID || !bytes.Equal(curve.AddressWord(t.Into.Token), token):
		return coded.Unsupported("the channel is of another token")
	case t.To != "" || t.Facilitator != "" || t.NotBefore != 0 || isPermit2s(token):
		return coded.Unsupported("it is no deposit")
	case !isChannelAmount(t.Value):
		return coded.Unsupported("it deposits nothing, or more than a channel can hold")
	}
	return nil
}

func isPermit2s(address []byte) bool {
	for _, contract := range []string{permit2Contract, exactProxy, uptoProxy} {
		if bytes.Equal(address, curve.AddressWord(contract)) {
			return true
		}
	}
	return false
}

// The EIP-712 types, spelled as they are hashed (Permit2's SignatureTransfer, EIP-2612). Permit2's domain has
// no version.
const (
	permit2DomainType  = "EIP712Domain(string name,uint256 chainId,address verifyingContract)"
	permissionsType    = "TokenPermissions(address token,uint256 amount)"
	exactWitnessType   = "Witness(address to,uint256 validAfter)"
	uptoWitnessType    = "Witness(address to,address facilitator,uint256 validAfter)"
	depositWitnessType = "DepositWitness(bytes32 channelId)"
	witnessPermitType  = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender," +
		"uint256 nonce,uint256 deadline,Witness witness)"
	depositPermitType = "PermitWitnessTransferFrom(TokenPermissions permitted,address spender," +
		"uint256 nonce,uint256 deadline,DepositWitness witness)"
	approvalType = "Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)"
)

// digest is keccak256(0x1901 ‖ domainSeparator ‖ hashStruct) (EIP-712), of a message that check has accepted.
func (t *PermitTransfer) digest() [32]byte {
	domain := curve.HashWords(curve.Keccak256([]byte(permit2DomainType)), curve.Keccak256([]byte("Permit2")),
		curve.UintWord(t.ChainID), curve.AddressWord(permit2Contract))
	w := t.witness()
	message := curve.HashWords(
		curve.Keccak256([]byte(strings.Join(w.types, ""))),
		curve.HashWords(curve.Keccak256([]byte(permissionsType)), curve.AddressWord(t.Token), t.Value[:]),
		curve.AddressWord(w.spender), t.Nonce[:], curve.UintWord(t.Deadline), w.hash)
	return [32]byte(curve.HashWords([]byte{0x19, 0x01}, domain, message))
}

// permitWitness is what a message says of what its money is for.
type permitWitness struct {
	spender string
	types   []string // of the message, in the order in which they are hashed
	hash    []byte
	members map[string]any // as typed data writes them
}

func (t *PermitTransfer) witness() permitWitness {
	after := curve.UintWord(t.NotBefore)
	switch {
	case t.Into != nil:
		id := t.Into.id(t.From)
		return permitWitness{permitCollector,
			[]string{depositPermitType, depositWitnessType, permissionsType},
			curve.HashWords(curve.Keccak256([]byte(depositWitnessType)), id[:]),
			map[string]any{"channelId": hex0x(id[:])}}
	case t.Facilitator != "":
		return permitWitness{uptoProxy, []string{witnessPermitType, permissionsType, uptoWitnessType},
			curve.HashWords(curve.Keccak256([]byte(uptoWitnessType)), curve.AddressWord(t.To),
				curve.AddressWord(t.Facilitator), after),
			map[string]any{"to": t.To, "facilitator": t.Facilitator, "validAfter": number(t.NotBefore)}}
	}
	return permitWitness{exactProxy, []string{witnessPermitType, permissionsType, exactWitnessType},
		curve.HashWords(curve.Keccak256([]byte(exactWitnessType)), curve.AddressWord(t.To), after),
		map[string]any{"to": t.To, "validAfter": number(t.NotBefore)}}
}

func (t *PermitTransfer) approvalDigest() [32]byte {
	a := t.Approval
	domain := curve.HashWords(curve.Keccak256([]byte(domainType)), curve.Keccak256([]byte(a.Name)),
		curve.Keccak256([]byte(a.Version)),
		curve.UintWord(t.ChainID), curve.AddressWord(t.Token))
	message := curve.HashWords(curve.Keccak256([]byte(approvalType)), curve.AddressWord(t.From),
		curve.AddressWord(permit2Contract),
		t.Value[:], a.Nonce[:], curve.UintWord(t.Deadline))
	return [32]byte(curve.HashWords([]byte{0x19, 0x01}, domain, message))
}
