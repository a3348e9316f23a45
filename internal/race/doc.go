// Package race holds the test that many clients on two authorities see one order: grants, revocations, exchanges and connections
// run against each other at random, everything is recorded with its times, and afterwards one order is looked for that explains
// all of it. It has no code of its own.
package race
