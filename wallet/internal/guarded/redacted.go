package guarded

import (
	"fmt"
	"io"
	"log/slog"
)

// Redaction is the only printed form of whatever holds a secret.
const Redaction = "[redacted]"

// Redacted, embedded, answers every way Go has to print a value: the verbs of fmt, JSON, text
// encodings and slog. Two ways pass it by, unexported fields of other structs and %p, and print the
// memory. So a secret is besides kept behind a pointer, of which they show the address.
type Redacted struct{}

func (Redacted) Format(f fmt.State, _ rune)   { _, _ = io.WriteString(f, Redaction) }
func (Redacted) String() string               { return Redaction }
func (Redacted) GoString() string             { return Redaction }
func (Redacted) MarshalText() ([]byte, error) { return []byte(Redaction), nil }
func (Redacted) MarshalJSON() ([]byte, error) { return []byte(`"` + Redaction + `"`), nil }
func (Redacted) LogValue() slog.Value         { return slog.StringValue(Redaction) }
