package signer

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
)

// awsKMS is a key of AWS KMS: ECC_SECG_P256K1 for EVM, ECC_NIST_EDWARDS25519 for Solana, with the use
// SIGN_VERIFY. It takes kms:Sign and kms:GetPublicKey on that key and nothing else.
type awsKMS struct {
	rules       config.Signer
	api         api
	credentials *credentials
	now         func() time.Time
}

func awsURL(region string) string { return "https://kms." + region + ".amazonaws.com" }

func (k *awsKMS) address(ctx context.Context) (string, error) {
	var out struct {
		PublicKey []byte // DER
	}
	if err := k.call(ctx, "GetPublicKey", map[string]any{"KeyId": k.rules.Key}, &out); err != nil {
		return "", err
	}
	return addressOfSPKI(out.PublicKey, k.rules.Chain)
}

func (k *awsKMS) sign(ctx context.Context, o wallet.Order) ([]byte, error) {
	ask := map[string]any{"KeyId": k.rules.Key, "Message": o.Digest[:], "MessageType": "DIGEST",
		"SigningAlgorithm": "ECDSA_SHA_256"}
	if o.Chain == wallet.ChainSolana {
		ask["Message"], ask["MessageType"], ask["SigningAlgorithm"] = o.Payload, "RAW", "ED25519_SHA_512"
	}
	var out struct {
		Signature []byte
	}
	if err := k.call(ctx, "Sign", ask, &out); err != nil {
		return nil, err
	}
	if o.Chain == wallet.ChainSolana {
		return out.Signature, nil
	}
	return fromDER(out.Signature)
}

// call asks for one operation (AWS KMS API Reference, JSON 1.1).
func (k *awsKMS) call(ctx context.Context, operation string, ask, result any) error {
	var keys awsKeys
	if _, err := k.credentials.read(ctx, &keys); err != nil {
		return err
	}
	if keys.AccessKeyID == "" || keys.SecretAccessKey == "" {
		return refused(`has credentials without "AccessKeyId" or "SecretAccessKey"`)
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	r, err := k.api.request(ctx, http.MethodPost, "/", body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-amz-json-1.1")
	r.Header.Set("X-Amz-Target", "TrentService."+operation)
	signV4(r, body, keys, k.rules.Region, "kms", k.now())
	return k.api.do(r, result)
}
