package evm

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/chain/evm/message"
	"x402-wallet/internal/must"
	"x402-wallet/x402"
)

// charged is requirement(2) as a seller of MPP asks it.
func charged(expires time.Time) x402.Order {
	o := order(2)
	o.Validity = 5 * time.Minute
	o.Requirement.Scheme, o.Requirement.Extra = x402.MPP, nil
	o.Requirement.Charge = &x402.Charge{ID: "0Ns-4xs4T8F75Rwmxz_eMkOfbeyyWOgaAwDx5AqokrI",
		Realm: "api.example.com", Method: "evm", Intent: "charge", Expires: expires}
	return o
}

// mppx 0.11 signs the same (x402/testdata/mpp-vectors.json, mpp_evm_charge).
func TestChargeEqualsMppx(t *testing.T) {
	v := readJSON[struct {
		Vectors map[string]struct {
			Credential struct{ Payload map[string]string }
		}
	}](t, "../../x402/testdata/mpp-vectors.json")
	want := v.Vectors["mpp_evm_charge"].Credential.Payload
	for range 2 { // answered twice, it is the same authorization
		made := must.Get(newFakeNode(t).exact(t, testSigner(t)).Authorize(t.Context(),
			charged(noon.Add(time.Hour))))(t)
		var signed struct {
			Authorization map[string]string
			Signature     string
		}
		require.NoError(t, json.Unmarshal(made.Payload, &signed))
		require.Equal(t, want["signature"], signed.Signature)
		for key, value := range signed.Authorization {
			require.Equal(t, want[key], value, key)
		}
		require.Equal(t, want["nonce"], made.Evidence.Nonce)
	}
}

func TestChargeEndsWithItsChallenge(t *testing.T) {
	made, err := newFakeNode(t).exact(t, testSigner(t)).Authorize(t.Context(), charged(noon.Add(time.Minute)))
	require.NoError(t, err)
	require.Equal(t, noon.Add(time.Minute).Unix(), made.Evidence.ValidBefore)

	signer := testSigner(t)
	_, err = newFakeNode(t).exact(t, signer).Authorize(t.Context(), charged(noon.Add(minValidity-1)))
	require.True(t, x402.HasCode(err, x402.InvalidRequirement), err)
	require.Empty(t, signer.digests)

	made = must.Get(newFakeNode(t).exact(t, testSigner(t)).Authorize(t.Context(), charged(time.Time{})))(t)
	require.Equal(t, noon.Add(5*time.Minute).Unix(), made.Evidence.ValidBefore)
}

func TestAnotherNonceThanTheChallengesIsNotSigned(t *testing.T) {
	signer := testSigner(t)
	e := newFakeNode(t).exact(t, signer)
	e.encode = func(a message.Authorization3009) ([]byte, error) {
		a.Nonce[0]++
		return message.EncodeAuthorization(a)
	}
	_, err := e.Authorize(t.Context(), charged(noon.Add(time.Hour)))
	require.ErrorContains(t, err, "nonce")
	require.Empty(t, signer.digests)
}
