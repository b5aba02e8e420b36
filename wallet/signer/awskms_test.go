package signer

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"x402-wallet/internal/config"
	"x402-wallet/wallet"
)

// The vectors of AWS' own test suite for Signature Version 4, get-vanilla and post-vanilla.
func TestSignV4(t *testing.T) {
	keys := awsKeys{AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2015, 8, 30, 12, 36, 0, 0, time.UTC)
	for method, signature := range map[string]string{
		http.MethodGet:  "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
		http.MethodPost: "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
	} {
		r, err := http.NewRequestWithContext(t.Context(), method, "https://example.amazonaws.com/", nil)
		require.NoError(t, err)
		signV4(r, nil, keys, "us-east-1", "service", at)
		require.Equal(t, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "+
			"SignedHeaders=host;x-amz-date, Signature="+signature, r.Header.Get("Authorization"))
	}
}

var awsAuthorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=AKIA1/20261126/eu-central-1/kms/` +
	`aws4_request, SignedHeaders=([a-z0-9;-]+), Signature=([0-9a-f]{64})$`)

const (
	awsSecret  = "secretAccessKey/0123456789"
	awsSession = "sessionToken//0123456789"
)

// kmsOfAWS is AWS KMS as its API Reference has it.
func kmsOfAWS(s *service, r *http.Request, body []byte) (int, any) {
	denied := func(status int, kind string) (int, any) { return status, map[string]string{"__type": kind} }
	parts := awsAuthorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if !s.must(parts != nil, "Authorization is %q", r.Header.Get("Authorization")) {
		return denied(400, "IncompleteSignatureException")
	}
	// signed once more, from what arrived
	names := strings.Split(parts[1], ";")
	for _, needed := range []string{"host", "content-type", "x-amz-date", "x-amz-target",
		"x-amz-security-token"} {
		s.must(slices.Contains(names, needed), "signature covers no %s", needed)
	}
	headers := ""
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.Host
		}
		headers += name + ":" + value + "\n"
	}
	canonical := r.Method + "\n" + r.URL.Path + "\n" + r.URL.RawQuery + "\n" + headers + "\n" + parts[1] +
		"\n" +
		hashHex(body)
	key := []byte("AWS4" + awsSecret)
	for _, part := range []string{"20261126", "eu-central-1", "kms", "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	wanted := hmacSHA256(key, "AWS4-HMAC-SHA256\n20261126T120000Z\n20261126/eu-central-1/kms/aws4_request\n"+
		hashHex([]byte(canonical)))
	s.must(parts[2] == hex.EncodeToString(wanted), "signature is another")
	s.must(r.Header.Get("X-Amz-Date") == "20261126T120000Z" &&
		r.Header.Get("X-Amz-Security-Token") == awsSession,
		"time or token is another")
	s.must(r.Method == "POST" && r.Header.Get("Content-Type") == "application/x-amz-json-1.1",
		"form is another")
	var ask map[string]string
	s.must(json.Unmarshal(body, &ask) == nil && ask["KeyId"] == "alias/x402", "body is %s", body)
	switch r.Header.Get("X-Amz-Target") {
	case "TrentService.GetPublicKey":
		s.must(len(ask) == 1, "body is %s", body)
		return 200, map[string]any{"KeyId": "arn:aws:kms:eu-central-1:1:key/k", "KeyUsage": "SIGN_VERIFY",
			"PublicKey": s.spki(s.t)}
	case "TrentService.Sign":
		message, err := base64.StdEncoding.DecodeString(ask["Message"])
		algorithm, kind := "ECDSA_SHA_256", "DIGEST"
		if s.chain == wallet.ChainSolana {
			algorithm, kind = "ED25519_SHA_512", "RAW"
		}
		s.must(err == nil && len(ask) == 4 && ask["SigningAlgorithm"] == algorithm &&
			ask["MessageType"] == kind,
			"body is %s", body)
		signature := s.sign(s.lie, message)
		if s.chain == wallet.ChainEVM {
			signature = der(signature, s.asked.Load()%2 == 0)
		}
		return 200, map[string]any{"KeyId": "arn:aws:kms:eu-central-1:1:key/k", "Signature": signature,
			"SigningAlgorithm": algorithm}
	}
	return denied(400, "UnknownOperationException")
}

func TestAWSKMS(t *testing.T) {
	for _, chain := range []string{wallet.ChainEVM, wallet.ChainSolana} {
		t.Run(chain, func(t *testing.T) {
			s := newService(t, chain, kmsOfAWS)
			tries(t, s, config.Signer{Kind: config.SignerAWS, Key: "alias/x402", Region: "eu-central-1",
				URL: s.URL,
				SecretFile: secretFile(t, `{"Version":1,"AccessKeyId":"AKIA1","SecretAccessKey":"`+awsSecret+
					`","SessionToken":"`+awsSession+`","Expiration":"2026-11-26T13:00:00Z"}`)}, awsSecret,
				awsSession)
		})
	}
	require.Equal(t, "https://kms.eu-central-1.amazonaws.com", awsURL("eu-central-1"))
}

// A key of the wrong kind, or of another chain, is found when its address is asked for.
func TestAKeyOfAnotherKind(t *testing.T) {
	s := newService(t, wallet.ChainEVM, kmsOfAWS)
	rules := config.Signer{Kind: config.SignerAWS, Chain: wallet.ChainSolana, Key: "alias/x402",
		Timeout: time.Minute,
		Region:  "eu-central-1", URL: s.URL, SecretFile: secretFile(t,
			`{"AccessKeyId":"AKIA1","SecretAccessKey":"`+
				awsSecret+`","SessionToken":"`+awsSession+`"}`)}
	_, err := New("hsm", rules, options()).Address(t.Context())
	require.ErrorContains(t, err, "solana takes Ed25519")
	rules.Chain, rules.Address = wallet.ChainEVM, "0x1111111111111111111111111111111111111111"
	require.ErrorContains(t, New("hsm", rules, options()).Check(t.Context()), s.address())
}
