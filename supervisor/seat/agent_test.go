//go:build linux || darwin

package seat_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/cotal-go/cotal/supervisor/seat"
	"github.com/cotal-go/cotal/wire"
)

// agent is what the test binary does as a process below a seat, or as one that starts seats.
func agent(what string, args []string) int {
	switch what {
	case "deaf": // lives on whatever it is told
		signal.Ignore(syscall.SIGHUP, syscall.SIGTERM, syscall.SIGINT)
		fmt.Println("deaf", os.Getpid())
		select {}
	case "parent": // starts a deaf grandchild in a session of its own, and ends when a line is typed
		child := exec.Command(os.Args[0], "agent", "deaf")
		child.Stdout, child.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
		if err := child.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return 7
	case "flood": // writes many bytes, then waits
		n, _ := strconv.Atoi(args[0])
		w := bufio.NewWriterSize(os.Stdout, 64<<10)
		for i, wrote := 0, 0; wrote < n; i++ {
			k, err := fmt.Fprintf(w, "\x1b[3%dmline %d\x1b[0m 漢字 e\u0301 %s\r\n", i%8, i, strings.Repeat("x", i%50))
			if err != nil {
				return 1
			}
			wrote += k
		}
		_, _ = w.WriteString("\x1b[2J\x1b[H\x1b[7mthe end\x1b[0m\r\n")
		_ = w.Flush()
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		return 0
	case "starter": // starts a seat and ends at once
		c, err := seat.Start(context.Background(), seat.StartOptions{
			Program: os.Args[0], Args: []string{"seat"}, Dir: args[0],
			Spec: seat.Spec{ID: wire.UID(args[1]), Space: "lab", Principal: "local.ada", Argv: []string{"cat"}, Env: environment(), Dir: "/"},
		})
		if err != nil {
			fmt.Println(err)
			return 1
		}
		_ = c.Close()
		return 0
	case "pinner": // makes the terminal tiny, and would make it large again
		c, err := seat.Open(context.Background(), args[0])
		if err == nil {
			err = c.Resize(context.Background(), 10, 3)
		}
		fmt.Println("pinned", err)
		select {}
	}
	fmt.Fprintln(os.Stderr, "no agent", what, args)
	return 99
}
