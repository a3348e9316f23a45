package target

import (
	"cmp"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/cotal-go/cotal/internal/cli/command"
	"github.com/cotal-go/cotal/internal/config"
)

// namedCA is the certificate file that the flags or the environment name, as an absolute path.
func namedCA(e *command.Env) string {
	file := cmp.Or(e.Flags.CA, e.Getenv(config.EnvCA))
	if file != "" && !filepath.IsAbs(file) {
		file = filepath.Join(e.Dir, file)
	}
	return file
}

// TrustCA takes up the certificate file that a sign-in names, to be remembered with it.
func (p *People) TrustCA(e *command.Env) { p.Record.CA = cmp.Or(namedCA(e), p.Record.CA) }

// HTTP asks the mesh and its identity provider, trusting what the sign-in was told to. Nil means that the system's roots will do.
//
// Errors: failed-precondition for a certificate file that cannot be read.
func (p *People) HTTP() (*http.Client, error) {
	return httpClient(cmp.Or(namedCA(p.t.env), p.Record.CA))
}

func httpClient(caFile string) (*http.Client, error) {
	tc, err := TLSConfig(caFile, "")
	if err != nil || tc == nil {
		return nil, err
	}
	tr := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: tc, ForceAttemptHTTP2: true}
	return &http.Client{Transport: tr}, nil
}

// Unverified adds to an error about the certificate of another side what names a private authority.
func Unverified(err error) error {
	if !unverified(err) {
		return err
	}
	return command.Hint(err, "a mesh behind an authority of its own: cotal login https://<mesh> --ca <file of its certificates>")
}

// unverified reports whether err is about a certificate that nobody who is trusted has signed. The system's own verifier has words of its own.
func unverified(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "certificate signed by unknown authority") || strings.Contains(text, "certificate is not trusted")
}
