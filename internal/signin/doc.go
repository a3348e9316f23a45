// Package signin holds what signing in does from end to end: real identity providers, a real mesh, the real client. It holds
// tests only.
package signin
