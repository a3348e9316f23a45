// Package bench measures the mesh beside the same work written directly on nats.go, in one run on one broker.
//
// Each case has two bodies. One uses our packages as an application would. The other speaks the same contract with
// nats.go, encoding/json and nothing else: the same subjects, permissions, streams and message shape, without our
// checks. Rounds of the two alternate, so that both meet the same state of the machine; a figure is the median of its
// rounds, and the ratio compares the medians. The package decides nothing: a figure is a measurement of this machine
// under its load, which the report states.
package bench
