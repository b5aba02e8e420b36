package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"x402-wallet/internal/attest"
)

// file is one file of an archive.
type file struct {
	name string
	body []byte
	run  bool // it is a program
}

func (f file) mode() fs.FileMode {
	if f.run {
		return 0o755
	}
	return 0o644
}

// sorted is the order of files in every archive, whatever order they were made in.
func sorted(files []file) []file {
	return slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
}

// tarball packs files for systems that know owners and modes: everything belongs to nobody and was
// made when the commit was.
func tarball(dir string, files []file, when time.Time) ([]byte, error) {
	var out bytes.Buffer
	packed, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	archive := tar.NewWriter(packed)
	for _, f := range sorted(files) {
		header := &tar.Header{Name: dir + "/" + f.name, Size: int64(len(f.body)), Mode: int64(f.mode()),
			ModTime: when, Format: tar.FormatUSTAR}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(f.body); err != nil {
			return nil, err
		}
	}
	err = errors.Join(archive.Close(), packed.Close())
	return out.Bytes(), err
}

// zipped packs files for Windows, and for MCP hosts.
func zipped(files []file, when time.Time) ([]byte, error) {
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, f := range sorted(files) {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: when}
		header.SetMode(f.mode())
		w, err := archive.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// pack writes a target's archive, bundle and bill of materials.
func (r *release) pack(t target, program []byte, made *debug.BuildInfo, pages []file) error {
	dir := "x402-wallet-" + r.version + "-" + t.String()
	r.programs[dir+"/"+t.binary()] = hexSum(program)
	files := append(slices.Clone(pages), file{name: t.binary(), body: program, run: true})
	archive, pack := dir+".tar.gz", func() ([]byte, error) { return tarball(dir, files, r.when) }
	if t.os == "windows" {
		for i := range files {
			files[i].name = dir + "/" + files[i].name
		}
		archive, pack = dir+".zip", func() ([]byte, error) { return zipped(files, r.when) }
	}
	return errors.Join(r.write(archive, pack),
		r.write(dir+".cdx.json", func() ([]byte, error) { return r.bill(t, program, made) }),
		r.write(dir+".mcpb", func() ([]byte, error) { return r.bundle(t, program, pages) }))
}

func (r *release) write(name string, body func() ([]byte, error)) error {
	text, err := body()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return os.WriteFile(filepath.Join(r.out, name), text, 0o644) //nolint:gosec // for everybody
}

// finish writes the registry's entry, the provenance of everything and the checksums of everything.
// The binaries are listed as they lie in the archives, so that who has unpacked one beside SHA256SUMS
// checks it with the same command.
func (r *release) finish(ctx context.Context, list []target) error {
	if err := r.write("server.json", func() ([]byte, error) { return r.serverJSON(list) }); err != nil {
		return err
	}
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	sums := maps.Clone(r.programs)
	for _, e := range entries {
		sum, err := sumOf(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		sums[e.Name()] = sum
	}
	statement, err := r.provenance(ctx, sums, list)
	if err != nil {
		return err
	}
	sums[attest.ProvenanceName] = hexSum(statement)
	return errors.Join(
		r.write(attest.ProvenanceName, func() ([]byte, error) { return statement, nil }),
		r.write(attest.SumsName, func() ([]byte, error) { return sums.Text(), nil }))
}

func sumOf(path string) (string, error) {
	body, err := os.ReadFile(path)
	return hexSum(body), err
}

func hexSum(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

func indented(v any) ([]byte, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return text.Bytes(), err
}
