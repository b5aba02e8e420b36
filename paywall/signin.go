package paywall

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	evm "x402-wallet/chain/evm/message"
	"x402-wallet/paywall/book"
	"x402-wallet/x402"
	"x402-wallet/x402/wire"
)

// Whoever bought something signs in as its payer and gets it again without paying (extension sign-in-with-x,
// CAIP-122), where its seller allows that for a time (Tool.Access): the very call that was bought, with the
// same arguments, path and body. The message is verified in the reference's order and words; its nonce is
// taken once, by a row in the sale store, which also tells the seller who was there. Accounts that are
// contracts cannot sign in: their signatures would need a node.

// errSignIn says why a sign-in is not taken.
var errSignIn = fmt.Errorf("%w: the sign-in is not taken", ErrPaymentRejected)

// readOrigin reads Options.Origin: a scheme and a host, and nothing else.
func readOrigin(origin string) (host string, err error) {
	u, err := url.Parse(origin)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return "", fmt.Errorf("origin %q is not like https://shop.example", origin)
	case u.Scheme+"://"+u.Host != origin:
		return "", fmt.Errorf("origin %q has more in it than a scheme and a host", origin)
	}
	return u.Host, nil
}

// signInChallenge is the extension of a challenge: a message for its buyer to sign, with a nonce of its own.
func (w *Paywall) signInChallenge(offers []offer, resource string) json.RawMessage {
	uri := w.options.Origin + "/"
	if u, err := url.Parse(resource); err == nil && (u.Scheme == "http" || u.Scheme == "https") {
		uri = w.options.Origin + u.RequestURI()
	}
	chains := []map[string]string{}
	for _, o := range offers {
		kind := x402.SignInType(o.Network)
		is := func(chain map[string]string) bool { return chain["chainId"] == o.Network }
		if kind != "" && !slices.ContainsFunc(chains, is) {
			chains = append(chains, map[string]string{"chainId": o.Network, "type": kind})
		}
	}
	now := w.now().UTC()
	const layout = "2006-01-02T15:04:05.000Z"
	return jsonOf(map[string]any{
		"info": map[string]any{"domain": w.host, "uri": uri, "version": "1", "nonce": rand.Text(),
			"statement": "Sign in to get again what you bought.", "issuedAt": now.Format(layout),
			"expirationTime": now.Add(x402.MaxSignInAge).Format(layout), "resources": []string{uri}},
		"supportedChains": chains,
		"schema":          signInSchema(),
	})
}

// signInSchema is the JSON schema of what a buyer answers, as the reference declares it.
var signInSchema = sync.OnceValue(func() json.RawMessage {
	properties := map[string]any{"resources": map[string]any{"type": "array",
		"items": map[string]string{"type": "string", "format": "uri"}}}
	for _, name := range []string{"domain", "address", "statement", "version", "chainId", "type", "nonce",
		"requestId", "signature"} {
		properties[name] = map[string]string{"type": "string"}
	}
	properties["uri"] = map[string]string{"type": "string", "format": "uri"}
	for _, name := range []string{"issuedAt", "expirationTime", "notBefore"} {
		properties[name] = map[string]string{"type": "string", "format": "date-time"}
	}
	return jsonOf(map[string]any{"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
		"properties": properties, "required": []string{"domain", "address", "uri", "version", "chainId",
			"type", "nonce", "issuedAt", "signature"}})
})

// signInOf finds a sign-in in a call: in its HTTP request's header, or in _meta under the same name, as an
// object or in base64. "": there is none.
func signInOf(header http.Header, meta mcp.Meta) string {
	if said := header.Get(wire.HeaderSignIn); said != "" {
		return said
	}
	switch said := meta[wire.HeaderSignIn].(type) {
	case string:
		return said
	case map[string]any:
		return base64.StdEncoding.EncodeToString(jsonOf(said))
	}
	return ""
}

// signInAsBuyer lets in who bought this call. False: the request ends here, and the buyer is asked to pay.
func (s *saleRun) signInAsBuyer(ctx context.Context) bool {
	message, err := wire.DecodeSignIn(s.request.signIn)
	if err == nil {
		err = wire.VerifySignIn(message, s.options.Origin, s.now())
	}
	payer := message.Address
	if err == nil && message.Type == x402.SignInType("eip155:1") {
		payer, err = evm.Address(payer)
	}
	if err != nil {
		return s.refuseSignIn(err)
	}
	bought, err := s.options.Store.SoldTo(ctx, s.resource, s.callHash, payer, s.now().Add(-s.tool.Access))
	switch {
	case errors.Is(err, book.ErrNotFound):
		return s.refuseSignIn(errors.New("this account did not buy it, or too long ago"))
	case err != nil:
		return s.refuseSignIn(fmt.Errorf("%w: %w", errBook, err))
	case x402.Namespace(bought.Network) != x402.Namespace(message.ChainID):
		return s.refuseSignIn(errors.New("it was bought on another kind of network"))
	}
	once := x402.ExtensionSignIn + " " + message.Nonce
	row, err := s.options.Store.OpenSale(ctx, book.Sale{UniqueKey: once, Resource: s.resource,
		Call: s.callHash, Network: message.ChainID, Scheme: x402.ExtensionSignIn,
		Symbol: bought.Symbol, Payer: payer, Payload: jsonOf(message)})
	var sold *book.AlreadySold
	switch {
	case errors.As(err, &sold):
		return s.refuseSignIn(errors.New("invalid_siwx_nonce: this message was used before"))
	case err != nil:
		return s.refuseSignIn(fmt.Errorf("%w: %w", errBook, err))
	}
	s.row = row
	s.sale.ID, s.sale.Payer, s.sale.SignedIn = row.ID, payer, true
	s.signed.Expires = s.now().Add(s.tool.MaxTimeout)
	s.isSignedIn = true
	return true
}

func (s *saleRun) refuseSignIn(err error) bool {
	reason := "the sign-in cannot be looked up now"
	if !errors.Is(err, errBook) {
		reason = "the sign-in is not taken: " + err.Error()
	}
	s.presented = mismatched
	s.explain(fmt.Errorf("%w: %w", errSignIn, err), reason)
	return false
}

// maxAccess is the longest time for which what was bought is given again.
const maxAccess = 366 * 24 * time.Hour
