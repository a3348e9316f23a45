package broker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cotal-go/cotal/broker"
)

// BenchmarkStart is a whole start on an empty store with one account, and the shutdown.
func BenchmarkStart(b *testing.B) {
	c := newChain(b)
	c.account(b)
	for b.Loop() {
		b.StopTimer()
		opts := options(b)
		b.StartTimer()
		s, err := broker.Start(context.Background(), c.trust, opts)
		if err != nil {
			b.Fatal(err)
		}
		s.Shutdown()
	}
}

// BenchmarkFirstMessage is from nothing to the first stored message in a file stream.
func BenchmarkFirstMessage(b *testing.B) {
	c := newChain(b)
	acct := c.account(b)
	who := user(b, acct, 0)
	for b.Loop() {
		b.StopTimer()
		opts := options(b)
		b.StartTimer()
		s, err := broker.Start(context.Background(), c.trust, opts)
		if err != nil {
			b.Fatal(err)
		}
		nc, err := nats.Connect("", nats.InProcessServer(s.InProcess()), who)
		if err != nil {
			b.Fatal(err)
		}
		store(b, nc, "A", "a")
		b.StopTimer()
		nc.Close()
		s.Shutdown()
		b.StartTimer()
	}
}

// BenchmarkRequest is a request between two connections of each kind.
func BenchmarkRequest(b *testing.B) {
	c := newChain(b)
	acct := c.account(b)
	opts := options(b)
	opts.NoListen, opts.Port, opts.Transport = false, broker.RandomPort, broker.Plaintext()
	s := start(b, c.trust, opts)
	for name, opt := range map[string]nats.Option{"in_process": nats.InProcessServer(s.InProcess()), "tcp": nats.Name("tcp")} {
		b.Run(name, func(b *testing.B) {
			server, err := nats.Connect(s.ClientURL(), opt, user(b, acct, 0))
			if err != nil {
				b.Fatal(err)
			}
			defer server.Close()
			client, err := nats.Connect(s.ClientURL(), opt, user(b, acct, 0))
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			if _, err := server.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
				b.Fatal(err)
			}
			if err := server.Flush(); err != nil {
				b.Fatal(err)
			}
			body := make([]byte, 256)
			for b.Loop() {
				if _, err := client.Request("echo", body, time.Second); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPutAccount is a push with its read-back.
func BenchmarkPutAccount(b *testing.B) {
	c := newChain(b)
	acct := c.account(b)
	s := start(b, c.trust, options(b))
	ctl := control(b, s, broker.Static(c.systemUser(b, time.Hour)))
	for b.Loop() {
		b.StopTimer()
		token := c.claim(b, acct)
		b.StartTimer()
		if err := ctl.PutAccount(context.Background(), public(b, acct), token); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkIdleMemory reports the resident memory of a fresh process that runs nothing but an idle broker with one account.
func BenchmarkIdleMemory(b *testing.B) {
	dir := b.TempDir()
	c := newChain(b)
	c.account(b)
	data, err := json.Marshal(c.trust)
	if err != nil {
		b.Fatal(err)
	}
	write(b, filepath.Join(dir, "trust.json"), string(data))
	var kib float64
	for b.Loop() {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), idleEnv+"="+dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			b.Fatal(err)
		}
		if kib, err = strconv.ParseFloat(string(out), 64); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(kib/1024, "MiB-rss")
}

// idle runs a broker on dir for a moment and prints the resident memory of this process in KiB.
func idle(dir string) int {
	fail := func(err error) int {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	data, err := os.ReadFile(filepath.Join(dir, "trust.json"))
	if err != nil {
		return fail(err)
	}
	var trust broker.Trust
	if err := json.Unmarshal(data, &trust); err != nil {
		return fail(err)
	}
	opts := &broker.Options{StoreDir: filepath.Join(dir, "store"), Port: broker.RandomPort, Transport: broker.Plaintext(), MaxStore: 1 << 30}
	s, err := broker.Start(context.Background(), trust, opts)
	if err != nil {
		return fail(err)
	}
	defer s.Shutdown()
	_, _ = io.WriteString(os.Stdout, strconv.Itoa(resident()/1024))
	return 0
}

// resident is the resident memory of this process in bytes; where /proc is not there, what the runtime took from the system.
func resident() int {
	var pages, rss int
	if f, err := os.Open("/proc/self/statm"); err == nil {
		defer func() { _ = f.Close() }()
		if _, err := fmt.Fscan(f, &pages, &rss); err == nil {
			return rss * os.Getpagesize()
		}
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.Sys)
}
