package config

import (
	"math"
	"net"
	"path/filepath"
	"strconv"
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

// figures say where `x402-wallet mcp` shows its metrics; at most one is given.
type figures struct {
	Listen string `toml:"listen"` // an address of this machine
	File   string `toml:"file"`   // for node_exporter's textfile collector
}

func (c *Checker) metrics(f figures) figures {
	c.Refuse(f.Listen != "" && f.File != "", "metrics", "either listen or file says where they are shown")
	if f.Listen != "" {
		host, port, err := net.SplitHostPort(f.Listen)
		_, bad := strconv.ParseUint(port, 10, 16)
		c.Refuse(err != nil || bad != nil || !IsLoopback(host), "metrics.listen",
			`must be an address of this machine like "127.0.0.1:9464"`)
	}
	c.Refuse(f.File != "" && (!filepath.IsAbs(f.File) || filepath.Ext(f.File) != ".prom"), "metrics.file",
		`must be a full path that ends in ".prom"`)
	return f
}
