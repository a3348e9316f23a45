// Package archtest holds the tests that keep the project's shape: which package may import which, where subjects are
// built, who may print and exit, what must be documented, how large things may grow, and that every requirement of
// SPEC.md names a proof that exists.
//
// Run it while you work:
//
//	go test ./internal/archtest
//
// Each test asks `go list` or parses the source, and each failure names the file and the rule. Exceptions are data in
// this package, with a reason beside each; a list may shrink at any time and grows only in review.
//
// What other packages use is [Skip] and [NotHere], the only ways to skip a test. Nothing here is linked into shipped code.
package archtest
