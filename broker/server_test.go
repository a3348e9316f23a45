package broker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/cotal-go/cotal/broker"
	"github.com/cotal-go/cotal/internal/faketime"
	"github.com/cotal-go/cotal/wire"
)

func TestServesAccountsFromTheRecords(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	s := start(t, c.trust, options(t))
	store(t, connect(t, s, user(t, acct, 0)), "A", "a.b")

	stats, err := s.Stats()
	if err != nil {
		t.Fatalf("Stats: %v", err)
	}
	if stats.Connections != 1 || stats.Streams != 1 || stats.Messages != 1 || stats.StoreBytes == 0 || stats.MaxStore != 1<<30 {
		t.Errorf("Stats = %+v, want 1 connection, 1 stream, 1 message in a store of 1 GiB", stats)
	}
	if s.ClientURL() != "" {
		t.Errorf("ClientURL of a broker that does not listen = %q, want none", s.ClientURL())
	}
}

// store creates a file stream and stores one message in it.
func store(t testing.TB, nc *nats.Conn, stream, subject string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{subject}}); err != nil {
		t.Fatalf("create stream %q: %v", stream, err)
	}
	if _, err := js.Publish(ctx, subject, []byte("kept")); err != nil {
		t.Fatalf("publish %q: %v", subject, err)
	}
}

func TestRestartKeepsMessages(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	opts := options(t)
	s := start(t, c.trust, opts)
	store(t, connect(t, s, user(t, acct, 0)), "A", "a.b")
	s.Shutdown()
	s.Shutdown() // again is no harm

	s = start(t, c.trust, opts)
	js, err := jetstream.New(connect(t, s, user(t, acct, 0)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := js.Stream(ctx, "A")
	if err != nil {
		t.Fatalf("stream after restart: %v", err)
	}
	if m, err := stream.GetMsg(ctx, 1); err != nil || string(m.Data) != "kept" {
		t.Errorf("message after restart = %v, %v; want kept", m, err)
	}
}

func TestRestartUnderANewOperatorKey(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	opts := listening(t)
	s := start(t, c.trust, opts)
	address, id := s.ClientURL(), s.ID()
	ctl := control(t, s, broker.Static(c.systemUser(t, time.Hour)))
	back := make(chan string, 2)
	for name, opt := range map[string]nats.Option{"tcp": nats.Name("tcp"), "in_process": nats.InProcessServer(s.InProcess())} {
		nc, err := nats.Connect(address, opt, user(t, acct, 0), nats.Timeout(time.Minute), nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
			nats.ReconnectHandler(func(*nats.Conn) { back <- name }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
	}

	next := c.rotated(t)
	if err := ctl.PutAccount(t.Context(), public(t, acct), next.claim(t, acct)); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("PutAccount signed by the next key before the restart = %v, want failed-precondition", err)
	}
	if err := s.Restart(t.Context(), newChain(t).trust); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Restart under another operator = %v, want failed-precondition", err)
	}
	if s.ID() != id {
		t.Error("a refused restart stopped the broker")
	}
	if err := s.Restart(t.Context(), next.trust); err != nil {
		t.Fatalf("Restart: %v", err)
	}
	if s.ClientURL() != address || s.ID() == id {
		t.Errorf("after restart: address %q (was %q), the id must be new", s.ClientURL(), address)
	}
	<-back
	<-back
	if err := ctl.PutAccount(t.Context(), public(t, acct), next.claim(t, acct)); err != nil {
		t.Errorf("PutAccount signed by the new key: %v", err)
	}
	s.Shutdown()
	if err := s.Restart(t.Context(), next.trust); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Restart after Shutdown = %v, want unavailable", err)
	}
}

func TestRestartThatFailsCanBeRepeated(t *testing.T) {
	c := newChain(t)
	opts := options(t)
	s := start(t, c.trust, opts)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Restart(ended, c.trust); !errors.Is(err, context.Canceled) {
		t.Errorf("Restart with an ended context = %v, want cancelled", err)
	}
	if _, err := s.Stats(); err != nil {
		t.Errorf("Stats after a restart that did not begin: %v", err)
	}
	obstacle := filepath.Join(opts.StoreDir, "accounts", public(t, key(t, nkeys.PrefixByteAccount))+".jwt")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context(), c.trust); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Restart with an unreadable claim = %v, want failed-precondition", err)
	}
	if _, err := s.Stats(); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Stats of a broker that did not come back = %v, want unavailable", err)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context(), c.trust); err != nil {
		t.Errorf("Restart again: %v", err)
	}
	if _, err := s.Stats(); err != nil {
		t.Errorf("Stats: %v", err)
	}
}

