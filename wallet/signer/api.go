package signer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"x402-wallet/internal/config"
	"x402-wallet/internal/pattern"
	"x402-wallet/x402"
)

// maxBody bounds what an API answers, in bytes: the longest honest one, an activity of Turnkey's, has a few
// KiB.
const maxBody = 64 << 10

// api is the HTTPS API of a service.
type api struct {
	base string // without / at its end
	http *http.Client
}

// newAPI is the API at the URL of the rules, or else where its provider has it.
func newAPI(o Options, rules config.Signer, usual string) api {
	client := *o.HTTP
	// what is signed or authorized for this service is for no other
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return api{base: strings.TrimRight(cmp.Or(rules.URL, usual), "/"), http: &client}
}

// request is one question.
func (a api) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, refused("has a url or key that make no address")
	}
	if len(body) > 0 {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "x402-wallet")
	return r, nil
}

// do asks, and reads the answer into result. Why a service refuses is shown by its status and by the word of
// its own that errorCode finds, since a text could repeat a credential.
func (a api) do(r *http.Request, result any) error {
	response, err := a.http.Do(r) //nolint:gosec // to where the owner's sealed rules say
	if err != nil {
		return unreachable("could not be reached") // net/http names the URL, and what was in it
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBody+1))
	status := response.StatusCode
	switch {
	case err != nil:
		return unreachable("broke its answer off")
	case len(body) > maxBody:
		return refused("answers with more than %d bytes", maxBody)
	case status == http.StatusTooManyRequests:
		return unreachable("has had too many questions (HTTP status 429%s)", errorCode(body))
	case status >= 500:
		return unreachable("does not work now (HTTP status %d%s)", status, errorCode(body))
	case status >= 300 && status < 400:
		return refused("leads to another address (HTTP status %d), and no redirect is followed", status)
	case isThrottled(body):
		return unreachable("has had too many questions%s", errorCode(body))
	case status < 200 || status >= 300:
		return refused("refuses with HTTP status %d%s", status, errorCode(body))
	}
	if err := x402.DecodeStrict(body, maxBody, nil); err != nil {
		return refused("answers with something else than JSON")
	}
	if json.Unmarshal(body, result) != nil {
		return refused("answers with JSON of another shape")
	}
	return nil
}

// word is a code of an error: a name, and no sentence.
var word = pattern.Lazy(`^[A-Za-z0-9_.-]{1,60}$`)

// errorCode is ", " and the code of an error as the services write it; "": there is none.
func errorCode(body []byte) string {
	var said struct {
		Type      string          `json:"__type"`    // AWS, behind a # where it has a namespace
		ErrorType string          `json:"errorType"` // CDP
		Error     json.RawMessage `json:"error"`     // OAuth: a text; Google: an object
		Code      json.RawMessage `json:"code"`      // Turnkey: of gRPC
	}
	if x402.DecodeStrict(body, maxBody, nil) != nil || json.Unmarshal(body, &said) != nil {
		return ""
	}
	var google struct {
		Status string `json:"status"`
	}
	var text string
	_ = json.Unmarshal(said.Error, &google)
	_ = json.Unmarshal(said.Error, &text)
	grpc := string(said.Code)
	if grpc != "" {
		grpc = "code " + grpc
	}
	_, typed, _ := strings.Cut("#"+said.Type, "#")
	if i := strings.LastIndexByte(typed, '#'); i >= 0 {
		typed = typed[i+1:]
	}
	for _, found := range []string{typed, said.ErrorType, google.Status, text, grpc} {
		if word().MatchString(strings.TrimPrefix(found, "code ")) {
			return ", " + found
		}
	}
	return ""
}

// isThrottled reports AWS' way to say 429.
func isThrottled(body []byte) bool {
	code := errorCode(body)
	return strings.HasSuffix(code, "ThrottlingException") || strings.HasSuffix(code, "LimitExceededException")
}
