// Package fault holds the tests that take the machine away: kill -9 of the whole process under traffic, and a
// power cut that drops every write the disk was not told to keep. It has no code of its own. What each stream
// promises about either is stated in docs/operations.md; these tests are where the statement is checked.
package fault
