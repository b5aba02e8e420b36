package signer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/internal/must"
	"x402-wallet/wallet"
)

const turnkeyID = "11111111-2222-3333-4444-555555555555"

// apiOfTurnkey is Turnkey's API: each request is stamped over its very bytes.
func apiOfTurnkey(public *ecdsa.PublicKey) func(s *service, r *http.Request, body []byte) (int, any) {
	return func(s *service, r *http.Request, body []byte) (int, any) {
		raw, err := base64.RawURLEncoding.DecodeString(r.Header.Get("X-Stamp"))
		var stamp map[string]string
		s.must(err == nil && json.Unmarshal(raw, &stamp) == nil && len(stamp) == 3, "stamp is %s", raw)
		x, _ := public.Bytes()
		s.must(stamp["publicKey"] == fmt.Sprintf("%02x%x", 2+x[64]&1, x[1:33]) &&
			stamp["scheme"] == "SIGNATURE_SCHEME_TK_API_P256", "stamp is %s", raw)
		signature, err := hex.DecodeString(stamp["signature"])
		hash := sha256.Sum256(body)
		if !s.must(err == nil && ecdsa.VerifyASN1(public, hash[:], signature), "stamp is not of its body") {
			return 401, map[string]any{"code": 16, "message": "no"}
		}
		var ask struct {
			Type, TimestampMs, OrganizationID, PrivateKeyID string
			Parameters                                      map[string]string
		}
		s.must(json.Unmarshal(body, &ask) == nil && ask.OrganizationID == "org-1" && r.Method == "POST",
			"body is %s", body)
		switch r.URL.Path {
		case "/public/v1/query/whoami":
			return 200, map[string]any{"organizationId": "org-1", "organizationName": "x", "userId": "u"}
		case "/public/v1/query/get_private_key":
			s.must(ask.PrivateKeyID == turnkeyID, "key is %s", ask.PrivateKeyID)
			format := map[string]string{"evm": "ADDRESS_FORMAT_ETHEREUM",
				"solana": "ADDRESS_FORMAT_SOLANA"}[s.chain]
			return 200, map[string]any{"privateKey": map[string]any{"privateKeyId": turnkeyID,
				"addresses": []any{
					map[string]string{"format": "ADDRESS_FORMAT_COMPRESSED", "address": "02aa"},
					map[string]string{"format": format, "address": s.address()}}}}
		case "/public/v1/submit/sign_raw_payload":
			hashing := map[string]string{"evm": "HASH_FUNCTION_NO_OP",
				"solana": "HASH_FUNCTION_NOT_APPLICABLE"}[s.chain]
			p := ask.Parameters
			payload, err := hex.DecodeString(p["payload"])
			s.must(err == nil && len(p) == 4 && p["hashFunction"] == hashing &&
				p["encoding"] == "PAYLOAD_ENCODING_HEXADECIMAL" &&
				ask.Type == "ACTIVITY_TYPE_SIGN_RAW_PAYLOAD_V2" &&
				ask.TimestampMs == strconv.FormatInt(now.UnixMilli(), 10), "body is %s", body)
			s.must(p["signWith"] == turnkeyID || p["signWith"] == s.address(), "key is %s", p["signWith"])
			activity := map[string]any{"id": "a", "status": "ACTIVITY_STATUS_COMPLETED"}
			if s.lying() == "consensus" {
				activity["status"] = "ACTIVITY_STATUS_CONSENSUS_NEEDED"
				return 200, map[string]any{"activity": activity}
			}
			signed := s.sign(s.lying(), payload)
			activity["result"] = map[string]any{"signRawPayloadResult": map[string]string{
				"r": hex.EncodeToString(signed[:32]), "s": hex.EncodeToString(signed[32:64]), "v": "00"}}
			return 200, map[string]any{"activity": activity}
		}
		return 404, map[string]any{"code": 5}
	}
}

func turnkeySecret(t *testing.T) (content, secret string, public *ecdsa.PublicKey) {
	key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	raw := must.Get(key.Bytes())(t)
	point := must.Get(key.PublicKey.Bytes())(t)
	secret = hex.EncodeToString(raw)
	return fmt.Sprintf(`{"publicKey":"%02x%x","privateKey":"%s"}`, 2+point[64]&1, point[1:33], secret),
		secret,
		&key.PublicKey
}

func TestTurnkey(t *testing.T) {
	content, secret, public := turnkeySecret(t)
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		t.Run(chain, func(t *testing.T) {
			s := newService(t, chain, apiOfTurnkey(public))
			rules := config.Signer{Kind: config.SignerTurnkey, Key: turnkeyID, Organization: "org-1",
				URL:        s.URL,
				SecretFile: secretFile(t, content)}
			byAddress := rules
			byAddress.Key, byAddress.Address, byAddress.Chain, byAddress.Timeout = s.address(), s.address(),
				chain,
				time.Minute
			signer := New("hsm", byAddress, options())
			require.NoError(t, signer.Check(t.Context()))
			require.NoError(t, wallet.TestSigner(t.Context(), signer, chain, now))
			s.toLie("consensus")
			require.ErrorContains(t, wallet.TestSigner(t.Context(), signer, chain, now), "CONSENSUS_NEEDED")
			s.toLie("")
			tries(t, s, rules, secret)
		})
	}
	other, _, _ := turnkeySecret(t)
	var a, b turnkeyKey
	require.NoError(t, json.Unmarshal([]byte(content), &a))
	require.NoError(t, json.Unmarshal([]byte(other), &b))
	a.PublicKey = b.PublicKey
	require.ErrorContains(t, must.Err(a.stamp(nil)), "does not belong")
}
