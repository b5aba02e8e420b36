package wire

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
	"x402-wallet/x402"
	"x402-wallet/x402/signatures"
)

// signInVector is what @x402/extensions 2.27 made, and what its verifier said.
type signInVector struct {
	Message, Header string
	Payload         x402.SignIn
	Validate        struct {
		IsValid       bool
		InvalidReason string
	}
}

// Headers are the reference client's to the byte, and are taken where its verifier takes them.
func TestSignInHeadersEqualTheReference(t *testing.T) {
	vectors := extensionVectors[signInVector](t, "siwx_")
	for _, name := range []string{"siwx_evm_minimal", "siwx_evm_full", "siwx_evm_agent_key",
		"siwx_solana_minimal", "siwx_solana_full", "siwx_too_old"} {
		v := vectors[name]
		require.Equal(t, v.Header, EncodeSignIn(v.Payload), name)
		read, err := DecodeSignIn(v.Header)
		require.NoError(t, err, name)
		require.Equal(t, v.Payload, read, name)
		err = VerifySignIn(read, "https://api.example.com", time.Unix(1740672089, 0))
		if v.Validate.IsValid {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, v.Validate.InvalidReason, name)
		}
		read.Nonce += "0"
		require.Error(t, VerifySignIn(read, "https://api.example.com", time.Unix(1740672089, 0)), name)
	}
}

func FuzzDecodeSignIn(f *testing.F) {
	for _, v := range extensionVectors[signInVector](f, "siwx_") {
		f.Add(v.Header, v.Message)
	}
	f.Fuzz(func(t *testing.T, header, text string) {
		if s, err := DecodeSignIn(header); err == nil {
			_ = signatures.VerifySignIn(s)
			if made, err := s.Text(); err == nil {
				back := must.Get(x402.ReadSignInText(made))(t)
				require.Equal(t, made, must.Get(back.Text())(t))
			}
		}
		if s, err := x402.ReadSignInText(text); err == nil {
			require.Equal(t, text, must.Get(s.Text())(t))
		}
	})
}
