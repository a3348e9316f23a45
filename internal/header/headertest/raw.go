// Package headertest publishes header blocks as no ordinary client writes them, for tests of what the readers of stored
// messages make of them. A [Conn] is for one goroutine.
package headertest

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// Credential answers the broker's challenge.
type Credential interface {
	JWT() string
	Sign(nonce []byte) ([]byte, error)
}

// Conn speaks the client protocol by hand.
type Conn struct {
	conn net.Conn
	r    *bufio.Reader
}

// Dial connects in process; a nil credential is for a broker that asks for none. The connection ends with the test.
func Dial(tb testing.TB, p nats.InProcessConnProvider, c Credential) *Conn {
	tb.Helper()
	conn, err := p.InProcessConn()
	if err != nil {
		tb.Fatalf("dial broker: %v", err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // nothing is left to send
	raw := &Conn{conn: conn, r: bufio.NewReader(conn)}
	hello := map[string]any{"verbose": false, "pedantic": false, "headers": true, "protocol": 1}
	var info struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(raw.line(tb), "INFO ")), &info); err != nil {
		tb.Fatalf("read broker's INFO: %v", err)
	}
	if c != nil {
		sig, err := c.Sign([]byte(info.Nonce))
		if err != nil {
			tb.Fatalf("sign nonce: %v", err)
		}
		hello["jwt"], hello["sig"] = c.JWT(), base64.RawURLEncoding.EncodeToString(sig)
	}
	body, err := json.Marshal(hello)
	if err != nil {
		tb.Fatal(err)
	}
	raw.write(tb, fmt.Sprintf("CONNECT %s\r\n", body))
	raw.flush(tb)
	return raw
}

// Publish sends a message with the header block as it is, none when it is empty. When it returns, the broker has taken
// the message, before whatever is published later.
func (c *Conn) Publish(tb testing.TB, subject, block string, body []byte) {
	tb.Helper()
	if block == "" {
		c.write(tb, fmt.Sprintf("PUB %s %d\r\n%s\r\n", subject, len(body), body))
	} else {
		c.write(tb, fmt.Sprintf("HPUB %s %d %d\r\n%s%s\r\n", subject, len(block), len(block)+len(body), block, body))
	}
	c.flush(tb)
}

// flush waits for the broker's answer to a ping, and fails the test when it refuses something.
func (c *Conn) flush(tb testing.TB) {
	tb.Helper()
	c.write(tb, "PING\r\n")
	for {
		switch line := c.line(tb); {
		case strings.HasPrefix(line, "PONG"):
			return
		case strings.HasPrefix(line, "-ERR"):
			tb.Fatalf("the broker refuses: %s", line)
		case strings.HasPrefix(line, "PING"):
			c.write(tb, "PONG\r\n")
		}
	}
}

func (c *Conn) line(tb testing.TB) string {
	tb.Helper()
	line, err := c.r.ReadString('\n')
	if err != nil {
		tb.Fatalf("read from broker: %v", err)
	}
	return line
}

func (c *Conn) write(tb testing.TB, s string) {
	tb.Helper()
	if _, err := io.WriteString(c.conn, s); err != nil {
		tb.Fatalf("write to broker: %v", err)
	}
}
