package auth_test

import (
	"testing"
	"time"

	"github.com/cotal-go/cotal/auth"
	"github.com/cotal-go/cotal/cotaltest"
	"github.com/cotal-go/cotal/wire"
)

func TestCredentialsOfALifecycle(t *testing.T) {
	t.Parallel()
	m := cotaltest.New(t, nil)
	a := m.Node().Authority()
	req := ada(m)
	first, err := a.Issue(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	second, err := a.Issue(t.Context(), auth.Request{Space: m.Space(), Actor: "ada", Renew: true, TTL: 48 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	mints, err := a.Credentials(t.Context(), m.Space(), first.Identity().UID)
	if err != nil || len(mints) != 2 {
		t.Fatalf("Credentials = %v, %v; want two", mints, err)
	}
	for i, c := range []string{first.Identity().UserKey, second.Identity().UserKey} {
		if mints[i].UserKey != c {
			t.Errorf("credential %d = %q, want %q", i, mints[i].UserKey, c)
		}
	}
	if got, want := mints[1].Expires, second.Identity().Expires; !got.Equal(want) {
		t.Errorf("the newest expires at %s, want %s", got, want)
	}
	if none, err := a.Credentials(t.Context(), m.Space(), wire.NewUID()); err != nil || len(none) != 0 {
		t.Errorf("Credentials of nobody = %v, %v; want none", none, err)
	}
}
