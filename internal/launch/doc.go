// Package launch is the launch file: what the process of an agent is told by the supervisor that started it.
//
// The supervisor writes the file with [Write] beside the agent's other files and names its path in the environment variable [Env].
// The agent's own programs, among them every cotal command of its shell, read it with [Read] and act as that agent.
//
// It promises that a file which others than its owner could read or have written is refused, that a file is either whole or not
// there, that unknown fields are errors, and that nothing of it prints the secret of an agent, whatever the verb. It does not
// connect, and does not look into the files that it names. It keeps nothing; everything is safe for concurrent use, and several
// writers of one path leave what the last one wrote.
package launch
