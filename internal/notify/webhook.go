package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// postTime bounds one try. A notice that does not come through is told again later (notify.go).
const postTime = 10 * time.Second

// Webhook posts the notice to a URL of the owner's, signed as Standard Webhooks has it
// (https://www.standardwebhooks.com), so that libraries that are there verify it.
type Webhook struct {
	URL    string // may hold a key: never in an error
	HTTP   *http.Client
	Secret func() (string, error) // "whsec_" and base64

	limit time.Duration // 0: postTime
}

func (w *Webhook) Name() (way, to string) { return "webhook", hostOf(w.URL) }

func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	return u.Host
}

// Tell implements Way. Every try is the same message, by its webhook-id: the alert's.
func (w *Webhook) Tell(ctx context.Context, n Notice) error {
	body, err := n.line()
	if err != nil {
		return err
	}
	key, err := w.key()
	if err != nil {
		return err
	}
	return w.post(ctx, cmp.Or(n.Alert, n.ID), body, key)
}

func (w *Webhook) post(ctx context.Context, id string, body, key []byte) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(w.limit, postTime))
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("webhook in config.toml is not a URL")
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "x402-wallet")
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", at)
	request.Header.Set("Webhook-Signature", sign(key, id, at, body))
	client := *w.HTTP
	// what is signed for the owner's receiver is for no other
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := client.Do(request)
	if err != nil {
		return withoutURL(err)
	}
	_ = answer.Body.Close() // what it says is nothing to us
	switch status := answer.StatusCode; {
	case status >= 200 && status < 300:
		return nil
	case status >= 300 && status < 400:
		return fmt.Errorf("it answers with HTTP status %d, and no redirect is followed", status)
	default:
		return fmt.Errorf("it answers with HTTP status %d", status)
	}
}

// withoutURL takes Go's words with the URL in them off an error.
func withoutURL(err error) error {
	if outer, ok := errors.AsType[*url.Error](err); ok {
		return outer.Err
	}
	return err
}

// sign is the signature of Standard Webhooks, version 1.
func sign(key []byte, id, at string, body []byte) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// secretPrefix begins a secret, and leastKey and mostKey bound what it stands for, in bytes: as the
// specification has it.
const (
	secretPrefix      = "whsec_"
	leastKey, mostKey = 24, 64
)

func (w *Webhook) key() ([]byte, error) {
	text, err := w.Secret()
	if err != nil {
		return nil, fmt.Errorf("webhook_secret_file: %w", err)
	}
	coded, hasPrefix := strings.CutPrefix(strings.TrimSpace(text), secretPrefix)
	key, err := base64.StdEncoding.DecodeString(coded)
	if !hasPrefix || err != nil || len(key) < leastKey || len(key) > mostKey {
		return nil, fmt.Errorf("webhook_secret_file does not hold %s and the base64 of %d to %d bytes",
			secretPrefix, leastKey, mostKey)
	}
	return key, nil
}
