package sandbox

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// rpcError is a JSON-RPC error object.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *rpcError) Error() string { return e.Message }

func badParams(why string) error { return &rpcError{Code: -32602, Message: "invalid params: " + why} }

// rpcMethods are a node's methods. params are the positional parameters.
type rpcMethods map[string]func(params []json.RawMessage) (any, error)

// ServeHTTP answers JSON-RPC 2.0 over HTTP, one question a request, strictly.
func (m rpcMethods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var question struct {
		JSONRPC string            `json:"jsonrpc"`
		ID      json.RawMessage   `json:"id"`
		Method  string            `json:"method"`
		Params  []json.RawMessage `json:"params"`
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil || r.Method != http.MethodPost || json.Unmarshal(body, &question) != nil ||
		question.JSONRPC != "2.0" || question.ID == nil {
		http.Error(w, "a JSON-RPC 2.0 request is expected", http.StatusBadRequest)
		return
	}
	answer := map[string]any{"jsonrpc": "2.0", "id": question.ID}
	method, known := m[question.Method]
	if !known {
		answer["error"] = &rpcError{Code: -32601, Message: "the method " + question.Method +
			" does not exist or is not available"}
	} else if result, err := method(question.Params); err != nil {
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

// param reads a positional parameter; absent ones leave v alone.
func param(params []json.RawMessage, i int, v any) error {
	if i >= len(params) {
		return nil
	}
	if err := json.Unmarshal(params[i], v); err != nil {
		return badParams(err.Error())
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}
