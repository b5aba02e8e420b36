package payload

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/must"
)

// What the reference client signs for deposits is read as it was meant: by the digests of its typed data, and
// by the signatures of its payer.
func TestDepositsEqualTheVectors(t *testing.T) {
	type vector struct {
		Payload   struct{ Payload json.RawMessage }
		TypedData []struct{ PrimaryType, Digest string }
	}
	all := readJSON[map[string]vector](t, "../testdata/batch-vectors.json")
	for _, name := range []string{"batch_deposit_eip3009", "batch_deposit_permit2",
		"batch_deposit_permit2_eip2612"} {
		t.Run(name, func(t *testing.T) {
			m, signed, err := DecodeChannel(usdc, all[name].Payload.Payload)
			require.NoError(t, err)
			require.Equal(t, name != "batch_deposit_eip3009", m.Deposit.ByPermit2)
			require.NoError(t, CheckChannel(m, signed))
			again := must.Get(EncodeChannel(m, signed))(t)
			sent := strings.Join(strings.Fields(string(all[name].Payload.Payload)), "")
			require.Equal(t, sent, string(again))
			digest := must.Get(DepositDigest(usdc, m.Config, *m.Deposit))(t)
			require.Equal(t, all[name].TypedData[0].Digest, fmt.Sprintf("0x%x", digest))
			signed.Deposit[3] ^= 1
			require.Error(t, CheckChannel(m, signed))
		})
	}
}

// A deposit by Permit2 is read in one way only.
func TestDecodeDepositByPermit2Refuses(t *testing.T) {
	good := string(readJSON[map[string]struct {
		Payload struct{ Payload json.RawMessage }
	}](t, "../testdata/batch-vectors.json")["batch_deposit_permit2"].Payload.Payload)
	good = strings.Join(strings.Fields(good), "")
	const id = `"witness":{"channelId":"0xe8517ba8808fd0e8bf5027fa0ae09fe666428508ba861d7ac06c70ab4509bd7d"}`
	for name, change := range map[string][2]string{
		"another payer": {`"from":"0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266"`,
			`"from":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C"`},
		"another token": {`"permitted":{"token":"0x036CbD53842c5426634e7929541eC2318f3dCF7e"`,
			`"permitted":{"token":"0x209693Bc6afc0C5328bA36FaF03C514EF312287C"`},
		"another amount":  {`"amount":"5000"},"spender"`, `"amount":"5001"},"spender"`},
		"another deposit": {`"deposit":{"amount":"5000"`, `"deposit":{"amount":"5001"`},
		"another spender": {`"spender":"0x4020425FAf3B746C082C2f942b4E5159887B0005"`,
			`"spender":"0x402085c248EeA27D92E8b30b2C58ed07f9E20001"`},
		"another channel":     {id, strings.Replace(id, "e85", "e86", 1)},
		"no channel":          {id, `"witness":{}`},
		"a number":            {`"deadline":"1740675689"`, `"deadline":1740675689`},
		"no canonical number": {`"deadline":"1740675689"`, `"deadline":"01740675689"`},
		"a nonce too long":    {`"nonce":"`, `"nonce":"99999999999`},
		"a short signature":   {`bf59f01b"`, `bf59f0"`},
		"in another way": {`"permit2Authorization":{`, `"erc3009Authorization":{"validAfter":"0",` +
			`"validBefore":"1740675689","salt":"0x` + strings.Repeat("01", 32) + `","signature":"0x` +
			strings.Repeat("01", 65) + `"},"permit2Authorization":{`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, change[0], change[1], 1)
			require.NotEqual(t, good, bad)
			_, _, err := DecodeChannel(usdc, []byte(bad))
			require.Error(t, err)
		})
	}
}
