// Package script is the agent without a model: it follows a small closed script, and shows what agents do without any key.
//
// Start with [Parse] on the text of an agent file and run the result with [Run] on an endpoint that has joined the space. The script
// stands between the lines ```script and ```, one statement a line; # begins a comment:
//
//	say <channel> <text>           post to a channel
//	status <status> [activity]     be idle, working or waiting
//	wait <duration>                such as 2s
//	print <text>                   write to the terminal
//	spawn <persona>                start an agent
//	exit <code>                    end with this code, 0 to 125
//	on dm <statement>              for each direct message
//	on mention <statement>         for each message that mentions the agent
//	on role <statement>            for each message to its role
//	on channel <name> <statement>  for each message in a channel that it joined
//	reply <text>                   after "on": answer the message where it came from
//
// In a text {text} is what the message says and {from} is who sent it, {name} the agent. Statements run one after the other from the
// start; those after "on" run for each message, in the order of the script. Without a script the agent greets in general and echoes.
//
// It promises that two scripts never talk to each other for ever: what is itself an answer is not replied to. What it does, and every line
// that it hears, it writes to its terminal, without any character that acts on one. A statement that fails is told there and does not
// end it. A line typed into the terminal is posted to the first channel that it joined.
//
// It does not stop by itself: the end of the script leaves it present. Run owns every goroutine that it starts, but for the one that
// reads the terminal, which ends with its next line.
package script
