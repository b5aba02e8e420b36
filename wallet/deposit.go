package wallet

import "bytes"

// SignDeposit is that of an owner, into a channel that they fund, in which agent signs the vouchers. i is
// their key, from their own file and never stored.
func (i Imported) SignDeposit(agent string, d ChannelDeposit) (sig [65]byte, err error) {
	if SecretOf(i.PrivateKey) == nil || i.Chain != ChainEVM {
		return sig, unsupported("it takes the owner's EVM key")
	}
	if !bytes.Equal(addressWord(d.Channel.Payer), addressWord(i.Address)) {
		return sig, unsupported("the channel is funded by another account")
	}
	o, err := d.order(agent, i.Address)
	if err != nil {
		return sig, err
	}
	return i.signDigest(o.Digest)
}