func TestStartMakesTheAccountDirectoryEqualToTheRecords(t *testing.T) {
	c := newChain(t)
	kept, dropped := c.account(t), c.account(t)
	opts := options(t)
	s := start(t, c.trust, opts)
	store(t, connect(t, s, user(t, dropped, 0)), "D", "d")
	s.Shutdown()

	// The claim on disk is newer than the record; one account has gone; a crash left half a claim.
	dir := filepath.Join(opts.StoreDir, "accounts")
	newer := c.claim(t, kept, func(ac *jwt.AccountClaims) { ac.Limits.Conn = 1 })
	write(t, filepath.Join(dir, public(t, kept)+".jwt"), newer)
	write(t, filepath.Join(dir, "half.tmp"), "x")
	delete(c.trust.Accounts, public(t, dropped))

	s = start(t, c.trust, opts)
	got, err := os.ReadFile(filepath.Join(dir, public(t, kept)+".jwt"))
	if err != nil || string(got) != c.trust.Accounts[public(t, kept)] {
		t.Errorf("claim of the kept account was not replaced by the record (%v)", err)
	}
	var names []string
	for _, e := range must(os.ReadDir(dir))(t) {
		names = append(names, e.Name())
	}
	want := []string{public(t, kept) + ".jwt", c.trust.SystemPublic + ".jwt"}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("account directory = %q, want %q", names, want)
	}
	if _, err := nats.Connect("", nats.InProcessServer(s.InProcess()), user(t, dropped, 0), nats.Timeout(time.Minute)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("connect to a removed account = %v, want %v", err, nats.ErrAuthorization)
	}

	// The streams of the account that has gone are still there, until they are pruned.
	orphans, err := s.Orphans()
	if err != nil || !slices.Equal(orphans, []string{public(t, dropped)}) {
		t.Fatalf("Orphans = %q, %v; want the dropped account", orphans, err)
	}
	if err := s.PruneAccount(public(t, dropped)); err != nil {
		t.Errorf("PruneAccount: %v", err)
	}
	if _, err := os.Stat(filepath.Join(opts.StoreDir, "jetstream", public(t, dropped))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("streams of the pruned account: %v, want not exist", err)
	}
	if err := s.PruneAccount(public(t, dropped)); err != nil {
		t.Errorf("PruneAccount again: %v", err)
	}
}

func TestAnEmptyRecordDeletesNoStreams(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	opts := options(t)
	s := start(t, c.trust, opts)
	store(t, connect(t, s, user(t, acct, 0)), "A", "a")
	s.Shutdown()

	empty := c.trust
	empty.Accounts = nil
	start(t, empty, opts).Shutdown()

	s = start(t, c.trust, opts)
	js, err := jetstream.New(connect(t, s, user(t, acct, 0)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := js.Stream(ctx, "A"); err != nil {
		t.Errorf("stream after a start with empty records: %v", err)
	}
}

func TestPruneAccountRefuses(t *testing.T) {
	c := newChain(t)
	acct := c.account(t)
	s := start(t, c.trust, options(t))
	for _, tc := range []struct {
		name, account string
		want          wire.Code
	}{
		{"known", public(t, acct), wire.CodeFailedPrecondition},
		{"system", c.trust.SystemPublic, wire.CodeFailedPrecondition},
		{"not_an_account", "../../etc", wire.CodeBadRequest},
		{"user_key", public(t, key(t, nkeys.PrefixByteUser)), wire.CodeBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := s.PruneAccount(tc.account); wire.CodeOf(err) != tc.want {
				t.Errorf("PruneAccount(%q) = %v, want code %q", tc.account, err, tc.want)
			}
		})
	}
	s.Shutdown()
	if err := s.PruneAccount(public(t, key(t, nkeys.PrefixByteAccount))); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("PruneAccount after Shutdown = %v, want unavailable", err)
	}
	if _, err := s.Stats(); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("Stats after Shutdown = %v, want unavailable", err)
	}
	if _, err := s.InProcess().InProcessConn(); !errors.Is(err, wire.ErrUnavailable) {
		t.Errorf("InProcessConn after Shutdown = %v, want unavailable", err)
	}
}

