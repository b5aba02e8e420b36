package relay

import (
	"encoding/json"

	"x402-wallet/x402"
)

// talk is what was said in a host's session that decides how it goes on with another service.
type talk struct {
	initialize  []byte // the host's line; nil: it said none, as in MCP since 2026-07-28
	version     string // of MCP, that was answered; "": not answered yet
	initialized []byte // the host's line after that; nil: not yet

	unanswered map[string]json.RawMessage // ids of the host's requests, by nameOf
	asked      map[string]json.RawMessage // ids of the service's
}

func newTalk() talk {
	return talk{unanswered: map[string]json.RawMessage{}, asked: map[string]json.RawMessage{}}
}

// message is what matters of one here.
type message struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
}

// nameOf is an id, however it was spelled; "" is none.
func nameOf(id json.RawMessage) string {
	if len(id) > 0 && id[0] == '"' {
		var text string
		if json.Unmarshal(id, &text) == nil {
			return `"` + text
		}
	}
	if string(id) == "null" {
		return ""
	}
	return string(id)
}

func (t *talk) isInitialize(name string) bool {
	var m message
	return t.initialize != nil && json.Unmarshal(t.initialize, &m) == nil && nameOf(m.ID) == name
}

// hostSays notes a line of the host's. It reports false for an answer to what this service never asked: that
// was the one before it.
func (t *talk) hostSays(line []byte) bool {
	var m message
	if json.Unmarshal(line, &m) != nil {
		return true // the service says what is wrong with it
	}
	id := nameOf(m.ID)
	switch {
	case m.Method == "initialize" && id != "":
		t.initialize, t.version = append([]byte(nil), line...), ""
		t.unanswered[id] = m.ID
	case m.Method == "notifications/initialized":
		t.initialized = append([]byte(nil), line...)
	case m.Method == "notifications/cancelled":
		var params struct{ RequestID json.RawMessage }
		if json.Unmarshal(m.Params, &params) == nil {
			delete(t.unanswered, nameOf(params.RequestID))
		}
	case m.Method != "" && id != "":
		t.unanswered[id] = m.ID
	case m.Method == "" && id != "":
		_, isAsked := t.asked[id]
		delete(t.asked, id)
		return isAsked
	}
	return true
}

// serviceSays notes a line of the service's.
func (t *talk) serviceSays(line []byte) {
	var m message
	if json.Unmarshal(line, &m) != nil {
		return
	}
	switch id := nameOf(m.ID); {
	case id == "":
	case m.Method != "":
		t.asked[id] = m.ID
	default:
		delete(t.unanswered, id)
		if t.version == "" && t.isInitialize(id) {
			t.version = versionIn(m.Result)
		}
	}
}

func versionIn(result json.RawMessage) string {
	var r struct{ ProtocolVersion string }
	_ = json.Unmarshal(result, &r) // what cannot be read has none
	return r.ProtocolVersion
}

// codeBusy is the JSON-RPC error code of a server that is busy for a moment.
const codeBusy = -32000

// restarted ends what a service that is gone left open, and gives what the host is told of that: its requests
// are answered, and the service's are taken back. One to begin the session stays open.
func (t *talk) restarted() (told [][]byte) {
	type failed struct {
		Code    int            `json:"code"`
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	}
	type answer struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   failed          `json:"error"`
	}
	add := func(m any) {
		line, _ := json.Marshal(m) // of texts, and ids that were read as JSON
		told = append(told, append(line, '\n'))
	}
	for name, id := range t.unanswered {
		if t.version == "" && t.isInitialize(name) {
			continue
		}
		delete(t.unanswered, name)
		add(answer{"2.0", id, failed{codeBusy, "the wallet's service was restarted before it " +
			"answered; make the very same call again: it gets what was bought, and never pays twice",
			map[string]any{"error": x402.ServerUnavailable, "safeToRetry": true}}})
	}
	for name, id := range t.asked {
		delete(t.asked, name)
		add(map[string]any{"jsonrpc": "2.0", "method": "notifications/cancelled",
			"params": map[string]any{"requestId": id, "reason": "the wallet's service was restarted"}})
	}
	return told
}

// answered is the id that a line answers, and the version of MCP in it.
func answered(line []byte) (id, version string) {
	var m message
	if json.Unmarshal(line, &m) != nil || m.Method != "" {
		return "", ""
	}
	return nameOf(m.ID), versionIn(m.Result)
}
