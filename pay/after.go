package pay

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"x402-wallet/history"
	"x402-wallet/seller"
	"x402-wallet/x402"
)

func step(do x402.Step, why string, about ...any) x402.Next {
	return x402.Next{Do: do, Why: fmt.Sprintf(why, about...)}
}

// readOn is the next step after an answer that served: none, or the way to the rest of its content.
func (r Result) readOn() x402.Next {
	switch {
	case !r.ContentTruncated:
		return x402.Next{Do: x402.Done}
	case r.ContentURI == "" && r.Content == "":
		return step(x402.Done, "the content is not text; as nothing was paid for it, it is not kept")
	case r.ContentURI == "":
		return step(x402.Change, "these are the first %d of %d bytes; as nothing was paid for them, the "+
			"rest is not kept: ask the seller for less at a time", len(r.Content), r.ContentLength)
	}
	return ReadOn(r.PaymentID, len(r.Content), r.ContentLength)
}

// ReadOn is the next step after a piece of a content that is stored, where more follows: from next on.
// Next is 0 where it is not text, which only a person can do something with.
func ReadOn(paymentID string, next, length int) x402.Next {
	if next > 0 {
		return step(x402.Change, "already bought, do not pay again: x402_history with paymentId %q and "+
			"offset %d reads on, with find it searches", paymentID, next)
	}
	save := step(x402.AskPerson, "already bought; its %d bytes are not text", length)
	save.Command = "x402-wallet show " + paymentID + " --content"
	save.Say = "It is not text: with > and a name behind it, this saves it as a file."
	return save
}

// bought is the next step after an answer from the store.
func bought(p history.Payment, next x402.Next) x402.Next {
	why := "nothing paid now; bought " + p.Created.UTC().Format(time.RFC3339)
	if next.Why != "" {
		why += "; " + next.Why
	}
	next.Why = why
	return next
}

// accepted is the next step after 202 Accepted (RFC 9110, section 15.3.3), which is no result yet. The call
// that asked for a job's result may be made again; the call that began the job would buy another one.
func accepted(a *seller.Answer, now time.Time, isQuestion bool) x402.Next {
	next := step(x402.Change, "the seller works on it (HTTP 202); if headers or content name an address of "+
		"this site for the result, x402_pay asks there by GET with this payment, and buys nothing")
	if isQuestion {
		next = step(x402.Wait, "the seller still works on it (HTTP 202); the same call asks again, without "+
			"another payment")
	}
	if at := retryAfter(a, now); !at.IsZero() {
		next.At = x402.Stamp(at)
	}
	return next
}

// notServed is the next step where a seller neither served nor asked for payment: to wait only where time may
// mend it.
func notServed(a *seller.Answer, now time.Time) x402.Next {
	said := fmt.Sprintf("the seller answered HTTP %d and asked for no payment", a.Status)
	switch {
	case a.ToolFailed:
		return step(x402.Change, "the tool failed and asked for no payment; content is what it says")
	case wantsBrowser(a):
		return step(x402.GiveUp, "%s: "+browserWanted, said)
	}
	switch a.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return later(a, now, said)
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		return step(x402.Change, "%s: it wants a credential in headers, or lets nobody in; content may say "+
			"which", said)
	case http.StatusNotFound:
		return step(x402.Change, "%s: is it the right URL and method? %s", said, lists(a))
	case http.StatusMethodNotAllowed:
		return step(x402.Change, "%s: is it the right URL and method?%s %s", said, allowedBy(a), lists(a))
	case http.StatusGone, http.StatusUnavailableForLegalReasons:
		return step(x402.GiveUp, "%s: it is not there any more, or not to be had", said)
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported, http.StatusVariantAlsoNegotiates,
		http.StatusLoopDetected, http.StatusNotExtended, http.StatusNetworkAuthenticationRequired:
		return step(x402.GiveUp, "%s: the same call is answered alike", said)
	}
	if a.Status >= 500 {
		return later(a, now, said)
	}
	return step(x402.Change, "%s: is it the right URL and method? content may say what is wrong with "+
		"the call", said)
}

// later is the next step where time may mend it, with the time that the seller names.
func later(a *seller.Answer, now time.Time, said string) x402.Next {
	next := step(x402.Wait, "%s; the same call may be served later", said)
	if at := retryAfter(a, now); !at.IsZero() {
		next.At = x402.Stamp(at)
	}
	return next
}

// lists says where a seller may list what it sells.
func lists(a *seller.Answer) string {
	at, err := url.Parse(a.FinalURL)
	if err != nil || at.Host == "" {
		return "x402_discover_services finds what there is"
	}
	return fmt.Sprintf("x402_discover_services with url %s lists what the seller says it sells",
		x402.Quote(at.Scheme+"://"+at.Host))
}

// allowedBy are the methods that an answer allows: of the seller's words only those that are known.
func allowedBy(a *seller.Answer) string {
	var allowed []string
	for _, method := range strings.Split(strings.Join(a.Header.Values("Allow"), ","), ",") {
		method = strings.ToUpper(strings.TrimSpace(method))
		if seller.IsMethod(method) && !slices.Contains(allowed, method) {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return ""
	}
	return " The seller allows " + strings.Join(allowed, ", ") + "."
}

// wantsBrowser reports whether Cloudflare answered instead of the seller, with a page that only a browser
// gets past
// (developers.cloudflare.com/cloudflare-challenges/challenge-types/challenge-pages/detect-response).
func wantsBrowser(a *seller.Answer) bool {
	return a != nil && strings.EqualFold(strings.TrimSpace(a.Header.Get("Cf-Mitigated")), "challenge")
}

const browserWanted = "the site lets browsers in alone (a challenge page of Cloudflare), and this is none"

// askAgain is the next step after a payment that was not served: the seller is asked again with it, as
// long as it can be shown. A transaction of the wallet's own settling always can.
func (e *Engine) askAgain(p history.Payment) x402.Next {
	const free = "the same call asks the seller again, free of charge"
	end := p.Evidence.ExpiresAt
	until := end.UTC().Format(time.RFC3339)
	switch {
	case end.IsZero() || e.walletSettles(p):
		return step(x402.Repeat, free)
	case e.Now().Before(end):
		return step(x402.Repeat, "%s, until %s", free, until)
	}
	complain := step(x402.AskPerson, "the signed payment expired at %s, so that the seller will hardly "+
		"serve it any more", until)
	complain.Command = "x402-wallet show " + p.ID + " --receipt"
	complain.Say = p.Price.Price() + " was paid and nothing was served; this prints the receipt for it."
	return complain
}
