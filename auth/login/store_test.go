package login_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/zalando/go-keyring"

	"github.com/cotal-go/cotal/auth/login"
	"github.com/cotal-go/cotal/signer/signertest"
	"github.com/cotal-go/cotal/wire"
)

// fakeRing is a keyring in memory that can be broken.
type fakeRing struct {
	mu     sync.Mutex
	values map[string]string
	err    error
	hang   chan struct{} // nil, or closed when it shall answer
	lossy  bool
}

func newRing() *fakeRing { return &fakeRing{values: map[string]string{}} }

func (r *fakeRing) wait() error {
	if r.hang != nil {
		<-r.hang
	}
	return r.err
}

func (r *fakeRing) Get(service, user string) (string, error) {
	if err := r.wait(); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.values[service+"/"+user]
	if !ok {
		return "", keyring.ErrNotFound
	}
	return v, nil
}

func (r *fakeRing) Set(service, user, value string) error {
	if err := r.wait(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(value) > 2560 {
		return keyring.ErrSetDataTooBig // as that of Windows
	}
	if r.lossy {
		value = value[:1]
	}
	r.values[service+"/"+user] = value
	return nil
}

func (r *fakeRing) Delete(service, user string) error {
	if err := r.wait(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.values[service+"/"+user]; !ok {
		return keyring.ErrNotFound
	}
	delete(r.values, service+"/"+user)
	return nil
}

func openWith(t testing.TB, opts login.StoreOptions, r login.Ring) login.Sessions {
	t.Helper()
	s, err := login.OpenWith(t.Context(), opts, r, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func passphrase(text string) func(context.Context) ([]byte, error) {
	return func(context.Context) ([]byte, error) { return []byte(text), nil }
}

func TestSessions(t *testing.T) {
	t.Parallel()
	r := newRing()
	for kind, opts := range map[string]login.StoreOptions{
		login.KindKeyring: {}, login.KindFile: {Prefer: login.KindFile},
		login.KindPassphrase: {Prefer: login.KindPassphrase, Passphrase: passphrase("correct horse")},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			testSessions(t, kind, func(t testing.TB, dir string) login.Sessions {
				opts := opts
				opts.Dir = dir
				return openWith(t, opts, r)
			})
		})
	}
}

// TestSessionsInTheMockKeyring goes through the library that asks the keyring of the operating system, with its own mock below. It is
// not parallel: the mock is one for the process.
func TestSessionsInTheMockKeyring(t *testing.T) {
	keyring.MockInit()
	testSessions(t, login.KindKeyring, func(t testing.TB, dir string) login.Sessions {
		s, err := login.Open(t.Context(), &login.StoreOptions{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
	keyring.MockInitWithError(errors.New("org.freedesktop.secrets was not provided"))
	s, err := login.Open(t.Context(), &login.StoreOptions{Dir: t.TempDir()})
	if err != nil || s.Kind() != login.KindFile {
		t.Errorf("without a keyring: %v, %v, want a key file", s, err)
	}
	_, err = login.Open(t.Context(), &login.StoreOptions{Dir: t.TempDir(), Prefer: login.KindKeyring})
	if !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("a keyring that is wanted and not there = %v", err)
	}
}

// testSessions is the contract of [login.Sessions] for one that is kept in a folder.
func testSessions(t *testing.T, kind string, open func(t testing.TB, dir string) login.Sessions) {
	dir := filepath.Join(t.TempDir(), "sessions")
	s := open(t, dir)
	ctx := t.Context()
	if s.Kind() != kind {
		t.Errorf("kind = %q, want %q", s.Kind(), kind)
	}
	key := login.Key{Mesh: "demo", Issuer: issuer}
	if _, err := s.Load(ctx, key); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("load of none = %v, want not-found", err)
	}
	if err := s.Delete(ctx, key); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("delete of none = %v, want not-found", err)
	}
	if err := s.Save(ctx, key, login.Session{}); !errors.Is(err, wire.ErrBadRequest) {
		t.Errorf("save of nobody's session = %v", err)
	}
	keys := []login.Key{
		key, {Mesh: "demo", Issuer: issuer + "/"}, {Mesh: "demo2", Issuer: issuer}, {Issuer: "demo" + issuer}, {Mesh: "demo" + issuer},
		{Mesh: "../x\x00", Issuer: "\"],"},
	}
	for i, k := range keys {
		want := bigSession(t, fmt.Sprintf("refresh-%d-", i)+strings.Repeat("s", i*10_000))
		if err := s.Save(ctx, k, want); err != nil {
			t.Fatalf("save %d: %v", i, err)
		}
	}
	for i, k := range keys {
		got, err := open(t, dir).Load(ctx, k) // as another process
		if refresh, _, _ := login.Tokens(got); err != nil || !strings.HasPrefix(refresh, fmt.Sprintf("refresh-%d-", i)) {
			t.Errorf("session %d = %v, %v", i, got, err)
		}
	}
	want := bigSession(t, "second")
	if err := s.Save(ctx, key, want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Load(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	sameSession(t, got, want)
	if err := s.Delete(ctx, key); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Load(ctx, key); !errors.Is(err, wire.ErrNotFound) {
		t.Errorf("load after delete = %v", err)
	}
	if _, err := s.Load(ctx, keys[1]); err != nil {
		t.Errorf("another session after delete: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	for name, err := range map[string]error{"load": second(s.Load(ended, keys[1])), "save": s.Save(ended, key, want), "delete": s.Delete(ended, keys[1])} {
		if !errors.Is(err, context.Canceled) || wire.CodeOf(err) != wire.CodeCancelled {
			t.Errorf("%s with an ended context = %v (%s)", name, err, wire.CodeOf(err))
		}
	}
	if text := fmt.Sprintf("%v %+v %#v", s, s, s); !strings.Contains(text, dir) || strings.Contains(text, "0x") {
		t.Errorf("a store prints as %s", text)
	}
	for name, data := range tree(t, dir) {
		if bytes.Contains(data, []byte("refresh-")) || bytes.Contains(data, []byte(person)) {
			t.Errorf("file %s shows a session", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func bigSession(t testing.TB, refresh string) login.Session {
	t.Helper()
	now := time.Now().UTC()
	id := jwtOf(map[string]any{"iss": issuer, "sub": person, "aud": client, "exp": now.Add(time.Hour).Unix(), "pad": strings.Repeat("p", 4000)})
	s, err := login.NewSession(newIDP().provider(), refresh, id, now, now.Add(72*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func sameSession(t testing.TB, got, want login.Session) {
	t.Helper()
	g, err := got.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	w, err := want.Reveal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(w), string(g)); diff != "" {
		t.Errorf("session (-want +got):\n%s", diff)
	}
}

// tree reads every file below dir.
func tree(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		out[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestO12SecondLoginReplacesTheFirst: whoever logs in again with the same subject has one session, not two.
func TestO12SecondLoginReplacesTheFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, key := files(t, dir), login.Key{Mesh: "demo", Issuer: issuer}
	for _, refresh := range []string{"first", "second"} {
		if err := s.Save(t.Context(), key, bigSession(t, refresh)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.Load(t.Context(), key)
	if refresh, _, _ := login.Tokens(got); err != nil || refresh != "second" || got.Subject != person {
		t.Errorf("session = %v with %q, %v", got, refresh, err)
	}
	if n := len(tree(t, filepath.Join(dir, "session"))); n != 1 {
		t.Errorf("%d sessions are kept, want 1", n)
	}
}

// TestO13EndOfASessionSurvivesARestart: 72 hours stay 72 hours, and an end that nobody named stays unnamed.
func TestO13EndOfASessionSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir, key := t.TempDir(), login.Key{Issuer: issuer}
	want := bigSession(t, "r")
	for range 3 {
		if err := files(t, dir).Save(t.Context(), key, want); err != nil {
			t.Fatal(err)
		}
		got, err := files(t, dir).Load(t.Context(), key)
		if err != nil || got.Expires.Sub(got.Obtained) != 72*time.Hour || !got.Expires.Equal(want.Expires) {
			t.Fatalf("session until %s, %v, want %s", got.Expires, err, want.Expires)
		}
		want = got
	}
	want.Expires = time.Time{}
	if err := files(t, dir).Save(t.Context(), key, want); err != nil {
		t.Fatal(err)
	}
	if got, err := files(t, dir).Load(t.Context(), key); err != nil || !got.Expires.IsZero() {
		t.Errorf("session until %s, %v, want no end", got.Expires, err)
	}
}

// TestKeysAreMadeOnce: many stores of one folder that begin at the same time seal with one key.
func TestKeysAreMadeOnce(t *testing.T) {
	t.Parallel()
	r := newRing()
	for _, prefer := range []string{login.KindFile, login.KindKeyring} {
		dir := t.TempDir()
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				s, err := login.OpenWith(t.Context(), login.StoreOptions{Dir: dir, Prefer: prefer}, r, time.Minute)
				if err == nil {
					err = s.Save(t.Context(), login.Key{Mesh: fmt.Sprint(i), Issuer: issuer}, bigSession(t, "r"))
				}
				if err != nil {
					t.Errorf("%s: %v", prefer, err)
				}
			})
		}
		wg.Wait()
		s := openWith(t, login.StoreOptions{Dir: dir, Prefer: prefer}, r)
		for i := range 16 {
			if _, err := s.Load(t.Context(), login.Key{Mesh: fmt.Sprint(i), Issuer: issuer}); err != nil {
				t.Errorf("%s: session %d: %v", prefer, i, err)
			}
		}
	}
}

func TestSessionsPrintNothingSecret(t *testing.T) {
	t.Parallel()
	s := bigSession(t, "refresh-very-secret")
	refresh, id, _ := login.Tokens(s)
	type value struct{ s login.Session }
	type exported struct {
		S login.Session
		P *login.Session
	}
	for _, v := range []any{s, &s, value{s}, &value{s}, exported{s, &s}, []login.Session{s}, map[string]login.Session{"k": s}, login.Session{}} {
		signertest.CheckHidden(t, v, []byte(refresh), []byte(id))
		var log bytes.Buffer
		for _, h := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			slog.New(h).Info("value", "v", v)
		}
		if text := log.String(); strings.Contains(text, refresh) || strings.Contains(text, id) {
			t.Errorf("the log of a %T shows a token", v)
		}
	}
	if text, err := json.Marshal(exported{s, &s}); err != nil || !strings.Contains(string(text), person) {
		t.Errorf("JSON of a session = %s, %v", text, err)
	}
	if got := fmt.Sprint(s); got != `[session of "user-1" at "https://idp.example"]` {
		t.Errorf("a session prints as %s", got)
	}
}

func TestParseSessionRefuses(t *testing.T) {
	t.Parallel()
	whole, err := bigSession(t, "r").Reveal()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":    {"", wire.ErrBadRequest},
		"later":      {strings.Replace(string(whole), `"ver":1`, `"ver":2`, 1), &wire.Error{Code: wire.CodeUnsupportedVersion}},
		"nobody":     {strings.Replace(string(whole), person, "", 1), wire.ErrBadRequest},
		"in clear":   {strings.Replace(string(whole), "https://idp.example/token", "http://idp.example/token", 1), wire.ErrBadRequest},
		"twice":      {strings.Replace(string(whole), `"ver":1`, `"ver":1,"ver":1`, 1), wire.ErrBadRequest},
		"wrong case": {strings.Replace(string(whole), `"refresh"`, `"Refresh"`, 1), wire.ErrBadRequest},
	} {
		if _, err := login.ParseSession([]byte(c.text)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	if _, err := bigSession(t, strings.Repeat("r", 300<<10)).Reveal(); !errors.Is(err, wire.ErrExhausted) {
		t.Errorf("a session that is too large = %v", err)
	}
}
