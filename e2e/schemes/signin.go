package schemes

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"x402-wallet/internal/sandbox"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
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
	nonce, now := rand.Text(), s.Now().UTC()
	s.world.mu.Lock()
	s.world.nonces[nonce] = signInNonce{path: s.Path}
	s.world.mu.Unlock()
	uri := s.SellerURL + s.Path
	chains := []any{}
	for _, offer := range s.Offers(2, 1) {
		network := offer.(map[string]any)["network"].(string)
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
	message, err := wire.DecodeSignIn(header)
	if err == nil {
		s.world.noteSignIn(message.Nonce)
		err = wire.VerifySignIn(message, s.SellerURL, s.Now())
	}
	if err == nil {
		err = s.letIn(message)
	}
	if err != nil {
		s.Refuse(err.Error(), 1)
		return
	}
	s.Deliver("")
}

// letIn takes a message's nonce, once.
func (s *sale) letIn(message x402.SignIn) error {
	hasBought := s.hasBought(message.Address)
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	made, known := s.world.nonces[message.Nonce]
	switch {
	case !known || made.used || made.path != s.Path || message.URI != s.SellerURL+s.Path:
		return sandbox.Reason("invalid_siwx_nonce")
	case !hasBought:
		return sandbox.Reason("this account did not buy it")
	}
	made.used = true
	s.world.nonces[message.Nonce] = made
	s.world.signIns++
	return nil
}

// hasBought reports whether an account paid for this path. On EVM letter case says nothing.
func (s *sale) hasBought(account string) bool {
	for _, paid := range s.Settlements() {
		isIts := paid.Signer == account ||
			(strings.HasPrefix(account, "0x") && strings.EqualFold(paid.Signer, account))
		if paid.Path == s.Path && isIts {
			return true
		}
	}
	return false
}

// noteSignIn writes down that a signed message was shown, whatever becomes of it.
func (s *World) noteSignIn(nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shownTexts = append(s.shownTexts, nonce)
}

// SignInsShown are the nonces of all messages that were shown to the seller, oldest first.
func (s *World) SignInsShown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.shownTexts)
}

// SignIns is how many times the seller let somebody in who signed in.
func (s *World) SignIns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signIns
}
