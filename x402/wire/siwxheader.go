package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"x402-wallet/x402"
	"x402-wallet/x402/signatures"
)

// HeaderSignIn is the header in which a buyer answers the extension sign-in-with-x.
const HeaderSignIn = "sign-in-with-x"

// EncodeSignIn is the value of HeaderSignIn.
func EncodeSignIn(s x402.SignIn) string {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // as every other client writes it
	_ = e.Encode(s)        // of texts: cannot fail
	return base64.StdEncoding.EncodeToString(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// DecodeSignIn reads the value of HeaderSignIn. What it says is not checked: see VerifySignIn.
func DecodeSignIn(value string) (x402.SignIn, error) {
	var s x402.SignIn
	if len(value) > 2*x402.MaxSignIn {
		return s, unreadSignIn("the header is longer than %d bytes", 2*x402.MaxSignIn)
	}
	data, err := Unwrap(HeaderSignIn, value)
	if err == nil {
		err = x402.DecodeStrict(data, x402.MaxSignIn, &s)
	}
	if err != nil {
		return x402.SignIn{}, unreadSignIn("the header cannot be read: %s", x402.AsError(err).Message)
	}
	return s, nil
}

func unreadSignIn(format string, args ...any) error {
	return &x402.SignInError{Reason: "invalid_siwx_message", Message: fmt.Sprintf(format, args...)}
}

// VerifySignIn refuses a message that is not for this origin, not good now, or not signed by the account
// named in it (CheckBound of x402.SignIn, signatures.VerifySignIn). Errors: *x402.SignInError.
func VerifySignIn(s x402.SignIn, origin string, now time.Time) error {
	if err := s.CheckBound(origin, now); err != nil {
		return err
	}
	return signatures.VerifySignIn(s)
}
