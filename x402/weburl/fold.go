package weburl

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// Fold writes a web URL as the WHATWG URL standard has browsers and fetch send it: without tabs, ends of
// lines and fragment, backslashes as slashes, scheme and host in small letters, the host in ASCII, dot
// segments resolved, and percent-encoded what no request may hold. What may not be asked stays as it is and
// is still refused: credentials, control characters, what is not UTF-8, numbers that mean an address.
func Fold(raw string) string {
	text := strings.Trim(strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(raw), " ")
	scheme, rest, _ := strings.Cut(text, ":")
	scheme = strings.ToLower(scheme)
	if scheme != "https" && scheme != "http" {
		return raw
	}
	rest, _, _ = strings.Cut(rest, "#")
	before, query, hasQuery := strings.Cut(rest, "?")
	before, isWeb := strings.CutPrefix(strings.ReplaceAll(before, `\`, "/"), "//")
	if !isWeb {
		return raw
	}
	host, path := before, ""
	if i := strings.Index(before, "/"); i >= 0 {
		host, path = before[:i], before[i:]
	}
	folded := scheme + "://" + foldHost(scheme, host) + encoded(withoutDots(path), "\"<>`{}")
	if hasQuery {
		folded += "?" + encoded(query, `"<>'`)
	}
	return folded
}

func foldHost(scheme, host string) string {
	if strings.Contains(host, "@") {
		return host
	}
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, ""
	}
	if isASCII(name) {
		host = strings.ToLower(host)
	} else if ascii := Punycode(name); ascii != "" && port != "" {
		host = ascii + ":" + port
	} else if ascii != "" && err != nil {
		host = ascii
	}
	return strings.TrimSuffix(host, map[string]string{"https": ":443", "http": ":80"}[scheme])
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

// encoded percent-encodes blanks, letters beyond ASCII and those that are named. U+FFFD is how text looks
// that was not UTF-8: it stays, to be refused.
func encoded(text, also string) string {
	var out strings.Builder
	for _, r := range text {
		isOther := r >= utf8.RuneSelf && r != utf8.RuneError
		if r == ' ' || isOther || strings.ContainsRune(also, r) {
			for _, b := range []byte(string(r)) {
				fmt.Fprintf(&out, "%%%02X", b)
			}
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

// withoutDots resolves the segments "." and ".." of a path, encoded ones too.
func withoutDots(path string) string {
	var kept []string
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		dots := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
		isLast := i == len(segments)-1
		switch {
		case dots != "." && dots != "..":
			kept = append(kept, segment)
			continue
		case dots == ".." && len(kept) > 1:
			kept = slices.Delete(kept, len(kept)-1, len(kept))
		}
		if isLast {
			kept = append(kept, "")
		}
	}
	return strings.Join(kept, "/")
}

// domains turns hosts into ASCII as the WHATWG URL standard does.
var domains = sync.OnceValue(func() *idna.Profile {
	return idna.New(idna.MapForLookup(), idna.Transitional(false), idna.StrictDomainName(false),
		idna.CheckHyphens(false), idna.BidiRule(), idna.CheckJoiners(true))
})

// Punycode is a host's ASCII form; "": it has none, or is ASCII.
func Punycode(host string) string {
	ascii, err := domains().ToASCII(host)
	if err != nil || isASCII(host) || strings.ContainsRune(host, utf8.RuneError) {
		return ""
	}
	return ascii
}
