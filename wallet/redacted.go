package wallet

import (
	"fmt"
	"io"
	"log/slog"
)

// redaction is the only printed form of whatever holds a secret.
const redaction = "[redacted]"

// redacted, embedded, answers every way Go has to print a value: the verbs of fmt, JSON, text
// encodings and slog. Two ways pass it by, unexported fields of other structs and %p, and print the
// memory. So a secret is besides kept behind a pointer, of which they show the address.
type redacted struct{}

func (redacted) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, redaction) }
func (redacted) String() string               { return redaction }
func (redacted) GoString() string             { return redaction }
func (redacted) MarshalText() ([]byte, error) { return []byte(redaction), nil }
func (redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + redaction + `"`), nil }
func (redacted) LogValue() slog.Value         { return slog.StringValue(redaction) }
