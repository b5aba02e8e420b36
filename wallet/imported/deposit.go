package imported

import (
	"bytes"

	"x402-wallet/wallet"
	"x402-wallet/wallet/internal/coded"
	"x402-wallet/wallet/internal/curve"
	"x402-wallet/wallet/internal/guarded"
)

// SignDeposit is that of an owner, into a channel that they fund, in which agent signs the vouchers. i is
// their key, from their own file and never stored.
func (i Key) SignDeposit(agent string, d wallet.ChannelDeposit) (sig [65]byte, err error) {
	if guarded.SecretOf(i.PrivateKey) == nil || i.Chain != wallet.ChainEVM {
		return sig, coded.Unsupported("it takes the owner's EVM key")
	}
	if !bytes.Equal(curve.AddressWord(d.Channel.Payer), curve.AddressWord(i.Address)) {
		return sig, coded.Unsupported("the channel is funded by another account")
	}
	o, err := d.Order(agent, i.Address)
	if err != nil {
		return sig, err
	}
	return i.signDigest(o.Digest)
}
