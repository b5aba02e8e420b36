package pay

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"x402-wallet/seller"
	"x402-wallet/x402"
)

// An answer is more than its body: where a job's result will be, when to come back, what a file is called.

const (
	// maxHeaders, maxHeader and maxAddress bound what of an answer's headers is shown and kept. A job's
	// address may have a token in it; what is no address gets as much as other words of a stranger's.
	maxHeaders = 12
	maxHeader  = 119
	maxAddress = 300
	// maxRetryAfter is how far off the time may be at which a seller wants to be asked again.
	maxRetryAfter = 24 * time.Hour
)

// usefulHeaders are shown wherever a seller sends them, beside the seller's own ones, which begin with X-.
var usefulHeaders = []string{"Content-Disposition", "Content-Location", "Link", "Location", "Retry-After"}

// idleHeaders begin the names of headers that servers, proxies and security libraries add to every answer,
// and of those that carry the payment itself.
var idleHeaders = []string{"X-Amz-", "X-Amzn-", "X-Cache", "X-Cloud-", "X-Content-Type-", "X-Dns-",
	"X-Download-", "X-Envoy-", "X-Forwarded-", "X-Frame-", "X-Payment", "X-Permitted-", "X-Powered-",
	"X-Runtime", "X-Served-", "X-Timer", "X-Ua-", "X-Vercel-", "X-Xss-"}

// keptHeaders are the headers of an answer that its reader needs, as a JSON object; "" if there are none.
func keptHeaders(h http.Header) string {
	kept := Headers{}
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if len(kept) < maxHeaders && isUseful(name) {
			value := strings.ToValidUTF8(strings.Join(h[name], ", "), "\ufffd")
			most := maxHeader
			if name == "Link" || strings.HasSuffix(name, "Location") {
				most = maxAddress
			}
			kept[name] = x402.Clip(value, most)
		}
	}
	text, err := json.Marshal(kept)
	if err != nil || len(kept) == 0 {
		return ""
	}
	return string(text)
}

func isUseful(name string) bool {
	if slices.Contains(usefulHeaders, name) {
		return true
	}
	isIdle := slices.ContainsFunc(idleHeaders, func(begin string) bool {
		return strings.HasPrefix(name, begin)
	})
	const longest = 64
	return strings.HasPrefix(name, "X-") && len(name) <= longest && !isIdle
}

func readHeaders(kept string) (h Headers) {
	_ = json.Unmarshal([]byte(kept), &h)
	return h
}

// retryAfter is when a seller wants to be asked again (RFC 9110, section 10.2.3); the zero time if it does
// not say, or says what is too far off.
func retryAfter(a *seller.Answer, now time.Time) time.Time {
	value := strings.TrimSpace(a.Header.Get("Retry-After"))
	at, err := http.ParseTime(value)
	if seconds, isNumber := strconv.ParseUint(value, 10, 32); isNumber == nil {
		at, err = now.Add(time.Duration(seconds)*time.Second), nil
	}
	if err != nil || at.Before(now) || at.After(now.Add(maxRetryAfter)) {
		return time.Time{}
	}
	return at
}
