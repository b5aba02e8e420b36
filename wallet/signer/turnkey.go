package signer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/internal/pattern"
	"x402-wallet/wallet"
)

const turnkeyURL = "https://api.turnkey.com"

// turnkey is a key of Turnkey's: of a wallet, by its address, or a private key, by its id. Its policies
// should let the API key sign raw payloads with it and nothing else.
type turnkey struct {
	rules       config.Signer
	api         api
	credentials *credentials
	now         func() time.Time
}

// turnkeyKey is an API key of Turnkey's (P-256), in hexadecimal, as its command line keeps it.
type turnkeyKey struct {
	PublicKey  string `json:"publicKey"` // compressed
	PrivateKey string `json:"privateKey"`
}

var uuid = pattern.Lazy(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// address of a private key is the one that Turnkey has for it. One of a wallet is an address already: there
// it is asked for the wallet's account.
func (k *turnkey) address(ctx context.Context) (string, error) {
	if !uuid().MatchString(k.rules.Key) {
		var who struct {
			OrganizationID string `json:"organizationId"`
		}
		err := k.call(ctx, "/public/v1/query/whoami",
			map[string]any{"organizationId": k.rules.Organization}, &who)
		if err == nil && who.OrganizationID != k.rules.Organization {
			err = refused("answers for another organization")
		}
		return k.rules.Key, err
	}
	var out struct {
		PrivateKey struct {
			Addresses []struct {
				Format  string `json:"format"`
				Address string `json:"address"`
			} `json:"addresses"`
		} `json:"privateKey"`
	}
	err := k.call(ctx, "/public/v1/query/get_private_key", map[string]any{
		"organizationId": k.rules.Organization, "privateKeyId": k.rules.Key}, &out)
	if err != nil {
		return "", err
	}
	format := map[string]string{wallet.ChainEVM: "ADDRESS_FORMAT_ETHEREUM",
		wallet.ChainSolana: "ADDRESS_FORMAT_SOLANA"}[k.rules.Chain]
	for _, a := range out.PrivateKey.Addresses {
		if a.Format == format {
			return a.Address, nil
		}
	}
	return "", refused("has no address of the chain %s for that key", k.rules.Chain)
}

// The activity that signs, as the API has it in its second version.
const signRawPayload = "ACTIVITY_TYPE_SIGN_RAW_PAYLOAD_V2"

func (k *turnkey) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	payload, hash := o.Digest[:], "HASH_FUNCTION_NO_OP" // it is a hash already
	if o.Chain == wallet.ChainSolana {
		payload, hash = o.Payload, "HASH_FUNCTION_NOT_APPLICABLE"
	}
	var out struct {
		Activity struct {
			Status string `json:"status"`
			Result struct {
				Signed struct {
					R string `json:"r"`
					S string `json:"s"`
				} `json:"signRawPayloadResult"`
			} `json:"result"`
		} `json:"activity"`
	}
	err := k.call(ctx, "/public/v1/submit/sign_raw_payload", map[string]any{
		"type": signRawPayload, "timestampMs": strconv.FormatInt(k.now().UnixMilli(), 10),
		"organizationId": k.rules.Organization,
		"parameters": map[string]any{"signWith": k.rules.Key, "payload": hex.EncodeToString(payload),
			"encoding": "PAYLOAD_ENCODING_HEXADECIMAL", "hashFunction": hash},
	}, &out)
	if err != nil {
		return nil, err
	}
	if status := out.Activity.Status; status != "ACTIVITY_STATUS_COMPLETED" {
		if !word().MatchString(status) {
			status = "none"
		}
		return nil, refused("does not sign by itself (%s): its policies want somebody's consent, or refuse",
			status)
	}
	signed := out.Activity.Result.Signed
	r, errR := hex.DecodeString(signed.R)
	s, errS := hex.DecodeString(signed.S)
	if errR != nil || errS != nil || len(r) != 32 || len(s) != 32 {
		return nil, refused("answers with something else than a signature")
	}
	return slices.Concat(r, s), nil
}

// call asks the API one thing, stamped: with a signature over the very bytes of the body.
func (k *turnkey) call(ctx context.Context, path string, ask, result any) error {
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	var key turnkeyKey
	if _, err := k.credentials.read(ctx, &key); err != nil {
		return err
	}
	stamp, err := key.stamp(body)
	if err != nil {
		return err
	}
	r, err := k.api.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	r.Header.Set("X-Stamp", stamp)
	return k.api.do(r, result)
}

// stamp is the header X-Stamp of a body.
func (k turnkeyKey) stamp(body []byte) (string, error) {
	secret, err := hex.DecodeString(strings.TrimSpace(k.PrivateKey))
	if err != nil || len(secret) != 32 {
		return "", refused(`has credentials without "privateKey", 64 hexadecimal digits`)
	}
	defer clear(secret)
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), secret)
	if err != nil {
		return "", refused("has credentials whose privateKey is none of P-256")
	}
	point, err := key.PublicKey.Bytes() // 4 ‖ x ‖ y
	if err != nil {
		return "", err
	}
	public := hex.EncodeToString(append([]byte{2 + point[64]&1}, point[1:33]...))
	if public != strings.TrimSpace(k.PublicKey) {
		return "", refused("has credentials whose publicKey does not belong to their privateKey")
	}
	hash := sha256.Sum256(body)
	signature, err := ecdsa.SignASN1(rand.Reader, key, hash[:])
	if err != nil {
		return "", err
	}
	stamp, err := json.Marshal(map[string]string{"publicKey": public,
		"scheme": "SIGNATURE_SCHEME_TK_API_P256", "signature": hex.EncodeToString(signature)})
	return base64.RawURLEncoding.EncodeToString(stamp), err
}
