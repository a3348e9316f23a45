package filestore

import "testing"

// Lock takes the folder's lock as a writer does.
func Lock(t testing.TB, s *Store) (unlock func()) {
	t.Helper()
	release, err := s.exclusive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return release
}
