package wire

import (
	"time"

	"x402-wallet/x402"
)

// SignInOffer is what a challenge asks to be signed (extension sign-in-with-x): a message without an
// account, and the chains whose accounts may sign it.
type SignInOffer struct {
	info   x402.SignIn
	chains []signInChain
}

type signInChain struct {
	ChainID         string `json:"chainId"`
	Type            string `json:"type"`
	SignatureScheme string `json:"signatureScheme"`
}

// AsksSignInOnly reports whether a challenge sells nothing, and asks who is there.
func (c *Challenge) AsksSignInOnly() bool {
	return len(c.Accepts) == 0 && len(c.Unreadable) == 0 && !x402.IsNull(c.Extensions[x402.ExtensionSignIn])
}

// SignInOffer reads what the challenge asks to be signed; nil: nothing, or nothing that can be read.
func (c *Challenge) SignInOffer() *SignInOffer {
	raw := c.Extensions[x402.ExtensionSignIn]
	var said struct {
		Info            x402.SignIn   `json:"info"`
		SupportedChains []signInChain `json:"supportedChains"`
	}
	if x402.IsNull(raw) || x402.DecodeStrict(raw, x402.MaxHeader, &said) != nil {
		return nil
	}
	o := &SignInOffer{info: said.Info, chains: said.SupportedChains}
	if len(o.chains) == 0 {
		o.chains = []signInChain{{ChainID: said.Info.ChainID, Type: said.Info.Type}}
	}
	o.info.Address, o.info.Signature, o.info.SignatureScheme = "", "", ""
	return o
}

// Statement is the seller's words in the message; "": none.
func (o *SignInOffer) Statement() string { return o.info.Statement }

// Chain is the offered chain on which an account of a network signs in: that very one, or else the first of
// its kind, because the account is the same there; "": none.
func (o *SignInOffer) Chain(network string) (chain string) {
	for _, c := range o.chains {
		kind := x402.SignInType(c.ChainID)
		byKey := c.SignatureScheme == "" || c.SignatureScheme == "eip191" || c.SignatureScheme == "siws"
		if kind == "" || kind != x402.SignInType(network) || (c.Type != "" && c.Type != kind) || !byKey ||
			!x402.IsChainID(c.ChainID) {
			continue
		}
		if c.ChainID == network {
			return network
		}
		if chain == "" {
			chain = c.ChainID
		}
	}
	return chain
}

// Message is the message for an account, to be signed, if it is for this origin and good now. Its error is a
// *SignInError.
func (o *SignInOffer) Message(chain, account, origin string, now time.Time) (x402.SignIn, error) {
	m := o.info
	m.ChainID, m.Type, m.Address = chain, x402.SignInType(chain), account
	for _, c := range o.chains {
		if c.ChainID == chain {
			m.SignatureScheme = c.SignatureScheme
		}
	}
	if _, err := m.Text(); err != nil {
		return m, err
	}
	return m, m.CheckBound(origin, now)
}

// SignInRefused is the error of an answer that sells nothing and asks to sign in, where the wallet does not.
func SignInRefused(why string) *x402.Error {
	return x402.Errorf(x402.NoRequirements,
		"the answer asks to sign in with a wallet (sign-in-with-x), and sells "+
			"nothing: %s", why).WithDetail("asks", []string{x402.ExtensionSignIn})
}
