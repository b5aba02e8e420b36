// Package otlptest is a collector for tests. It reads what it is sent by OpenTelemetry's own types, and
// strictly: a member that they do not have, or a value of another type, is a fault.
package otlptest

import (
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// Collector takes spans at /v1/traces.
type Collector struct {
	URL string

	mu     sync.Mutex
	spans  []Span
	raw    []string // of each request that came, decompressed
	header []http.Header
	answer func(http.ResponseWriter) bool
	fault  error // of a request that cannot be read
	came   chan struct{}
}

// Span is one that came, with its resource's attributes.
type Span struct {
	*tracev1.Span
	Resource map[string]any
}

// Start begins one that lives as long as the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{came: make(chan struct{}, 1)}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	c.URL = s.URL + "/v1/traces"
	return c
}

// Answer has f answer each request from now on; where it reports true, the spans are not taken.
func (c *Collector) Answer(f func(http.ResponseWriter) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

func (c *Collector) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	text, spans, err := read(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw, c.header = append(c.raw, text), append(c.header, r.Header)
	defer c.wake()
	if c.answer != nil && c.answer(rw) {
		return
	}
	if err != nil {
		c.fault = err
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	c.spans = append(c.spans, spans...)
	rw.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(rw, "{}")
}

func (c *Collector) wake() {
	select {
	case c.came <- struct{}{}:
	default:
	}
}

// Spans waits until there are n, and gives all that came.
func (c *Collector) Spans(t testing.TB, n int) []Span {
	t.Helper()
	c.await(t, func() bool { return len(c.spans) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Requests waits until n came, and gives the bodies and headers of all, as they came.
func (c *Collector) Requests(t testing.TB, n int) ([]string, []http.Header) {
	t.Helper()
	c.await(t, func() bool { return len(c.raw) >= n })
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.raw...), append([]http.Header(nil), c.header...)
}

// maxWait is longer than anything takes that comes at all.
const maxWait = time.Minute

func (c *Collector) await(t testing.TB, enough func() bool) {
	t.Helper()
	late := time.After(maxWait)
	for {
		c.mu.Lock()
		has, fault := enough(), c.fault
		c.mu.Unlock()
		if fault != nil {
			t.Fatalf("what is sent is no OTLP: %v", fault)
		}
		if has {
			return
		}
		select {
		case <-c.came:
		case <-late:
			t.Fatal("the collector waits in vain")
		}
	}
}

// read reads a request as a collector does.
func read(r *http.Request) (text string, spans []Span, err error) {
	if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" {
		return "", nil, fmt.Errorf("%s %s", r.Method, r.URL.Path)
	}
	if r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Content-Encoding") != "gzip" {
		return "", nil, fmt.Errorf("it is no compressed JSON")
	}
	unpacked, err := gzip.NewReader(r.Body)
	if err != nil {
		return "", nil, err
	}
	body, err := io.ReadAll(unpacked)
	if err != nil {
		return "", nil, err
	}
	ready, err := asProtobuf(body)
	if err != nil {
		return string(body), nil, err
	}
	var all tracev1.TracesData // as an ExportTraceServiceRequest
	if err := protojson.Unmarshal(ready, &all); err != nil {
		return string(body), nil, err
	}
	for _, of := range all.ResourceSpans {
		resource := map[string]any{}
		for _, a := range of.Resource.Attributes {
			resource[a.Key] = a.Value.GetStringValue()
		}
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				spans = append(spans, Span{Span: s, Resource: resource})
			}
		}
	}
	return string(body), spans, nil
}

// asProtobuf writes ids in base64, as protobuf's JSON has bytes; OTLP has them in hex, and nothing else.
func asProtobuf(body []byte) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	if err := ids(all); err != nil {
		return nil, err
	}
	return json.Marshal(all)
}

var idSizes = map[string]int{"traceId": 16, "spanId": 8, "parentSpanId": 8}

func ids(in any) error {
	switch v := in.(type) {
	case []any:
		for _, item := range v {
			if err := ids(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for name, member := range v {
			size, isID := idSizes[name]
			if !isID {
				if err := ids(member); err != nil {
					return err
				}
				continue
			}
			text, _ := member.(string)
			id, err := hex.DecodeString(text)
			if err != nil || len(id) != size {
				return fmt.Errorf("%s is %v", name, member)
			}
			v[name] = base64.StdEncoding.EncodeToString(id)
		}
	}
	return nil
}
