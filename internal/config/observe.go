package config

import (
	"math"
	"path/filepath"
)

// Formats of the log.
const (
	LogText = "text" // what happens, in slog's text format
	LogJSON = "json" // the same in JSON, and a line for each payment
)

// logging says how the log is written.
type logging struct{ Format string }

// traces says where spans go.
type traces struct {
	// of OTLP over HTTP, whole: "http://127.0.0.1:4318/v1/traces"; "": nowhere
	Endpoint string `toml:"endpoint"`
	// an owner-only file with a line "Name: value" for each header; "": none
	HeadersFile string  `toml:"headers_file"`
	Sample      float64 `toml:"-"`       // the part of the calls whose caller named no trace
	PassOn      bool    `toml:"pass_on"` // sellers and MCP servers hear which trace a call belongs to
}

// fileTraces is that as it is written.
type fileTraces struct {
	traces
	Sample *float64 `toml:"sample"`
}

func (c *Checker) traces(f fileTraces) traces {
	t := f.traces
	t.Sample = 1
	if f.Sample != nil {
		t.Sample = *f.Sample
		c.Refuse(math.IsNaN(t.Sample) || t.Sample < 0 || t.Sample > 1, "traces.sample",
			"is %v; it must be from 0.0 to 1.0", t.Sample)
	}
	if t.Endpoint == "" {
		c.Refuse(f != fileTraces{}, "traces", `needs endpoint = "http://127.0.0.1:4318/v1/traces"`)
		return t
	}
	at := c.OwnerURL("traces.endpoint", t.Endpoint, "http://127.0.0.1:4318/v1/traces")
	c.Refuse(at != nil && at.User != nil, "traces.endpoint",
		"has a name or password in it; what the collector knows you by goes into headers_file")
	c.Refuse(t.HeadersFile != "" && !filepath.IsAbs(t.HeadersFile), "traces.headers_file",
		"must be a full path")
	return t
}
