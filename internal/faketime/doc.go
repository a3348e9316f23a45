// Package faketime runs tests in bubbles of testing/synctest, where all time is fake. Tests use [Test] in place of
// synctest.Test: under the race detector the runtime crashes there now and then.
package faketime
