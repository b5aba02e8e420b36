package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
)

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

// BadParams is a node's answer to parameters that it cannot read.
func BadParams(why string) error { return &rpcError{Code: -32602, Message: "invalid params: " + why} }

// NodeRefuses is a node's answer when it does not do what it is asked.
func NodeRefuses(format string, args ...any) error {
	return &rpcError{Code: -32000, Message: fmt.Sprintf(format, args...)}
}

// rpcNode is a node of one chain: it asks its methods, which get the positional parameters, with the
// chain's lock.
type rpcNode struct {
	chain   *sync.Mutex
	methods map[string]Method
}

// Method answers with positional parameters, under the lock of its chain.
type Method = func(params []json.RawMessage) (any, error)

// maxQuestion bounds a request to a node, in bytes: a hundred addresses need a tenth of it.
const maxQuestion = 64 << 10

// ServeHTTP answers JSON-RPC 2.0 over HTTP, one question a request, strictly.
func (n rpcNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		JSONRPC string            `json:"jsonrpc"`
		ID      json.RawMessage   `json:"id"`
		Method  string            `json:"method"`
		Params  []json.RawMessage `json:"params"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxQuestion))
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &question) != nil ||
		question.JSONRPC != "2.0" || question.ID == nil {
		http.Error(w, "a JSON-RPC 2.0 request is expected", http.StatusBadRequest)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": question.ID}
	result, err := n.ask(question.Method, question.Params)
	if err != nil {
		var coded *rpcError
		if !errors.As(err, &coded) {
			coded = &rpcError{Code: -32000, Message: err.Error()}
		}
		answer["error"] = coded
	} else {
		answer["result"] = result
	}
	writeJSON(w, http.StatusOK, answer)
}

func (n rpcNode) ask(name string, params []json.RawMessage) (any, error) {
	method, known := n.methods[name]
	if !known {
		return nil, &rpcError{Code: -32601, Message: "the method " + name +
			" does not exist or is not available"}
	}
	n.chain.Lock()
	defer n.chain.Unlock()
	return method(params)
}

// Read reads positional parameters, of which the last one may be absent.
func Read(params []json.RawMessage, into ...any) error {
	if len(params) < len(into)-1 {
		return BadParams("too few")
	}
	for i, raw := range params[:min(len(params), len(into))] {
		if err := json.Unmarshal(raw, into[i]); err != nil {
			return BadParams(err.Error())
		}
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
