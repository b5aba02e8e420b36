package seller

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of a zstd decoder: the window that RFC 9659 allows on the web.
const maxWindow = 8 << 20

// errMislabelled says that a body is not in the encoding that its header names.
var errMislabelled = errors.New("the body is not in the encoding that its Content-Encoding names")

// decoded is the body without its Content-Encoding (RFC 9110, section 8.4). The client asks for no encoding,
// and some sellers send one all the same. The packed bytes are limited too, because an endless row of
// empty gzip members would never reach a limit on what comes out.
//
// A body stays as it is, with its Content-Encoding in the Answer's header, where the encoding is unknown or
// is one of several. A body that is mislabelled is an error; it stays as it is where it was paid for.
func decoded(response *http.Response, limit int64, isPaid bool) (io.Reader, error) {
	labels := response.Header.Values("Content-Encoding")
	isHead := response.Request != nil && response.Request.Method == http.MethodHead
	if len(labels) != 1 || isHead {
		return response.Body, nil
	}
	unpack := unpackers[strings.ToLower(strings.TrimSpace(labels[0]))]
	if unpack == nil {
		return response.Body, nil
	}
	packed := bufio.NewReader(io.LimitReader(response.Body, limit+1<<20))
	if _, err := packed.Peek(1); errors.Is(err, io.EOF) { // there is no body
		return packed, nil
	}
	body, err := unpack(packed)
	if errors.Is(err, errMislabelled) && isPaid {
		return packed, nil
	}
	if err != nil {
		return nil, err
	}
	response.Header.Del("Content-Encoding")
	response.Header.Del("Content-Length")
	response.ContentLength = -1
	return body, nil
}

// isHeavy reports whether a body's decoder may take as much as its window before anything comes out of it.
func isHeavy(response *http.Response) bool {
	label := strings.ToLower(strings.TrimSpace(response.Header.Get("Content-Encoding")))
	return label == "br" || label == "zstd"
}

// unpackers are the content codings of the web (IANA's registry), but compress, which nobody sends. Each
// looks at the first bytes before it takes any; brotli has no bytes to tell it by.
var unpackers = map[string]func(*bufio.Reader) (io.Reader, error){
	"gzip": gunzip, "x-gzip": gunzip,
	"br": func(packed *bufio.Reader) (io.Reader, error) { return brotli.NewReader(packed), nil },
	"deflate": func(packed *bufio.Reader) (io.Reader, error) {
		head, _ := packed.Peek(2)
		if len(head) == 2 && head[0]&0x0f == 8 && (int(head[0])<<8|int(head[1]))%31 == 0 {
			return zlib.NewReader(packed)
		}
		return flate.NewReader(packed), nil // without zlib's header, as some servers send it
	},
	"zstd": func(packed *bufio.Reader) (io.Reader, error) {
		if head, _ := packed.Peek(4); !bytes.Equal(head, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
			return nil, errMislabelled
		}
		return zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow))
	},
}

func gunzip(packed *bufio.Reader) (io.Reader, error) {
	if head, _ := packed.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return nil, errMislabelled
	}
	return gzip.NewReader(packed)
}
