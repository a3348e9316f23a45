package oidc

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
)

// maxKeys bounds a key set.
const maxKeys = 100

// keyring is a parsed key set, never changed once made.
type keyring struct {
	// keys are by key id and algorithm: those that fit it. The empty id stands for any.
	keys map[lookup][]jose.JSONWebKey
	ids  map[string]bool
	// algorithms are those the keys name themselves.
	algorithms []string
	usable     int
}

type lookup struct{ kid, alg string }

// parseKeys reads a JWK set (RFC 7517 section 5). Keys that check no signature we accept are left out, as that section asks:
// other types, curves and uses, too short, malformed, and those with a private half in them. A set of no usable key is valid
// and accepts nobody.
func parseKeys(body []byte) (*keyring, error) {
	doc, err := decodeObject(body, maxBody)
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if raw := doc.get("keys"); len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		return nil, fmt.Errorf("no list of keys")
	}
	if len(items) > maxKeys {
		return nil, fmt.Errorf("%d keys, limit %d", len(items), maxKeys)
	}
	r := &keyring{keys: map[lookup][]jose.JSONWebKey{}, ids: map[string]bool{}}
	for _, item := range items {
		if key, ok := parseKey(item); ok {
			r.add(key)
		}
	}
	return r, nil
}

func (r *keyring) add(key jose.JSONWebKey) {
	fit := false
	for _, alg := range accepted {
		if !fits(&key, alg) {
			continue
		}
		fit = true
		r.keys[lookup{"", alg}] = append(r.keys[lookup{"", alg}], key)
		if key.KeyID != "" {
			r.keys[lookup{key.KeyID, alg}] = append(r.keys[lookup{key.KeyID, alg}], key)
		}
		if key.Algorithm != "" {
			r.algorithms = append(r.algorithms, alg)
		}
	}
	if fit {
		r.usable++
	}
	if key.KeyID != "" {
		r.ids[key.KeyID] = true
	}
}

// find returns the keys for an id and algorithm. The result must not be changed.
func (r *keyring) find(kid, alg string) []jose.JSONWebKey {
	return slices.Clip(r.keys[lookup{kid, alg}])
}

// parseKey reads one key. What is not needed to check a signature does not reach the parser: certificates in a key
// would have to parse and match for nothing.
func parseKey(raw []byte) (jose.JSONWebKey, bool) {
	var key jose.JSONWebKey
	o, err := decodeObject(raw, maxBody)
	if err != nil {
		return key, false
	}
	for _, private := range []string{"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"} {
		if o.has(private) {
			return key, false
		}
	}
	ops, ok := o.texts("key_ops")
	if !ok || o.has("key_ops") && !slices.Contains(ops, "verify") {
		return key, false
	}
	public := map[string]json.RawMessage{}
	for _, name := range []string{"kty", "crv", "n", "e", "x", "y"} {
		if v := o.get(name); v != nil {
			public[name] = v
		}
	}
	data, err := json.Marshal(public)
	if err != nil || key.UnmarshalJSON(data) != nil || !key.Valid() || !key.IsPublic() {
		return key, false
	}
	for name, to := range map[string]*string{"kid": &key.KeyID, "alg": &key.Algorithm, "use": &key.Use} {
		if *to, ok = o.text(name); !ok {
			return key, false
		}
	}
	return key, true
}
