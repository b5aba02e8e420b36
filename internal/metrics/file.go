package metrics

import (
	"bytes"
	"context"
	"io"
	"strconv"
	"strings"

	"x402-wallet/internal/ownfile"
)

// fileMode lets node_exporter, which is another user, read the file.
const fileMode = 0o644

// WriteFile writes all sources into a file, whole or not at all. process tells the figures of several
// processes apart, as a label of each; "": there is one.
func WriteFile(ctx context.Context, path, process string, sources ...Source) error {
	var all bytes.Buffer
	for _, s := range sources {
		s.write(ctx, &all)
	}
	text := all.String()
	if process != "" {
		text = labelled(text, `process=`+strconv.Quote(process))
	}
	return ownfile.Replace(path, fileMode, func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

// labelled adds a label to each line of Prometheus' text format that is a figure.
func labelled(text, label string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		end := strings.IndexAny(line, "{ ")
		switch {
		case strings.HasPrefix(line, "#") || end < 0:
			out.WriteString(line)
		case line[end] == '{':
			out.WriteString(line[:end+1] + label + "," + line[end+1:])
		default:
			out.WriteString(line[:end] + "{" + label + "}" + line[end:])
		}
	}
	return out.String()
}
