package sandbox

import (
	"crypto/rand"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"x402-wallet/x402"
)

// The seller lets in who signs in as a payer (extension sign-in-with-x), at paths that say so. It verifies as
// the reference server does: a message that it made itself, for this path and its own origin, is taken once,
// of an account that paid for this very path.

// signInNonce is a message that was made, and what for.
type signInNonce struct {
	path string
	used bool
}

// declareSignIn is the extension in a challenge, with a nonce of its own.
func (s *sale) declareSignIn() any {
	nonce, now := rand.Text(), s.now().UTC()
	s.mu.Lock()
	s.nonces.put(nonce, signInNonce{path: s.path})
	s.mu.Unlock()
	uri := s.SellerURL + s.path
	chains := []any{}
	for _, network := range s.product.networks {
		network = s.named(network)
		chains = append(chains, map[string]string{"chainId": network, "type": x402.SignInType(network)})
	}
	return map[string]any{"supportedChains": chains, "info": map[string]any{
		"domain": strings.TrimPrefix(s.SellerURL, "http://"), "uri": uri, "version": "1", "nonce": nonce,
		"statement": "Sign in to get again what you bought.", "issuedAt": now.Format(time.RFC3339),
		"expirationTime": now.Add(x402.MaxSignInAge).Format(time.RFC3339), "resources": []string{uri},
	}}
}

// signedIn serves who signed in as a payer of this path, or asks for payment.
func (s *sale) signedIn(header string) {
	message, err := x402.DecodeSignIn(header)
	if err == nil {
		s.noteSignIn(message.Nonce)
		err = message.Verify(s.SellerURL, s.now())
	}
	if err == nil {
		err = s.letIn(message)
	}
	if err != nil {
		s.ask(err.Error(), 1)
		return
	}
	s.deliver("")
}

// letIn takes a message's nonce, once.
func (s *sale) letIn(message x402.SignIn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	made, known := s.nonces.get(message.Nonce)
	switch {
	case !known || made.used || made.path != s.path || message.URI != s.SellerURL+s.path:
		return reason("invalid_siwx_nonce")
	case !s.buyers.has(s.path + " " + accountOf(message.Address)):
		return reason("this account did not buy it")
	}
	made.used = true
	s.nonces.put(message.Nonce, made)
	s.signIns++
	return nil
}

// remember notes who paid for this path, by the facilitator's receipt.
func (s *sale) remember(receipt []byte) {
	var settled struct{ Payer string }
	if json.Unmarshal(receipt, &settled) != nil || settled.Payer == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buyers.put(s.path+" "+accountOf(settled.Payer), true)
}

// accountOf is an account in one spelling: on EVM letter case says nothing.
func accountOf(address string) string {
	if strings.HasPrefix(address, "0x") {
		return strings.ToLower(address)
	}
	return address
}

// noteSignIn writes down that a signed message was shown, whatever becomes of it.
func (s *Sandbox) noteSignIn(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signInsShown = newest(s.options.Keep, append(s.signInsShown, nonce))
}

// SignInsShown are the nonces of all messages that were shown to the seller, oldest first.
func (s *Sandbox) SignInsShown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.signInsShown)
}

// SignIns is how many times the seller let somebody in who signed in.
func (s *Sandbox) SignIns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signIns
}
