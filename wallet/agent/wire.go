package agent

import (
	"encoding/json"
	"io"
	"time"

	"x402-wallet/x402"
)

// SocketName is the socket's name in the home.
const SocketName = "agent.sock"

const (
	maxRequest = 16 << 10 // the longest honest one, what a passkey answers, in base64, has under 12 KiB
	// CallTime bounds one call; signing takes milliseconds, and a ledger that is locked by another
	// process five seconds.
	CallTime = 10 * time.Second
)

// Request is one line of JSON; the answer is another. One call a connection.
type Request struct {
	// status | lock | check | mark | verify | expire | charge | sign | passkey
	Op      string          `json:"op"`
	Payment string          `json:"payment,omitempty"`
	Message []byte          `json:"message,omitempty"` // sign: in the form of the payment's scheme
	Passkey *PasskeyRequest `json:"passkey,omitempty"`
}

// Reply is the answer to a Request.
type Reply struct {
	Signature []byte      `json:"signature,omitempty"`
	Error     *ReplyError `json:"error,omitempty"`
}

type ReplyError struct {
	Code    x402.Code `json:"code"`
	Message string    `json:"message"`
	Hint    string    `json:"hint,omitempty"`
}

func readRequest(c io.Reader) (q Request, err error) {
	d := json.NewDecoder(io.LimitReader(c, maxRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return q, x402.Errorf(x402.InvalidArgument,
			"the unlock agent was asked something that it cannot read: %s", x402.Brief(err.Error()))
	}
	return q, nil
}
