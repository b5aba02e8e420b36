package signer

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"
)

// awsKeys are AWS' credentials, as `aws configure export-credentials` and credential_process print them.
type awsKeys struct {
	AccessKeyID     string `json:"AccessKeyId"`
	SecretAccessKey string `json:"SecretAccessKey"`
	SessionToken    string `json:"SessionToken"` // of temporary ones
}

// signV4 authorizes a POST to / by AWS' Signature Version 4 (IAM User Guide, "Create a signed AWS API
// request"). All headers that are set by now are signed.
func signV4(r *http.Request, body []byte, k awsKeys, region, service string, now time.Time) {
	at := now.UTC().Format("20060102T150405Z")
	r.Header.Set("X-Amz-Date", at)
	if k.SessionToken != "" {
		r.Header.Set("X-Amz-Security-Token", k.SessionToken)
	}
	names := []string{"host"}
	for name := range r.Header {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	var headers strings.Builder
	for _, name := range names {
		value := r.Header.Get(name)
		if name == "host" {
			value = r.URL.Host
		}
		headers.WriteString(name + ":" + strings.Join(strings.Fields(value), " ") + "\n")
	}
	signed := strings.Join(names, ";")
	canonical := strings.Join([]string{r.Method, "/", "", headers.String(), signed, hashHex(body)}, "\n")
	scope := strings.Join([]string{at[:8], region, service, "aws4_request"}, "/")
	toSign := strings.Join([]string{"AWS4-HMAC-SHA256", at, scope, hashHex([]byte(canonical))}, "\n")

	key := []byte("AWS4" + k.SecretAccessKey)
	for _, part := range []string{at[:8], region, service, "aws4_request"} {
		key = hmacSHA256(key, part)
	}
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential="+k.AccessKeyID+"/"+scope+", SignedHeaders="+
		signed+", Signature="+hex.EncodeToString(hmacSHA256(key, toSign)))
}

func hashHex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func hmacSHA256(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}