// TestLimits lets one account fill everything it may, and checks that another does not notice.
func TestLimits(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		greedy := c.account(t, func(ac *jwt.AccountClaims) {
			ac.Limits.DiskStorage, ac.Limits.Conn, ac.Limits.Subs, ac.Limits.Payload, ac.Limits.Streams = 1<<20, 2, 3, 64<<10, 2
		})
		modest := c.account(t)
		s := start(t, c.trust, options(t))
		quiet := connect(t, s, user(t, modest, 0))
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()

		violations := make(chan error, 10)
		nc := connect(t, s, user(t, greedy, 0), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { violations <- err }))
		js := must(jetstream.New(nc))(t)
		for i := range 2 {
			if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: fmt.Sprintf("S%d", i), Subjects: []string{fmt.Sprintf("s%d.>", i)}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S2", Subjects: []string{"s2.>"}}); err == nil {
			t.Error("a third stream was created, limit 2")
		}
		stored := 0
		for ; stored < 100; stored++ {
			if _, err := js.Publish(ctx, "s0.x", make([]byte, 32<<10)); err != nil {
				break
			}
		}
		if stored == 0 || stored >= 32 {
			t.Errorf("%d messages of 32 KiB were stored, limit 1 MiB", stored)
		}
		if err := nc.Publish("s0.x", make([]byte, 65<<10)); !errors.Is(err, nats.ErrMaxPayload) {
			t.Errorf("Publish over the payload limit = %v, want %v", err, nats.ErrMaxPayload)
		}
		connect(t, s, user(t, greedy, 0))
		if third, err := nats.Connect("", nats.InProcessServer(s.InProcess()), user(t, greedy, 0)); err == nil {
			third.Close()
			t.Error("a third connection was accepted, limit 2")
		}
		for i := range 4 {
			if _, err := nc.SubscribeSync(fmt.Sprint("t", i)); err != nil {
				t.Fatal(err)
			}
		}
		select {
		case err := <-violations:
			if !errors.Is(err, nats.ErrMaxSubscriptionsExceeded) {
				t.Errorf("fourth subscription: %v, want %v", err, nats.ErrMaxSubscriptionsExceeded)
			}
		case <-ctx.Done():
			t.Error("a fourth subscription was accepted, limit 3")
		}

		store(t, quiet, "Q", "q")
		if n := quiet.Stats().Reconnects; n != 0 {
			t.Errorf("the other account's client reconnected %d times", n)
		}
	})
}

func TestRefusedCredentialSaysSoAtOnce(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		c.account(t)
		s := start(t, c.trust, options(t))
		stranger := key(t, nkeys.PrefixByteAccount)
		began := time.Now()
		_, err := nats.Connect("", nats.InProcessServer(s.InProcess()), user(t, stranger, 0))
		if !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("connect with a stranger's credential = %v, want %v", err, nats.ErrAuthorization)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("refusal took %v, want well under the ten seconds of two blocked pipes", took)
		}
	})
}

func TestOpenBrokerLetsEverybodyIn(t *testing.T) {
	opts := options(t)
	opts.Open, opts.NoListen, opts.Port, opts.Transport = true, false, broker.RandomPort, broker.Plaintext()
	s := start(t, broker.Trust{}, opts)
	nc, err := nats.Connect(s.ClientURL(), nats.Timeout(time.Minute))
	if err != nil {
		t.Fatalf("connect to %q: %v", s.ClientURL(), err)
	}
	defer nc.Close()
	store(t, nc, "A", "a")
	if _, err := s.Control(t.Context(), broker.Static(nil), nil); !errors.Is(err, wire.ErrPrecondition) {
		t.Errorf("Control of an open broker = %v, want failed-precondition", err)
	}
}

func TestExpiryOnFakeTime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := newChain(t)
		acct := c.account(t)
		s, err := broker.Start(t.Context(), c.trust, options(t))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Shutdown()
		lost, reason := make(chan time.Time, 1), make(chan error, 1)
		nc, err := nats.Connect("", nats.InProcessServer(s.InProcess()), user(t, acct, 15*time.Minute), nats.NoReconnect(),
			nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { reason <- err }),
			nats.ClosedHandler(func(*nats.Conn) { lost <- time.Now() }))
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		began := time.Now()
		if got := (<-lost).Sub(began); got != 15*time.Minute {
			t.Errorf("connection with a 15 minute credential lasted %v", got)
		}
		if err := <-reason; !errors.Is(err, nats.ErrAuthExpired) {
			t.Errorf("reason = %v, want %v", err, nats.ErrAuthExpired)
		}
	})
}

func TestLogsAreBridged(t *testing.T) {
	var out bytes.Buffer
	c := newChain(t)
	opts := options(t)
	opts.Logger = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	start(t, c.trust, opts).Shutdown()
	text := out.String()
	for _, want := range []string{`msg="broker started"`, `msg="broker log" text="Starting JetStream"`, `msg="broker stopped"`} {
		if !strings.Contains(text, want) {
			t.Errorf("log lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, "_ ___") || strings.Contains(text, "nats.io/jetstream") {
		t.Errorf("log holds the banner:\n%s", text)
	}
}

func TestShutdownFreesTheAddress(t *testing.T) {
	c := newChain(t)
	opts := listening(t)
	s := start(t, c.trust, opts)
	address := strings.TrimPrefix(s.ClientURL(), "nats://")
	s.Shutdown()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("bind %q after Shutdown: %v", address, err)
	}
	_ = l.Close()
}

func write(t testing.TB, file, data string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
}

// must turns a pair of results into one that fails the test on error.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
