package x402

import "time"

// SignInOffer is what a challenge asks to be signed (extension sign-in-with-x): a message without an account,
// and the chains whose accounts may sign it.
type SignInOffer struct {
	info   SignIn
	chains []signInChain
}

type signInChain struct {
	ChainID         string `json:"chainId"`
	Type            string `json:"type"`
	SignatureScheme string `json:"signatureScheme"`
}

// AsksSignInOnly reports whether a challenge sells nothing, and asks who is there.
func (c *Challenge) AsksSignInOnly() bool {
	return len(c.Accepts) == 0 && len(c.Unreadable) == 0 && !isNull(c.Extensions[ExtensionSignIn])
}

// SignInOffer reads what the challenge asks to be signed; nil: nothing, or nothing that can be read.
func (c *Challenge) SignInOffer() *SignInOffer {
	raw := c.Extensions[ExtensionSignIn]
	var said struct {
		Info            SignIn        `json:"info"`
		SupportedChains []signInChain `json:"supportedChains"`
	}
	if isNull(raw) || DecodeStrict(raw, MaxHeader, &said) != nil {
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
		kind := SignInType(c.ChainID)
		byKey := c.SignatureScheme == "" || c.SignatureScheme == "eip191" || c.SignatureScheme == "siws"
		if kind == "" || kind != SignInType(network) || (c.Type != "" && c.Type != kind) || !byKey ||
			!isChain(c.ChainID) {
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
func (o *SignInOffer) Message(chain, account, origin string, now time.Time) (SignIn, error) {
	m := o.info
	m.ChainID, m.Type, m.Address = chain, SignInType(chain), account
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
func SignInRefused(why string) *Error {
	return Errorf(noRequirements, "the answer asks to sign in with a wallet (sign-in-with-x), and sells "+
		"nothing: %s", why).WithDetail("asks", []string{ExtensionSignIn})
}
